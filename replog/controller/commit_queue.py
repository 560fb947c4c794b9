"""What waits for the quorum: answers and reports, until all they tell of is committed.

An answer may tell of any record decided before it, also one of another request, so it waits for all
of them (as Kafka's does).
"""

from __future__ import annotations

from collections import deque

from replog.controller.effects import ControllerEffect


class CommitQueue:
    """Effects in the order of the decisions behind them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, ControllerEffect]] = deque()

    def put(self, end_offset: int, effect: ControllerEffect) -> None:
        """Hold this back until all below `end_offset` is committed."""
        self._waiting.append((end_offset, effect))

    def committed(self, high_watermark: int) -> list[ControllerEffect]:
        """What may be carried out now."""
        released: list[ControllerEffect] = []
        while self._waiting and self._waiting[0][0] <= high_watermark:
            released.append(self._waiting.popleft()[1])
        return released

    def drop(self) -> None:
        """Give up: none of it will be carried out."""
        self._waiting.clear()
