"""Whether a member that fetches has a prefix of the leader's log, and what it needs if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.divergence import check_claim
from replog.types import NO_LEADER_EPOCH, EpochEndOffset, SnapshotId

if TYPE_CHECKING:
    from replog.controller.quorum.quorum_log import QuorumLog


def judge_claim(
    log: QuorumLog, fetch_offset: int, last_fetched_epoch: int
) -> EpochEndOffset | SnapshotId | None:
    """None: a prefix. A snapshot: our log no longer reaches back to it. Else where to cut.

    Where the log starts the epochs before it are known from the snapshot alone.
    """
    latest, first = log.latest_snapshot, log.first_snapshot
    if latest is not None and fetch_offset == 0:
        return latest  # always shorter than the records that it stands for
    if latest is not None and first is not None:
        if fetch_offset == log.log_start_offset and last_fetched_epoch == first.epoch:
            return None
        if fetch_offset <= log.log_start_offset or last_fetched_epoch < first.epoch:
            return latest
    if last_fetched_epoch == NO_LEADER_EPOCH and fetch_offset > log.log_start_offset:
        return EpochEndOffset(NO_LEADER_EPOCH, log.log_start_offset)
    verdict = check_claim(log, fetch_offset, last_fetched_epoch)
    if verdict is None or isinstance(verdict, EpochEndOffset):
        return verdict
    # It names an epoch later than any of ours.
    return EpochEndOffset(log.last_epoch, log.log_end_offset)
