"""The story that `replog quickstart` tells: produce, lose the leader, go on, take it back, prove.

A cluster of three brokers in this process, one partition on all three. Broker 1 leads and dies with
records that were never acknowledged, some of them on broker 2 as well; broker 3 is elected, the
producer sends again what nobody acknowledged, and goes on; broker 1 returns, recovers its log,
truncates what the others never had, catches up and rejoins the in-sync set. At the end the files
themselves are compared.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import os
import time
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc

from replog._native.record_encoder import encode
from replog.cli.raw_batches import AcknowledgedBatch, Comparison, compare_replicas, walk
from replog.errors import RequestTimedOutError
from replog.replication.incidents import LogTruncated
from replog.runtime.clock import SystemClock
from replog.runtime.local_cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from replog.cli.line_source import LineSource
    from replog.client.produced import Produced
    from replog.client.producer import Producer
    from replog.runtime.local_cluster import ReplicaStatus

TOPIC = "lines"
FIRST_LEADER, BYSTANDER, NEXT_LEADER = 1, 2, 3
REPLICAS = (FIRST_LEADER, BYSTANDER, NEXT_LEADER)
BATCH_RECORDS = 1000
IN_FLIGHT_BATCHES = 32


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
    truncated_records: int = 0
    truncated_on_bystander: int = 0
    back_in_sync_ms: float = 0.0
    caught_up_records: int = 0
    high_watermark: int = 0
    replicas_compared: int = len(REPLICAS)
    batches_compared: int = 0
    bytes_compared: int = 0
    acknowledged_records: int = 0
    acknowledged_missing: int = 0


class _Encoded(NamedTuple):
    batches: bytes
    records: int


class _Sent(NamedTuple):
    encoded: _Encoded
    future: asyncio.Future[Produced]


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
        self.directories = [
            os.path.join(directory, f"broker-{broker_id}", f"{TOPIC}-0") for broker_id in REPLICAS
        ]
        """The partition directories, by broker id."""
        self._cluster = LocalCluster(len(REPLICAS), directory=directory)
        self._record_count = record_count
        self._on_progress = on_progress
        self._batch_records = max(1, min(BATCH_RECORDS, record_count // 50))
        self._columns = source.columns(record_count, self._batch_records)
        self._clock = SystemClock()
        self._in_flight: collections.deque[_Sent] = collections.deque()
        self._acknowledged: list[AcknowledgedBatch] = []

    def run(self) -> FailoverFigures:
        """The whole story. Raises ReplicationError if the files do not bear it out."""
        asyncio.run(self._run())
        self._prove()
        return self.figures

    async def _run(self) -> None:
        figures = self.figures
        half = self._record_count // 2
        async with self._cluster as cluster:
            # The controller elects the first in-sync replica of this list.
            assignment = (FIRST_LEADER, NEXT_LEADER, BYSTANDER)
            await cluster.create_topic(TOPIC, min_insync_replicas=2, assignment=[assignment])
            producer = cluster.producer(idempotent=False)
            started = time.perf_counter()
            await self._produce(producer, half, "producing, broker 1 leads")
            await self._fail_over(producer, half + max(1, self._record_count // 20))
            await self._produce(producer, self._record_count * 3 // 4, "producing, broker 3 leads")
            await self._take_back()
            await self._produce(producer, self._record_count, "producing, all three in sync")
            figures.produce_seconds = time.perf_counter() - started
            figures.high_watermark = self._status(NEXT_LEADER).high_watermark
            await cluster.until(self._all_know_the_high_watermark, "the followers to hear of it")
        figures.records_per_second = figures.records / figures.produce_seconds
        figures.megabytes_per_second = figures.value_bytes / figures.produce_seconds / 1e6

    async def _produce(self, producer: Producer, up_to: int, step: str) -> None:
        """Produce with acks=all, some batches in flight, until `up_to` records are acknowledged."""
        for encoded in self._encoded(up_to):
            self._send(producer, encoded)
            if len(self._in_flight) >= IN_FLIGHT_BATCHES:
                await self._collect_answer()
                self._report(step)
        await self._collect_answers()
        self._report(step)

    async def _fail_over(self, producer: Producer, up_to: int) -> None:
        """Let the leader die with records that only it and a bystander have; go on without it."""
        figures, cluster = self.figures, self._cluster
        figures.killed_at_offset = self._status(FIRST_LEADER).log_end_offset
        last = list(self._encoded(up_to))
        cluster.partition(FIRST_LEADER, NEXT_LEADER)
        end_offset = figures.killed_at_offset
        for encoded in last[:-1]:
            end_offset += encoded.records
            self._send(producer, encoded)
        await self._until_end(BYSTANDER, end_offset)
        cluster.partition(FIRST_LEADER, BYSTANDER)
        for encoded in last[-1:]:
            end_offset += encoded.records
            self._send(producer, encoded)
        await self._until_end(FIRST_LEADER, end_offset)
        figures.uncommitted_records = end_offset - figures.killed_at_offset
        cluster.kill(FIRST_LEADER)
        killed = time.perf_counter()
        cluster.heal()
        for encoded in await self._unanswered():
            self._send(producer, encoded)
        await self._collect_answer()
        figures.failover_ms = (time.perf_counter() - killed) * 1e3
        await self._collect_answers()
        figures.new_leader_epoch = cluster.registration(TOPIC).leader_epoch
        figures.truncated_on_bystander = self._truncated(BYSTANDER)

    async def _take_back(self) -> None:
        """Bring the old leader back: recover, truncate, catch up, rejoin the in-sync set."""
        figures, cluster = self.figures, self._cluster
        started = time.perf_counter()
        await cluster.restart(FIRST_LEADER)
        await cluster.in_sync(TOPIC)
        figures.back_in_sync_ms = (time.perf_counter() - started) * 1e3
        figures.truncated_records = self._truncated(FIRST_LEADER)
        end_offset = self._status(FIRST_LEADER).log_end_offset
        figures.caught_up_records = end_offset - figures.killed_at_offset

    def _prove(self) -> None:
        comparison: Comparison = compare_replicas(
            self.directories, self.figures.high_watermark, self._acknowledged
        )
        figures = self.figures
        figures.batches_compared = comparison.batches
        figures.bytes_compared = comparison.size_bytes
        figures.acknowledged_records = comparison.acknowledged_records
        figures.acknowledged_missing = figures.records - comparison.acknowledged_records

    def _encoded(self, up_to: int) -> Iterator[_Encoded]:
        """Encoded batches of the next lines, until `up_to` records were taken from the source."""
        while self.figures.records < up_to:
            column: pa.BinaryArray | None = next(self._columns, None)
            if column is None:
                return
            self.figures.records += len(column)
            self.figures.value_bytes += pc.sum(pc.binary_length(column)).as_py() or 0
            yield _Encoded(encode(column, now_ms=self._clock.wall_ms()), len(column))

    def _send(self, producer: Producer, encoded: _Encoded) -> None:
        future = producer.send_batches(TOPIC, 0, encoded.batches, encoded.records)
        self._in_flight.append(_Sent(encoded, future))

    async def _collect_answers(self) -> None:
        while self._in_flight:
            await self._collect_answer()

    async def _collect_answer(self) -> None:
        """Note what was acknowledged, as the producer knows it: offsets, and the bytes it sent."""
        if not self._in_flight:
            return
        sent = self._in_flight.popleft()
        produced = await sent.future
        assert produced.base_offset is not None
        offset = produced.base_offset
        for batch in walk(memoryview(sent.encoded.batches), "a produced batch"):
            end = offset + batch.last_offset - batch.base_offset
            self._acknowledged.append(AcknowledgedBatch(offset, end, batch.checksum))
            offset = end + 1
        assert offset - 1 == produced.last_offset

    async def _unanswered(self) -> list[_Encoded]:
        """What the dead leader took and never acknowledged, in the order it was sent."""
        found = []
        for sent in self._in_flight:
            try:
                await sent.future
            except RequestTimedOutError:
                found.append(sent.encoded)
        self._in_flight.clear()
        return found

    async def _until_end(self, broker_id: int, end_offset: int) -> None:
        await self._cluster.until(
            lambda _: self._status(broker_id).log_end_offset >= end_offset,
            f"broker {broker_id} to have all below offset {end_offset}",
        )

    def _all_know_the_high_watermark(self, _: LocalCluster) -> bool:
        return all(
            self._status(broker_id).high_watermark == self.figures.high_watermark
            for broker_id in REPLICAS
        )

    def _status(self, broker_id: int) -> ReplicaStatus:
        status = self._cluster.replica(broker_id, TOPIC)
        assert status is not None
        return status

    def _truncated(self, broker_id: int) -> int:
        return sum(
            entry.incident.old_end_offset - entry.incident.new_end_offset
            for entry in self._cluster.incidents(TOPIC)
            if entry.broker_id == broker_id and isinstance(entry.incident, LogTruncated)
        )

    def _report(self, step: str) -> None:
        if self._on_progress is not None:
            self._on_progress(step, self.figures.records, self._record_count)
