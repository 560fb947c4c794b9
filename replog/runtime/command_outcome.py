"""What became of a command whose first answer was lost, judged by the metadata before and after.

A controller that dies may have carried a command out; its successor, asked again, then refuses what
is done already. So each part of a command that a successor refuses is judged by what it is about:

    as it was before the command    nobody carried it out: the refusal stands
    as asked, and refused for that  it is done: success
    anything else                   nobody can tell: REQUEST_TIMED_OUT, which is worth another try
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from replog.admin_messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    ElectionKind,
    ElectLeadersRequest,
    Reassignment,
    ReassignPartitionsRequest,
    UnregisterBrokerRequest,
)
from replog.controller.metadata_image import TOPIC_RESOURCE
from replog.controller.topic_options import options_of
from replog.messages import CreateTopicRequest, DeleteTopicRequest, ErrorCode
from replog.registrations import TopicConfig
from replog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replog.controller.metadata_image import MetadataImage
    from replog.controller.partition_image import PartitionImage


class _Part(NamedTuple):
    """One thing that a command asks for."""

    refused_as_done: ErrorCode
    """What a controller answers that finds it done already."""
    fact: Callable[[], Any]
    """What it is about, as a value: None where there is no such thing."""
    is_done: Callable[[Any], bool]
    """Whether it is as asked, given the fact of before."""


class CommandOutcome:
    """Made before the command is first sent; looks at the image again when it is answered."""

    def __init__(self, request: Any, image: MetadataImage) -> None:
        self._image = image
        self._parts = tuple(_parts_of(request, image))
        self._before = tuple(part.fact() for part in self._parts)

    def settle(self, answer: Any) -> Any:
        """The answer to the last try, when an earlier one may have been carried out as well."""
        if not self._parts:
            return answer
        name = next((name for name in ("topics", "partitions") if hasattr(answer, name)), None)
        if name is None:
            return self._settle(answer, 0)
        if answer.error is not ErrorCode.NONE:
            return answer
        parts = enumerate(getattr(answer, name))
        settled = tuple(self._settle(part, number) for number, part in parts)
        return dataclasses.replace(answer, **{name: settled})

    def _settle(self, answer: Any, number: int) -> Any:
        part, before = self._parts[number], self._before[number]
        if answer.error in {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT} or part.fact() == before:
            return answer
        if answer.error is not part.refused_as_done or not part.is_done(before):
            return dataclasses.replace(
                answer,
                error=ErrorCode.REQUEST_TIMED_OUT,
                message=(
                    f"expected an answer of the controller that was asked first, found that it "
                    f"stopped, and that the next one answers {answer.error.name} "
                    f"({answer.message}); the metadata has changed meanwhile, so the command may "
                    f"have been carried out: look, and ask again if need be"
                ),
            )
        now: dict[str, Any] = {"error": ErrorCode.NONE, "message": None}
        if hasattr(answer, "version"):
            now["version"] = self._image.end_offset
        if hasattr(answer, "topic_id"):
            now["topic_id"] = part.fact()[0]
        return dataclasses.replace(answer, **now)


def _parts_of(request: Any, image: MetadataImage) -> Iterator[_Part]:
    """Empty for a command that may be carried out twice, or changes nothing."""
    if getattr(request, "validate_only", False):
        return
    match request:
        case CreateTopicRequest():
            yield _created(request, image)
        case CreateTopicsRequest():
            for topic in request.topics:
                yield _created(topic, image)
        case DeleteTopicRequest():
            yield _Part(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                lambda: _topic(image, request.topic),
                lambda _: request.topic not in image.topics,
            )
        case CreatePartitionsRequest():
            yield _Part(
                ErrorCode.INVALID_PARTITIONS,
                lambda: _topic(image, request.topic),
                lambda before: _is_added(request, image, before),
            )
        case ReassignPartitionsRequest():
            for asked in request.partitions:
                yield _reassigned(asked, image)
        case ElectLeadersRequest():
            for name in request.partitions or ():
                yield _elected(name, request.kind, image)
        case UnregisterBrokerRequest():
            yield _Part(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                lambda: _broker_epoch(image, request.broker_id),
                lambda _: request.broker_id not in image.brokers,
            )


def _topic(image: MetadataImage, name: str) -> Any:
    """(topic id, how many partitions)."""
    topic = image.topics.get(name)
    return None if topic is None else (topic.topic_id, len(topic.partitions))


def _broker_epoch(image: MetadataImage, broker_id: int) -> int | None:
    broker = image.brokers.get(broker_id)
    return None if broker is None else broker.registration.broker_epoch


def _created(request: CreateTopicRequest, image: MetadataImage) -> _Part:
    return _Part(
        ErrorCode.TOPIC_ALREADY_EXISTS,
        lambda: _topic(image, request.topic),
        lambda _: _is_as_asked(request, image),
    )


def _is_as_asked(request: CreateTopicRequest, image: MetadataImage) -> bool:
    """Another client's topic of that name has, as a rule, other partitions or options."""
    topic = image.topics.get(request.topic)
    if topic is None:
        return False
    replicas = [topic.partitions[name.partition].target for name in topic.names]
    if request.assignment is not None:
        as_placed = replicas == [tuple(one) for one in request.assignment]
    else:
        factor = max(request.replication_factor, 1)
        as_placed = [len(one) for one in replicas] == [factor] * max(request.partitions, 1)
    options = options_of(request.config or TopicConfig()) | dict(request.options)
    return as_placed and image.options.get((TOPIC_RESOURCE, request.topic), {}) == options


def _is_added(request: CreatePartitionsRequest, image: MetadataImage, before: Any) -> bool:
    topic = image.topics.get(request.topic)
    if topic is None or before is None or topic.topic_id != before[0]:
        return False
    first, now = before[1], len(topic.partitions)
    if not first < request.count <= now:
        return False
    placed = [topic.partitions[number].target for number in range(first, request.count)]
    return request.assignment is None or placed == [tuple(one) for one in request.assignment]


def _reassigned(asked: Reassignment, image: MetadataImage) -> _Part:
    def fact() -> Any:
        found = image.partition(asked.topic_partition)
        return found and (found.topic.topic_id, found.replicas, found.adding, found.removing)

    def is_called_off(before: Any) -> bool:
        """Back at the replicas of before, not where they were to go."""
        found = image.partition(asked.topic_partition)
        if found is None or before is None or asked.replicas is not None or found.reassigning:
            return False
        topic_id, replicas, adding, _ = before
        back = {replica for replica in replicas if replica not in adding}
        return found.topic.topic_id == topic_id and set(found.replicas) == back

    return _Part(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, fact, is_called_off)


def _elected(name: TopicPartition, kind: ElectionKind, image: MetadataImage) -> _Part:
    def fact() -> Any:
        found = image.partition(name)
        return found and (found.topic.topic_id, found.leader_epoch)

    def is_elected(before: Any) -> bool:
        found: PartitionImage | None = image.partition(name)
        if found is None or before is None or found.topic.topic_id != before[0]:
            return False
        if kind is ElectionKind.PREFERRED:
            return found.leader_id == found.replicas[0]
        return found.leader_id is not None

    return _Part(ErrorCode.ELECTION_NOT_NEEDED, fact, is_elected)
