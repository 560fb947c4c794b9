"""A cluster on real logs without a loop: nothing moves unless told to, so every run is the same."""

from __future__ import annotations

import collections
import itertools
import uuid
from typing import Any

from replog.config import ControllerOptions, LogConfig, ReplicationOptions
from replog.controller.model_controller import ModelController
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
from replog.runtime.cluster_pump import ClientEndpoint, ClusterPump, ControllerEndpoint
from replog.runtime.memory_transport import CLIENT, CONTROLLER
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


class HandCranked:
    """Three brokers; `settle` delivers all there is, `pass_time` lets deadlines come."""

    def __init__(self, directory: str, *, start_ms: int = 1_700_000_000_000) -> None:
        self.clock = ManualClock(start_ms)
        self.loop = StillLoop()
        options = ControllerOptions()
        topic_ids = itertools.count(1000)
        self.model = ModelController(options, lambda: uuid.UUID(int=next(topic_ids)))
        self.pump = ClusterPump(self.loop, self.clock, lambda: None)
        self.clients = ClientEndpoint(self.pump)
        self.pump.add_controller(ControllerEndpoint(self.pump, self.model))
        self.pump.transport.attach(CLIENT, self.clients)
        self.members = ClusterMembers(
            self.pump,
            self.model,
            directory,
            (1, 2, 3),
            racks={},
            replication=ReplicationOptions(replica_fetch_backoff_ms=10),
            controller=options,
        )
        self.sent: list[tuple[bytes, list[ProducedPartition]]] = []

    def start(self, broker_id: int) -> None:
        self.members.open_new(broker_id)

    def create(self, config: LogConfig, min_insync_replicas: int = 2) -> None:
        self.members.configs[PARTITION.topic] = config
        answers: list[Any] = []
        topic = TopicConfig(min_insync_replicas=min_insync_replicas, log=config)
        request = CreateTopicRequest(
            topic=PARTITION.topic, assignment=((1, 3, 2),), replication_factor=3, config=topic
        )
        self.clients.ask(CONTROLLER, request, answers.append)
        self.settle()
        assert answers[0].error is ErrorCode.NONE

    @property
    def leader_id(self) -> int | None:
        registration = self.model.partition(PARTITION)
        return None if registration is None else registration.leader_id

    @property
    def isr(self) -> tuple[int, ...]:
        registration = self.model.partition(PARTITION)
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
            request = ProduceRequest(partitions=((PARTITION, batches),), acks=acks)
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
        self.pump.transport.deliver(count)

    def settle(self) -> None:
        """Deliver until nothing is on its way."""
        while len(self.pump.transport):
            self.pump.transport.deliver(100)

    def pass_time(self, by_ms: int, step_ms: int = 100) -> None:
        """Let deadlines come, one after the other, and deliver what follows."""
        for _ in range(0, by_ms, step_ms):
            self.clock.advance(step_ms)
            self.pump._tick(self.clock.monotonic_ms())
            self.settle()

    def close(self) -> None:
        self.members.close_all(keep_files=False)
