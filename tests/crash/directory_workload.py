"""A scripted life of a log directory with several partitions, and what a crash in it may leave.

Each partition has its own Expectation, as a log that stands alone; besides, each must be there, may
be there (while it is made or deleted), or must be gone.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from replog._native import record_encoder, recorded_calls
from replog._native.recorded_calls import RecordedCall
from replog.errors import InvariantViolation, ReplogError
from replog.storage.log_directory import LogDirectory
from replog.types import TopicPartition
from tests.crash.checker import Outcome, booted, examine, judge, write_image
from tests.crash.disk_model import Image
from tests.crash.workload import (
    CONFIG,
    NOW_MS,
    Expectation,
    Version,
    batches_of,
    files_of,
    missed_timestamps,
)

EMPTY = Version(0, 0, ())
ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 3)


class PartitionExpectation(NamedTuple):
    """`there`: None where a crash decides whether the partition is there."""

    there: bool | None
    log: Expectation


DirectoryExpectation = Mapping[TopicPartition, PartitionExpectation]


def open_directory(path: str) -> LogDirectory:
    return LogDirectory.open(path, CONFIG, now_ms=lambda: NOW_MS, recovery_threads=1)


class DirectoryWorkload:
    """Drives one log directory and writes down, around each operation, what a crash may leave."""

    def __init__(self, directory: str, seed: int) -> None:
        self.directory = directory
        self.random = Random(seed)
        self.logs: Any = None
        self.now_ms = NOW_MS
        self.state: dict[TopicPartition, PartitionExpectation] = {}
        self.expectations: list[DirectoryExpectation] = []
        self.steps: list[str] = []

    def record(self) -> list[RecordedCall]:
        """Run the script on an empty directory; the calls."""
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        recorded_calls.install()
        try:
            recorded_calls.record()
            self.script()
            return list(recorded_calls.recorded())
        finally:
            recorded_calls.uninstall()
            self.logs.abandon()

    def expect(self, step: str) -> None:
        self.expectations.append(dict(self.state))
        self.steps.append(step)
        recorded_calls.mark(str(len(self.expectations) - 1))

    def version(self, key: TopicPartition) -> Version:
        log = self.logs.partition_log(key)
        return Version(log.log_start_offset, log.log_end_offset, batches_of(files_of(log.path)))

    def run(
        self,
        step: str,
        action: Callable[[], Any],
        *,
        touched: TopicPartition | None = None,
        durable: bool = False,
    ) -> None:
        """Do something; what it will write is not known before, so `between` is completed after."""
        before = dict(self.state)
        self.expect(step)
        between = len(self.expectations) - 1
        action()
        for key in [touched] if touched else list(self.state):
            held = before.get(key, PartitionExpectation(False, expected(step, (EMPTY,))))
            if self.logs.closed or key not in self.logs:
                continue
            after = self.version(key)
            log = self.logs.partition_log(key)
            missed = held.log.missed | missed_timestamps(log, after.batches)
            versions = (*held.log.versions, after)
            during = expected(step, versions, held.log.floor, missed)
            there = True if held.there else None
            self.expectations[between] = {
                **self.expectations[between], key: PartitionExpectation(there, during)
            }  # fmt: skip
            kept = (after,) if durable else versions
            floor = after.end_offset if durable else held.log.floor
            self.state[key] = PartitionExpectation(True, expected(step, kept, floor, missed))
        self.expect(step)

    def open(self) -> None:
        def action() -> None:
            self.logs = open_directory(self.directory)

        self.run("open", action)

    def create(self, key: TopicPartition) -> None:
        self.state[key] = PartitionExpectation(None, expected("create", (EMPTY,)))
        self.run("create", lambda: self.logs.create_partition(*key), touched=key)
        self.state[key] = PartitionExpectation(True, expected("create", (EMPTY,)))
        self.expect("create")

    def delete(self, key: TopicPartition) -> None:
        self.state[key] = self.state[key]._replace(there=None)
        self.run("delete", lambda: self.logs.delete_partition(key), touched=key)
        self.state[key] = self.state[key]._replace(there=False)
        self.expect("delete")

    def append(self, key: TopicPartition, count: int) -> None:
        for _ in range(count):
            self.now_ms += 10
            values = [self.random.randbytes(self.random.randrange(4, 40)) for _ in range(2)]
            batch = record_encoder.encode(values, timestamps=self.now_ms, now_ms=self.now_ms)
            append = self.logs.partition_log(key).append_as_leader
            self.run("append", functools.partial(append, batch, 0), touched=key)

    def script(self) -> None:
        """Two partitions; one is cut, deleted, and made again under its name."""
        self.open()
        self.create(ORDERS)
        self.append(ORDERS, 3)
        self.create(CLICKS)
        self.append(CLICKS, 8)
        self.run("flush", self.logs.partition_log(CLICKS).flush, touched=CLICKS, durable=True)
        self.checkpoint()
        self.append(ORDERS, 2)
        self.run("flush", self.logs.partition_log(ORDERS).flush, touched=ORDERS, durable=True)
        self.checkpoint()
        self.truncate(CLICKS, 5)
        self.append(CLICKS, 2)
        self.checkpoint()
        self.delete(ORDERS)
        self.create(ORDERS)
        self.append(ORDERS, 1)
        self.run("delete", lambda: self.logs.remove_deleted(NOW_MS + 10**9))
        self.run("flush", self.logs.partition_log(ORDERS).flush, touched=ORDERS, durable=True)
        self.checkpoint()
        for key in list(self.state):
            ends = self.version(key)
            held = self.state[key]
            log = expected("close", (ends,), held.log.floor, held.log.missed)
            # A close flushes; nothing is added to any log from here on.
            self.state[key] = held._replace(log=dataclasses.replace(log, versions=(
                *held.log.versions, ends)))  # fmt: skip
        self.run("close", self.logs.close)
        self.open()

    def checkpoint(self) -> None:
        def action() -> None:
            self.logs.checkpoint_recovery_points()
            self.logs.checkpoint_log_start_offsets()
            self.logs.checkpoint_high_watermarks()

        self.run("checkpoint", action)

    def truncate(self, key: TopicPartition, offset: int) -> None:
        held = self.state[key]
        log = dataclasses.replace(held.log, floor=min(held.log.floor, offset))
        self.state[key] = held._replace(log=log)
        self.run("truncate", lambda: self.logs.partition_log(key).truncate_to(offset), touched=key)
        log = self.state[key].log
        log = dataclasses.replace(log, versions=log.versions[-1:])
        self.state[key] = self.state[key]._replace(log=log)
        self.expect("truncate")


def expected(
    step: str,
    versions: tuple[Version, ...],
    floor: int = 0,
    missed: frozenset[int] = frozenset(),
) -> Expectation:
    return Expectation(step, versions, floor, 0, 0, missed)


class DirectoryOutcome(NamedTuple):
    problem: str | None
    logs: Mapping[TopicPartition, Outcome]


def recover_directory(
    directory: str, image: Image, boot_id: str | None = "the next one"
) -> DirectoryOutcome:
    """Open what a crash left, look at each log, let go as in a crash, and do all of it again.

    The crash was one of the machine, which is up again, or (boot_id None) of the process alone.
    """
    with booted(boot_id):
        return _recover_twice(directory, image)


def _recover_twice(directory: str, image: Image) -> DirectoryOutcome:
    write_image(directory, image)
    looks: list[DirectoryOutcome] = []
    for _ in range(2):
        try:
            logs = open_directory(directory)
        except (ReplogError, InvariantViolation, OSError) as error:
            return DirectoryOutcome(f"{type(error).__name__}: {error}", {})
        try:
            refused = [f"{key}: {error}" for key, error in logs.refused.items()]
            found = {key: examine(logs.partition_log(key)) for key in logs}
            looks.append(DirectoryOutcome("; ".join(refused) or None, found))
        finally:
            logs.abandon()
    first, second = looks
    told = [{k: o.batches for k, o in look.logs.items()} for look in looks]
    if first.problem is None and (second.problem is not None or told[0] != told[1]):
        return DirectoryOutcome(f"a second recovery differs: {second.problem}", {})
    return first


def judge_directory(outcome: DirectoryOutcome, expectation: DirectoryExpectation) -> Iterator[str]:
    """Why the outcome is not one that a crash may leave."""
    if outcome.problem is not None:
        yield outcome.problem
        return
    for key in outcome.logs.keys() - expectation.keys():
        yield f"{key} is there, which nobody made"
    for key, (there, log) in expectation.items():
        if key not in outcome.logs:
            if there:
                yield f"{key} is gone"
            continue
        if there is False:
            yield f"{key} is there, though it was deleted"
        reason = judge(outcome.logs[key], log)
        if reason is not None:
            yield f"{key}: {reason}"
