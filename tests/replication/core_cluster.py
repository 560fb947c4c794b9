"""Replicas of one partition over memory logs and a queue of messages that a test may inspect."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from replog.messages import Acks, Message
from replog.replication.events import LeadershipChange, Produce, Tick
from replog.replication.replica import Replica
from replog.runtime.effect_executor import EffectExecutor, LogTruncation
from replog.types import TopicPartition
from tests.replication.memory_log import MemoryLog

if TYPE_CHECKING:
    from replog.replication.effects import CompleteProduce

PARTITION = TopicPartition("orders", 0)
STEPS_MAX = 10_000


class CoreCluster:
    def __init__(self, logs: dict[int, MemoryLog]) -> None:
        self.logs = logs
        self.now_ms = 0
        self.queue: collections.deque[tuple[int, Message]] = collections.deque()
        self.delivered: list[tuple[int, Message]] = []
        self.answers: dict[int, CompleteProduce] = {}
        self.truncations: list[LogTruncation] = []
        self.executors: dict[int, EffectExecutor] = {}
        self._next_request_id = 0
        for replica_id in logs:
            self.start(replica_id)

    def start(self, replica_id: int) -> None:
        log = self.logs[replica_id]
        self.executors[replica_id] = EffectExecutor(
            Replica(PARTITION, replica_id, log),
            log,
            send=lambda to, message: self.queue.append((to, message)),
            complete_produce=self._complete,
            on_truncation=self.truncations.append,
        )

    def kill(self, replica_id: int) -> None:
        del self.executors[replica_id]

    def replica(self, replica_id: int) -> Replica:
        return self.executors[replica_id].replica

    def lead(self, leader_id, epoch: int, isr, *, to=None) -> None:
        change = LeadershipChange(
            leader_id=leader_id, leader_epoch=epoch, replicas=tuple(self.logs), isr=tuple(isr)
        )
        for replica_id in to if to is not None else self.executors:
            self.handle(replica_id, change)

    def handle(self, replica_id: int, event) -> None:
        self.executors[replica_id].handle(event, self.now_ms)

    def produce(self, leader_id: int, *payloads: str, acks=Acks.ALL) -> int:
        self._next_request_id += 1
        request_id = self._next_request_id
        self.handle(leader_id, Produce(request_id=request_id, batches=payloads, acks=acks))
        return request_id

    def deliver_one(self) -> Message:
        to, message = self.queue.popleft()
        self.delivered.append((to, message))
        if to in self.executors:
            self.handle(to, message)
        return message

    def settle(self) -> None:
        """Deliver messages until none is left: every fetch waits at the leader."""
        for _ in range(STEPS_MAX):
            if not self.queue:
                return
            self.deliver_one()
        raise AssertionError(f"messages never end; the next is {self.queue[0]}")

    def tick(self, by_ms: int) -> None:
        self.now_ms += by_ms
        for replica_id in list(self.executors):
            self.handle(replica_id, Tick())

    def payloads(self, replica_id: int) -> list[str]:
        return [record.payload for record in self.logs[replica_id].records]

    def _complete(self, answer: CompleteProduce) -> None:
        assert answer.request_id not in self.answers, f"answered twice: {answer}"
        self.answers[answer.request_id] = answer


def three_replicas() -> CoreCluster:
    """Replica 1 leads 2 and 3 in epoch 1; all is quiet."""
    cluster = CoreCluster({1: MemoryLog(), 2: MemoryLog(), 3: MemoryLog()})
    cluster.lead(1, 1, (1, 2, 3))
    cluster.settle()
    return cluster
