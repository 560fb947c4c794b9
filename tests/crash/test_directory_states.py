"""Power fails behind each system call of a log directory's life: made, filled, deleted, closed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from random import Random

import pytest

from replog._native.recorded_calls import RecordedCall
from tests.crash.directory_workload import (
    DirectoryOutcome,
    DirectoryWorkload,
    judge_directory,
    recover_directory,
)
from tests.crash.disk_model import DiskModel, digest_of, survivals
from tests.crash.test_crash_states import EVERY_STATE, memory_folder

__all__ = ["memory_folder"]
SHARE = 1 if EVERY_STATE else 16
SAMPLES = 4 if EVERY_STATE else 1
STATES_MIN = 1_500 if EVERY_STATE else 80

# Replaced as a whole, and durable when the operation that does it returns (I15, I27).
REPLACED_FILES = (
    "meta.properties",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)

pytestmark = pytest.mark.slow


def crashes(
    work: DirectoryWorkload,
    calls: list[RecordedCall],
    folder: Path,
    outcomes: dict[bytes, DirectoryOutcome],
    *,
    left_out: Collection[int] = (),
    share: int = 1,
    samples: int = SAMPLES,
) -> Iterator[str]:
    """What recovery got wrong, crash by crash, where these calls were never made."""
    crashed = folder / "crashed-logs"
    crashed.mkdir(exist_ok=True)
    model, random = DiskModel(work.directory), Random(1)
    allowed: dict[str, set[bytes | None]] = {name: set() for name in REPLACED_FILES}
    current = 0
    judged = set()
    for number, call in enumerate(calls):
        if number in left_out:
            continue
        model.apply(call)
        if call.kind == "mark":
            current = int(call.path)
        if call.kind == "close":
            continue
        for name, contents in allowed.items():
            if call.kind == "mark":
                contents.clear()
            contents.add(model.content_at(name))
        for survivors in survivals(model.pending, random, samples):
            image = model.image(survivors)
            for name, contents in allowed.items():
                if image.get(name) not in contents:
                    yield f"crash behind call {number}: {name} is neither the old nor the new one"
            digest = digest_of(image)
            if int.from_bytes(digest[:4], "big") % share or (digest, current) in judged:
                continue
            judged.add((digest, current))
            if digest not in outcomes:
                outcomes[digest] = recover_directory(str(crashed), image)
            for reason in judge_directory(outcomes[digest], work.expectations[current]):
                yield f"crash in {work.steps[current]} behind call {number}: {reason}"


def test_every_crash_state_of_a_log_directory_recovers(memory_folder: Path) -> None:
    work = DirectoryWorkload(str(memory_folder / "logs"), 1)
    calls = work.record()
    outcomes: dict[bytes, DirectoryOutcome] = {}
    for reason in crashes(work, calls, memory_folder, outcomes, share=SHARE):
        pytest.fail(reason)
    assert len(outcomes) >= STATES_MIN


def test_each_sync_of_making_and_deleting_a_partition_is_needed(memory_folder: Path) -> None:
    """Leave out the syncs of one kind in one operation: some crash state must then be wrong."""
    work = DirectoryWorkload(str(memory_folder / "logs"), 1)
    calls = work.record()
    root = work.directory
    sites: dict[str, set[int]] = {}
    current = 0
    for number, call in enumerate(calls):
        if call.kind == "mark":
            current = int(call.path)
        step = work.steps[current]
        if call.kind == "fsync_dir" and step in {"create", "delete"}:
            where = "the log directory" if call.path == root else "the partition"
            sites.setdefault(f"fsync_dir of {where} in {step}", set()).add(number)
        if call.kind == "fdatasync" and step == "checkpoint":
            sites.setdefault(f"fdatasync of {os.path.basename(call.path)}", set()).add(number)
    missed = [
        site
        for site, numbers in sites.items()
        if next(crashes(work, calls, memory_folder, {}, left_out=numbers, samples=1), None) is None
    ]
    assert sites
    assert not missed, missed
