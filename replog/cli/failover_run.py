"""The story that `replog quickstart` tells: produce, lose the leader, go on, take it back, prove.

Three replicas of one partition, each in a directory of its own. Replica 1 leads and dies with
records that were never acknowledged, some of them on replica 2 as well; replica 3 is elected, the
producer sends again what nobody acknowledged, and goes on; replica 1 returns, recovers its log,
truncates what the others never had, catches up and rejoins the in-sync set. At the end the files
themselves are compared.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc

from replog._native.record_encoder import encode
from replog.cli.raw_batches import AcknowledgedBatch, Comparison, compare_replicas, walk
from replog.config import LogConfig
from replog.runtime.clock import SystemClock
from replog.runtime.replica_group import ReplicaGroup
from replog.runtime.replica_log import open_replica_log
from replog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from replog.cli.line_source import LineSource
    from replog.messages import RawBatches
    from replog.runtime.replica_group import ClosableLog, ProduceTicket

PARTITION = TopicPartition("lines", 0)
FIRST_LEADER, BYSTANDER, NEXT_LEADER = 1, 2, 3
REPLICAS = (FIRST_LEADER, BYSTANDER, NEXT_LEADER)
BATCH_RECORDS = 1000
IN_FLIGHT_BATCHES = 8


@dataclasses.dataclass(slots=True, kw_only=True)
class FailoverFigures:
    """What happened, in numbers. Times are wall-clock; sizes are of one replica."""

    records: int = 0
    value_bytes: int = 0
    produce_seconds: float = 0.0
    records_per_second: float = 0.0
    megabytes_per_second: float = 0.0
    killed_leader: int = FIRST_LEADER
    killed_at_offset: int = 0
    uncommitted_records: int = 0
    new_leader: int = NEXT_LEADER
    new_leader_epoch: int = 0
    failover_ms: float = 0.0
    recovery_ms: float = 0.0
    truncated_records: int = 0
    truncated_on_bystander: int = 0
    catch_up_ms: float = 0.0
    caught_up_records: int = 0
    high_watermark: int = 0
    replicas_compared: int = len(REPLICAS)
    batches_compared: int = 0
    bytes_compared: int = 0
    acknowledged_records: int = 0
    acknowledged_missing: int = 0


class _Sent(NamedTuple):
    ticket: ProduceTicket
    batches: RawBatches


class FailoverRun:
    """One run in `directory`, which it fills; the steps are `run`'s, in order."""

    def __init__(
        self,
        directory: str,
        source: LineSource,
        record_count: int,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.figures = FailoverFigures()
        self._directories = {
            replica_id: os.path.join(directory, f"replica-{replica_id}", str(PARTITION))
            for replica_id in REPLICAS
        }
        self._record_count = record_count
        self._on_progress = on_progress
        self._batch_records = max(1, min(BATCH_RECORDS, record_count // 50))
        self._columns = source.columns(record_count, self._batch_records)
        self._clock = SystemClock()
        self._in_flight: collections.deque[_Sent] = collections.deque()
        self._acknowledged: list[AcknowledgedBatch] = []

    @property
    def directories(self) -> list[str]:
        """The partition directories, by replica id."""
        return list(self._directories.values())

    def run(self) -> FailoverFigures:
        """The whole story. Raises ReplicationError if the files do not bear it out."""
        started = time.perf_counter()
        half = self._record_count // 2
        for directory in self._directories.values():
            os.makedirs(os.path.dirname(directory), exist_ok=True)
        with ReplicaGroup(PARTITION, REPLICAS, self._open_log, self._clock) as group:
            group.elect(FIRST_LEADER)
            self._produce(group, half, "producing, replica 1 leads")
            self._fail_over(group, half + max(1, self._record_count // 20))
            self._produce(group, self._record_count * 3 // 4, "producing, replica 3 leads")
            self._take_back(group)
            self._produce(group, self._record_count, "producing, all three in sync")
            self.figures.high_watermark = group.log(NEXT_LEADER).high_watermark
        figures = self.figures
        figures.produce_seconds = time.perf_counter() - started
        figures.records_per_second = figures.records / figures.produce_seconds
        figures.megabytes_per_second = figures.value_bytes / figures.produce_seconds / 1e6
        self._prove()
        return figures

    def _open_log(self, replica_id: int) -> ClosableLog:
        return open_replica_log(self._directories[replica_id], LogConfig(), self._clock.wall_ms)

    def _produce(self, group: ReplicaGroup, up_to: int, step: str) -> None:
        """Produce with acks=all, some batches in flight, until `up_to` records are acknowledged."""
        for batches in self._encoded(up_to):
            self._send(group, batches)
            if len(self._in_flight) >= IN_FLIGHT_BATCHES:
                group.settle()
                self._collect_answers()
                self._report(step)
        group.settle()
        self._collect_answers()
        self._report(step)

    def _fail_over(self, group: ReplicaGroup, up_to: int) -> None:
        """Let the leader die with records that only it and a bystander have; go on without it."""
        figures = self.figures
        figures.killed_at_offset = group.log(FIRST_LEADER).log_end_offset
        for batches in self._encoded(up_to):
            self._send(group, batches)
        group.deliver_one()
        uncommitted = group.log(FIRST_LEADER).log_end_offset - figures.killed_at_offset
        figures.uncommitted_records = uncommitted
        group.kill(FIRST_LEADER)
        killed = time.perf_counter()
        unanswered = [sent.batches for sent in self._in_flight]
        self._in_flight.clear()
        figures.new_leader_epoch = group.elect(NEXT_LEADER)
        for batches in unanswered:
            self._send(group, batches)
            if not figures.failover_ms:
                group.settle()
                self._collect_answers()
                figures.failover_ms = (time.perf_counter() - killed) * 1e3
        figures.truncated_on_bystander = self._truncated(group, BYSTANDER)
        group.settle()
        self._collect_answers()

    def _take_back(self, group: ReplicaGroup) -> None:
        """Bring the old leader back: recover, truncate, catch up, rejoin the in-sync set."""
        figures = self.figures
        started = time.perf_counter()
        group.restart(FIRST_LEADER)
        reopened = time.perf_counter()
        group.settle()
        figures.recovery_ms = (reopened - started) * 1e3
        figures.catch_up_ms = (time.perf_counter() - reopened) * 1e3
        figures.truncated_records = self._truncated(group, FIRST_LEADER)
        figures.caught_up_records = (
            group.log(FIRST_LEADER).log_end_offset - figures.killed_at_offset
        )
        group.readmit(FIRST_LEADER)
        group.settle()

    def _prove(self) -> None:
        comparison: Comparison = compare_replicas(
            self.directories, self.figures.high_watermark, self._acknowledged
        )
        figures = self.figures
        figures.batches_compared = comparison.batches
        figures.bytes_compared = comparison.size_bytes
        figures.acknowledged_records = comparison.acknowledged_records
        figures.acknowledged_missing = figures.records - comparison.acknowledged_records

    def _encoded(self, up_to: int) -> Iterator[RawBatches]:
        """Encoded batches of the next lines, until `up_to` records were taken from the source."""
        while self.figures.records < up_to:
            column: pa.BinaryArray | None = next(self._columns, None)
            if column is None:
                return
            self.figures.records += len(column)
            self.figures.value_bytes += pc.sum(pc.binary_length(column)).as_py() or 0
            yield encode(column, now_ms=self._clock.wall_ms())

    def _send(self, group: ReplicaGroup, batches: RawBatches) -> None:
        self._in_flight.append(_Sent(group.produce(batches), batches))

    def _collect_answers(self) -> None:
        """Note what was acknowledged, as the producer knows it: offsets, and the bytes it sent."""
        while self._in_flight and self._in_flight[0].ticket.answer is not None:
            sent = self._in_flight.popleft()
            offset, last_offset = sent.ticket.offsets()
            for batch in walk(memoryview(sent.batches), "a produced batch"):
                end = offset + batch.last_offset - batch.base_offset
                self._acknowledged.append(AcknowledgedBatch(offset, end, batch.checksum))
                offset = end + 1
            assert offset == last_offset + 1

    @staticmethod
    def _truncated(group: ReplicaGroup, replica_id: int) -> int:
        return sum(
            cut.old_end_offset - cut.new_end_offset
            for cut in group.truncations
            if cut.replica_id == replica_id
        )

    def _report(self, step: str) -> None:
        if self._on_progress is not None:
            self._on_progress(step, self.figures.records, self._record_count)
