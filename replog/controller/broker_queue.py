"""What one broker has been asked to do, and has not completed.

Bounded: `QUEUE_MAX`. A full queue keeps one deletion per partition, the one of the latest epoch,
and drops the rest: who returns after so long reads all it is to lead and follow off the metadata.
If that leaves it full it is an error that names the broker.

A dead broker's queue stays full for as long as it is dead, and every change of its partitions is
put there. So it is not gone through for each: starts stand apart from deletions, and once these
have been sorted out they stay one a partition until the queue is at most half full. What a change
costs, taken over many, does not depend on the length.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections import deque
from typing import TYPE_CHECKING

from replog.errors import ReplogError

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    from replog.types import TopicPartition

QUEUE_MAX = 10_000


class ChangeKind(enum.Enum):
    """What a broker is asked to do with its replica."""

    LEAD = "lead"
    FOLLOW = "follow"
    WAIT = "wait until there is a leader"
    DELETE = "delete"


class ChangeState(enum.Enum):
    """How far it is."""

    REQUESTED = "requested"
    RECEIVED = "received"
    COMPLETED = "completed"
    IGNORED = "ignored: its leader epoch is older than the partition's"
    DROPPED = "dropped from a full queue"


class BrokerQueueFullError(ReplogError):
    """A broker has been asked for more deletions than its queue holds, and completes none."""


class StateChange:
    """One broker's part in one change. Times are of the controller's clock, in ms; None: not yet,
    or decided before this controller was the active one. `version`: metadata that asks for it.
    """

    __slots__ = (
        "broker_id",
        "completed_ms",
        "kind",
        "leader_epoch",
        "received_ms",
        "requested_ms",
        "state",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        broker_id: int,
        kind: ChangeKind,
        leader_epoch: int,
        version: int,
        requested_ms: int | None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.kind = kind
        self.leader_epoch = leader_epoch
        self.version = version
        self.requested_ms = requested_ms
        self.received_ms: int | None = None
        self.completed_ms: int | None = None
        self.state = ChangeState.REQUESTED

    def __repr__(self) -> str:
        return (
            f"<{self.topic_partition} epoch {self.leader_epoch}: broker {self.broker_id} is to "
            f"{self.kind.value}, {self.state.value}>"
        )

    @property
    def partition_key(self) -> tuple[uuid.UUID, int]:
        """The partition, also where its topic's name was given again."""
        return self.topic_id, self.topic_partition.partition

    def receive(self, now_ms: int) -> None:
        """The broker has it. When, nobody knows of what an earlier controller has decided: it may
        have had it long before it was heard of here.
        """
        self.state = ChangeState.RECEIVED
        if self.requested_ms is not None:
            self.received_ms = now_ms

    def complete(self, now_ms: int) -> None:
        """The broker has obeyed; of when, the same is true."""
        self.state = ChangeState.COMPLETED
        if self.requested_ms is not None:
            self.completed_ms = now_ms


class _Lane:
    """Changes, oldest first. Those that were dropped are passed over, `len` counts them."""

    __slots__ = ("_received", "_requested")

    def __init__(self) -> None:
        self._received: deque[StateChange] = deque()
        self._requested: deque[StateChange] = deque()
        """Those behind it: looked at again by each fetch of the broker, so not with the others."""

    def __len__(self) -> int:
        return len(self._received) + len(self._requested)

    def __iter__(self) -> Iterator[StateChange]:
        for change in itertools.chain(self._received, self._requested):
            if change.state is not ChangeState.DROPPED:
                yield change

    def put(self, change: StateChange) -> None:
        self._requested.append(change)

    def receive(self, version: int, now_ms: int) -> None:
        while self._requested and self._requested[0].version <= version:
            change = self._requested.popleft()
            if change.state is not ChangeState.DROPPED:
                change.receive(now_ms)
                self._received.append(change)

    def take(self, version: int) -> Iterator[StateChange]:
        """Take out those received that this much of the metadata asks for."""
        while self._received and self._received[0].version <= version:
            change = self._received.popleft()
            if change.state is not ChangeState.DROPPED:
                yield change

    def forget_dropped(self) -> None:
        for changes in (self._received, self._requested):
            kept = [one for one in changes if one.state is not ChangeState.DROPPED]
            changes.clear()
            changes.extend(kept)


class BrokerQueue:
    """See the module. Iterates over what waits, oldest first.

    Invariant: while `_latest` is not None it has the deletions that wait, and these are one a
    partition; while it is None, none of those in their lane was dropped.
    """

    def __init__(self, broker_id: int, length_max: int = QUEUE_MAX) -> None:
        self.broker_id = broker_id
        self.overflowing = False
        """Whether it has refused a change, and has not been half empty since."""
        self._length_max = length_max
        self._starts = _Lane()
        self._deletions = _Lane()
        self._latest: dict[tuple[uuid.UUID, int], StateChange] | None = None

    def __iter__(self) -> Iterator[StateChange]:
        return heapq.merge(self._starts, self._deletions, key=lambda change: change.version)

    def __len__(self) -> int:
        deletions = self._deletions if self._latest is None else self._latest
        return len(self._starts) + len(deletions)

    def put(self, change: StateChange) -> None:
        """Ask for this, too. Raises BrokerQueueFullError; then it is not asked for."""
        if len(self) >= self._length_max:
            self._keep_deletions()
        if len(self) >= self._length_max and not self._replaces(change):
            change.state = ChangeState.DROPPED
            self.overflowing = True
            raise BrokerQueueFullError(
                f"expected broker {self.broker_id} to complete some of the {len(self)} "
                f"deletions that it has been asked for, found its queue full when it was asked to "
                f"{change.kind.value} {change.topic_partition}; start or unregister it",
                broker_id=self.broker_id,
                topic_partition=str(change.topic_partition),
            )
        if change.kind is not ChangeKind.DELETE:
            self._starts.put(change)
        elif self._latest is None or self._keep_latest(change, self._latest):
            self._deletions.put(change)
            if len(self._deletions) > 2 * self._length_max:
                self._deletions.forget_dropped()

    def received(self, version: int, now_ms: int) -> None:
        """The broker has this much of the metadata."""
        self._starts.receive(version, now_ms)
        self._deletions.receive(version, now_ms)

    def completed(self, version: int, now_ms: int) -> None:
        """The broker has obeyed this much of the metadata."""
        self.received(version, now_ms)
        for change in self._starts.take(version):
            change.complete(now_ms)
        for change in self._deletions.take(version):
            change.complete(now_ms)
            if self._latest is not None:
                del self._latest[change.partition_key]
        if self._latest is not None and len(self) <= self._length_max // 2:
            self.overflowing = False
            self._latest = None
            self._deletions.forget_dropped()

    def _replaces(self, change: StateChange) -> bool:
        """Whether it is a deletion, and this partition's waits already."""
        return (
            change.kind is ChangeKind.DELETE
            and self._latest is not None
            and change.partition_key in self._latest
        )

    def _keep_deletions(self) -> None:
        """Drop the starts, and all but one deletion a partition."""
        for change in self._starts:
            change.state = ChangeState.DROPPED
        self._starts = _Lane()
        if self._latest is None:
            latest: dict[tuple[uuid.UUID, int], StateChange] = {}
            for change in self._deletions:
                self._keep_latest(change, latest)
            self._latest = latest

    @staticmethod
    def _keep_latest(change: StateChange, latest: dict[tuple[uuid.UUID, int], StateChange]) -> bool:
        """Whether it is kept; it or the one it replaces is dropped."""
        key = change.partition_key
        other = latest.get(key)
        if other is not None and other.leader_epoch > change.leader_epoch:
            change.state = ChangeState.DROPPED
            return False
        if other is not None:
            other.state = ChangeState.DROPPED
        latest[key] = change
        return True
