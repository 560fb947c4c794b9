"""Every partition that the controller has told of, and the replicas that this broker holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.messages import ErrorCode

if TYPE_CHECKING:
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

    def refusal(self, topic_partition: TopicPartition) -> ErrorCode:
        """Why nothing can be asked of the partition here; NONE: its log is there."""
        replica = self.replicas.get(topic_partition)
        if replica is None:
            if topic_partition in self.registrations:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.is_suspended and replica.leader is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if replica.log is not None else ErrorCode.KAFKA_STORAGE_ERROR


def check_epoch(ours: int, theirs: int) -> ErrorCode:
    """Hold the leader epoch of a request, where it carries one, against our own."""
    if theirs < 0 or theirs == ours:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if theirs < ours else ErrorCode.UNKNOWN_LEADER_EPOCH
