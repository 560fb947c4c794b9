"""The leader's view of one follower, learned from nothing but its fetches."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replog.messages import FetchRequest


@dataclasses.dataclass(slots=True)
class ReplicaProgress:
    """How far one follower is, in the present leadership."""

    replica_id: int
    log_end_offset: int | None = None
    """Its latest fetch offset: all below is in its log. None before its first fetch."""
    log_start_offset: int | None = None
    """As its latest fetch said."""
    last_fetch_ms: int | None = None
    """When that fetch came. Diverging and out-of-range fetches do not count (KAFKA-13141)."""
    high_watermark_sent: int | None = None
    """The last high watermark it was told; a fetch waits only if it has nothing to learn."""

    def record_fetch(self, request: FetchRequest, now_ms: int) -> bool:
        """Take in a fetch whose claim holds; returns whether the log end offset changed."""
        changed = self.log_end_offset != request.fetch_offset
        self.log_end_offset = request.fetch_offset
        self.log_start_offset = request.log_start_offset
        self.last_fetch_ms = now_ms
        return changed
