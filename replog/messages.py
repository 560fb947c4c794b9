"""What replicas say to each other about one partition: frozen values, the same on every transport.

Records, acknowledgements, the high watermark and the log start travel by fetches alone: a follower
acknowledges an offset by asking for the next one. The transport may bundle the fetches of many
partitions. A response repeats the question it answers (`leader_epoch`, `fetch_offset`), so that a
follower that has moved on meanwhile can tell and drop it; on the wire, where Kafka's response does
not carry them, the pending request restores them.

Outcomes that a replica must expect are values here (`error`, `diverging_epoch`), never exceptions.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, TypeAlias

from replog.types import UNKNOWN_OFFSET, EpochEndOffset, TopicPartition

RawBatches: TypeAlias = Any
"""Whole record batches as any buffer (or as a test's own value): opaque to all but the log."""

FETCH_WAIT_MS_MAX = 500
FETCH_BYTES_MAX = 1024 * 1024


class Acks(enum.IntEnum):
    """How many replicas must have a record before its producer hears of it."""

    NONE = 0
    LEADER = 1
    ALL = -1


class ErrorCode(enum.IntEnum):
    """The protocol's errors between replicas, under Kafka's numbers (facts 13)."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    NOT_LEADER_OR_FOLLOWER = 6
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75


class OffsetSpec(enum.IntEnum):
    """Which end of the leader's log a replica asks for, as Kafka's ListOffsets numbers them."""

    LATEST = -1
    EARLIEST = -2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """A follower's claim about its log, and its wish for what follows.

    The claim: every offset `< fetch_offset` is in its log, and the last one carries
    `last_fetched_epoch` (NO_LEADER_EPOCH: it knows of no epoch).
    """

    topic_partition: TopicPartition
    replica_id: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int = FETCH_BYTES_MAX
    wait_ms_max: int = FETCH_WAIT_MS_MAX


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """The leader's answer: records, or a diverging epoch, or an error; never two of them."""

    topic_partition: TopicPartition
    leader_epoch: int
    fetch_offset: int
    error: ErrorCode = ErrorCode.NONE
    diverging_epoch: EpochEndOffset | None = None
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    records: RawBatches | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest:
    """A follower that is out of range asks where the leader's log starts or ends."""

    topic_partition: TopicPartition
    replica_id: int
    current_leader_epoch: int
    spec: OffsetSpec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse:
    """The log start offset or, for a replica, the log end offset of the leader."""

    topic_partition: TopicPartition
    leader_epoch: int
    spec: OffsetSpec
    error: ErrorCode = ErrorCode.NONE
    offset: int = UNKNOWN_OFFSET


Request: TypeAlias = FetchRequest | ListOffsetsRequest
Response: TypeAlias = FetchResponse | ListOffsetsResponse
Message: TypeAlias = Request | Response
