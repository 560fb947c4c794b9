"""What is due when: a heap of timers that can be called off."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_STALE_MIN = 64


class Timer:
    """One thing to do at a time; `action` is None once it is done or called off."""

    __slots__ = ("action", "deadline_ms")

    def __init__(self, deadline_ms: int, action: Callable[[int], None]) -> None:
        self.deadline_ms = deadline_ms
        self.action: Callable[[int], None] | None = action


class Deadlines:
    """Timers in order of (deadline, arrival). Those called off are swept out in the long run."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._arrivals = 0
        self._stale = 0
        """Entries of the heap that were called off."""

    @property
    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
            self._stale -= 1
        return heap[0][0] if heap else None

    def schedule(self, deadline_ms: int, action: Callable[[int], None]) -> Timer:
        """Call `action(now_ms)` in the first Tick at or after the deadline."""
        timer = Timer(deadline_ms, action)
        self._arrivals += 1
        heapq.heappush(self._heap, (deadline_ms, self._arrivals, timer))
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Call it off; nothing happens to one that is done, called off, or None."""
        if timer is None or timer.action is None:
            return
        timer.action = None
        self._stale += 1
        if self._stale > _STALE_MIN and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._stale = 0

    def run_due(self, now_ms: int) -> None:
        """Do what is due by now, also what becomes due while doing so except at this very time."""
        last = self._arrivals
        later = []
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heapq.heappop(self._heap)
            timer = entry[2]
            if timer.action is None:
                self._stale -= 1
            elif entry[1] > last:
                later.append(entry)
            else:
                action, timer.action = timer.action, None
                action(now_ms)
        for entry in later:
            heapq.heappush(self._heap, entry)
