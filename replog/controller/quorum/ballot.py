"""The votes of one election, or of one pre-vote, counted."""

from __future__ import annotations

from collections.abc import Iterable


def majority_of(voters: int) -> int:
    """The smallest number of voters that any two groups of share one."""
    return voters // 2 + 1


class Ballot:
    """Who has answered what. Invariant: granted and rejected are disjoint, and voters.

    A voter's first answer counts; a repeated one changes nothing.
    """

    def __init__(self, voters: Iterable[int], candidate_id: int) -> None:
        self._open = set(voters)
        self._majority = majority_of(len(self._open))
        self._granted: set[int] = set()
        self._rejected: set[int] = set()
        self._silent: set[int] = set()
        self.record(candidate_id, granted=True)

    def record(self, voter_id: int, *, granted: bool) -> None:
        """Count a voter's answer; members without a vote are not counted."""
        if voter_id not in self._open:
            return
        self._open.discard(voter_id)
        self._silent.discard(voter_id)
        if granted:
            self._granted.add(voter_id)
        else:
            self._rejected.add(voter_id)

    def reopen(self, voter_id: int) -> None:
        """Ask a voter again that rejected. For pre-votes alone, which promise nothing."""
        if voter_id in self._rejected:
            self._rejected.discard(voter_id)
            self._open.add(voter_id)

    def not_reached(self, voter_id: int) -> None:
        """It gave no answer, so far."""
        if voter_id in self._open:
            self._silent.add(voter_id)

    @property
    def won(self) -> bool:
        """A majority of all voters has granted it."""
        return len(self._granted) >= self._majority

    @property
    def lost(self) -> bool:
        """So many have rejected it that no majority is left."""
        return len(self._granted) + len(self._open) < self._majority

    @property
    def stuck(self) -> bool:
        """Somebody has rejected it, and those who could still decide it cannot be reached."""
        reachable = len(self._open) - len(self._silent)
        return bool(self._rejected) and len(self._granted) + reachable < self._majority

    @property
    def unanswered(self) -> list[int]:
        """Voters still to be asked, in order."""
        return sorted(self._open)

    @property
    def granting(self) -> tuple[int, ...]:
        """Voters that granted, in order."""
        return tuple(sorted(self._granted))
