"""Creations that are answered when every replica has started, or at last when time is up.

A replica has started when its broker has obeyed the metadata that created it, and has not said
that its log is damaged. A creation that somebody waits for is marked in the metadata, and the mark
goes when all has started: so any controller knows which have failed half-way. The next attempt
cleans up: if it asks for the same, the topic that is there is waited for again; if it asks for
something else, and no broker has begun with that topic, the topic gives way. Otherwise it is there,
and must be deleted first: somebody may have written to it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator

from replog.admin_messages import CreateTopicsResponse
from replog.controller.broker_contacts import BrokerContacts
from replog.controller.decision import Decision
from replog.controller.effects import Respond
from replog.controller.metadata_image import CREATION_MARK, note_of
from replog.controller.partition_image import PartitionImage
from replog.controller.replica_reports import ReplicaReports
from replog.controller.topic_image import TopicImage
from replog.controller.topic_options import options_of
from replog.messages import CreateTopicRequest, CreateTopicResponse, ErrorCode
from replog.registrations import TopicConfig

NAMED_MAX = 10
"""How many replicas a message names before it counts the rest."""


def mark_of(request: CreateTopicRequest, version: int) -> str:
    """What marks a creation that is not finished: metadata that has it, and what was asked for."""
    options = options_of(request.config or TopicConfig()) | dict(request.options)
    asked = (
        request.partitions,
        request.replication_factor,
        request.assignment,
        sorted(options.items()),
    )
    return f"{version} {hashlib.blake2b(repr(asked).encode(), digest_size=16).hexdigest()}"


def _version_of(mark: str) -> int:
    return int(mark.partition(" ")[0])


@dataclasses.dataclass(slots=True)
class _Waiting:
    response: CreateTopicsResponse
    topics: tuple[TopicImage | None, ...]
    deadline_ms: int


class CreationWaits:
    """Who waits, and which creations have not come to their end."""

    def __init__(
        self, decision: Decision, contacts: BrokerContacts, reports: ReplicaReports
    ) -> None:
        self._decision = decision
        self._image = decision.image
        self._contacts = contacts
        self._reports = reports
        self._waiting: dict[int, _Waiting] = {}
        self._seen: tuple[int, int] | None = None
        """What all had been looked at with: unless it changes, nobody has started since."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When somebody has waited long enough."""
        if not self._waiting:
            return None
        return min(waiting.deadline_ms for waiting in self._waiting.values())

    def wait(
        self,
        request_id: int,
        response: CreateTopicsResponse,
        asked: tuple[CreateTopicRequest, ...],
        deadline_ms: int,
    ) -> None:
        """Answered by `settle`, now or later."""
        topics = tuple(
            self._image.topics[request.topic] if answer.error is ErrorCode.NONE else None
            for request, answer in zip(asked, response.topics, strict=True)
        )
        self._waiting[request_id] = _Waiting(response, topics, deadline_ms)
        self._seen = None

    def again(self, request: CreateTopicRequest) -> TopicImage | None:
        """The topic that the same request has begun to create before."""
        mark = self._image.creations.get(request.topic)
        if mark is None or mark != mark_of(request, _version_of(mark)):
            return None
        return self._image.topics[request.topic]

    def abandoned(self, request: CreateTopicRequest) -> TopicImage | None:
        """The topic of this name, if its creation failed before any broker began with it."""
        mark = self._image.creations.get(request.topic)
        if mark is None:
            return None
        version = _version_of(mark)
        topic = self._image.topics[request.topic]
        begun = any(topic in waiting.topics for waiting in self._waiting.values()) or any(
            self._may_have_begun(broker_id, version)
            for partition in topic.partitions.values()
            for broker_id in partition.replicas
        )
        return None if begun else topic

    def settle(self, now_ms: int) -> list[Respond]:
        """Take the marks off what has started; answers for who need not wait any longer, to be
        given once all that this has written is committed.
        """
        image = self._image
        seen = (self._contacts.changes, image.end_offset)
        due_ms = self.next_deadline_ms
        if seen == self._seen and (due_ms is None or now_ms < due_ms):
            return []
        missing: dict[str, list[tuple[PartitionImage, int]]] = {}
        for name, mark in list(image.creations.items()):
            missing[name] = list(self._missing(image.topics[name], _version_of(mark)))
            if not missing[name]:
                self._decision.write(note_of(name, CREATION_MARK, None))
        self._seen = (self._contacts.changes, image.end_offset)
        answers = []
        for request_id, waiting in list(self._waiting.items()):
            late = [
                missing.get(topic.name, [])
                if topic is not None and image.topics.get(topic.name) is topic
                else []
                for topic in waiting.topics
            ]
            if any(late) and now_ms < waiting.deadline_ms:
                continue
            del self._waiting[request_id]
            topics = tuple(
                _timed_out(answer, left) if left else answer
                for answer, left in zip(waiting.response.topics, late, strict=True)
            )
            response = dataclasses.replace(waiting.response, topics=topics)
            answers.append(Respond(request_id, response))
        return answers

    def clear(self) -> None:
        """Another controller answers from now on."""
        self._waiting.clear()

    def _missing(self, topic: TopicImage, version: int) -> Iterator[tuple[PartitionImage, int]]:
        """The replicas that have not started."""
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

    def _may_have_begun(self, broker_id: int, version: int) -> bool:
        """A live broker may have done so since it was last heard, and have acknowledged records."""
        if self._image.is_live(broker_id):
            return True
        contact = self._contacts.get(broker_id)
        return contact is None or not contact.has_told or contact.applied_version >= version


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
