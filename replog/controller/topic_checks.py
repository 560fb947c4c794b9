"""What a new topic must be like: Kafka's rules and error codes, with a sentence."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from replog.admin_messages import CreatePartitionsRequest
from replog.controller.placement import UsableBroker
from replog.controller.topic_options import config_from
from replog.errors import UsageError
from replog.messages import CreateTopicRequest, ErrorCode

NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000
DEFAULT = -1
METADATA_TOPIC = "__cluster_metadata"
_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class Refusal(NamedTuple):
    """Why a request is refused; nothing is changed by it."""

    error: ErrorCode
    message: str


def check_name(topic: str, existing: Collection[str]) -> Refusal | None:
    """Whether a topic may have this name beside the existing ones."""
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic in {"", ".", ".."}:
        return Refusal(invalid, f"expected a topic name, found {topic!r}; choose another")
    if len(topic) > NAME_LENGTH_MAX:
        return Refusal(
            invalid,
            f"expected a topic name of at most {NAME_LENGTH_MAX} characters, found {len(topic)}; "
            f"choose a shorter one",
        )
    if not _NAME.match(topic):
        return Refusal(
            invalid,
            f"expected a topic name of a-z A-Z 0-9 . _ -, found {topic!r}; choose another",
        )
    if topic == METADATA_TOPIC:
        return Refusal(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"expected a topic that clients may create, found {topic!r}, which is the "
            f"controllers' own log; choose another",
        )
    if topic in existing:
        return Refusal(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"expected a new topic, but {topic!r} exists; delete it first or choose another name",
        )
    if "." in topic or "_" in topic:
        folded = topic.replace(".", "_")
        for other in sorted(existing):
            if other.replace(".", "_") == folded:
                return Refusal(
                    invalid,
                    f"expected a name that differs in more than . and _ (metrics fold them), but "
                    f"{topic!r} collides with {other!r}; choose another",
                )
    return None


def check_together(requests: Sequence[CreateTopicRequest]) -> Refusal | None:
    """Whether so many partitions can be created by one decision."""
    partitions = sum(
        max(request.partitions, 1) if request.assignment is None else len(request.assignment)
        for request in requests
    )
    if len(requests) > 1 and partitions > PARTITIONS_MAX:
        return Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"expected at most {PARTITIONS_MAX} partitions in one command, found {partitions} in "
            f"{len(requests)} topics; create fewer at a time",
        )
    return None


def check_options(options: Mapping[str, str]) -> Refusal | None:
    """Whether a topic may have these options, under Kafka's names."""
    try:
        config_from(options)
    except UsageError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, str(error))
    return None


def check_counts(request: CreateTopicRequest, brokers: Collection[UsableBroker]) -> Refusal | None:
    """Whether partitions and replicas can be placed; -1 asks for the default, 1."""
    partitions = request.partitions
    if partitions != DEFAULT and not 0 < partitions <= PARTITIONS_MAX:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"expected 1 to {PARTITIONS_MAX} partitions (or -1 for the default), found "
            f"{partitions}; create fewer at a time",
        )
    factor = request.replication_factor
    if factor != DEFAULT and factor <= 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"expected a replication factor >= 1 (or -1 for the default), found {factor}",
        )
    if max(factor, 1) > len(brokers):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"expected a replication factor of at most {len(brokers)}, the number of registered "
            f"brokers, found {max(factor, 1)}; add brokers or ask for fewer replicas",
        )
    if all(broker.fenced for broker in brokers):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "expected a live broker for the first replica, but all brokers are fenced; "
            "try again when one is up",
        )
    return None


def check_assignment(
    request: CreateTopicRequest, brokers: Mapping[int, UsableBroker]
) -> Refusal | None:
    """Whether a manual assignment can be kept."""
    assignment = request.assignment or ()
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not assignment:
        return Refusal(wrong, "expected replicas for at least one partition, found none")
    if len(assignment) > PARTITIONS_MAX:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"expected at most {PARTITIONS_MAX} partitions, found {len(assignment)}",
        )
    factor = len(assignment[0])
    for asked, found, what in (
        (request.partitions, len(assignment), "partitions"),
        (request.replication_factor, factor, "replication_factor"),
    ):
        if asked not in {DEFAULT, 1, found}:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"expected {what} to be left out beside an assignment, found {asked} where the "
                f"assignment says {found}; give one of the two",
            )
    for partition, replicas in enumerate(assignment):
        if not replicas:
            return Refusal(wrong, f"expected replicas for partition {partition}, found none")
        if len(set(replicas)) != len(replicas):
            return Refusal(
                wrong,
                f"expected each broker once in partition {partition}, found {list(replicas)}",
            )
        if len(replicas) != factor:
            return Refusal(
                wrong,
                f"expected {factor} replicas for partition {partition} as for partition 0, found "
                f"{len(replicas)}: {list(replicas)}",
            )
        unknown = [replica for replica in replicas if replica not in brokers]
        if unknown:
            return Refusal(
                wrong,
                f"expected registered brokers for partition {partition}, found {unknown}; known "
                f"are {sorted(brokers)}",
            )
        if all(brokers[replica].fenced for replica in replicas):
            return Refusal(
                wrong,
                f"expected a live broker among the replicas of partition {partition}, but "
                f"{list(replicas)} are all fenced or shutting down; try again when one is up",
            )
    return None


def check_added(
    request: CreatePartitionsRequest,
    partitions: int,
    factor: int,
    brokers: Mapping[int, UsableBroker],
    usable: Collection[UsableBroker],
) -> Refusal | None:
    """Whether a topic of so many partitions with so many replicas each may have these, too."""
    if request.count <= partitions:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"expected more than the {partitions} partitions that {request.topic!r} has, found "
            f"{request.count}; partitions are never removed, create another topic instead",
        )
    added = request.count - partitions
    if request.count > PARTITIONS_MAX:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"expected at most {PARTITIONS_MAX} partitions, found {request.count}",
        )
    if request.assignment is None:
        return check_counts(
            CreateTopicRequest(topic=request.topic, partitions=added, replication_factor=factor),
            usable,
        )
    if len(request.assignment) != added:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"expected replicas for {added} new partitions, found {len(request.assignment)}",
        )
    if len(request.assignment[0]) != factor:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"expected {factor} replicas for each new partition as for the others, found "
            f"{len(request.assignment[0])}",
        )
    return check_assignment(
        CreateTopicRequest(
            topic=request.topic,
            assignment=request.assignment,
            partitions=DEFAULT,
            replication_factor=DEFAULT,
        ),
        brokers,
    )
