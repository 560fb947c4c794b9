"""Where two logs part: found by (epoch, end offset) on both sides, never by the high watermark.

The leader checks a follower's claim on each fetch (KIP-595); the follower turns the
leader's answer into an offset to truncate to (KIP-279). A high watermark may lag behind what was
committed (KIP-101) and epochs may be missing on either side (KIP-279); these rules survive both.
Partitions and the metadata log part by the same rules, so `replication` and `controller`, who are
strangers, both find them here.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from replog.errors import invariant
from replog.messages import ErrorCode
from replog.types import NO_LEADER_EPOCH, UNKNOWN_OFFSET, EpochEndOffset, EpochRange


class EpochHistory(Protocol):
    """Where a log begins and ends, and which epoch wrote which offsets of it."""

    @property
    def log_start_offset(self) -> int:
        """First readable offset."""

    @property
    def log_end_offset(self) -> int:
        """Next offset to write (exclusive end)."""

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """The largest epoch <= `leader_epoch` and its exclusive end; (-1, -1) if undefined."""


class Truncation(NamedTuple):
    """Keep offsets `< offset`; unless `complete`, ask again with the epoch that is then latest."""

    offset: int
    complete: bool


def check_claim(
    log: EpochHistory, fetch_offset: int, last_fetched_epoch: int
) -> EpochEndOffset | ErrorCode | None:
    """Whether a log of [.., fetch_offset) that ends in `last_fetched_epoch` is a prefix of ours.

    None if it is; else the diverging epoch with its end offset here, or OFFSET_OUT_OF_RANGE.
    """
    if fetch_offset < log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if last_fetched_epoch != NO_LEADER_EPOCH:
        ours = log.end_offset_for_epoch(last_fetched_epoch)
        if ours.end_offset == UNKNOWN_OFFSET:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if ours.leader_epoch < last_fetched_epoch or ours.end_offset < fetch_offset:
            return ours
    if fetch_offset > log.log_end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return None


def truncation_for(log: EpochHistory, leader: EpochEndOffset, fetch_offset: int) -> Truncation:
    """Where a follower cuts its log, told that `leader.leader_epoch` ends at the leader as it does.

    The five cases of Kafka's AbstractFetcherThread, in order. The result is never above the
    follower's log end offset.
    """
    log_end_offset = log.log_end_offset
    if leader.end_offset == UNKNOWN_OFFSET:
        return Truncation(min(fetch_offset, log_end_offset), complete=True)
    if leader.leader_epoch == NO_LEADER_EPOCH:
        return Truncation(min(leader.end_offset, log_end_offset), complete=True)
    ours = log.end_offset_for_epoch(leader.leader_epoch)
    if ours.end_offset == UNKNOWN_OFFSET:
        return Truncation(min(leader.end_offset, log_end_offset), complete=True)
    invariant(
        ours.leader_epoch <= leader.leader_epoch,
        "the largest epoch <= the one asked for",
        asked=leader.leader_epoch,
        found=ours.leader_epoch,
    )
    if ours.leader_epoch == leader.leader_epoch:
        offset = min(ours.end_offset, leader.end_offset, log_end_offset)
        return Truncation(offset, complete=True)
    return Truncation(min(ours.end_offset, log_end_offset), complete=False)


def epoch_ranges(log: EpochHistory, latest_epoch: int, offset: int) -> tuple[EpochRange, ...]:
    """Which epochs wrote the offsets [offset, log end); the last one is `latest_epoch`.

    What lies below the first epoch that is known counts as epoch 0's.
    """
    ranges: list[EpochRange] = []
    epoch, end_offset = latest_epoch, log.log_end_offset
    while end_offset > offset:
        before = log.end_offset_for_epoch(epoch - 1)
        begins_here = before.end_offset == UNKNOWN_OFFSET or before.leader_epoch >= epoch
        start_offset = offset if begins_here else max(before.end_offset, offset)
        if start_offset < end_offset:
            ranges.append(EpochRange(epoch, start_offset, end_offset))
        epoch, end_offset = before.leader_epoch, start_offset
    return tuple(reversed(ranges))
