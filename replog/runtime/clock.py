"""Where time comes from: asked once at the edge, handed down as an argument from there."""

from __future__ import annotations

import time
from typing import Protocol

from replog.errors import UsageError, shown


class Clock(Protocol):
    """Milliseconds that never go back (for deadlines), and those of the calendar (for records)."""

    def monotonic_ms(self) -> int:
        """For deadlines and durations; its zero means nothing."""

    def wall_ms(self) -> int:
        """Since 1970-01-01 UTC; may jump."""


class SystemClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands until it is told to move; both its readings are one."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def check_clock(clock: Clock) -> Clock:
    """The clock itself. Raises UsageError unless both its readings are of type int."""
    for name in ("monotonic_ms", "wall_ms"):
        reading = getattr(clock, name)()
        if type(reading) is not int:
            raise UsageError(
                f"expected {name} of the clock to return an int, found {shown(reading)}",
                argument="clock",
            )
    return clock
