"""The producer: columns of values in, offsets and durability out, a batch at a time."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Literal, Self

from replog._native.arguments import flag, integer
from replog._native.record_encoder import encode
from replog.client.arguments import INT32_MAX, acks_of, count_of, partition_of
from replog.client.produce_lane import ProduceLane
from replog.client.produced import PendingBatches, Produced, split
from replog.errors import ReplicationError, UsageError
from replog.messages import Acks
from replog.types import Codec, TopicPartition

if TYPE_CHECKING:
    from replog.client.connection import ClusterConnection
    from replog.registrations import PartitionRegistration

AcksName = Literal[0, 1, "all"]
DEADLINE_CHECK_MS = 100
FREED_BLOCK_BYTES = 4 * 1024 * 1024
"""As soon as 128 KiB lie free behind all that is in use, glibc gives them back to the kernel, and a
producer takes them anew for its next batch, page by page. It keeps twice the largest block that was
ever freed instead, so freeing one of this size is all that it takes."""


class Producer:
    """Sends batches to the leaders of their partitions. Not for use outside its loop's thread.

    Idempotent (the default with acks="all"): what failed for a passing reason is sent again under
    its sequence number, so that each record is in the log once and in order, over any failover,
    until `delivery_timeout_ms`. Plain: what may be in a log already is not sent again; its call
    raises, and the caller knows best whether a repeat does harm.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        acks: AcksName = "all",
        idempotent: bool | None = None,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        codec: Codec | None = None,
    ) -> None:
        """codec: of the batches; None: as the topic's compression_type says.

        Raises UsageError for options that cannot be, and for an idempotent producer without
        acks="all".
        """
        self._acks = acks_of(acks)
        self._idempotent = self._acks is Acks.ALL
        if idempotent is not None:
            self._idempotent = flag(idempotent, "idempotent", "a producer")
        if self._idempotent and self._acks is not Acks.ALL:
            raise UsageError(
                f'expected acks="all" for an idempotent producer, found {acks!r}: a leader that '
                f"dies may take acknowledged records with it, and the sequence would have a hole"
            )
        _keep_freed_blocks()
        self._connection = connection
        self._delivery_timeout_ms = integer(
            delivery_timeout_ms, "delivery_timeout_ms", "a producer", high=INT32_MAX
        )
        self._request_timeout_ms = integer(
            request_timeout_ms, "request_timeout_ms", "a producer", high=INT32_MAX
        )
        self._codec = None if codec is None else Codec.of(codec)
        self._lanes: dict[TopicPartition, ProduceLane] = {}
        self._next_partition: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe = connection.on_metadata_change(self._metadata_changed)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.flush()
        self.close()

    async def produce(
        self,
        topic: str,
        values: Any,
        *,
        keys: Any = None,
        timestamps: Any = None,
        headers: Any = None,
        partition: int | None = None,
    ) -> Produced:
        """Append records and return once `acks` is met; see `send` for what is raised, and when."""
        return await self.send(
            topic, values, keys=keys, timestamps=timestamps, headers=headers, partition=partition
        )

    def send(
        self,
        topic: str,
        values: Any,
        *,
        keys: Any = None,
        timestamps: Any = None,
        headers: Any = None,
        partition: int | None = None,
    ) -> asyncio.Future[Produced]:
        """Put records on their way, in the order of the calls; the future tells where they went.

        values, keys: a sequence of bytes or None, an Arrow array of binary or string, or a numpy
        array of bytes. timestamps: ms since the epoch, one for all or one each; now if None.
        headers: per record a sequence of (name, bytes or None). partition: by turns if None and
        there are no keys. What is on its way is bounded by the caller alone.

        Raises UsageError for what cannot be sent, UnknownTopicOrPartitionError. The future raises
        what the leader refused it with, NotEnoughReplicasError among them, NoLeaderError if there
        was none in time, RequestTimedOutError if nobody knows what became of it, and
        UnknownTopicIdError if the topic was deleted and another one of its name created.
        """
        self._check_open()
        count = count_of(values)
        topic_partition = self._choose(topic, partition, has_keys=keys is not None)
        registration = self._connection.partition(topic_partition)
        config = registration.config.log
        lane = self._lane(registration)
        codec = self._codec
        if codec is None:
            codec = _codec_of(config.compression_type)
        now_ms = self._connection.wall_ms()
        batches = encode(
            values,
            keys,
            timestamps,
            headers,
            now_ms=now_ms,
            codec=int(codec),
            level=config.compression_level,
            producer_id=lane.producer_id,
            producer_epoch=0 if self._idempotent else -1,
            base_sequence=lane.next_sequence,
            batch_bytes_max=min(config.max_message_bytes, config.segment_bytes),
        )
        return self._enqueue(lane, batches, count)

    def send_batches(
        self, topic: str, partition: int, batches: Any, count: int
    ) -> asyncio.Future[Produced]:
        """Put ready batches of `count` records on their way, as they are; plain producers only."""
        self._check_open()
        if self._idempotent:
            raise UsageError("expected a plain producer for ready batches, found an idempotent one")
        topic_partition = partition_of(topic, partition)
        lane = self._lane(self._connection.partition(topic_partition))
        return self._enqueue(lane, batches, count)

    async def flush(self) -> None:
        """Return once nothing is on its way, whatever became of it."""
        while busy := [lane for lane in self._lanes.values() if not lane.is_idle]:
            for lane in busy:
                await lane.idle()

    def close(self) -> None:
        """Stop; what is still on its way fails."""
        if self._closed:
            return
        self._closed = True
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
        error = ReplicationError(
            "expected the producer to stay open until its records were acknowledged, found it "
            "closed; they may be lost or still be committed"
        )
        for lane in self._lanes.values():
            lane.close(error)

    def _enqueue(self, lane: ProduceLane, batches: Any, count: int) -> asyncio.Future[Produced]:
        loop = self._connection.loop
        deadline_ms = loop.time() * 1000 + self._delivery_timeout_ms
        if self._timer is None:
            self._timer = loop.call_later(DEADLINE_CHECK_MS / 1000, self._check_deadlines)
        if not self._idempotent:
            future: asyncio.Future[Produced] = loop.create_future()
            lane.add(PendingBatches(batches, count, -1, deadline_ms, future))
            return future
        parts: list[asyncio.Future[Produced]] = []
        for batch, records in split(batches):
            future = loop.create_future()
            lane.add(PendingBatches(batch, records, lane.next_sequence, deadline_ms, future))
            parts.append(future)
        return parts[0] if len(parts) == 1 else asyncio.ensure_future(_joined(parts))

    def _lane(self, registration: PartitionRegistration) -> ProduceLane:
        """The one of the topic that has the name now; with another one's it is over."""
        lane = self._lanes.get(registration.topic_partition)
        if lane is not None:
            if lane.topic_id == registration.topic_id:
                return lane
            lane.end(registration.topic_id)
        return self._open_lane(registration)

    def _open_lane(self, registration: PartitionRegistration) -> ProduceLane:
        lane = ProduceLane(
            self._connection,
            registration.topic_partition,
            registration.topic_id,
            self._acks,
            self._request_timeout_ms,
            idempotent=self._idempotent,
        )
        self._lanes[registration.topic_partition] = lane
        return lane

    def _choose(self, topic: str, partition: int | None, *, has_keys: bool) -> TopicPartition:
        named = partition_of(topic, 0 if partition is None else partition)
        if partition is not None:
            return named
        count = self._connection.partition_count(topic)
        if count == 1:
            return named
        if has_keys:
            raise UsageError(
                f"expected the partition for records with keys, found none given and {count} in "
                f"topic {topic!r}; choose it by the key, the same for the same key"
            )
        turn = self._next_partition.get(topic, 0)
        self._next_partition[topic] = turn + 1
        return TopicPartition(topic, turn % count)

    def _metadata_changed(self) -> None:
        for lane in self._lanes.values():
            if not lane.is_idle:
                lane.metadata_changed()

    def _check_deadlines(self) -> None:
        now_ms = self._connection.loop.time() * 1000
        busy = False
        for lane in self._lanes.values():
            if not lane.is_idle:
                lane.expire(now_ms)
                busy = True
        self._timer = None
        if busy and not self._closed:
            self._timer = self._connection.loop.call_later(
                DEADLINE_CHECK_MS / 1000, self._check_deadlines
            )

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("expected an open producer, found it closed; open another")


@functools.cache
def _keep_freed_blocks() -> None:
    """Have glibc keep what is freed. Once in a process: a second such block would come from what is
    kept by then, and be cleared for nothing.
    """
    bytes(FREED_BLOCK_BYTES)


async def _joined(parts: list[asyncio.Future[Produced]]) -> Produced:
    """One answer for records that took several batches. Raises the first error."""
    answers = await asyncio.gather(*parts)
    first, last = answers[0], answers[-1]
    return Produced(
        topic_partition=first.topic_partition,
        base_offset=first.base_offset,
        last_offset=last.last_offset,
        leader_epoch=last.leader_epoch,
        durability=first.durability,
        log_append_time_ms=first.log_append_time_ms,
    )


def _codec_of(compression_type: str) -> Codec:
    if compression_type in {"producer", "uncompressed"}:
        return Codec.NONE
    return Codec[compression_type.upper()]
