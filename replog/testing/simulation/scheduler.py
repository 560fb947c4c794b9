"""Virtual time: one heap of (time, tie, sequence), stepped by one caller.

When nothing is due, time jumps to the next entry. What is due at the same microsecond runs in the
order of a drawn number where `shuffle` gives one (this explores interleavings), else in the order
in which it was put there. Nothing here ever runs at the same time as anything else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

Action: TypeAlias = Callable[[Any], None]

MICROSECONDS_PER_MS = 1000

_push = heapq.heappush


class Scheduler:
    """A clock and what is still to happen."""

    __slots__ = ("_heap", "_sequence", "_shuffle", "now_us")

    def __init__(self, shuffle: Callable[[], float] | None = None) -> None:
        """`shuffle` draws the rank of an entry among those of the same time."""
        self.now_us = 0
        self._heap: list[tuple[int, float, int, Action, Any]] = []
        self._sequence = 0
        self._shuffle = shuffle

    def at(self, when_us: int, action: Action, argument: Any = None) -> None:
        """Call `action(argument)` at `when_us`, or as soon as possible if that has passed."""
        self._sequence += 1
        shuffle, now_us = self._shuffle, self.now_us
        tie = 0.0 if shuffle is None else shuffle()
        due_us = when_us if when_us > now_us else now_us  # noqa: FURB136 - half as long
        _push(self._heap, (due_us, tie, self._sequence, action, argument))

    def plan(self, when_us: int, action: Action, argument: Any = None) -> None:
        """As `at`, before whatever else is due at that time; draws nothing."""
        self._sequence += 1
        _push(self._heap, (max(when_us, self.now_us), -1.0, self._sequence, action, argument))

    def after(self, delay_us: int, action: Action, argument: Any = None) -> None:
        """Call `action(argument)` when `delay_us` have passed."""
        self.at(self.now_us + delay_us, action, argument)

    def step(self) -> bool:
        """Run the next entry, moving time to it; False if there is none."""
        if not self._heap:
            return False
        self.now_us, _, _, action, argument = heapq.heappop(self._heap)
        action(argument)
        return True

    def run_until(self, end_us: int) -> None:
        """Run everything that is due up to `end_us` (included) and leave the clock there."""
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= end_us:
            self.now_us, _, _, action, argument = pop(heap)
            action(argument)
        self.now_us = max(self.now_us, end_us)
