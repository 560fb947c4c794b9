"""The two rules by which a high watermark moves: one for the leader, one for its followers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from replog.replication.replica_progress import ReplicaProgress


def leader_high_watermark(
    current: int,
    leader_end_offset: int,
    followers: Iterable[ReplicaProgress],
    maximal_isr: Collection[int],
    is_joining: Callable[[ReplicaProgress], bool],
) -> int:
    """The leader's next high watermark (KIP-497, KIP-966), where the ISR is not below its floor.

    The smallest log end offset of the leader (`leader_end_offset`: what it may count of its own
    log), of the maximal ISR, and of followers outside it that are about to join: those keep up with
    the leader, and would otherwise never reach a high watermark that runs ahead of them. One of
    these that has not yet fetched holds the high watermark. It never goes back (I7).
    """
    candidate = leader_end_offset
    for follower in followers:
        if follower.log_end_offset < candidate and (
            follower.replica_id in maximal_isr or is_joining(follower)
        ):
            candidate = follower.log_end_offset
    return max(candidate, current)


def follower_high_watermark(
    current: int, leader_high_watermark: int, log_start_offset: int, log_end_offset: int
) -> int:
    """The leader's high watermark as far as this log reaches.

    It does not go back with that of a new leader that has yet to learn what is committed: what a
    replica knows as committed stays so, and guards its log against truncation. (Kafka lets it.)
    """
    invariant(
        current <= log_end_offset,
        "high_watermark <= log_end_offset on the follower",
        high_watermark=current,
        log_end_offset=log_end_offset,
    )
    return max(log_start_offset, current, min(leader_high_watermark, log_end_offset))
