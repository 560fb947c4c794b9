"""Creations that are answered when every replica has started, or at last when time is up.

A replica has started when its broker has obeyed the metadata that created it, and has not said
that its log is damaged. Whose creation timed out may ask again: the same topic is waited for again,
and one that no broker has begun with gives way to what is asked for now. Otherwise it is there, and
must be deleted first: somebody may have written to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from replog.admin_messages import CreateTopicsResponse
from replog.controller.broker_contacts import BrokerContacts
from replog.controller.effects import Respond
from replog.controller.metadata_image import MetadataImage
from replog.controller.partition_image import PartitionImage
from replog.controller.replica_reports import ReplicaReports
from replog.controller.topic_image import TopicImage
from replog.messages import CreateTopicRequest, CreateTopicResponse, ErrorCode

NAMED_MAX = 10
"""How many replicas a message names before it counts the rest."""


@dataclasses.dataclass(slots=True)
class _Waiting:
    response: CreateTopicsResponse
    topics: tuple[TopicImage | None, ...]
    version: int
    deadline_ms: int


class CreationWaits:
    """Who waits, and which creations have not come to their end."""

    def __init__(
        self, image: MetadataImage, contacts: BrokerContacts, reports: ReplicaReports
    ) -> None:
        self._image = image
        self._contacts = contacts
        self._reports = reports
        self._waiting: dict[int, _Waiting] = {}
        self._unfinished: dict[TopicImage, tuple[CreateTopicRequest, int]] = {}

    @property
    def next_deadline_ms(self) -> int | None:
        """When somebody has waited long enough."""
        return min((waiting.deadline_ms for waiting in self._waiting.values()), default=None)

    def wait(
        self,
        request_id: int,
        response: CreateTopicsResponse,
        asked: tuple[CreateTopicRequest, ...],
        deadline_ms: int,
    ) -> None:
        """Answered by `answers`, now or later."""
        version = self._image.end_offset
        topics = tuple(
            self._image.topics[request.topic] if answer.error is ErrorCode.NONE else None
            for request, answer in zip(asked, response.topics, strict=True)
        )
        for request, topic in zip(asked, topics, strict=True):
            if topic is not None and topic not in self._unfinished:
                self._unfinished[topic] = (request, version)
        self._waiting[request_id] = _Waiting(response, topics, version, deadline_ms)

    def again(self, request: CreateTopicRequest) -> TopicImage | None:
        """The topic that the same request has begun to create before."""
        topic = self._image.topics.get(request.topic)
        known = self._unfinished.get(topic) if topic is not None else None
        return topic if known is not None and known[0] == request else None

    def abandoned(self, request: CreateTopicRequest) -> TopicImage | None:
        """The topic of this name, if its creation failed before any broker began with it."""
        topic = self._image.topics.get(request.topic)
        known = self._unfinished.get(topic) if topic is not None else None
        if topic is None or known is None:
            return None
        begun = any(
            self._has_obeyed(broker_id, known[1])
            for partition in topic.partitions.values()
            for broker_id in partition.replicas
        )
        return None if begun else topic

    def answers(self, committed: int, now_ms: int) -> list[Respond]:
        """Answer who need not wait any longer."""
        answers = []
        for request_id, waiting in list(self._waiting.items()):
            if waiting.version > committed:
                continue
            missing = [
                [] if topic is None else list(self._missing(topic, waiting.version))
                for topic in waiting.topics
            ]
            if any(missing) and now_ms < waiting.deadline_ms:
                continue
            del self._waiting[request_id]
            topics = tuple(
                _timed_out(answer, late) if late else answer
                for answer, late in zip(waiting.response.topics, missing, strict=True)
            )
            for topic, late in zip(waiting.topics, missing, strict=True):
                if topic is not None and not late:
                    self._unfinished.pop(topic, None)
            response = dataclasses.replace(waiting.response, topics=topics)
            answers.append(Respond(request_id, response))
        return answers

    def forget(self, topic: TopicImage) -> None:
        """The topic is gone."""
        self._unfinished.pop(topic, None)

    def clear(self) -> None:
        """Another controller answers from now on."""
        self._waiting.clear()
        self._unfinished.clear()

    def _missing(self, topic: TopicImage, version: int) -> Iterator[tuple[PartitionImage, int]]:
        """The replicas that have not started; none once the topic is gone."""
        if self._image.topics.get(topic.name) is not topic:
            return
        obeyed: dict[int, bool] = {}
        for number in sorted(topic.partitions):
            partition = topic.partitions[number]
            damaged = self._reports.damaged(partition)
            for broker_id in partition.replicas:
                if broker_id not in obeyed:
                    obeyed[broker_id] = self._has_obeyed(broker_id, version)
                if not obeyed[broker_id] or broker_id in damaged:
                    yield partition, broker_id

    def _has_obeyed(self, broker_id: int, version: int) -> bool:
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.applied_version >= version


def _timed_out(
    answer: CreateTopicResponse, late: list[tuple[PartitionImage, int]]
) -> CreateTopicResponse:
    named = ", ".join(f"{one.name} on broker {broker_id}" for one, broker_id in late[:NAMED_MAX])
    more = f" and {len(late) - NAMED_MAX} more" if len(late) > NAMED_MAX else ""
    return dataclasses.replace(
        answer,
        error=ErrorCode.REQUEST_TIMED_OUT,
        message=(
            f"expected every replica to have started in time, found {len(late)} that have not: "
            f"{named}{more}. The topic is there; start these brokers, or delete it"
        ),
    )
