"""What can happen to a broker's replicas.

The caller carries out all effects of one step in order, and feeds back their completions before it
steps anything else; the core relies on it and never sees a half-done effect. Only a flush takes its
time: `LogFlushed` may come at any later step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from replog.types import frozen, frozen_positional

if TYPE_CHECKING:
    from replog.errors import ReplogError
    from replog.messages import PartitionRequest, Response
    from replog.registrations import MetadataDelta
    from replog.types import LostRecords, TopicPartition


@frozen
class BrokerRegistered:
    """The controller gave this broker its epoch; it travels in our fetches and proposals."""

    broker_epoch: int


@frozen
class MetadataChanged:
    """The controller's decisions, in order of version.

    Before this event the caller has opened (or created) the log of every partition in it that this
    broker is to hold, or has found that it cannot (`LogUnavailable` follows or has come before).
    """

    delta: MetadataDelta


@frozen
class LogUnavailable:
    """This replica's log cannot be used; `damaged` where its bytes below the recovery point are."""

    topic_partition: TopicPartition
    error: ReplogError
    damaged: bool = False


@frozen_positional
class LossHeard:
    """The controller has written down what the report of RecordsLost said; it can be cut."""

    lost: LostRecords


@frozen
class LogReplaced:
    """SetAsideLog is done: a new empty log stands in its place."""

    topic_partition: TopicPartition


@frozen_positional
class RequestReceived:
    """A peer or a client asks; `request_id` is the caller's, unique among those unanswered."""

    request_id: int
    request: PartitionRequest


@frozen_positional
class RequesterGone:
    """Nobody waits for the answer to `request_id` any more."""

    request_id: int


@frozen_positional
class ResponseReceived:
    """The answer to our SendRequest of this id."""

    request_id: int
    response: Response


@frozen_positional
class RequestFailed:
    """Our request got no answer: its connection broke, or could not be made."""

    request_id: int


@frozen_positional
class LeaderAppendCompleted:
    """AppendAsLeader is done: the batches are at [base_offset, last_offset].

    `duplicate`: a producer sent them again, and these are the offsets of the first time.
    """

    topic_partition: TopicPartition
    append_id: int
    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


@frozen
class LeaderAppendFailed:
    """AppendAsLeader was refused; nothing was appended."""

    topic_partition: TopicPartition
    append_id: int
    error: ReplogError


@frozen_positional
class FollowerAppendCompleted:
    """AppendAsFollower is done; the log's end has moved."""

    topic_partition: TopicPartition


@frozen
class FollowerAppendFailed:
    """AppendAsFollower was refused; nothing was appended."""

    topic_partition: TopicPartition
    error: ReplogError


@frozen
class LogStartKept:
    """AdvanceLogStart found no room to write the new start; the log is as it was, and usable."""

    topic_partition: TopicPartition


@frozen
class TruncationCompleted:
    """TruncateLog or TruncateFullyAndStartAt is done."""

    topic_partition: TopicPartition


@frozen
class LogFlushed:
    """FlushLog is done: the log's synced_end_offset has moved."""

    topic_partition: TopicPartition


@frozen
class LeadingSuspended:
    """Whether the broker is to act as nobody's leader for now: its session has run out."""

    is_suspended: bool
    message: str = ""


@frozen_positional
class Tick:
    """Time has passed: whatever was due by now is done. See `next_deadline_ms`."""


Completion: TypeAlias = (
    LeaderAppendCompleted
    | LeaderAppendFailed
    | FollowerAppendCompleted
    | FollowerAppendFailed
    | LogStartKept
    | TruncationCompleted
    | LogReplaced
    | LogFlushed
)
Event: TypeAlias = (
    BrokerRegistered
    | LeadingSuspended
    | MetadataChanged
    | LogUnavailable
    | LossHeard
    | RequestReceived
    | RequesterGone
    | ResponseReceived
    | RequestFailed
    | Completion
    | Tick
)
