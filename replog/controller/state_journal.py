"""The life of every state change: requested, received, completed; by leader epoch and broker.

A change of the metadata asks brokers to lead, to follow, or to delete. Requests are read off the
records as they are replayed, so that a controller which has replayed the log has the same journal
as the one that wrote it. How far each broker is, it tells anew: what it has received with each
fetch of the metadata log, what it has completed with each heartbeat. What a broker has been asked
and not completed is its queue: that of a slow or dead one grows.

A snapshot stands for what came before it: who has not obeyed it is to do what it says. Deletions
of before it are not told there, and each broker finds them by itself.

Bounded: the latest `HISTORY_MAX` changes are kept, and `QUEUE_MAX` per queue. A full queue keeps
one deletion per partition, the one of the latest epoch, and drops the rest: who returns after so
long reads all it is to lead and follow off the metadata. If that leaves it full it is an error that
names the broker.

A start-up replays hundreds of thousands of records, and nobody looks meanwhile. So what a record
asks of brokers is noted in one piece, and worked out when somebody wants to know; a note that
`HISTORY_MAX` others have followed would have left history and is dropped.
"""

from __future__ import annotations

import enum
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from replog.admin_messages import StateChangeRow, StateChangesRequest, StateChangesResponse
from replog.errors import ReplogError
from replog.types import TopicPartition
from replog.wire.metadata_records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    from replog.controller.metadata_image import MetadataImage
    from replog.controller.partition_image import PartitionImage

    _Note = tuple[TopicPartition, uuid.UUID, tuple[int, ...], int | None, int, int, int | None]
    """Partition, topic id, replicas, leader, its epoch, version, and when it was decided."""

HISTORY_MAX = 20_000
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
    """One broker's part in one change. Times are of the controller's clock, in ms; None: before it
    was the active one, or not yet. `version`: metadata that asks for it.
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


class BrokerQueue:
    """What one broker has been asked and not completed, oldest first."""

    def __init__(self, broker_id: int, length_max: int = QUEUE_MAX) -> None:
        self.broker_id = broker_id
        self._length_max = length_max
        self._received: deque[StateChange] = deque()
        self._requested: deque[StateChange] = deque()
        """Those behind it: looked at again by each fetch of the broker, so not with the others."""

    def __iter__(self) -> Iterator[StateChange]:
        return itertools.chain(self._received, self._requested)

    def __len__(self) -> int:
        return len(self._received) + len(self._requested)

    def put(self, change: StateChange) -> None:
        """Ask for this, too. Raises BrokerQueueFullError; then it is not asked for."""
        if len(self) >= self._length_max:
            self._keep_deletions()
        if len(self) >= self._length_max:
            change.state = ChangeState.DROPPED
            raise BrokerQueueFullError(
                f"expected broker {self.broker_id} to complete some of the {len(self)} "
                f"deletions that it has been asked for, found its queue full when it was asked to "
                f"{change.kind.value} {change.topic_partition}; start or unregister it",
                broker_id=self.broker_id,
                topic_partition=str(change.topic_partition),
            )
        self._requested.append(change)

    def received(self, version: int, now_ms: int) -> None:
        """The broker has this much of the metadata."""
        while self._requested and self._requested[0].version <= version:
            change = self._requested.popleft()
            change.received_ms = now_ms
            change.state = ChangeState.RECEIVED
            self._received.append(change)

    def completed(self, version: int, now_ms: int) -> None:
        """The broker has obeyed this much of the metadata."""
        self.received(version, now_ms)
        while self._received and self._received[0].version <= version:
            change = self._received.popleft()
            change.completed_ms = now_ms
            change.state = ChangeState.COMPLETED

    def _keep_deletions(self) -> None:
        latest: dict[tuple[uuid.UUID, int], StateChange] = {}
        for change in self:
            if change.kind is not ChangeKind.DELETE:
                change.state = ChangeState.DROPPED
                continue
            key = (change.topic_id, change.topic_partition.partition)
            if key not in latest or latest[key].leader_epoch <= change.leader_epoch:
                if key in latest:
                    latest[key].state = ChangeState.DROPPED
                latest[key] = change
            else:
                change.state = ChangeState.DROPPED
        kept = sorted(latest.values(), key=lambda change: change.version)
        self._received = deque(one for one in kept if one.state is ChangeState.RECEIVED)
        self._requested = deque(one for one in kept if one.state is ChangeState.REQUESTED)


class StateJournal:
    """See the module."""

    def __init__(self, *, history_max: int = HISTORY_MAX, queue_max: int = QUEUE_MAX) -> None:
        self._queue_max = queue_max
        self._notes: deque[_Note] = deque(maxlen=history_max)
        self._history: deque[StateChange] = deque(maxlen=history_max)
        self._queues: dict[int, BrokerQueue] = {}
        self.overflows: list[BrokerQueueFullError] = []
        """Of queues that were full, since somebody has looked here."""

    def changes(
        self, topic_partition: TopicPartition | None = None, broker_id: int | None = None
    ) -> list[StateChange]:
        """The latest changes, of one partition or one broker if named, oldest first."""
        self._work_out()
        return [
            change
            for change in self._history
            if topic_partition in {None, change.topic_partition}
            and broker_id in {None, change.broker_id}
        ]

    def rows(self, request: StateChangesRequest) -> StateChangesResponse:
        """The answer to an operator's question."""
        return StateChangesResponse(
            changes=tuple(
                StateChangeRow(
                    topic_partition=change.topic_partition,
                    broker_id=change.broker_id,
                    kind=change.kind.value,
                    leader_epoch=change.leader_epoch,
                    state=change.state.value,
                    requested_ms=change.requested_ms,
                    received_ms=change.received_ms,
                    completed_ms=change.completed_ms,
                )
                for change in self.changes(request.topic_partition, request.broker_id)
            ),
            queued=tuple(self.lengths().items()),
        )

    def queued(self, broker_id: int) -> list[StateChange]:
        """What a broker has still to do."""
        self._work_out()
        return list(self._queues.get(broker_id, ()))

    def lengths(self) -> dict[int, int]:
        """How much each broker has still to do."""
        self._work_out()
        return {broker_id: len(queue) for broker_id, queue in sorted(self._queues.items())}

    def before(self, image: MetadataImage, record: Any, now_ms: int | None) -> None:
        """Look at a record that is about to be replayed, and say what is deleted by it."""
        version = image.end_offset + 1
        if type(record) is RemoveTopicRecord:
            topic = image.topics_by_id.get(record.topic_id)
            for partition in topic.partitions.values() if topic else ():
                for broker_id in partition.replicas:
                    self._request_deletion(partition, broker_id, version, now_ms)
        elif type(record) is PartitionChangeRecord and record.replicas is not None:
            topic = image.topics_by_id.get(record.topic_id)
            found = topic.partitions.get(record.partition_id) if topic else None
            for broker_id in found.replicas if found else ():
                if found is not None and broker_id not in record.replicas:
                    self._request_deletion(found, broker_id, version, now_ms)

    def after(self, image: MetadataImage, record: Any, now_ms: int | None) -> None:
        """Look at a record that has been replayed, and say who leads and follows by it."""
        if type(record) is PartitionChangeRecord:
            if record.leader == -2 and record.replicas is None:
                return
        elif type(record) is not PartitionRecord:
            return
        topic = image.topics_by_id[record.topic_id]
        self._note(topic.partitions[record.partition_id], image.end_offset, now_ms)

    def begin(self, image: MetadataImage) -> None:
        """The metadata begins anew from a snapshot: who has not obeyed it is to do what it says."""
        self.clear()
        for partition in image.partitions():
            self._note(partition, image.end_offset, None)

    def _note(self, partition: PartitionImage, version: int, now_ms: int | None) -> None:
        self._notes.append(
            (
                partition.name,
                partition.topic.topic_id,
                partition.replicas,
                partition.leader_id,
                partition.leader_epoch,
                version,
                now_ms,
            )
        )

    def ignored(
        self, partition: PartitionImage, broker_id: int, leader_epoch: int, now_ms: int
    ) -> None:
        """A broker has asked for a change in an epoch that is over."""
        self._work_out()
        change = StateChange(
            partition.name,
            partition.topic.topic_id,
            broker_id,
            ChangeKind.LEAD,
            leader_epoch,
            0,
            now_ms,
        )
        change.state = ChangeState.IGNORED
        self._history.append(change)

    def received(self, broker_id: int, version: int, now_ms: int) -> None:
        """A broker has this much of the metadata."""
        self._work_out()
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.received(version, now_ms)

    def completed(self, broker_id: int, version: int, now_ms: int) -> None:
        """A broker has obeyed this much of the metadata."""
        self._work_out()
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.completed(version, now_ms)

    def forget(self, broker_id: int) -> None:
        """A broker was unregistered: nobody waits for it."""
        self._work_out()
        self._queues.pop(broker_id, None)

    def clear(self) -> None:
        """The metadata begins anew."""
        self._notes.clear()
        self._history.clear()
        self._queues.clear()
        self.overflows.clear()

    def request(self, change: StateChange, latest_epoch: int) -> None:
        """Ask a broker for a change; one of an older epoch than the partition's is ignored."""
        self._work_out()
        self._history.append(change)
        if change.leader_epoch < latest_epoch:
            change.state = ChangeState.IGNORED
            return
        self._queue(change)

    def _work_out(self) -> None:
        """Ask brokers for what has been noted."""
        notes = self._notes
        while notes:
            name, topic_id, replicas, leader_id, epoch, version, now_ms = notes.popleft()
            others = ChangeKind.WAIT if leader_id is None else ChangeKind.FOLLOW
            for broker_id in replicas:
                kind = ChangeKind.LEAD if broker_id == leader_id else others
                change = StateChange(name, topic_id, broker_id, kind, epoch, version, now_ms)
                self._history.append(change)
                self._queue(change)

    def _queue(self, change: StateChange) -> None:
        queue = self._queues.get(change.broker_id)
        if queue is None:
            queue = self._queues[change.broker_id] = BrokerQueue(change.broker_id, self._queue_max)
        try:
            queue.put(change)
        except BrokerQueueFullError as error:
            if change.requested_ms is not None:  # else another controller has asked, and told
                self.overflows.append(error)

    def _request_deletion(
        self, partition: PartitionImage, broker_id: int, version: int, now_ms: int | None
    ) -> None:
        change = StateChange(
            partition.name,
            partition.topic.topic_id,
            broker_id,
            ChangeKind.DELETE,
            partition.leader_epoch,
            version,
            now_ms,
        )
        self.request(change, partition.leader_epoch)
