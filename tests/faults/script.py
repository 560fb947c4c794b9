"""A run as a list of steps: drawn from a seed, made smaller, kept as JSON, printed.

A step's numbers mean something only where it is carried out: an offset is so and so far into the
log as it is then. So a script stays a script whatever steps are taken out of it.
"""

from __future__ import annotations

import dataclasses
import errno
import json
from random import Random
from typing import NamedTuple

from tests.faults.stretches import STRETCHES

NUMBER_MAX = 1 << 20
STEPS = (12, 60)
FOR_EVER = 1 << 40


class Fault(NamedTuple):
    """Calls of `kind` on paths with `path` in them fail: the nth of the step and `times` in all.

    cause: an errno; 0: pwritev and pread take at most `bytes_max` bytes. steps: for how many steps
    it lasts, from its own on; each of them begins to count anew.
    """

    kind: str
    cause: int
    nth: int = 1
    times: int = 1
    path: str = ""
    bytes_max: int = 0
    steps: int = 1

    def __str__(self) -> str:
        what = errno.errorcode[self.cause] if self.cause else f"{self.bytes_max} bytes"
        where = f" of {self.path}" if self.path else ""
        which = f" {self.nth}" + (f" and {self.times - 1} more" if self.times > 1 else "")
        lasting = f", for {self.steps} steps" if self.steps > 1 else ""
        return f"{self.kind}{where}{which}: {what}{lasting}"


class Step(NamedTuple):
    """One operation, and what fails in it."""

    verb: str
    numbers: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        struck = "".join(f"  [{fault}]" for fault in self.faults)
        return f"{self.verb} {' '.join(map(str, self.numbers))}{struck}"


@dataclasses.dataclass(frozen=True)
class Script:
    """options: what the logs are opened with, drawn as names and numbers."""

    options: dict[str, int | str]
    steps: tuple[Step, ...]

    def to_json(self) -> str:
        return json.dumps({"options": self.options, "steps": self.steps})

    @classmethod
    def from_json(cls, text: str) -> Script:
        found = json.loads(text)
        steps = tuple(
            Step(verb, tuple(numbers), tuple(Fault(*fault) for fault in faults))
            for verb, numbers, faults in found["steps"]
        )
        return cls(found["options"], steps)

    def __str__(self) -> str:
        lines = [f"options: {self.options}"]
        lines += [f"{number:3} {step}" for number, step in enumerate(self.steps)]
        return "\n".join(lines)


# How often each is drawn, and which calls it makes: most faults are of these.
WEIGHTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "append": (14, ("pwritev", "open", "fdatasync", "ftruncate", "mmap", "fsync_dir")),
    "append_much": (3, ("pwritev", "open", "fdatasync", "ftruncate", "mmap")),
    "append_as_leader": (6, ("pwritev", "open", "fdatasync", "ftruncate", "rename", "fsync_dir")),
    "append_as_producer": (8, ("pwritev", "open", "fdatasync", "ftruncate", "mmap")),
    "repeat": (2, ("pwritev", "open")),
    "end_transaction": (6, ("pwritev", "open", "fdatasync", "ftruncate", "mmap")),
    "append_as_follower": (7, ("pwritev", "open", "fdatasync", "ftruncate", "rename")),
    "append_older": (1, ("open",)),
    "roll": (9, ("pwritev", "open", "fdatasync", "mmap", "rename", "unlink", "ftruncate")),
    "flush": (7, ("fdatasync", "fsync_dir", "open", "pwritev", "rename")),
    "commit": (3, ("fdatasync", "fsync_dir", "open")),
    "checkpoint": (5, ("fdatasync", "fsync_dir", "open", "pwritev", "rename")),
    "truncate_to": (
        9,
        ("ftruncate", "fdatasync", "fsync_dir", "open", "pwritev", "rename", "mmap"),
    ),
    "truncate_fully": (4, ("fdatasync", "fsync_dir", "open", "pwritev", "rename", "unlink")),
    "delete_records": (5, ("fdatasync", "fsync_dir", "open", "pwritev", "rename")),
    "retention": (7, ("fdatasync", "fsync_dir", "open", "pwritev", "rename", "unlink")),
    "assign_epoch": (5, ("fdatasync", "fsync_dir", "open", "pwritev", "rename")),
    "set_high_watermark": (3, ("open",)),
    "hold": (5, ("open", "mmap", "fstat")),
    "release": (1, ("open",)),
    "read": (4, ("open", "mmap", "fstat", "pread")),
    "records": (3, ("open", "mmap", "fstat", "pread")),
    "find_timestamp": (3, ("open", "mmap", "fstat", "pread")),
    "aborted": (2, ("open", "mmap", "fstat", "pread", "pwritev")),
    "wait": (3, ("open",)),
}
OF_A_DIRECTORY: dict[str, tuple[int, tuple[str, ...]]] = {
    "create": (6, ("mkdir", "open", "pwritev", "fdatasync", "rename", "fsync_dir")),
    "delete": (3, ("rename", "fsync_dir", "open", "pwritev", "fdatasync")),
    "remove_deleted": (3, ("unlink", "rmdir")),
    "persist_all": (4, ("fdatasync", "fsync_dir", "open", "pwritev", "rename")),
}
STOPS: dict[str, tuple[int, tuple[str, ...]]] = {
    "close": (4, ("fdatasync", "fsync_dir", "open", "pwritev", "rename", "unlink")),
    "kill": (5, ("open",)),
    "power": (4, ("open",)),
    "open": (4, ("open", "mmap", "fstat", "pread", "pwritev", "unlink", "rename", "fdatasync")),
}
CALLS = {
    **{verb: calls for verb, (_, calls) in WEIGHTS.items()},
    **{verb: calls for verb, (_, calls) in OF_A_DIRECTORY.items()},
    **{verb: calls for verb, (_, calls) in STOPS.items()},
}
ANY_CALL = (
    "open", "pwritev", "pread", "mmap", "fstat", "fdatasync", "ftruncate", "mkdir", "rename",
    "unlink", "rmdir", "fsync_dir",
)  # fmt: skip
SPACE = (errno.ENOSPC, errno.ENOSPC, errno.EDQUOT)
FEW = (errno.EMFILE, errno.ENFILE)
CAUSES = {
    "open": (*SPACE, *FEW, *FEW, errno.EIO, errno.EINTR),
    "pwritev": (*SPACE, *SPACE, errno.EFBIG, errno.EIO, errno.EINTR),
    "pread": (errno.EIO, errno.EINTR),
    "mmap": (errno.ENOMEM, errno.EMFILE),
    "fstat": (errno.EIO, errno.ENOMEM),
    "fdatasync": (errno.EIO, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR),
    "ftruncate": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "mkdir": (*SPACE, errno.EIO),
    "rename": (*SPACE, errno.EIO, errno.EIO),
    "unlink": (errno.EIO, errno.EROFS),
    "rmdir": (errno.EIO,),
    "fsync_dir": (errno.EIO, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOSPC),
}
PATHS = {
    "open": ("", "", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", "checkpoint"),
    "pwritev": ("", "", ".log", ".log", ".index", ".txnindex", ".snapshot", "checkpoint"),
    "fdatasync": ("", ".log", ".index", "checkpoint", ".timeindex"),
    "rename": ("", "", ".log", ".index", ".timeindex", "checkpoint"),
    "ftruncate": ("", ".log", ".index"),
}


def draw(seed: int) -> Script:
    random = Random(seed)
    options = draw_options(random)
    table = {**WEIGHTS, **STOPS}
    if options["kind"] == "directory":
        table |= OF_A_DIRECTORY
    verbs = random.choices(
        list(table), [weight for weight, _ in table.values()], k=random.randint(*STEPS)
    )
    # Some runs are full of faults, others have one or two in a long life.
    share = random.choice((0.08, 0.3, 0.5, 0.7))
    steps = [draw_step(random, "append_as_leader", 0.0), draw_step(random, "append", 0.0)]
    steps += [draw_step(random, verb, share) for verb in verbs]
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        at = random.randrange(2, len(steps) + 1)
        steps[at:at] = draw_stretch(random)
    return Script(options, tuple(steps))


def draw_options(random: Random) -> dict[str, int | str]:
    return {
        "kind": random.choice(("bare", "bare", "bare", "directory")),
        "segment_bytes": random.choice((400, 700, 1100, 2500)),
        "index_interval_bytes": random.choice((0, 100, 150, 400)),
        "segment_index_bytes": random.choice((40, 4096)),
        "flush_mode": random.choice(("os", "os", "os", "commit")),
        "flush_messages": random.choice((1 << 62, 1 << 62, 10)),
        "retention_bytes": random.choice((-1, 600, 1500)),
        "retention_ms": random.choice((-1, 400)),
        "file_delete_delay_ms": random.choice((0, 300)),
        "cleanup_policy": random.choice(("delete", "delete", "delete", "compact,delete")),
        "descriptors": random.choice((2048, 2048, 3, 8)),
    }


def draw_step(random: Random, verb: str, share: float) -> Step:
    numbers = tuple(random.randrange(NUMBER_MAX) for _ in range(4))
    faults: tuple[Fault, ...] = ()
    if random.random() < share:
        faults = tuple(draw_fault(random, verb) for _ in range(random.choice((1, 1, 1, 2, 3))))
    return Step(verb, numbers, faults)


def draw_stretch(random: Random) -> list[Step]:
    """All of one partition, which a step's last number chooses."""
    partition = random.randrange(NUMBER_MAX)
    steps = []
    for verb, blow in random.choice(STRETCHES):
        step = draw_step(random, verb, 0.0)
        faults: tuple[Fault, ...] = ()
        if blow is not None:
            cause = random.choice(blow.causes)
            faults = (Fault(blow.kind, cause, times=FOR_EVER, path=blow.path),)
        steps.append(Step(verb, (*step.numbers[:-1], partition), faults))
    return steps


def draw_fault(random: Random, verb: str) -> Fault:
    kind = random.choice(CALLS[verb] if random.random() < 0.85 else ANY_CALL)
    path = random.choice(PATHS.get(kind, ("",)))
    nth = 1 if path else random.choice((1, 1, 1, 2, 2, 3, 4, 6))
    if kind in ("pwritev", "pread") and random.random() < 0.2:
        taken = random.choice((1, 20, 61, 100))
        return Fault(kind, 0, nth, random.choice((1, 1, FOR_EVER)), path, taken)
    cause = random.choice(CAUSES[kind])
    if cause == errno.EINTR:
        return Fault(kind, cause, nth, random.choice((1, 2)), path)
    times = random.choice((1, 1, 2, FOR_EVER))
    return Fault(kind, cause, nth, times, path, 0, random.choice((1, 1, 1, 1, 3, 6)))
