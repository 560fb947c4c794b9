"""How long partitions were without a leader: measured from the fault to the next leader at work."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from replog.registrations import PartitionRegistration
    from replog.types import TopicPartition

    Lookup = Callable[[TopicPartition], PartitionRegistration | None]
    IsLeading = Callable[[int, TopicPartition, int], bool]

Fault = Literal["killed", "paused", "partitioned", "stopped"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """A leader was lost and another took over; times from the fault on.

    `elected_ms`: the controller had decided. `leading_ms`: the new leader took requests.
    """

    topic_partition: TopicPartition
    fault: Fault
    from_leader: int
    to_leader: int
    leader_epoch: int
    elected_ms: float
    leading_ms: float

    def __str__(self) -> str:
        return (
            f"{self.topic_partition}: leader {self.from_leader} {self.fault}, {self.to_leader} "
            f"elected after {self.elected_ms:.1f} ms, leading in epoch {self.leader_epoch} after "
            f"{self.leading_ms:.1f} ms"
        )


@dataclasses.dataclass(slots=True)
class _Lost:
    fault: Fault
    from_leader: int
    since: float
    to_leader: int | None = None
    leader_epoch: int = -1
    elected_ms: float = 0.0


class FailoverWatch:
    """Faults go in by `lost`; `look` after each turn finds those that are made good."""

    def __init__(self, lookup: Lookup, is_leading: IsLeading, now_s: Callable[[], float]) -> None:
        self.failovers: list[Failover] = []
        """All so far, oldest first."""
        self._lookup = lookup
        self._is_leading = is_leading
        self._now_s = now_s
        self._lost: dict[TopicPartition, _Lost] = {}

    def lost(self, broker_id: int, fault: Fault, partitions: Iterable[TopicPartition]) -> None:
        """These partitions were led by a broker that is not there any more."""
        now = self._now_s()
        for topic_partition in partitions:
            self._lost.setdefault(topic_partition, _Lost(fault, broker_id, now))

    def returned(self, broker_id: int) -> None:
        """The broker goes on as if nothing had been; what it still leads was not lost."""
        for topic_partition, lost in list(self._lost.items()):
            if lost.from_leader == broker_id and lost.to_leader is None:
                del self._lost[topic_partition]

    def look(self) -> None:
        """Note what has been elected, and what leads."""
        if not self._lost:
            return
        now = self._now_s()
        for topic_partition, lost in list(self._lost.items()):
            registration = self._lookup(topic_partition)
            if registration is None:
                del self._lost[topic_partition]
                continue
            leader_id = registration.leader_id
            if leader_id is None or leader_id == lost.from_leader:
                continue
            if registration.leader_epoch != lost.leader_epoch:
                lost.to_leader, lost.leader_epoch = leader_id, registration.leader_epoch
                lost.elected_ms = (now - lost.since) * 1e3
            if self._is_leading(leader_id, topic_partition, registration.leader_epoch):
                del self._lost[topic_partition]
                self.failovers.append(
                    Failover(
                        topic_partition=topic_partition,
                        fault=lost.fault,
                        from_leader=lost.from_leader,
                        to_leader=leader_id,
                        leader_epoch=registration.leader_epoch,
                        elected_ms=lost.elected_ms,
                        leading_ms=(now - lost.since) * 1e3,
                    )
                )
