"""Topics: created, deleted, given more partitions. All is checked before anything is written."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from replog.admin_messages import (
    AdminResponse,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from replog.controller.creation_waits import CreationWaits, mark_of
from replog.controller.decision import Decision
from replog.controller.incidents import PartitionsAdded, TopicCreated, TopicDeleted
from replog.controller.metadata_image import CREATION_MARK, TOPIC_RESOURCE, note_of
from replog.controller.placement import UsableBroker, place
from replog.controller.replica_reports import ReplicaReports
from replog.controller.state_machines import PartitionState, move_partition, partition_state
from replog.controller.topic_checks import (
    Refusal,
    check_added,
    check_assignment,
    check_counts,
    check_name,
    check_options,
    check_together,
)
from replog.controller.topic_image import TopicImage
from replog.controller.topic_options import options_of
from replog.messages import (
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    ErrorCode,
)
from replog.registrations import TopicConfig
from replog.types import TopicPartition
from replog.wire.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    import uuid

Assignment = tuple[tuple[int, ...], ...]


class TopicControl:
    """Carries out what clients ask of topics. `new_topic_id` gives ids never given before."""

    def __init__(
        self,
        decision: Decision,
        reports: ReplicaReports,
        new_topic_id: Callable[[], uuid.UUID],
    ) -> None:
        self._decision = decision
        self._image = decision.image
        self._reports = reports
        self._new_topic_id = new_topic_id
        self._topics_placed = 0

    def create_all(
        self, request: CreateTopicsRequest, unfinished: CreationWaits
    ) -> CreateTopicsResponse:
        """Decide on each of them; on none where one command asks for too much."""
        refusal = check_together(request.topics)
        if refusal is not None:
            refused = CreateTopicResponse(error=refusal.error, message=refusal.message)
            return CreateTopicsResponse(topics=(refused,) * len(request.topics))
        asked = collections.Counter(topic.topic for topic in request.topics)
        return CreateTopicsResponse(
            topics=tuple(
                self.create(
                    topic,
                    validate_only=request.validate_only,
                    unfinished=unfinished,
                    waits=request.wait_ms_max > 0,
                )
                if asked[topic.topic] == 1
                else CreateTopicResponse(
                    error=ErrorCode.INVALID_REQUEST,
                    message=(
                        f"expected each topic once, found {topic.topic!r} "
                        f"{asked[topic.topic]} times; none of them is created"
                    ),
                )
                for topic in request.topics
            )
        )

    def create(
        self,
        request: CreateTopicRequest,
        *,
        validate_only: bool = False,
        unfinished: CreationWaits | None = None,
        waits: bool = False,
    ) -> CreateTopicResponse:
        """Decide on one topic; the records of one topic stand together.

        unfinished: creations that failed half-way: the next attempt goes on with them, or cleans
        them up. waits: the asker waits until all has started, so that this may fail half-way.
        """
        again = unfinished.again(request) if unfinished else None
        if again is not None:
            return CreateTopicResponse(topic_id=again.topic_id, version=self._decision.next_offset)
        abandoned = unfinished.abandoned(request) if unfinished else None
        options = options_of(request.config or TopicConfig()) | dict(request.options)
        brokers = self._brokers()
        existing: Collection[str] = self._image.topics
        if abandoned is not None:
            existing = self._image.topics.keys() - {abandoned.name}
        refusal = check_name(request.topic, existing) or check_options(options)
        if refusal is None and request.assignment is not None:
            refusal = check_assignment(request, brokers)
        elif refusal is None:
            refusal = check_counts(request, self._usable(brokers))
        if refusal is not None:
            return CreateTopicResponse(error=refusal.error, message=refusal.message)
        if validate_only:
            return CreateTopicResponse(version=self._decision.next_offset)
        assignment = request.assignment
        if assignment is None:
            assignment = self._place(
                brokers, max(request.partitions, 1), max(request.replication_factor, 1)
            )
        if abandoned is not None:
            self.remove(abandoned)
        topic_id = self._new_topic_id()
        self._decision.write(TopicRecord(name=request.topic, topic_id=topic_id.bytes))
        for option, text in options.items():
            self._decision.write(
                ConfigRecord(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=request.topic,
                    name=option,
                    value=text,
                )
            )
        self._add_partitions(self._image.topics[request.topic], assignment)
        if waits:
            mark = mark_of(request, self._decision.next_offset + 1)
            self._decision.write(note_of(request.topic, CREATION_MARK, mark))
        self._decision.report(
            TopicCreated(topic=request.topic, topic_id=topic_id, partitions=len(assignment))
        )
        return CreateTopicResponse(topic_id=topic_id, version=self._decision.next_offset)

    def delete(self, request: DeleteTopicRequest) -> DeleteTopicResponse:
        """Forget a topic; brokers delete its files by its id when they hear of it."""
        topic = self._image.topics.get(request.topic)
        if topic is None:
            return DeleteTopicResponse(
                error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                message=f"expected an existing topic, found no {request.topic!r} to delete",
            )
        self.remove(topic)
        return DeleteTopicResponse(version=self._decision.next_offset)

    def remove(self, topic: TopicImage) -> None:
        """Decide that a topic is gone. Raises IllegalTransitionError; nothing is written then."""
        for partition in topic.partitions.values():
            state = partition_state(partition)
            if state is PartitionState.ONLINE:
                state = move_partition(partition.name, state, PartitionState.OFFLINE)
            move_partition(partition.name, state, PartitionState.NON_EXISTENT)
        for partition in topic.partitions.values():
            self._reports.remove(partition)
        self._decision.write(RemoveTopicRecord(topic_id=topic.raw_id))
        self._decision.report(TopicDeleted(topic=topic.name, topic_id=topic.topic_id))

    def add(self, request: CreatePartitionsRequest) -> AdminResponse:
        """Give a topic more partitions; never fewer."""
        topic = self._image.topics.get(request.topic)
        brokers = self._brokers()
        refusal: Refusal | None
        if topic is None:
            refusal = Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"expected an existing topic, found no {request.topic!r} to add partitions to",
            )
        else:
            factor = len(topic.partitions[0].target)
            refusal = check_added(
                request, len(topic.partitions), factor, brokers, self._usable(brokers)
            )
        if refusal is not None:
            return AdminResponse(error=refusal.error, message=refusal.message)
        assert topic is not None
        if not request.validate_only:
            count = request.count - len(topic.partitions)
            assignment = request.assignment
            if assignment is None:
                assignment = self._place(brokers, count, len(topic.partitions[0].target))
            self._add_partitions(topic, assignment)
            self._decision.report(
                PartitionsAdded(
                    topic=topic.name, partitions=len(topic.partitions), added=len(assignment)
                )
            )
        return AdminResponse(version=self._decision.next_offset)

    def _add_partitions(self, topic: TopicImage, assignment: Iterable[tuple[int, ...]]) -> None:
        """All live replicas are in sync while the log is empty, and the first of them leads."""
        for number, replicas in enumerate(assignment, start=len(topic.partitions)):
            live = tuple(replica for replica in replicas if self._image.is_live(replica))
            name = TopicPartition(topic.name, number)
            state = move_partition(name, PartitionState.NON_EXISTENT, PartitionState.NEW)
            move_partition(name, state, PartitionState.ONLINE)
            self._decision.write(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic.raw_id,
                    replicas=tuple(replicas),
                    isr=live,
                    leader=live[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
            )

    def _place(self, brokers: dict[int, UsableBroker], partitions: int, factor: int) -> Assignment:
        start = self._topics_placed
        self._topics_placed += 1
        return tuple(place(self._usable(brokers), partitions, factor, start=start))

    def _brokers(self) -> dict[int, UsableBroker]:
        return {
            broker_id: UsableBroker(
                broker_id, broker.registration.rack, not broker.registration.eligible
            )
            for broker_id, broker in sorted(self._image.brokers.items())
        }

    def _usable(self, brokers: dict[int, UsableBroker]) -> list[UsableBroker]:
        return [
            brokers[broker_id]
            for broker_id in brokers
            if not self._image.brokers[broker_id].registration.in_controlled_shutdown
        ]
