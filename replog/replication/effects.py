"""What the pure core asks the world to do: frozen values, carried out strictly in list order.

So "persist, then send" can be read off the list. Appends, truncations and flushes are answered by
the completion events of `events`; any other failure of a log is told as LogUnavailable.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

from replog.types import frozen_positional

if TYPE_CHECKING:
    from replog.errors import ReplogError
    from replog.messages import (
        AlterPartitionRequest,
        PartitionRequest,
        PartitionResponse,
        RawBatches,
    )
    from replog.replication.incidents import Incident
    from replog.types import TopicPartition


class TruncationCause(enum.Enum):
    """Why a follower cuts its log."""

    DIVERGING_EPOCH = "the leader's log parts from ours at this epoch"
    NO_EPOCHS = "no epoch is known, so nothing above the high watermark can be vouched for"
    OUT_OF_RANGE = "our log does not overlap the leader's"


@frozen_positional
class AssignEpoch:
    """Record that `leader_epoch` starts at `start_offset`, durably, before its first append."""

    topic_partition: TopicPartition
    leader_epoch: int
    start_offset: int


@frozen_positional
class AppendAsLeader:
    """Append, assigning offsets and the epoch; answered by LeaderAppendCompleted or -Failed."""

    topic_partition: TopicPartition
    append_id: int
    batches: RawBatches
    leader_epoch: int


@frozen_positional
class AppendAsFollower:
    """Append as they are; answered by FollowerAppendCompleted or FollowerAppendFailed."""

    topic_partition: TopicPartition
    batches: RawBatches


@frozen_positional
class TruncateLog:
    """Keep offsets `< offset`, and cut the epoch cache there even if no bytes go (KAFKA-10706)."""

    topic_partition: TopicPartition
    offset: int
    cause: TruncationCause


@frozen_positional
class TruncateFullyAndStartAt:
    """Drop all records and restart the empty log at `offset`."""

    topic_partition: TopicPartition
    offset: int
    cause: TruncationCause


@frozen_positional
class SetHighWatermark:
    """Offsets below `high_watermark` are committed."""

    topic_partition: TopicPartition
    high_watermark: int


@frozen_positional
class AdvanceLogStart:
    """Offsets below `log_start_offset` are no longer readable."""

    topic_partition: TopicPartition
    log_start_offset: int


@frozen_positional
class FlushLog:
    """Sync what is appended (flush.mode=commit); answered by LogFlushed, not at once."""

    topic_partition: TopicPartition


@frozen_positional
class SetAsideLog:
    """Move the damaged log's files aside, never deleting them (C4), and begin an empty log.

    Asked only where another replica leads with all that is committed. Answered by LogReplaced.
    """

    topic_partition: TopicPartition


@frozen_positional
class DeleteLog:
    """The partition was deleted or moved away: delete this replica's files."""

    topic_partition: TopicPartition


@frozen_positional
class CheckpointHighWatermarks:
    """Write every log's high watermark to the checkpoint file."""


@frozen_positional
class SendRequest:
    """Ask broker `to`; answered by ResponseReceived or RequestFailed, or not at all."""

    request_id: int
    to: int
    request: PartitionRequest


@frozen_positional
class SendToController:
    """Ask the controller; answered by ResponseReceived or RequestFailed, or not at all."""

    request_id: int
    request: AlterPartitionRequest


@frozen_positional
class Respond:
    """Answer the RequestReceived of this id, once. A `LogRead` in it becomes records first."""

    request_id: int
    response: PartitionResponse
    max_bytes: int = 0
    """Of all records together, where the response carries reads."""


@frozen_positional
class GiveUpLog:
    """A log did not answer what the core asked of it: LogUnavailable follows, as from any effect
    that a log fails.
    """

    topic_partition: TopicPartition
    error: ReplogError


@frozen_positional
class Report:
    """Tell operators what happened and why."""

    incident: Incident


Effect: TypeAlias = (
    AssignEpoch
    | AppendAsLeader
    | AppendAsFollower
    | TruncateLog
    | TruncateFullyAndStartAt
    | SetHighWatermark
    | AdvanceLogStart
    | FlushLog
    | SetAsideLog
    | DeleteLog
    | CheckpointHighWatermarks
    | SendRequest
    | SendToController
    | Respond
    | GiveUpLog
    | Report
)
