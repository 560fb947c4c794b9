"""Power fails behind each system call of a log's life: recovery must be right in every state left.

`make test` tries a share of the states, REPLOG_CRASH_STATES=all (`make crash`) every one: at least
20,000 distinct ones, at least 500 for each operation.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from replog._native import recorded_calls
from replog._native.recorded_calls import RecordedCall
from replog.config import LogConfig
from tests.crash.checker import booted, open_log, recover, write_image
from tests.crash.disk_model import DiskModel, Image, digest_of, torn
from tests.crash.enumerator import Enumerator
from tests.crash.scripts import (
    churn,
    committing,
    everyday,
    full_disks,
    holes,
    several_segments,
    transactions,
    views,
)
from tests.crash.workload import (
    COMMIT,
    CONFIG,
    Expectation,
    Recording,
    Workload,
    batches_of,
)

EVERY_STATE = os.environ.get("REPLOG_CRASH_STATES") == "all"
SHARE = 1 if EVERY_STATE else 16
SCRIPTS = [
    (everyday, 1, CONFIG),
    (churn, 1, CONFIG),
    (churn, 3, CONFIG),
    (transactions, 1, CONFIG),
    (holes, 1, CONFIG),
    (committing, 1, COMMIT),
    (views, 1, CONFIG),
    (views, 2, COMMIT),
    (several_segments, 1, CONFIG),
    (full_disks, 1, CONFIG),
    (full_disks, 2, COMMIT),
]
OPERATIONS = {"append", "roll", "flush", "truncate", "retention", "checkpoint", "recover"}
STATES_MIN = 20_000 if EVERY_STATE else 1_000
STATES_OF_OPERATION_MIN = 500 if EVERY_STATE else 10

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def memory_folder() -> Iterator[Path]:
    """A folder in memory, where there is one: thousands of logs are written and opened."""
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    yield Path(folder)
    shutil.rmtree(folder)


def partition(folder: Path, name: str) -> str:
    path = folder / name / "t-0"
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def record_recovery(directory: str, image: Image, expectation: Expectation) -> Recording:
    """The calls of opening what a crash left; the same must hold behind each as before."""
    write_image(directory, image)
    recorded_calls.install()
    try:
        recorded_calls.record()
        with booted("the one that recovers"):
            log = open_log(directory, CONFIG)
        calls = recorded_calls.recorded()
        log.close(flush=False)
    finally:
        recorded_calls.uninstall()
    recovering = Expectation("recover", *list(vars(expectation).values())[1:])
    return Recording(directory, calls, [recovering], image)


def test_every_crash_state_recovers_to_a_prefix_with_all_that_was_synced(
    memory_folder: Path,
) -> None:
    live = partition(memory_folder, "live")
    enumerator = Enumerator(partition(memory_folder, "crashed"), CONFIG, share=SHARE)
    for script, seed, config in SCRIPTS:
        enumerator.walk(Workload(live, seed, config).record(script))
    for image, expectation in enumerator.torn_images[:: 1 if SHARE > 1 else 4]:
        enumerator.walk(record_recovery(live, image, expectation))
    assert not enumerator.failures, "\n".join(map(str, enumerator.failures))
    states = enumerator.states_of_step
    assert sum(states.values()) >= STATES_MIN, states
    assert min(states[operation] for operation in OPERATIONS) >= STATES_OF_OPERATION_MIN, states


@pytest.mark.parametrize(("script", "seed", "config"), SCRIPTS, ids=lambda found: str(found)[:20])
def test_a_process_that_dies_loses_no_batch_that_it_wrote(
    memory_folder: Path, script: Callable[[Workload], None], seed: int, config: LogConfig
) -> None:
    """Behind each call, and within each write: what the kernel took is there, and opens."""
    crashed = partition(memory_folder, "crashed")
    recording = Workload(partition(memory_folder, "live"), seed, config).record(script)
    model = DiskModel(recording.directory)
    random = Random(1)
    tried = set()
    for call, expectation in recording.steps():
        model.apply(call)
        states = [model.pending]
        if call.kind == "pwritev" and model.pending and model.pending[-1].write:
            short = next(torn(model.pending[-1], random))
            states.append([*model.pending[:-1], short])
        for survivors in states:
            image = model.image(survivors)
            # Names that retention or a cut takes away go one by one: any prefix of that is there.
            if (digest := digest_of(image)) in tried:
                continue
            tried.add(digest)
            outcome = recover(crashed, image, CONFIG, boot_id=None)
            assert outcome.problem is None, (expectation.step, call.kind, call.path)
            whole = [
                b
                for b in batches_of(image)
                if len(b.content) == 12 + int.from_bytes(b.content[8:12], "big")
            ]
            assert list(outcome.batches) == whole, (expectation.step, call.kind, call.path)
    assert len(tried) > 100


def file_kind(call: RecordedCall) -> str:
    """What a path names, less its numbers: `.log`, `.index`, `recovery-point-offset-checkpoint`."""
    name = os.path.basename(call.path).removesuffix(".tmp")
    return name.lstrip("0123456789") if name[:1].isdigit() else name


def sync_sites(recording: Recording, steps: set[str] | None = None) -> list[str]:
    """For each call of the recording, which sync of the engine it is; "" for other calls.

    steps: those of these operations alone, each operation's apart.
    A sync of a file is told by what the file is, one of the directory by what went before it.
    """
    sites = []
    before: RecordedCall | None = None
    for call, expectation in recording.steps():
        site = ""
        if call.kind == "fdatasync":
            site = f"fdatasync of {file_kind(call)}"
        elif call.kind == "fsync_dir" and before is not None:
            site = f"fsync_dir after {before.kind}"
            if before.kind == "unlink":
                site += f" of {file_kind(before)}"
            elif before.kind == "rename":
                site += " of a retired segment" if call_retires(before) else " of a replaced file"
        if steps is not None and site:
            # What replaces a file is the same code in each operation: `everyday` has it.
            told = expectation.step in steps and " of a replaced file" not in site
            site = f"{site} in {expectation.step}" if told and ".tmp" not in call.path else ""
        sites.append(site)
        if call.kind not in {"close", "mark"}:
            before = call
    return sites


def call_retires(call: RecordedCall) -> bool:
    return call.to.endswith(".deleted")


@pytest.mark.parametrize(
    ("script", "config", "steps"),
    [
        (everyday, CONFIG, None),
        # The empty batch that fills a hole is synced by the append or the roll that writes it.
        (holes, CONFIG, {"append", "roll"}),
        (committing, COMMIT, {"append"}),
    ],
    ids=["everyday", "holes", "committing"],
)
def test_each_kind_of_sync_is_needed(
    memory_folder: Path,
    script: Callable[[Workload], None],
    config: LogConfig,
    steps: set[str] | None,
) -> None:
    """Leave out all syncs of one kind, in some operations: a crash state must then be wrong."""
    recording = Workload(partition(memory_folder, "live"), 1, config).record(script)
    sites = sync_sites(recording, steps)
    assert any(sites)
    enumerator = Enumerator(partition(memory_folder, "crashed"), CONFIG, sample_count=2)
    missed = []
    for left_out in sorted(set(filter(None, sites))):
        enumerator.failures.clear()
        numbers = {number for number, site in enumerate(sites) if site == left_out}
        enumerator.walk(recording, left_out=numbers, failures_max=1)
        if not enumerator.failures:
            missed.append(left_out)
    assert not missed, missed
