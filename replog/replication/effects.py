"""What the pure core asks the world to do: frozen values, carried out strictly in list order.

So "persist, then send" can be read off the list. Appends and truncations are answered by the
completion events of `events`; the other effects cannot fail without failing the replica.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from replog.errors import ReplogError
    from replog.messages import FetchResponse, Message, RawBatches


class TruncationCause(enum.Enum):
    """Why a follower cuts its log."""

    DIVERGING_EPOCH = "the leader's log parts from ours at this epoch"
    NO_EPOCHS = "no epoch is known, so nothing above the high watermark can be vouched for"
    OUT_OF_RANGE = "our log does not overlap the leader's"


@dataclasses.dataclass(frozen=True, slots=True)
class AssignEpoch:
    """Record that `leader_epoch` starts at `start_offset`, durably, before its first append."""

    leader_epoch: int
    start_offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class AppendAsLeader:
    """Append, assigning offsets and the epoch; answered by LeaderAppendCompleted or -Failed."""

    request_id: int
    batches: RawBatches
    leader_epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class AppendAsFollower:
    """Append as they are; answered by FollowerAppendCompleted or FollowerAppendFailed."""

    batches: RawBatches


@dataclasses.dataclass(frozen=True, slots=True)
class TruncateLog:
    """Keep offsets `< offset`, and cut the epoch cache there even if no bytes go (KAFKA-10706)."""

    offset: int
    cause: TruncationCause


@dataclasses.dataclass(frozen=True, slots=True)
class TruncateFullyAndStartAt:
    """Drop all records and restart the empty log at `offset`."""

    offset: int
    cause: TruncationCause


@dataclasses.dataclass(frozen=True, slots=True)
class SetHighWatermark:
    """Offsets below `high_watermark` are committed."""

    high_watermark: int


@dataclasses.dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Offsets below `log_start_offset` are no longer readable."""

    log_start_offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """Hand `message` to the transport for replica `to`; it may be lost."""

    to: int
    message: Message


@dataclasses.dataclass(frozen=True, slots=True)
class SendRecords:
    """Read whole batches from `response.fetch_offset` on, put them in `response`, and send it.

    At least the first batch is read, however large; beyond it at most `max_bytes`.
    """

    to: int
    response: FetchResponse
    max_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class CompleteProduce:
    """Answer a producer: its records are at [base_offset, last_offset], or `error` says why not."""

    request_id: int
    base_offset: int | None = None
    last_offset: int | None = None
    error: ReplogError | None = None


Effect: TypeAlias = (
    AssignEpoch
    | AppendAsLeader
    | AppendAsFollower
    | TruncateLog
    | TruncateFullyAndStartAt
    | SetHighWatermark
    | AdvanceLogStart
    | Send
    | SendRecords
    | CompleteProduce
)
