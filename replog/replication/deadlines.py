"""What is due when: a heap of timers that can be called off."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

_STALE_MIN = 64


Timer: TypeAlias = list[Any]
"""One thing to do: [deadline_ms, arrival, action]; no action once it is done or called off."""

_ACTION = 2


class Deadlines:
    """Timers in order of (deadline, arrival). Those called off are swept out in the long run."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._arrivals = 0
        self._stale = 0
        """Entries of the heap that were called off."""

    @property
    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][_ACTION] is None:
            heapq.heappop(heap)
            self._stale -= 1
        return heap[0][0] if heap else None

    def schedule(self, deadline_ms: int, action: Callable[[int], None]) -> Timer:
        """Call `action(now_ms)` in the first Tick at or after the deadline."""
        self._arrivals += 1
        timer = [deadline_ms, self._arrivals, action]
        heapq.heappush(self._heap, timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Call it off; nothing happens to one that is done, called off, or None."""
        if timer is None or timer[_ACTION] is None:
            return
        timer[_ACTION] = None
        self._stale += 1
        if self._stale > _STALE_MIN and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[_ACTION] is not None]
            heapq.heapify(self._heap)
            self._stale = 0

    def run_due(self, now_ms: int) -> None:
        """Do what is due by now, also what becomes due while doing so except at this very time."""
        last = self._arrivals
        later = []
        while self._heap and self._heap[0][0] <= now_ms:
            timer = heapq.heappop(self._heap)
            action = timer[_ACTION]
            if action is None:
                self._stale -= 1
            elif timer[1] > last:
                later.append(timer)
            else:
                timer[_ACTION] = None
                action(now_ms)
        for timer in later:
            heapq.heappush(self._heap, timer)


class Patience:
    """A deadline that is moved often and hardly ever reached.

    Its timer stays where it is when the deadline moves back, and is set anew once it goes off.
    """

    __slots__ = ("_action", "_deadlines", "_due_ms", "_timer")

    def __init__(self, deadlines: Deadlines, action: Callable[[int], None]) -> None:
        self._deadlines = deadlines
        self._action = action
        self._due_ms: int | None = None
        self._timer: Timer | None = None

    def last_until(self, due_ms: int) -> None:
        """Call `action(now_ms)` in the first Tick at or after `due_ms`, unless moved again."""
        self._due_ms = due_ms
        timer = self._timer
        if timer is None or timer[0] > due_ms:
            self._deadlines.cancel(timer)
            self._timer = self._deadlines.schedule(due_ms, self._ring)

    def end(self) -> None:
        """Call it off."""
        self._due_ms = None

    def _ring(self, now_ms: int) -> None:
        self._timer = None
        due_ms = self._due_ms
        if due_ms is None:
            return
        if due_ms > now_ms:
            self._timer = self._deadlines.schedule(due_ms, self._ring)
            return
        self._due_ms = None
        self._action(now_ms)
