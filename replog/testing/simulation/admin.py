"""An administrator: creates topics, deletes records, deletes a topic and creates it again, moves
replicas and leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from replog.admin_messages import (
    BalanceLeadersRequest,
    Reassignment,
    ReassignPartitionsRequest,
)
from replog.messages import (
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteRecordsRequest,
    DeleteTopicRequest,
    ErrorCode,
)
from replog.testing.simulation.client import Client, Cluster
from replog.testing.simulation.network import Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import Scheduler
from replog.types import TopicPartition

if TYPE_CHECKING:
    from replog.testing.simulation.options import RunOptions

TIMEOUT_US = 2_000_000
PAUSE_US = 100_000
INTERVAL_US = 5_000_000
PATIENCE_US = 3_000_000
"""Until a reassignment is called off, on average of those that are."""


class Admin(Client):
    """See the module. `ready` is called when the first topic exists and has leaders."""

    def __init__(
        self,
        address: int,
        scheduler: Scheduler,
        network: Network,
        stream: Stream,
        cluster: Cluster,
        options: RunOptions,
        *,
        topic: str,
        scratch: str,
        ready: Callable[[], None],
        recreated: Callable[[], None],
    ) -> None:
        """`topic` is kept, and loses records; `scratch` is deleted and created again."""
        super().__init__(address, scheduler, network, stream)
        self.stopped = False
        self._cluster = cluster
        self._options = options
        self._topic = topic
        self._scratch = scratch
        self._ready = ready
        self._recreated = recreated
        self._begun = False
        self._has_scratch = False
        self._placed: tuple[int, ...] | None = None
        """Where the topic that comes and goes is to be next."""
        scheduler.after(PAUSE_US, self._create, topic)

    def recreate(self) -> bool:
        """Delete the topic that comes and goes, and create it again where it was, so that whoever
        hears nothing of it finds the same leader in the same epoch; False if it is not there.
        """
        registration = self._cluster.lookup(TopicPartition(self._scratch, 0))
        if registration is None or registration.leader_id is None:
            return False
        others = [one for one in registration.replicas if one != registration.leader_id]
        self._placed = (registration.leader_id, *others)
        self._delete_scratch()
        return True

    def _create(self, topic: str) -> None:
        options = self._options
        is_kept = topic == self._topic
        request = CreateTopicRequest(
            topic=topic,
            partitions=options.partitions if is_kept else 1,
            replication_factor=options.replication_factor,
            assignment=(self._placed,) if self._placed and not is_kept else None,
            config=options.topic if is_kept else options.scratch_topic,
        )

        def created(response: CreateTopicResponse | None) -> None:
            if response is None or response.error not in {
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
            }:
                self.scheduler.after(PAUSE_US, self._create, topic)
            elif topic == self._topic:
                self.scheduler.after(PAUSE_US, self._wait_for_leaders)
            else:
                self._placed = None
                if self._has_scratch:
                    self._recreated()
                self._has_scratch = True

        self.ask(self._cluster.controller(self.stream), request, TIMEOUT_US, created)

    def _wait_for_leaders(self, _: None) -> None:
        names = [TopicPartition(self._topic, n) for n in range(self._options.partitions)]
        found = [self._cluster.lookup(name) for name in names]
        if any(one is None or one.leader_id is None for one in found):
            self.scheduler.after(PAUSE_US, self._wait_for_leaders)
            return
        if not self._begun:
            self._begun = True
            self._ready()
            self._create(self._scratch)
            self.scheduler.after(self.stream.exponential(INTERVAL_US), self._act)

    def _act(self, _: None) -> None:
        if self.stopped:
            return
        self.scheduler.after(1 + self.stream.exponential(INTERVAL_US), self._act)
        if self._options.moves and self.stream.chance(0.5):
            self._move()
        elif self.stream.chance(0.7):
            self._delete_records(moves=self._options.moves and self.stream.chance(0.3))
        else:
            self._delete_scratch()

    def _move(self, name: TopicPartition | None = None) -> None:
        """Replicas elsewhere, or back, or the leaders; of a given partition, its replicas."""
        kind = 2 if name is not None else self.stream.below(5)
        if name is None:
            name = TopicPartition(self._topic, self.stream.below(self._options.partitions))
        request: ReassignPartitionsRequest | BalanceLeadersRequest
        if kind == 0:
            request = BalanceLeadersRequest(threshold_percent=0)
        else:
            brokers = range(1, self._options.brokers + 1)
            target = tuple(self.stream.sample(brokers, self._options.replication_factor))
            moved = Reassignment(topic_partition=name, replicas=None if kind == 1 else target)
            rate = self.stream.choice((None, None, 20_000))
            request = ReassignPartitionsRequest(partitions=(moved,), throttle_bytes_per_s=rate)
            if moved.replicas is not None and self.stream.chance(0.5):
                self.scheduler.after(self.stream.exponential(PATIENCE_US), self._call_off, name)
        self.ask(self._cluster.controller(self.stream), request, TIMEOUT_US, lambda _: None)

    def _call_off(self, name: TopicPartition) -> None:
        """Most do no harm: nothing is under way any more, or all of the old replicas are there."""
        called_off = Reassignment(topic_partition=name, replicas=None)
        request = ReassignPartitionsRequest(partitions=(called_off,))
        self.ask(self._cluster.controller(self.stream), request, TIMEOUT_US, lambda _: None)

    def _delete_records(self, *, moves: bool = False) -> None:
        """moves: then have the replicas elsewhere, where nobody was told of it."""
        name = TopicPartition(self._topic, self.stream.below(self._options.partitions))
        registration = self._cluster.lookup(name)
        if registration is None or registration.leader_id is None:
            return
        offset = self.stream.choice((-1, self.stream.below(50), self.stream.below(300)))
        request = DeleteRecordsRequest(
            partitions=((name, registration.topic_id, offset),), timeout_ms=1000
        )

        def deleted(_: object) -> None:
            if moves:
                self._move(name)

        self.ask(registration.leader_id, request, TIMEOUT_US, deleted)

    def _delete_scratch(self) -> None:
        self.ask(
            self._cluster.controller(self.stream),
            DeleteTopicRequest(topic=self._scratch),
            TIMEOUT_US,
            lambda _: self._create(self._scratch),
        )
