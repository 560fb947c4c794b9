"""The life of every state change: requested, received, completed; by leader epoch and broker.

A change of the metadata asks brokers to lead, to follow, or to delete. Requests are read off the
records as they are replayed, so that a controller which has replayed the log has the same journal
as the one that wrote it. How far each broker is, it tells anew: what it has received with each
fetch of the metadata log, what it has completed with each heartbeat. What a broker has been asked
and not completed is its queue: that of a slow or dead one grows. Times are known of what this
controller has decided itself: what was decided before may have been obeyed before.

A snapshot stands for what came before it: who has not obeyed it is to do what it says. Deletions
of before it are not told there, and each broker finds them by itself.

Bounded: the latest `HISTORY_MAX` changes are kept, and queues as in `broker_queue`.

A start-up replays hundreds of thousands of records, and nobody looks meanwhile. So what a record
asks of brokers is noted in one piece, and worked out when somebody wants to know; a note that
`HISTORY_MAX` others have followed would have left history and is dropped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from replog.admin_messages import StateChangeRow, StateChangesRequest, StateChangesResponse
from replog.controller.broker_queue import (
    QUEUE_MAX,
    BrokerQueue,
    BrokerQueueFullError,
    ChangeKind,
    ChangeState,
    StateChange,
)
from replog.types import TopicPartition
from replog.wire.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    import uuid

    from replog.controller.metadata_image import MetadataImage
    from replog.controller.partition_image import PartitionImage

    _Note = tuple[TopicPartition, uuid.UUID, tuple[int, ...], int | None, int, int, int | None]
    """Partition, topic id, replicas, leader, its epoch, version, and when it was decided."""

HISTORY_MAX = 20_000


class StateJournal:
    """See the module."""

    def __init__(self, *, history_max: int = HISTORY_MAX, queue_max: int = QUEUE_MAX) -> None:
        self._queue_max = queue_max
        self._notes: deque[_Note] = deque(maxlen=history_max)
        self._history: deque[StateChange] = deque(maxlen=history_max)
        self._queues: dict[int, BrokerQueue] = {}
        self.overflows: list[BrokerQueueFullError] = []
        """Of queues that were full, since somebody has looked here; one a queue until it has been
        half empty.
        """

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
            if type(record) is UnregisterBrokerRecord:
                self._forget(record.broker_id)
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

    def resigned(self) -> None:
        """Another controller decides, and brokers obey unseen: of what waits no time is known."""
        self._work_out()
        for queue in self._queues.values():
            for change in queue:
                change.requested_ms = None

    def _forget(self, broker_id: int) -> None:
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
        known = queue.overflowing
        try:
            queue.put(change)
        except BrokerQueueFullError as error:
            # What an earlier controller has asked for, it has told; and the broker may have obeyed.
            if not known and change.requested_ms is not None:
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
