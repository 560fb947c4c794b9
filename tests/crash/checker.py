"""Recovers crash images with the real code, and judges what came out.

The judge keeps its own account: it parses the batches itself, derives epochs, producers and index
answers from them, and never asks the log what would be right.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from replog.config import LogConfig
from replog.errors import InvariantViolation, ReplogError
from replog.storage import open_mark
from replog.storage.partition_log import PartitionLog
from tests.crash.disk_model import Image
from tests.crash.workload import (
    NOW_MS,
    Batch,
    Expectation,
    Version,
    batches_of,
    files_of,
    missed_timestamps,
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What opening the directory gave; `problem` is a sentence if it is wrong by itself."""

    problem: str | None
    start_offset: int = -1
    end_offset: int = -1
    batches: tuple[Batch, ...] = ()
    missed: frozenset[int] = frozenset()


def write_image(directory: str, image: Image) -> None:
    """Make the directory hold exactly these files; a name that ends in "/" is a directory."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    for name, content in image.items():
        if name.endswith("/"):
            os.mkdir(os.path.join(directory, name))
            continue
        fd = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT)
        if content:
            os.write(fd, content)
        os.close(fd)


def open_log(directory: str, config: LogConfig) -> Any:
    return PartitionLog.open(directory, config, now_ms=lambda: NOW_MS)


@contextlib.contextmanager
def booted(boot_id: str | Callable[[], str] | None) -> Iterator[None]:
    """What happens inside is in another boot of the machine; None: in the one that goes on."""
    real = open_mark.boot_id
    if boot_id is not None:
        open_mark.boot_id = boot_id if callable(boot_id) else lambda: boot_id
    try:
        yield
    finally:
        open_mark.boot_id = real


def recover(
    directory: str, image: Image, config: LogConfig, boot_id: str | None = "the next one"
) -> Outcome:
    """Open what a crash left, look at all of it, stop without closing, and open it again.

    The crash was one of the machine, which is up again, or (boot_id None) of the process alone.
    """
    write_image(directory, image)
    try:
        with booted(boot_id):
            first = look(directory, config)
            # Whatever the first one was: if it ends so, only a process did.
            second = look(directory, config) if first.problem is None else first
    except (ReplogError, InvariantViolation, OSError) as error:
        return Outcome(f"{type(error).__name__}: {error}")
    # The second one may have remade an index that the first one found as a truncation left it.
    if (
        not second.missed <= first.missed
        or dataclasses.replace(second, missed=first.missed) != first
    ):
        return Outcome(
            f"a second recovery differs: [{first.start_offset}, {first.end_offset}),"
            f" {first.problem}, then [{second.start_offset}, {second.end_offset}), {second.problem}"
        )
    return first


def look(directory: str, config: LogConfig) -> Outcome:
    log = open_log(directory, config)
    try:
        return examine(log)
    finally:
        log.close(flush=False)


def examine(log: Any) -> Outcome:
    """What an open log holds, and what is wrong with it."""
    batches = batches_of(files_of(log.path))
    start, end = log.log_start_offset, log.log_end_offset
    problem = (
        wrong_bytes(log, batches)
        or wrong_epochs(log, batches)
        or wrong_producers(log, batches)
        or wrong_transactions(log, batches)
        or wrong_indexes(log, batches)
    )
    return Outcome(problem, start, end, batches, missed_timestamps(log, batches))


def readable(log: Any, batches: tuple[Batch, ...]) -> list[Batch]:
    return [batch for batch in batches if batch.last_offset >= log.log_start_offset]


def wrong_bytes(log: Any, batches: tuple[Batch, ...]) -> str | None:
    """Reading from the start gives every batch, and the log ends behind the last."""
    parts = []
    offset = log.log_start_offset
    while True:
        piece = log.read(offset, 1 << 20)
        if not piece.size_bytes:
            break
        parts.append(bytes(memoryview(piece)))
        offset = piece.end_offset
    wanted = b"".join(batch.content for batch in readable(log, batches))
    if b"".join(parts) != wanted:
        return f"read {sum(map(len, parts))} bytes of the {len(wanted)} in the files"
    end = batches[-1].last_offset + 1 if batches else log.log_start_offset
    if log.log_end_offset < end:
        return f"the log ends at {log.log_end_offset}, its batches at {end}"
    return None


def wrong_epochs(log: Any, batches: tuple[Batch, ...]) -> str | None:
    """The epoch cache holds what the batches say, cut at the log start."""
    start = log.log_start_offset
    wanted: list[tuple[int, int]] = []
    for batch in batches:
        if not wanted or batch.leader_epoch > wanted[-1][0]:
            wanted.append((batch.leader_epoch, batch.base_offset))
    below = [entry for entry in wanted if entry[1] <= start]
    kept = [(below[-1][0], start)] if below else []
    kept += [entry for entry in wanted if entry[1] > start]
    # An entry at the log end has no records yet; it says nothing false.
    end = log.log_end_offset
    found = [entry for entry in log.epochs if entry[1] < end]
    if found != [entry for entry in kept if entry[1] < end]:
        return f"epochs {log.epochs}, the batches say {kept}"
    return None


def wrong_producers(log: Any, batches: tuple[Batch, ...]) -> str | None:
    """Each producer with a batch in the log is known with its last sequence."""
    wanted = {
        batch.producer_id: batch.last_sequence
        for batch in readable(log, batches)
        if batch.producer_id >= 0 and not batch.ends_transaction
    }
    found = {entry.producer_id: entry.last_sequence for entry in log.producer_entries}
    if any(found.get(producer) != sequence for producer, sequence in wanted.items()):
        return f"producers {found}, the batches say {wanted}"
    return None


def wrong_transactions(log: Any, batches: tuple[Batch, ...]) -> str | None:
    """Each aborted transaction that begins in the log is in the index of its marker's segment."""
    opened: dict[int, int] = {}
    wanted = []
    for batch in readable(log, batches):
        if batch.transactional and not batch.ends_transaction:
            opened.setdefault(batch.producer_id, batch.base_offset)
        elif batch.ends_transaction:
            first = opened.pop(batch.producer_id, None)
            if batch.aborts and first is not None:
                wanted.append((batch.producer_id, first, batch.last_offset))
    entries = [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for segment in log.segments
        for entry in segment.transaction_index.entries()
    ]
    found = [entry for entry in entries if entry[1] >= log.log_start_offset]
    if found != wanted:
        return f"aborted transactions {found}, the batches say {wanted}"
    undecided = min(opened.values(), default=log.log_end_offset)
    if log.last_stable_offset != undecided:
        return f"the last stable offset is {log.last_stable_offset}, the batches say {undecided}"
    return None


def wrong_indexes(log: Any, batches: tuple[Batch, ...]) -> str | None:
    """Each index entry is true of the batches."""
    last_offsets = {batch.last_offset for batch in batches}
    for segment in log.segments:
        inside = [b for b in batches if b.base_offset >= segment.base_offset]
        position, places = 0, {}
        for batch in inside:
            places[batch.last_offset] = position
            position += len(batch.content)
        for offset, position in segment.offset_index.entries().tolist():
            if places.get(offset) != position:
                return f"index entry {(offset, position)} of segment {segment.base_offset} is false"
        for _, offset in segment.time_index.entries().tolist():
            if offset not in last_offsets:
                return f"time entry for {offset} of segment {segment.base_offset} is false"
    return None


def judge(outcome: Outcome, expectation: Expectation) -> str | None:
    """Why the outcome is not one that a crash may leave, or None (I23 to I28, I30)."""
    if outcome.problem is not None:
        return outcome.problem
    if not expectation.start_min <= outcome.start_offset <= expectation.start_max:
        return (
            f"log start {outcome.start_offset}, not in"
            f" [{expectation.start_min}, {expectation.start_max}]"
        )
    if not outcome.missed <= expectation.missed:
        return f"timestamps {sorted(outcome.missed - expectation.missed)} are not found"
    reasons = [mismatch(outcome, version, expectation.floor) for version in expectation.versions]
    if all(reasons):
        return f"no version of the log fits; the last: {reasons[-1]}"
    return None


def mismatch(outcome: Outcome, version: Version, floor: int) -> str | None:
    """Why the outcome is not a batch-aligned prefix of the version that reaches `floor`."""
    start = max(outcome.start_offset, version.start_offset)
    found = [batch for batch in outcome.batches if batch.last_offset >= start]
    wanted = [batch for batch in version.batches if batch.last_offset >= start]
    if outcome.start_offset < version.start_offset and found != wanted[: len(found)]:
        return "older records than the version has"
    if found != wanted[: len(found)]:
        return f"{len(found)} batches are no prefix of the {len(wanted)}"
    if len(found) < len(wanted) and wanted[len(found)].last_offset < floor:
        missing = wanted[len(found)].base_offset
        return f"batch {missing} is missing, synced was everything below {floor}"
    if outcome.end_offset > version.end_offset:
        return f"the log ends at {outcome.end_offset}, behind {version.end_offset}"
    return None
