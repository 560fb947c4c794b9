"""How far a log is synced, as far as the loop has heard: syncs run in other threads.

A sync has two halves. The loop takes a target; some thread syncs up to there; the loop notes it,
unless the log was cut meanwhile: what stands there now may be other records, which nobody synced.
"""

from __future__ import annotations

from typing import NamedTuple


class SyncTarget(NamedTuple):
    """What a sync that starts now will cover: all below `end_offset`, unless there is a cut."""

    end_offset: int
    cuts: int


class SyncedEnd:
    """Of one log. `end_offset`: all below it was noted as synced, and was not cut since."""

    __slots__ = ("_cuts", "end_offset")

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self._cuts = 0

    def target(self, log_end_offset: int) -> SyncTarget:
        """What a sync that starts now is to cover."""
        return SyncTarget(log_end_offset, self._cuts)

    def note(self, target: SyncTarget) -> bool:
        """Count what was synced; False if a cut came in between, and another sync is due."""
        if target.cuts != self._cuts:
            return False
        self.end_offset = max(self.end_offset, target.end_offset)
        return True

    def cut(self, offset: int) -> None:
        """The log is about to be cut to this offset."""
        self._cuts += 1
        self.end_offset = min(self.end_offset, offset)
