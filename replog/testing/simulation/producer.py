"""A producer: batches of unique values at random times, tried again until they are settled.

Without idempotence one batch is on its way at a time, and a batch tried again may be written
twice. With it as many are as the real producer's window (`client.produce_window`) lets go, and
after a failure all that are unsettled are sent again in their order.

Its process may crash at any time, also while nobody leads: what was unsettled is given up, and its
successor begins with ids that no leader knows. What was unsettled is given up, too, when its topic
was deleted and another one has the name.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable

from replog.client.produce_window import Leadership, ProduceWindow
from replog.messages import Acks, ErrorCode, ProduceRequest, ProduceResponse
from replog.testing.simulation.batches import ClientBatch
from replog.testing.simulation.client import Client, Cluster
from replog.testing.simulation.network import Connection, Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import Scheduler
from replog.testing.simulation.violation import Violation
from replog.types import NO_PRODUCER_ID, TopicPartition

RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


@dataclasses.dataclass(slots=True, kw_only=True)
class ProducerOptions:
    """One producer's habits; times in microseconds."""

    acks: int
    idempotent: bool
    in_flight_max: int
    interval_us: int
    records_max: int
    timeout_us: int
    backoff_us: int
    crash: float = 0.0
    """Probability that its process dies when it would make a batch."""
    latency_us: int | None = None
    """Mean latency of its connections, where it is not near the brokers."""


class _Lane:
    """One partition's batches, oldest first, each on its way or waiting to be sent."""

    __slots__ = (
        "batches",
        "failed",
        "in_flight",
        "leadership",
        "next_sequence",
        "ordinals",
        "producer_id",
        "retrying",
        "sent",
        "topic_id",
        "unsettled",
        "window",
    )

    def __init__(self, producer_id: int, in_flight_max: int) -> None:
        self.topic_id: uuid.UUID | None = None
        """As it was when first asked for."""
        self.unsettled: list[ClientBatch] = []
        self.batches = 0
        """Made so far."""
        self.ordinals: list[int] = []
        """Each of them as the n-th of all."""
        self.sent = 0
        """How many of them, from the oldest on, were sent since the last failure."""
        self.in_flight = 0
        self.failed = False
        """Something went wrong: once nothing is in flight, all are sent again."""
        self.retrying = False
        """That is about to happen."""
        self.leadership: Leadership | None = None
        """As it was when last asked for."""
        self.window = ProduceWindow(in_flight_max)
        self.producer_id = producer_id
        self.next_sequence = 0


class Producer(Client):
    """See the module."""

    def __init__(
        self,
        address: int,
        scheduler: Scheduler,
        network: Network,
        stream: Stream,
        cluster: Cluster,
        partitions: list[TopicPartition],
        options: ProducerOptions,
        *,
        on_batch: Callable[[ClientBatch], None],
        on_loss: Callable[[TopicPartition, ClientBatch], None],
        on_crash: Callable[[], None],
    ) -> None:
        """on_batch: called with each batch before it is sent for the first time. on_loss: with one
        that a leader refuses as out of order although all before it was acknowledged. on_crash: the
        process dies and leaves batches unsettled.
        """
        super().__init__(address, scheduler, network, stream)
        self.options = options
        self.stopped = False
        self.acknowledged: list[tuple[TopicPartition, uuid.UUID, ClientBatch, int]] = []
        """Partition and its topic's id, batch, offset: what the cluster vouches for (acks=all)."""
        self._cluster = cluster
        self._on_batch = on_batch
        self._on_loss = on_loss
        self._on_crash = on_crash
        self._values = 0
        self._producer_ids = 0
        self._lanes = self._new_lanes(partitions)
        if options.latency_us is not None:
            network.distances_us[address] = options.latency_us
        scheduler.after(stream.below(options.interval_us), self._produce)

    @property
    def settled(self) -> bool:
        """Whether every batch was acknowledged or given up."""
        return not any(lane.unsettled for lane in self._lanes.values())

    def _new_lanes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, _Lane]:
        in_flight_max = self.options.in_flight_max
        return {name: _Lane(self._new_producer_id(), in_flight_max) for name in partitions}

    def _new_producer_id(self) -> int:
        if not self.options.idempotent:
            return NO_PRODUCER_ID
        self._producer_ids += 1
        return self.address * 1000 + self._producer_ids

    def connection_lost(self, connection: Connection) -> None:
        super().connection_lost(connection)
        for lane in self._lanes.values():
            if lane.leadership is not None and lane.leadership.leader_id == connection.server:
                lane.window.close()
                lane.leadership = None

    def _produce(self, _: None) -> None:
        if self.stopped:
            return
        self.scheduler.after(1 + self.stream.exponential(self.options.interval_us), self._produce)
        if self.stream.chance(self.options.crash):
            self._crash()
        name = self.stream.choice(list(self._lanes))
        lane = self._lanes[name]
        if len(lane.unsettled) >= 2 * self.options.in_flight_max:
            return  # its buffer is full
        count = self.stream.between(1, self.options.records_max)
        values = tuple(f"{self.address}:{self._values + n}" for n in range(count))
        self._values += count
        batch = ClientBatch(values)
        if self.options.idempotent:
            batch = ClientBatch(values, lane.producer_id, 0, lane.next_sequence)
            lane.next_sequence += count
        self._on_batch(batch)
        lane.unsettled.append(batch)
        lane.batches += 1
        lane.ordinals.append(lane.batches)
        self._send_ready(name)

    def _crash(self) -> None:
        """The process dies and is started again: requests may still arrive, answers do not."""
        if not self.settled:
            self._on_crash()
        self._waiting.clear()
        self.network.reset_all(self.address, silent=False)
        self._lanes = self._new_lanes(self._lanes)

    def _send_ready(self, name: TopicPartition) -> None:
        lane = self._lanes[name]
        while not lane.failed and lane.sent < len(lane.unsettled):
            leadership = lane.leadership or self._look_up(name)
            if self._lanes[name] is not lane:
                return
            if leadership is None:
                self._fail(name)
                return
            ordinal = lane.ordinals[lane.sent]
            if not lane.window.may_send(ordinal, leadership, lane.in_flight, lane.ordinals[0]):
                return
            batch = lane.unsettled[lane.sent]
            lane.leadership = leadership
            lane.window.sent(ordinal, leadership)
            lane.sent += 1
            lane.in_flight += 1
            self._send(name, leadership.leader_id, batch, ordinal)

    def _look_up(self, name: TopicPartition) -> Leadership | None:
        registration = self._cluster.lookup(name)
        if registration is None or registration.leader_id is None:
            return None
        lane = self._lanes[name]
        if lane.topic_id is None:
            lane.topic_id = registration.topic_id
        elif lane.topic_id != registration.topic_id:
            self._lanes.update(self._new_lanes((name,)))
            return None
        return Leadership(registration.leader_id, registration.leader_epoch)

    def _send(self, name: TopicPartition, leader: int, batch: ClientBatch, ordinal: int) -> None:
        acks = self.options.acks
        lane = self._lanes[name]
        assert lane.topic_id is not None
        request = ProduceRequest(
            partitions=((name, lane.topic_id, batch),),
            acks=acks,
            timeout_ms=self.options.timeout_us // 2000,
        )

        def answered(response: ProduceResponse | None) -> None:
            if self._lanes[name] is not lane:
                return  # it is over, with its topic
            if acks == Acks.NONE:
                self._settle(name, batch)
            else:
                self._answered(name, batch, ordinal, response)

        wait_us = self.options.backoff_us if acks == Acks.NONE else self.options.timeout_us
        self.ask(leader, request, wait_us, answered)

    def _answered(
        self,
        name: TopicPartition,
        batch: ClientBatch,
        ordinal: int,
        response: ProduceResponse | None,
    ) -> None:
        lane = self._lanes[name]
        assert lane.topic_id is not None
        answer = None if response is None else response.partitions[0]
        if answer is not None and answer.error is ErrorCode.NONE:
            lane.window.acknowledged(ordinal)
            if self.options.acks == Acks.ALL:
                self.acknowledged.append((name, lane.topic_id, batch, answer.base_offset))
            self._settle(name, batch)
            return
        lane.in_flight -= 1
        if answer is not None and answer.error not in RETRIED:
            raise Violation("L1", f"producer {self.address} got {answer} for {batch} of {name}")
        if (
            answer is not None
            and answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and lane.unsettled
            and lane.unsettled[0] is batch
        ):
            self._lost(name, batch)
        self._fail(name)

    def _lost(self, name: TopicPartition, batch: ClientBatch) -> None:
        """All before `batch` was acknowledged, and the leader does not know of it."""
        self._on_loss(name, batch)
        lane = self._lanes[name]
        lane.producer_id = self._new_producer_id()
        lane.next_sequence = 0
        lane.window.close()
        lane.unsettled.clear()
        lane.ordinals.clear()
        lane.sent = 0

    def _settle(self, name: TopicPartition, batch: ClientBatch) -> None:
        lane = self._lanes[name]
        lane.in_flight -= 1
        for place, unsettled in enumerate(lane.unsettled):
            if unsettled is batch:
                del lane.unsettled[place], lane.ordinals[place]
                lane.sent -= place < lane.sent
                break
        if lane.failed:
            self._fail(name)
        else:
            self._send_ready(name)

    def _fail(self, name: TopicPartition) -> None:
        """Send all again in order once the answers to all that is in flight have come."""
        lane = self._lanes[name]
        lane.failed = True
        lane.window.close()
        if lane.in_flight == 0 and not lane.retrying:
            lane.sent = 0
            lane.retrying = True
            backoff_us = self.options.backoff_us // 2 + self.stream.below(self.options.backoff_us)
            self.scheduler.after(backoff_us, self._try_again, (name, lane))

    def _try_again(self, what: tuple[TopicPartition, _Lane]) -> None:
        name, lane = what
        if self._lanes[name] is not lane:
            return  # it went with its process, or its topic
        lane.failed = lane.retrying = False
        lane.leadership = None
        self._send_ready(name)
