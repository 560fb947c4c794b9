"""A cluster on real logs without a loop: nothing moves unless told to, so every run is the same."""

from __future__ import annotations

import collections
import itertools
import uuid
from typing import Any

from replog.config import ControllerOptions, LogConfig, QuorumOptions, ReplicationOptions
from replog.messages import (
    Acks,
    CreateTopicRequest,
    ErrorCode,
    ProducedPartition,
    ProduceRequest,
)
from replog.registrations import TopicConfig
from replog.runtime.clock import ManualClock
from replog.runtime.cluster_members import ClusterMembers
from replog.runtime.cluster_nodes import ClusterLayout, format_voters
from replog.runtime.cluster_pump import ClientEndpoint, ClusterPump
from replog.runtime.cluster_view import ClusterView
from replog.runtime.memory_transport import CLIENT, controller_address
from replog.runtime.quorum_endpoints import QuorumSettings
from replog.types import TopicPartition

PARTITION = TopicPartition("orders", 0)


class StillLoop:
    """What the pump needs of a loop: calls are kept for `run`, timers are the clock's."""

    def __init__(self) -> None:
        self.calls: collections.deque[Any] = collections.deque()

    def call_soon(self, call: Any) -> None:
        self.calls.append(call)

    def call_later(self, delay: float, call: Any) -> StillTimer:
        return StillTimer()


class StillTimer:
    def cancel(self) -> None:
        pass


CONTROLLER_ID = 1001


class StillFlushes:
    """Syncs of the metadata log, done when it is their turn."""

    def __init__(self, waiting: collections.deque[Any], completed: Any) -> None:
        self._waiting, self._completed = waiting, completed

    def flush(self, topic_partition: TopicPartition, log: Any) -> None:
        target = log.sync_target()

        def sync() -> None:
            if not log.closed:
                log.sync(target)
                log.note_synced(target)
                self._completed(topic_partition, log, None)

        self._waiting.append(sync)

    def close(self) -> None:
        pass


class HandCranked:
    """Three brokers; `settle` delivers all there is, `pass_time` lets deadlines come."""

    def __init__(self, directory: str, *, start_ms: int = 1_700_000_000_000) -> None:
        self.clock = ManualClock(start_ms)
        self.loop = StillLoop()
        ids = itertools.count(1000)
        self.syncs: collections.deque[Any] = collections.deque()
        self.view = ClusterView(lambda: None)
        self.pump = ClusterPump(self.loop, self.clock)
        self.clients = ClientEndpoint(self.pump)
        self.pump.transport.attach(CLIENT, self.clients)
        layout = ClusterLayout(brokers=(1, 2, 3), controllers=(CONTROLLER_ID,))
        format_voters(directory, layout)
        self.members = ClusterMembers(
            self.pump,
            self.view,
            directory,
            layout,
            QuorumSettings(
                voters=(CONTROLLER_ID,),
                quorum=QuorumOptions(),
                controller=ControllerOptions(),
                cluster_id="hand-cranked",
                new_id=lambda: uuid.UUID(int=next(ids)),
                draw_below=lambda _: 0,
                flushes=lambda _, completed: StillFlushes(self.syncs, completed),
            ),
            racks={},
            replication=ReplicationOptions(replica_fetch_backoff_ms=10),
        )
        self.members.open_new(CONTROLLER_ID)
        self.settle()
        self.sent: list[tuple[bytes, list[ProducedPartition]]] = []

    def start(self, broker_id: int) -> None:
        self.members.open_new(broker_id)

    def create(self, config: LogConfig, min_insync_replicas: int = 2) -> None:
        answers: list[Any] = []
        topic = TopicConfig(min_insync_replicas=min_insync_replicas, log=config)
        request = CreateTopicRequest(
            topic=PARTITION.topic, assignment=((1, 3, 2),), replication_factor=3, config=topic
        )
        self.clients.ask(controller_address(CONTROLLER_ID), request, answers.append)
        self.settle()
        assert answers[0].error is ErrorCode.NONE

    @property
    def leader_id(self) -> int | None:
        registration = self.view.partition(PARTITION)
        return None if registration is None else registration.leader_id

    @property
    def isr(self) -> tuple[int, ...]:
        registration = self.view.partition(PARTITION)
        return () if registration is None else registration.isr

    def log(self, broker_id: int) -> Any:
        return self.members.node(broker_id).store.get(PARTITION)

    def produce(self, batches: bytes, acks: Acks = Acks.ALL) -> list[ProducedPartition]:
        """Send to the leader; the list gets the answer when it comes, and nothing if it broke."""
        answers: list[ProducedPartition] = []
        self.sent.append((batches, answers))

        def answered(response: Any) -> None:
            if response is not None:
                answers.extend(response.partitions)

        if self.leader_id is not None:
            topic_id = self.view.partition(PARTITION).topic_id
            request = ProduceRequest(partitions=((PARTITION, topic_id, batches),), acks=acks)
            self.clients.ask(self.leader_id, request, answered)
        return answers

    def acknowledged(self) -> list[tuple[bytes, ProducedPartition]]:
        return [
            (batches, answers[0])
            for batches, answers in self.sent
            if answers and answers[0].error is ErrorCode.NONE
        ]

    def deliver(self, count: int) -> None:
        """Hand over so many messages."""
        for _ in range(count):
            self._sync()
            self.pump.transport.deliver(1)
        self._sync()

    def settle(self) -> None:
        """Deliver until nothing is on its way."""
        while len(self.pump.transport) or self.syncs:
            self.deliver(1)

    def _sync(self) -> None:
        while self.syncs:
            self.syncs.popleft()()

    def pass_time(self, by_ms: int, step_ms: int = 100) -> None:
        """Let deadlines come, one after the other, and deliver what follows."""
        for _ in range(0, by_ms, step_ms):
            self.clock.advance(step_ms)
            self.pump._tick(self.clock.monotonic_ms())
            self.settle()

    def close(self) -> None:
        self.members.close_all(keep_files=False)
