"""A scripted life of one log, recorded call by call, with what must hold after a crash at each.

Every step knows which logs a crash may leave: `Expectation.versions`, of which a whole-batch prefix
must be found, and `floor`, the offset below which nothing may be missing.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from replog._native import record_encoder, recorded_calls
from replog._native.recorded_calls import RecordedCall
from replog.config import LogConfig
from replog.storage.partition_log import PartitionLog
from tests.crash.disk_model import Image

NOW_MS = 1_800_000_000_000
CONFIG = LogConfig(
    segment_bytes=1100,
    index_interval_bytes=150,
    segment_index_bytes=4096,
    file_delete_delay_ms=0,
    retention_ms=-1,
)
COMMIT = dataclasses.replace(CONFIG, flush_mode="commit")
HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20


class Batch(NamedTuple):
    """One batch as it is in the log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    producer_id: int
    last_sequence: int
    content: bytes

    @property
    def attributes(self) -> int:
        return int.from_bytes(self.content[21:23], "big")

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def ends_transaction(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def aborts(self) -> bool:
        """Whether it is an ABORT marker: its one record's key is two int16, the version and 0."""
        return self.ends_transaction and b"\x08\x00\x00\x00\x00" in self.content[61:]


class Version(NamedTuple):
    """The log at one moment, as a process that did not crash sees it."""

    start_offset: int
    end_offset: int
    batches: tuple[Batch, ...]


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What recovery may find after a crash during `step`."""

    step: str
    versions: tuple[Version, ...]
    floor: int
    start_min: int
    start_max: int
    missed: frozenset[int]  # timestamps that the log itself does not find


def batches_in(content: bytes) -> list[Batch]:
    """Every batch from the beginning on; stops at what is no batch."""
    batches = []
    place = 0
    while place + HEADER.size <= len(content):
        fields = HEADER.unpack_from(content, place)
        size = 12 + fields[1]
        sequence = fields[11] + fields[6] if fields[11] >= 0 else -1
        batches.append(
            Batch(
                fields[0],
                fields[0] + fields[6],
                fields[2],
                fields[8],
                fields[9],
                sequence,
                content[place : place + size],
            )
        )
        place += size
    return batches


def batches_of(image: Image) -> tuple[Batch, ...]:
    """Every batch of the `.log` files, by offset."""
    batches: list[Batch] = []
    for name in sorted(image):
        stem, _, suffix = name.partition(".")
        if suffix == "log" and len(stem) == 20:
            batches += batches_in(image[name])
    return tuple(batches)


def missed_timestamps(log: Any, batches: tuple[Batch, ...]) -> frozenset[int]:
    """Timestamps of batches that a look-up does not lead to; each batch has one of its own."""
    missed = set()
    for batch in batches:
        if batch.last_offset >= log.log_start_offset:
            found = log.offset_for_timestamp(batch.max_timestamp)
            if found is None or found.offset != max(batch.base_offset, log.log_start_offset):
                missed.add(batch.max_timestamp)
    return frozenset(missed)


def files_of(directory: str) -> Image:
    image = {}
    for name in os.listdir(directory):
        if name != ".lock":
            with open(os.path.join(directory, name), "rb") as file:
                image[name] = file.read()
    return image


@dataclasses.dataclass
class Recording:
    """Recorded calls, each with what a crash right behind it may leave."""

    directory: str
    calls: list[RecordedCall]
    expectations: list[Expectation]
    base: Image = dataclasses.field(default_factory=dict)

    def steps(self) -> Iterator[tuple[RecordedCall, Expectation]]:
        """Each call with the expectation that holds behind it."""
        current = self.expectations[0]
        for call in self.calls:
            if call.kind == "mark":
                current = self.expectations[int(call.path)]
            yield call, current


class Workload:
    """Drives one log and writes down, around each operation, what a crash may leave."""

    def __init__(self, directory: str, seed: int, config: LogConfig = CONFIG) -> None:
        self.directory = directory
        self.config = config
        self.random = Random(seed)
        self.expectations: list[Expectation] = []
        self.versions: tuple[Version, ...] = (Version(0, 0, ()),)
        self.floor = 0
        self.start_min = 0
        self.missed: set[int] = set()
        self.now_ms = NOW_MS
        self.sequences: dict[int, int] = {}
        self.epoch = 0
        self.log: Any = None

    def record(self, script: Callable[[Workload], None]) -> Recording:
        """Run the script on an empty directory."""
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        recorded_calls.install()
        try:
            recorded_calls.record()
            script(self)
            calls = recorded_calls.recorded()
        finally:
            recorded_calls.uninstall()
            if self.log is not None:
                self.log.close(flush=False)
        return Recording(self.directory, calls, self.expectations)

    def expect(self, step: str, *planned: Version) -> None:
        start_max = max(version.start_offset for version in (*self.versions, *planned))
        self.expectations.append(
            Expectation(
                step,
                (*self.versions, *planned),
                self.floor,
                self.start_min,
                start_max,
                frozenset(self.missed),
            )
        )
        recorded_calls.mark(str(len(self.expectations) - 1))

    def now(self) -> Version:
        """The log as it is."""
        return Version(
            self.log.log_start_offset, self.log.log_end_offset, batches_of(files_of(self.directory))
        )

    def run(self, step: str, action: Callable[[], Any], *, durable: bool = False) -> None:
        """Do something that adds to the log or leaves it as it is.

        What it will write is not known beforehand, so the expectation of the time in between is
        completed afterwards.
        """
        self.expect(step)
        between = len(self.expectations) - 1
        action()
        after = self.now()
        if not self.log.closed:
            self.missed |= missed_timestamps(self.log, after.batches)
        start_max = max(self.expectations[between].start_max, after.start_offset)
        self.expectations[between] = dataclasses.replace(
            self.expectations[between],
            versions=(*self.versions, after),
            start_max=start_max,
            missed=frozenset(self.missed),
        )
        if durable:
            self.versions, self.floor = (after,), after.end_offset
        elif after != self.versions[-1]:
            self.versions = (*self.versions, after)
        self.start_min = after.start_offset
        self.expect(step)

    def open(self) -> None:
        def action() -> None:
            self.log = PartitionLog.open(self.directory, self.config, now_ms=lambda: NOW_MS)

        self.run("open", action)

    def append(
        self,
        count: int = 1,
        *,
        producer_id: int = -1,
        record_count: int | None = None,
        transactional: bool = False,
    ) -> None:
        for _ in range(count):
            records = record_count or self.random.randrange(1, 4)
            self.now_ms += 10
            values = [self.random.randbytes(self.random.randrange(4, 40)) for _ in range(records)]
            options: dict[str, Any] = {}
            if producer_id >= 0:
                sequence = self.sequences.get(producer_id, 0)
                self.sequences[producer_id] = sequence + records
                options = {
                    "producer_id": producer_id,
                    "producer_epoch": 0,
                    "base_sequence": sequence,
                    "transactional": transactional,
                }
            batch = record_encoder.encode(
                values, timestamps=self.now_ms, now_ms=self.now_ms, **options
            )
            self.append_batch(batch)

    def append_batch(self, batch: Any, *, coordinator: bool = False) -> None:
        self.run(
            "append",
            lambda: self.log.append_as_leader(batch, self.epoch, coordinator=coordinator),
            durable=self.config.flush_mode == "commit",
        )

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.now_ms += 10
        marker = record_encoder.encode_control(
            int(commit),
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.now_ms,
        )
        self.append_batch(marker, coordinator=True)

    def roll(self) -> None:
        self.run("roll", self.log.roll)

    def flush(self) -> None:
        self.run("flush", self.log.flush, durable=True)

    def checkpoint(self) -> None:
        self.run("checkpoint", self.log.checkpoint, durable=True)

    def persist_recovery_point(self) -> None:
        """Without a flush, as a log directory does for all its logs once a minute."""
        self.run(
            "checkpoint",
            lambda: self.log.keeper.write_recovery_point(self.log, self.log.synced_end_offset),
        )

    def close(self) -> None:
        self.run("close", self.log.close, durable=True)

    def new_epoch(self) -> None:
        self.epoch += 1
        self.run("assign", lambda: self.log.assign_epoch(self.epoch, self.log.log_end_offset))

    def truncate_to(self, offset: int) -> None:
        """Durable on return: what was cut must not come back."""
        self.floor = min(self.floor, offset)
        self.run("truncate", lambda: self.log.truncate_to(offset))
        self.versions = self.versions[-1:]
        self.learn_sequences()
        self.expect("truncate")

    def learn_sequences(self) -> None:
        """Go on where the log says that each producer stands."""
        entries = self.log.producer_entries
        self.sequences = {entry.producer_id: entry.last_sequence + 1 for entry in entries}

    def restart_at(self, offset: int) -> None:
        """Durable on return; until then any prefix of the old log may be left."""
        self.floor = 0
        self.run("restart", lambda: self.log.truncate_fully_and_start_at(offset))
        self.versions = self.versions[-1:]
        self.learn_sequences()
        self.expect("restart")

    def delete_records(self, offset: int) -> None:
        self.run("retention", lambda: self.log.truncate_prefix_to(offset))

    def retention(self) -> None:
        self.run("retention", self.log.apply_retention)

    def batch_starts(self) -> list[int]:
        return [batch.base_offset for batch in self.versions[-1].batches]
