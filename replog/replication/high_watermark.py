"""The two rules by which a high watermark moves: one for the leader, one for its followers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Iterable


def leader_high_watermark(
    current: int, leader_end_offset: int, isr_end_offsets: Iterable[int | None]
) -> int:
    """The leader's next high watermark: the smallest log end offset of the in-sync replicas.

    `isr_end_offsets` are those of the followers in the ISR; None stands for one that has not yet
    fetched in this epoch, and freezes the high watermark. It never goes back (I7).
    """
    invariant(
        current <= leader_end_offset,
        "high_watermark <= log_end_offset on the leader",
        high_watermark=current,
        log_end_offset=leader_end_offset,
    )
    candidate = leader_end_offset
    for end_offset in isr_end_offsets:
        if end_offset is None:
            return current
        candidate = min(candidate, end_offset)
    return max(current, candidate)


def follower_high_watermark(
    leader_high_watermark: int, log_start_offset: int, log_end_offset: int
) -> int:
    """The leader's high watermark as far as this log reaches; may be lower than the one before."""
    return max(log_start_offset, min(leader_high_watermark, log_end_offset))
