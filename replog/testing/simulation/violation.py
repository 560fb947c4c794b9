"""What ends a run that has gone wrong."""

from __future__ import annotations


class Violation(Exception):  # noqa: N818 - it is a finding, not an error of the simulator
    """An invariant does not hold: `invariant` is its id, the message says what was found."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
