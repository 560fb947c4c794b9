"""Where a member stands: its role, and the only place where that changes.

Timeouts are drawn here, and each change is checked against the table. What must outlive a crash is
`election_state`; whoever steps the member persists it before anything else that came of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from replog.controller.quorum.ballot import Ballot
from replog.controller.quorum.election_state import ElectionState
from replog.controller.quorum.roles import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    Voted,
    check_transition,
)
from replog.controller.quorum.voter_progress import VoterProgress
from replog.errors import invariant

if TYPE_CHECKING:
    from replog.config import QuorumOptions


class Standing:
    """`draw_below(bound)` gives a number of [0, bound): the caller's chance, for timeouts alone."""

    def __init__(
        self,
        member_id: int,
        voters: tuple[int, ...],
        options: QuorumOptions,
        draw_below: Callable[[int], int],
        *,
        abstains: bool = False,
    ) -> None:
        """abstains: as an observer, though a voter, until `vote_again`."""
        self.member_id = member_id
        self.voters = voters
        self.other_voters = tuple(voter for voter in voters if voter != member_id)
        self.abstains = abstains
        self.is_voter = member_id in voters and not abstains
        self.only_voter = voters == (member_id,) and not abstains
        self._options = options
        self._draw_below = draw_below
        self._attempts = 0
        """Campaigns since a leader was last reached."""
        self.role: Role = Unattached(leader_epoch=0, deadline_ms=NEVER_MS)

    def restore(
        self, state: ElectionState, last_epoch: int, now_ms: int, *, waits: bool = False
    ) -> None:
        """Take up the role that the persisted state allows.

        A leader comes back resigned, and a candidate as one that has voted: each may have lost
        records that it had when it was elected, or asked to be (KAFKA-10527). waits: an only voter,
        too, lets an election timeout pass before it campaigns.
        """
        epoch, voted_id = state.leader_epoch, state.voted_id
        at_once = self.only_voter and not waits
        deadline_ms = now_ms if at_once else self._election_deadline(now_ms)
        if last_epoch > epoch:
            # The file is older than the log: nothing is known of a vote in the log's epoch.
            self.role = Unattached(leader_epoch=last_epoch, deadline_ms=deadline_ms)
        elif state.leader_id == self.member_id and self.is_voter and not self.only_voter:
            self.role = Resigned(
                leader_epoch=epoch,
                leader_id=self.member_id,
                voted_id=self.member_id,
                successors=(),
                unaware=set(self.other_voters),
                deadline_ms=deadline_ms,
            )
        elif state.leader_id in self.other_voters:
            assert state.leader_id is not None
            self.role = self._as_follower(epoch, state.leader_id, voted_id, now_ms)
        elif voted_id is not None and self.is_voter:
            self.role = Voted(leader_epoch=epoch, voted_id=voted_id, deadline_ms=deadline_ms)
        else:
            self.role = Unattached(leader_epoch=epoch, deadline_ms=deadline_ms)

    @property
    def election_state(self) -> ElectionState:
        """What a crash must not make this member forget."""
        role = self.role
        return ElectionState(
            leader_epoch=role.leader_epoch, leader_id=role.leader_id, voted_id=role.voted_id
        )

    @property
    def known_leader_id(self) -> int | None:
        """Who leads, as far as this member can tell others; a resigned leader does not."""
        return None if isinstance(self.role, Resigned) else self.role.leader_id

    def become_unattached(self, leader_epoch: int, now_ms: int) -> None:
        """There is a later epoch, or a pre-vote was lost. An election deadline that ran, runs on.

        Otherwise members that campaign in turn could keep each other waiting for ever.
        """
        role = self.role
        waits = isinstance(role, Unattached | Voted | Prospective | Candidate)
        later = leader_epoch > role.leader_epoch
        if self.only_voter:
            deadline_ms = now_ms  # there is nobody to wait for
        else:
            deadline_ms = role.deadline_ms if waits and later else self._election_deadline(now_ms)
        self._enter(Unattached(leader_epoch=leader_epoch, deadline_ms=deadline_ms))

    def become_voted(self, candidate_id: int, now_ms: int) -> None:
        """Its vote is given: the candidate gets the time of a whole election."""
        self._enter(
            Voted(
                leader_epoch=self.role.leader_epoch,
                voted_id=candidate_id,
                deadline_ms=self._election_deadline(now_ms),
            )
        )

    def become_prospective(self, now_ms: int) -> None:
        """Ask whether an election would be won, in the epoch as it is."""
        self._attempts += 1
        role = self.role
        self._enter(
            Prospective(
                leader_epoch=role.leader_epoch,
                leader_id=role.leader_id,
                voted_id=role.voted_id,
                ballot=Ballot(self.voters, self.member_id),
                deadline_ms=self._election_deadline(now_ms),
            )
        )

    def become_candidate(self, now_ms: int) -> None:
        """Begin the next epoch with a vote for itself. Only after a pre-vote was won."""
        role = self.role
        invariant(isinstance(role, Prospective) and role.ballot.won, "a pre-vote that was won")
        self._enter(
            Candidate(
                leader_epoch=role.leader_epoch + 1,
                voted_id=self.member_id,
                ballot=Ballot(self.voters, self.member_id),
                deadline_ms=self._election_deadline(now_ms),
            )
        )

    def become_leader(self, epoch_start_offset: int, now_ms: int) -> None:
        """A majority has voted for it. Its high watermark is unknown at first (KAFKA-12619)."""
        role = self.role
        invariant(isinstance(role, Candidate) and role.ballot.won, "an election that was won")
        self._attempts = 0
        self._enter(
            Leader(
                leader_epoch=role.leader_epoch,
                leader_id=self.member_id,
                voted_id=self.member_id,
                epoch_start_offset=epoch_start_offset,
                progress={voter: VoterProgress(contact_ms=now_ms) for voter in self.other_voters},
            )
        )

    def become_follower(self, leader_epoch: int, leader_id: int, now_ms: int) -> None:
        """A leader is known; promises of this epoch stay."""
        invariant(leader_id != self.member_id, "to follow somebody else", leader_id=leader_id)
        voted_id = self.role.voted_id if leader_epoch == self.role.leader_epoch else None
        self._enter(self._as_follower(leader_epoch, leader_id, voted_id, now_ms))

    def resign(self, successors: tuple[int, ...], now_ms: int) -> None:
        """Lead no more; the epoch stays without a leader."""
        self._enter(
            Resigned(
                leader_epoch=self.role.leader_epoch,
                leader_id=self.member_id,
                voted_id=self.member_id,
                successors=successors,
                unaware=set(self.other_voters),
                deadline_ms=self._election_deadline(now_ms),
            )
        )

    def reach_leader(self, now_ms: int) -> None:
        """A fetch has succeeded: the leader is there."""
        role = self.role
        if isinstance(role, Follower):
            self._attempts = 0
            role.in_touch = role.has_answered = True
            role.leader_gone = False
            role.deadline_ms = self._fetch_deadline(now_ms)

    def vote_again(self, now_ms: int) -> None:
        """A follower that has abstained is a voter from now on."""
        role = self.role
        invariant(self.abstains and isinstance(role, Follower), "a follower that abstains")
        self.abstains, self.is_voter = False, True
        role.deadline_ms = self._fetch_deadline(now_ms)

    def lose_leader(self, wait_ms: int, now_ms: int) -> None:
        """The leader is gone for good, it seems: campaign after `wait_ms`, not the whole timeout.

        Only a pre-vote comes of it: if the others still hear from the leader, nothing changes.
        """
        role = self.role
        if isinstance(role, Follower):
            role.in_touch = False
            if self.is_voter and not role.leader_gone:
                role.deadline_ms = min(role.deadline_ms, now_ms + wait_ms)
            role.leader_gone = True

    def draw_wait_ms(self) -> int:
        """A short pause, of a length that members rarely share; longer after lost elections."""
        longest = self._options.retry_backoff_ms << min(self._attempts, 10)
        return self._draw_below(min(longest, self._options.election_timeout_ms) + 1)

    def shorten_deadline(self, now_ms: int) -> None:
        """An election cannot be won any more: try again soon."""
        role = self.role
        if isinstance(role, Candidate) and not role.rejected:
            role.rejected = True
            role.deadline_ms = min(role.deadline_ms, now_ms + 1 + self.draw_wait_ms())

    def _as_follower(
        self, leader_epoch: int, leader_id: int, voted_id: int | None, now_ms: int
    ) -> Follower:
        return Follower(
            leader_epoch=leader_epoch,
            leader_id=leader_id,
            voted_id=voted_id,
            deadline_ms=self._fetch_deadline(now_ms),
        )

    def _election_deadline(self, now_ms: int) -> int:
        if not self.is_voter:
            return NEVER_MS
        timeout_ms = self._options.election_timeout_ms
        return now_ms + timeout_ms + self._draw_below(timeout_ms)

    def _fetch_deadline(self, now_ms: int) -> int:
        return now_ms + self._options.fetch_timeout_ms if self.is_voter else NEVER_MS

    def _enter(self, after: Role) -> None:
        check_transition(self.role, after, is_voter=self.is_voter)
        self.role = after
