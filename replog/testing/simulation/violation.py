"""What ends a run that has gone wrong."""

from __future__ import annotations


class Violation(BaseException):
    """An invariant does not hold: `invariant` is its id, the message says what was found.

    No Exception: code under test catches those, and a checker may run within one of its steps.
    """

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
