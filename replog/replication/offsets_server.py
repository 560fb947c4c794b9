"""Answers where a log starts, ends, or stood at a time, as Kafka's ListOffsets does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.messages import CONSUMER, ErrorCode, ListOffsetsResponse, OffsetSpec
from replog.replication.partition_table import check_epoch
from replog.types import Isolation

if TYPE_CHECKING:
    from replog.messages import ListOffsetsRequest
    from replog.replication.partition_table import PartitionTable


_TIMESTAMP_MAX = 2**63 - 1


def list_offsets(table: PartitionTable, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """The answer, from the leader only.

    While a new leader does not know yet what is committed, a consumer is asked to come again: an
    older end than the one it was told before would look like lost records.

    Raises StorageError, CorruptBatchError or CorruptFileError where the log cannot be searched.
    """
    error = _refusal(table, request)
    if error is not ErrorCode.NONE:
        return ListOffsetsResponse(topic_partition=request.topic_partition, error=error)
    replica = table.replicas[request.topic_partition]
    leader, log = replica.leader, replica.log
    assert leader is not None
    assert log is not None
    end_offset = log.log_end_offset
    if request.replica_id == CONSUMER:
        end_offset = leader.high_watermark
        if request.isolation is Isolation.TXN_COMMITTED:
            end_offset = min(end_offset, log.last_stable_offset)
    timestamp, epoch = -1, -1
    if request.timestamp == OffsetSpec.EARLIEST:
        offset = log.log_start_offset
    elif request.timestamp == OffsetSpec.LATEST:
        offset = end_offset
        epoch = leader.leader_epoch
        if request.replica_id == CONSUMER and leader.is_high_watermark_behind:
            return _unavailable(request)
    else:
        found = log.offset_for_timestamp(request.timestamp)
        if found is None or found.offset >= end_offset:
            if request.replica_id == CONSUMER and leader.is_high_watermark_behind:
                return _unavailable(request)
            return ListOffsetsResponse(topic_partition=request.topic_partition)
        timestamp, offset, epoch = found
    if epoch < 0:
        epoch = log.epoch_for_offset(offset)
    return ListOffsetsResponse(
        topic_partition=request.topic_partition,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=epoch,
    )


def _refusal(table: PartitionTable, request: ListOffsetsRequest) -> ErrorCode:
    error = table.refusal(request.topic_partition, request.topic_id)
    if error is not ErrorCode.NONE:
        return error
    replica = table.replicas[request.topic_partition]
    error = check_epoch(replica.registration.leader_epoch, request.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return error
    if replica.leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    in_range = OffsetSpec.EARLIEST <= request.timestamp <= _TIMESTAMP_MAX
    if not in_range or request.replica_id < CONSUMER:
        return ErrorCode.INVALID_REQUEST
    if request.replica_id != CONSUMER and request.replica_id not in replica.leader.followers:
        unassigned = request.current_leader_epoch >= 0
        return ErrorCode.UNKNOWN_LEADER_EPOCH if unassigned else ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _unavailable(request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topic_partition=request.topic_partition, error=ErrorCode.OFFSET_NOT_AVAILABLE
    )
