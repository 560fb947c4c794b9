"""A Hypothesis state machine drives `Log` and a list model through the same calls."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from replog._native.record_batch import scan
from replog._native.record_encoder import encode
from replog.config import LogConfig
from replog.storage.partition_log import PartitionLog
from tests.storage.log_model import LogModel

NAME = "orders-0"
NOW_MS = 1_000_000
VALUES = st.lists(st.binary(max_size=60), min_size=1, max_size=4)
EPOCH_STEPS = st.sampled_from([0, 0, 0, 1, 3])
TIMES = st.integers(0, 40)
PLACES = st.floats(0, 1)


class LogMachine(RuleBasedStateMachine):
    """Every step compares what can be read, where the log starts and ends, and its epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.generation = 0
        self.model = LogModel()
        self.repeatable: tuple[bytes, int] | None = None
        self.truncated = False

    @initialize(
        segment_bytes=st.sampled_from([400, 700, 100_000]),
        index_interval_bytes=st.sampled_from([0, 100, 4096]),
    )
    def start(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            retention_ms=-1,
            file_delete_delay_ms=0,
        )
        self.log = self.open(self.root / "0" / NAME)

    def open(self, path: Path) -> PartitionLog:
        return PartitionLog.open(path, self.config, now_ms=lambda: NOW_MS)

    def offset_at(self, place: float, low: int, high: int) -> int:
        return low + round(place * (high - low))

    def encode(self, values: list[bytes], times: list[int], **fields: int) -> bytes:
        return bytes(encode(values, timestamps=times, now_ms=NOW_MS, **fields))

    def times(self, values: list[bytes], first: int) -> list[int]:
        """Timestamps that go up and down."""
        return [(first + 7 * place) % 41 for place in range(len(values))]

    @rule(values=VALUES, step=EPOCH_STEPS, first_time=TIMES)
    def append(self, values: list[bytes], step: int, first_time: int) -> None:
        epoch = max(self.model.latest_epoch, self.model.written_epoch, 0) + step
        times = self.times(values, first_time)
        result = self.log.append(values, timestamps=times, leader_epoch=epoch)
        assert result.base_offset == self.model.log_end_offset
        assert result.last_offset == result.base_offset + len(values) - 1
        self.model.append(result.base_offset, epoch, values, times)

    @rule(sets=st.lists(VALUES, min_size=1, max_size=3), step=EPOCH_STEPS, cut=st.booleans())
    def append_as_follower(self, sets: list[list[bytes]], step: int, cut: bool) -> None:
        epoch = max(self.model.latest_epoch, self.model.written_epoch, 0) + step
        fetched = b""
        base_offset = self.model.log_end_offset
        for number, values in enumerate(sets):
            times = self.times(values, number)
            fetched += self.encode(values, times, base_offset=base_offset, leader_epoch=epoch)
            self.model.append(base_offset, epoch, values, times)
            base_offset += len(values)
        if cut:
            fetched += self.encode([b"cut"], [1], base_offset=base_offset)[:-1]
        self.log.append_as_follower(fetched)

    @rule(values=VALUES, first_time=TIMES)
    def append_idempotent(self, values: list[bytes], first_time: int) -> None:
        known = {entry.producer_id: entry.last_sequence for entry in self.log.producer_entries}
        times = self.times(values, first_time)
        batch = self.encode(
            values,
            times,
            producer_id=9,
            producer_epoch=0,
            base_sequence=known.get(9, -1) + 1,
        )
        epoch = max(self.model.latest_epoch, self.model.written_epoch, 0)
        result = self.log.append_as_leader(batch, epoch)
        assert not result.duplicate
        self.model.append(result.base_offset, epoch, values, times)
        self.repeatable = batch, result.base_offset
        self.repeat()

    @precondition(lambda self: self.repeatable is not None)
    @rule()
    def repeat(self) -> None:
        """A batch that an idempotent producer sends again is answered, not written."""
        assert self.repeatable is not None
        batch, base_offset = self.repeatable
        epoch = max(self.model.latest_epoch, self.model.written_epoch, 0)
        result = self.log.append_as_leader(batch, epoch)
        assert result.duplicate
        assert result.base_offset == base_offset

    @rule(place=PLACES, beyond=st.integers(0, 2))
    def truncate_to(self, place: float, beyond: int) -> None:
        offset = self.offset_at(place, 0, self.model.log_end_offset + beyond)
        self.model.truncate_to(offset, self.log.segments[0].base_offset)
        self.log.truncate_to(offset)
        self.repeatable = None
        self.truncated = True

    @rule(place=PLACES)
    def truncate_prefix_to(self, place: float) -> None:
        offset = self.offset_at(place, self.model.log_start_offset, self.model.log_end_offset)
        self.model.truncate_prefix_to(offset)
        self.log.truncate_prefix_to(offset)

    @rule(offset=st.integers(0, 60))
    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.model.restart_at(offset)
        self.log.truncate_fully_and_start_at(offset)
        self.repeatable = None
        self.truncated = True

    @rule()
    def apply_retention(self) -> None:
        self.log.apply_retention(now_ms=NOW_MS)
        assert all(batch.end_offset > self.log.segments[0].base_offset for batch in self.readable())

    def readable(self) -> list:
        start = self.model.log_start_offset
        return [batch for batch in self.model.batches if batch.end_offset > start]

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.log.recovery_point

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()

    @rule()
    def roll(self) -> None:
        self.log.roll()
        assert self.log.segments[-1].base_offset == self.model.log_end_offset

    @rule(place=PLACES, max_bytes=st.integers(1, 1000))
    def read(self, place: float, max_bytes: int) -> None:
        start, end = self.model.log_start_offset, self.model.log_end_offset
        offset = self.offset_at(place, start, end)
        piece = self.log.read(offset, max_bytes)
        found = [(r.offset, r.value) for r in self.log.records(offset)]
        expected = [(row[0], row[3]) for row in self.model.records(offset)]
        assert found == expected
        if expected:
            assert piece.size_bytes > 0, "at least one batch, however small max_bytes is"
        else:
            # Nothing, or the empty batch that fills the hole of a cut.
            assert not scan(memoryview(piece)).headers["record_count"].any()

    @rule(start=PLACES, end=PLACES)
    def to_arrow(self, start: float, end: float) -> None:
        low, high = self.model.log_start_offset, self.model.log_end_offset
        first = self.offset_at(start, low, high)
        stop = self.offset_at(end, first, high)
        table = self.log.to_arrow(first, stop, columns=["offset", "value"])
        expected = self.model.records(first, stop)
        assert table["offset"].to_pylist() == [row[0] for row in expected]
        assert table["value"].to_pylist() == [row[3] for row in expected]

    @rule(timestamp=TIMES)
    def offset_for_timestamp(self, timestamp: int) -> None:
        """After a cut Kafka's own answer may be later than the first such record."""
        at_or_after = [row for row in self.model.records() if row[1] >= timestamp]
        found = self.log.offset_for_timestamp(timestamp)
        if found is None:
            assert not at_or_after or self.truncated
        elif self.truncated:
            assert (found.offset, found.timestamp, found.leader_epoch) in [
                row[:3] for row in at_or_after
            ]
        else:
            assert (found.offset, found.timestamp, found.leader_epoch) == at_or_after[0][:3]

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.settle_reopened(self.open(Path(self.log.path)))
        assert self.log.recovery_report.clean

    @rule()
    def crash_and_reopen(self) -> None:
        """Kill the process: what the kernel has is kept, what was in memory is gone."""
        self.generation += 1
        path = self.root / str(self.generation) / NAME
        shutil.copytree(self.log.path, path)
        self.log.close(flush=False)
        shutil.rmtree(self.log.path)
        self.settle_reopened(self.open(path))
        assert self.log.recovery_report.cut_bytes == 0

    def settle_reopened(self, log: PartitionLog) -> None:
        self.log = log
        if self.model.dense_end == self.model.log_end_offset:
            assert log.log_end_offset == self.model.log_end_offset
        assert self.model.dense_end <= log.log_end_offset <= self.model.log_end_offset
        self.model.reopened_at(log.log_end_offset)
        if self.repeatable is not None and self.repeatable[1] < self.model.log_start_offset:
            # Producers are read from the batches there are; Kafka forgets this one, too.
            self.repeatable = None

    @invariant()
    def log_and_model_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_start_offset == self.model.log_start_offset
        assert self.log.log_end_offset == self.model.log_end_offset
        assert self.log.epochs == self.model.epochs
        found = [(r.offset, r.timestamp, r.leader_epoch, r.value) for r in self.log.records()]
        assert found == self.model.records()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(flush=False)
        shutil.rmtree(self.root)


LogMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogAgainstAListModel = LogMachine.TestCase
