"""Which of the protocol's errors tells a peer of an operating error: one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog import errors
from replog.messages import ErrorCode

if TYPE_CHECKING:
    from replog.errors import ReplogError

_CODES: dict[type[ReplogError], ErrorCode] = {
    errors.CorruptBatchError: ErrorCode.CORRUPT_MESSAGE,
    errors.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.UnknownCodecError: ErrorCode.CORRUPT_MESSAGE,
    errors.DecompressionError: ErrorCode.CORRUPT_MESSAGE,
    errors.OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.OutOfOrderOffsetError: ErrorCode.INVALID_RECORD,
    errors.RecordBatchTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidTimestampError: ErrorCode.INVALID_TIMESTAMP,
    errors.InvalidRecordError: ErrorCode.INVALID_RECORD,
    errors.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.InvalidTransactionStateError: ErrorCode.INVALID_TXN_STATE,
    errors.TransactionCoordinatorFencedError: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.FencedLeaderEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.NotLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.StaleBrokerEpochError: ErrorCode.STALE_BROKER_EPOCH,
    errors.InvalidPartitionEpochError: ErrorCode.INVALID_UPDATE_VERSION,
    errors.NotEnoughReplicasError: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppendError: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.IneligibleReplicaError: ErrorCode.INELIGIBLE_REPLICA,
    errors.RequestTimedOutError: ErrorCode.REQUEST_TIMED_OUT,
    errors.UnknownTopicOrPartitionError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.NoLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.OffsetNotAvailableError: ErrorCode.OFFSET_NOT_AVAILABLE,
    errors.MalformedMessageError: ErrorCode.INVALID_REQUEST,
    errors.UnsupportedMessageVersionError: ErrorCode.UNSUPPORTED_VERSION,
    errors.UsageError: ErrorCode.INVALID_REQUEST,
}


def error_code_of(error: ReplogError) -> ErrorCode:
    """The code of the error's nearest type in the table; UNKNOWN_SERVER_ERROR if it has none."""
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
