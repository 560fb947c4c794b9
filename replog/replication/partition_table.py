"""Every partition that the controller has told of, and the replicas that this broker holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.messages import ErrorCode

if TYPE_CHECKING:
    import uuid

    from replog.registrations import PartitionRegistration
    from replog.replication.replica import Replica
    from replog.types import TopicPartition


class PartitionTable:
    """Two maps; who may be asked for what begins here."""

    def __init__(self) -> None:
        self.registrations: dict[TopicPartition, PartitionRegistration] = {}
        self.replicas: dict[TopicPartition, Replica] = {}
        self.is_suspended = False
        """The broker's session has run out: it is to be asked for nothing as a leader."""

    def refusal(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> ErrorCode:
        """Why nothing can be asked of the topic's partition here; NONE: its log is there.

        Where the name is another topic's, one of the two has not heard of the latest: the topic was
        deleted, and one of that name created. Its epochs begin anew, so they say nothing (KIP-516).
        """
        replica = self.replicas.get(topic_partition)
        if replica is not None:
            known_id = replica.registration.topic_id
        elif topic_partition in self.registrations:
            known_id = self.registrations[topic_partition].topic_id
        else:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_same_topic(topic_id, known_id):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if replica is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.is_suspended and replica.leader is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if replica.log is not None else ErrorCode.KAFKA_STORAGE_ERROR


def is_same_topic(one: uuid.UUID, other: uuid.UUID) -> bool:
    """Mostly they are one object, and comparing two is not for free."""
    return one is other or one == other


def check_epoch(ours: int, theirs: int) -> ErrorCode:
    """Hold the leader epoch of a request, where it carries one, against our own."""
    if theirs < 0 or theirs == ours:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if theirs < ours else ErrorCode.UNKNOWN_LEADER_EPOCH
