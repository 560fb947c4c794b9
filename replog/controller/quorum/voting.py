"""Elections: a voter's answers to those who campaign, and its own campaigns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.quorum.effects import AppendLeaderChange
from replog.controller.quorum.incidents import CampaignBegun, CampaignCause
from replog.controller.quorum.messages import VoteRequest, VoteResponse
from replog.controller.quorum.roles import (
    Candidate,
    Follower,
    Prospective,
    Unattached,
    Voted,
)
from replog.controller.quorum.vote_rules import grants_pre_vote, grants_vote, is_up_to_date
from replog.messages import ErrorCode

if TYPE_CHECKING:
    from replog.controller.quorum.member_context import MemberContext


class Voting:
    """Requests come with an epoch that is not older than ours, responses with ours."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._standing = context.standing

    def on_request(self, request_id: int, request: VoteRequest, now_ms: int) -> None:
        """Grant or reject. A granted vote is in the election state before the answer is out."""
        standing = self._standing
        candidate_id = request.candidate_id
        epoch_limit = request.candidate_epoch + (1 if request.pre_vote else 0)
        if not standing.is_voter or candidate_id not in standing.other_voters:
            self._answer(request_id, error=ErrorCode.INCONSISTENT_VOTER_SET)
            return
        if request.log_end_offset < 0 or request.last_epoch >= epoch_limit:
            self._answer(request_id, error=ErrorCode.INVALID_REQUEST)
            return
        if request.candidate_epoch < standing.role.leader_epoch:
            self._answer(request_id, error=ErrorCode.FENCED_LEADER_EPOCH)
            return
        if request.candidate_epoch > standing.role.leader_epoch:
            standing.become_unattached(request.candidate_epoch, now_ms)
        up_to_date = is_up_to_date(self._context.log, request)
        if request.pre_vote:
            granted = grants_pre_vote(standing.role, up_to_date=up_to_date)
            if isinstance(standing.role, Prospective):
                # It has lost the leader since it told us that it had one.
                standing.role.ballot.reopen(candidate_id)
                if granted and self._yields_to(request):
                    self._give_up(standing.role, now_ms)
        else:
            granted = grants_vote(standing.role, candidate_id, up_to_date=up_to_date)
            if granted and not isinstance(standing.role, Voted):
                standing.become_voted(candidate_id, now_ms)
        self._answer(request_id, granted=granted)

    def _yields_to(self, request: VoteRequest) -> bool:
        """Of two that would elect each other one stands back: both would split the vote."""
        log = self._context.log
        theirs = (request.last_epoch, request.log_end_offset, -request.candidate_id)
        return theirs > (log.last_epoch, log.log_end_offset, -self._standing.member_id)

    def on_silence(self, voter_id: int) -> None:
        """A voter cannot be reached now."""
        role = self._standing.role
        if isinstance(role, Prospective | Candidate):
            role.ballot.not_reached(voter_id)

    def on_response(self, voter_id: int, request: VoteRequest, response: VoteResponse) -> None:
        """Count an answer to what this very campaign asked."""
        role = self._standing.role
        asked = Prospective if request.pre_vote else Candidate
        if isinstance(role, Prospective | Candidate) and isinstance(role, asked):
            granted = response.vote_granted and response.error == ErrorCode.NONE
            role.ballot.record(voter_id, granted=granted)

    def advance(self, now_ms: int) -> bool:
        """One step of a campaign that is due; whether the role changed."""
        standing, role = self._standing, self._standing.role
        if isinstance(role, Prospective):
            if role.ballot.won:
                standing.become_candidate(now_ms)
                return True
            if role.ballot.lost or role.deadline_ms <= now_ms:
                self._give_up(role, now_ms)
                return True
            return False
        if isinstance(role, Candidate):
            if role.ballot.won:
                self._lead(role, now_ms)
                return True
            if role.ballot.stuck:
                standing.shorten_deadline(now_ms)
        if not isinstance(role, Unattached | Voted | Follower | Candidate):
            return False
        if role.deadline_ms > now_ms:
            return False
        self._campaign(now_ms)
        return True

    def _campaign(self, now_ms: int) -> None:
        role = self._standing.role
        if self._standing.only_voter:
            cause = CampaignCause.ONLY_VOTER
        elif isinstance(role, Follower):
            gone = role.leader_gone
            cause = CampaignCause.LEADER_GONE if gone else CampaignCause.LEADER_SILENT
        elif isinstance(role, Candidate):
            cause = CampaignCause.VOTE_LOST
        else:
            cause = CampaignCause.NO_LEADER_FOUND
        self._context.report(CampaignBegun(leader_epoch=role.leader_epoch, cause=cause))
        self._standing.become_prospective(now_ms)

    def _give_up(self, role: Prospective, now_ms: int) -> None:
        """The pre-vote was not won: back to what this epoch has been so far."""
        if role.leader_id is not None:
            self._standing.become_follower(role.leader_epoch, role.leader_id, now_ms)
        elif role.voted_id is not None:
            self._standing.become_voted(role.voted_id, now_ms)
        else:
            self._standing.become_unattached(role.leader_epoch, now_ms)

    def _lead(self, role: Candidate, now_ms: int) -> None:
        """The epoch begins with a record of its own: nothing can be committed before it is."""
        context, standing = self._context, self._standing
        granting = role.ballot.granting
        standing.become_leader(context.log.log_end_offset, now_ms)
        context.effects.append(
            AppendLeaderChange(
                standing.role.leader_epoch, standing.member_id, standing.voters, granting
            )
        )

    def send_due(self, now_ms: int) -> None:
        """Ask those who have not answered yet."""
        role, context = self._standing.role, self._context
        if not isinstance(role, Prospective | Candidate):
            return
        for voter_id in role.ballot.unanswered:
            if context.requests.ready(voter_id, now_ms):
                request = VoteRequest(
                    candidate_id=self._standing.member_id,
                    candidate_epoch=role.leader_epoch,
                    last_epoch=context.log.last_epoch,
                    log_end_offset=context.log.log_end_offset,
                    pre_vote=isinstance(role, Prospective),
                )
                context.send(voter_id, request, now_ms)

    def _answer(
        self, request_id: int, *, granted: bool = False, error: ErrorCode = ErrorCode.NONE
    ) -> None:
        standing = self._standing
        response = VoteResponse(
            error=error,
            leader_id=standing.known_leader_id,
            leader_epoch=standing.role.leader_epoch,
            vote_granted=granted,
        )
        self._context.respond(request_id, response)
