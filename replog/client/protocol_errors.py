"""The protocol's error codes as the exceptions that a client raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replog import errors
from replog.messages import ErrorCode

if TYPE_CHECKING:
    from replog.errors import ReplogError

_KINDS: dict[ErrorCode, type[ReplogError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRangeError,
    ErrorCode.CORRUPT_MESSAGE: errors.CorruptBatchError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: errors.UnknownTopicOrPartitionError,
    ErrorCode.UNKNOWN_TOPIC_ID: errors.UnknownTopicOrPartitionError,
    ErrorCode.INCONSISTENT_TOPIC_ID: errors.UnknownTopicOrPartitionError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: errors.NotLeaderError,
    ErrorCode.REQUEST_TIMED_OUT: errors.RequestTimedOutError,
    ErrorCode.MESSAGE_TOO_LARGE: errors.RecordBatchTooLargeError,
    ErrorCode.INVALID_TOPIC_EXCEPTION: errors.UsageError,
    ErrorCode.NOT_ENOUGH_REPLICAS: errors.NotEnoughReplicasError,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: errors.NotEnoughReplicasAfterAppendError,
    ErrorCode.INVALID_REQUIRED_ACKS: errors.UsageError,
    ErrorCode.INVALID_TIMESTAMP: errors.InvalidTimestampError,
    ErrorCode.TOPIC_ALREADY_EXISTS: errors.TopicExistsError,
    ErrorCode.INVALID_PARTITIONS: errors.UsageError,
    ErrorCode.INVALID_REPLICATION_FACTOR: errors.UsageError,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: errors.UsageError,
    ErrorCode.INVALID_CONFIG: errors.UsageError,
    ErrorCode.INVALID_REQUEST: errors.UsageError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: errors.OutOfOrderSequenceError,
    ErrorCode.INVALID_PRODUCER_EPOCH: errors.InvalidProducerEpochError,
    ErrorCode.INVALID_TXN_STATE: errors.InvalidTransactionStateError,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: errors.TransactionCoordinatorFencedError,
    ErrorCode.KAFKA_STORAGE_ERROR: errors.StorageError,
    ErrorCode.FENCED_LEADER_EPOCH: errors.FencedLeaderEpochError,
    ErrorCode.UNKNOWN_LEADER_EPOCH: errors.UnknownLeaderEpochError,
    ErrorCode.STALE_BROKER_EPOCH: errors.StaleBrokerEpochError,
    ErrorCode.OFFSET_NOT_AVAILABLE: errors.OffsetNotAvailableError,
    ErrorCode.INVALID_RECORD: errors.InvalidRecordError,
}

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Worth another try: at another leader, at a later time, or with what has been learned since."""


def error_of(code: ErrorCode, message: str, **facts: Any) -> ReplogError:
    """The exception for `code`."""
    return _KINDS.get(code, errors.ReplicationError)(message, **facts)
