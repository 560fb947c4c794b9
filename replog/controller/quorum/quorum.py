"""One member of the quorum: an event and the time in, effects out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from replog.config import QuorumOptions
from replog.controller.events import RequestFailed
from replog.controller.quorum.abstention import Abstention
from replog.controller.quorum.effects import (
    AppendAsLeader,
    FlushLog,
    LeaderChanged,
    PersistQuorumState,
    QuorumEffect,
    RefuseProposal,
    ReportQuorum,
    RespondToMember,
    SetHighWatermark,
)
from replog.controller.quorum.election_state import ElectionState
from replog.controller.quorum.events import (
    AppendFailed,
    LogFlushed,
    LogTruncated,
    MemberConnectionLost,
    PromiseFailed,
    QuorumEvent,
    QuorumRequestReceived,
    QuorumResponseReceived,
    RecordsAppended,
    RecordsProposed,
    ResignWanted,
    SnapshotInstalled,
    SnapshotRefused,
)
from replog.controller.quorum.following import Following
from replog.controller.quorum.incidents import LeaderResigned, PromiseRefused, ResignCause
from replog.controller.quorum.leading import Leading
from replog.controller.quorum.member_context import MemberContext
from replog.controller.quorum.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumFetchRequest,
    QuorumFetchResponse,
    QuorumResponse,
    VoteRequest,
    VoteResponse,
)
from replog.controller.quorum.roles import NEVER_MS, Follower, Leader, Resigned, Role
from replog.controller.quorum.standing import Standing
from replog.controller.quorum.voting import Voting
from replog.errors import StorageError, UsageError, invariant
from replog.messages import ErrorCode

if TYPE_CHECKING:
    from replog.controller.quorum.pending_requests import PendingRequest
    from replog.controller.quorum.quorum_log import QuorumLog


class Quorum:
    """A voter if `member_id` is among `voters`, else an observer. One voter needs nobody else.

    `draw_below(bound)` gives a number of [0, bound): the caller's chance, which sets the election
    timeouts apart. `start` comes first, once; time never goes back.
    """

    def __init__(
        self,
        member_id: int,
        voters: tuple[int, ...],
        log: QuorumLog,
        draw_below: Callable[[int], int],
        options: QuorumOptions | None = None,
        *,
        has_forgotten: bool = False,
        directory_id: bytes | None = None,
    ) -> None:
        """has_forgotten: a voter whose promises are not there, in a cluster that is not new.
        directory_id: of the directory that the log is in, another one in another's place.
        """
        if not voters or len(set(voters)) != len(voters):
            raise UsageError(f"expected at least one voter, each once, found {voters!r}")
        self._standing = Standing(
            member_id,
            tuple(sorted(voters)),
            options or QuorumOptions(),
            draw_below,
            abstains=has_forgotten and member_id in voters,
        )
        self._context = MemberContext(log, self._standing, options or QuorumOptions(), directory_id)
        self._voting = Voting(self._context)
        self._leading = Leading(self._context)
        self._following = Following(self._context)
        self._abstention = Abstention(self._context) if self._standing.abstains else None
        self._persisted = ElectionState()
        """What is on the disk, or on its way there,"""
        self._persisted_before = ElectionState()
        """and what was there before that."""
        self._is_persisting = self._is_refused = False
        """Whether it is on its way; whether there was no room for the last one."""
        self._told: LeaderChanged | None = None
        self._is_known = False
        """Whether who leads may be told: an observer has to have it from the leader's log."""
        self._fenced: Role | None = None
        self.next_deadline_ms: int | None = None
        """When to step a Tick if nothing else happens before; None: never. To be read only."""

    # -- what others may look at

    @property
    def role(self) -> Role:
        """What this member is now; to be read only."""
        return self._standing.role

    @property
    def leader_epoch(self) -> int:
        """The latest epoch that this member knows of."""
        return self._standing.role.leader_epoch

    @property
    def leader_id(self) -> int | None:
        """Who leads that epoch; None if nobody is known to."""
        return self._standing.known_leader_id

    @property
    def high_watermark(self) -> int:
        """Offsets below it are committed, as far as this member knows."""
        return self._context.high_watermark

    # -- stepping

    def start(self, state: ElectionState | None, now_ms: int) -> list[QuorumEffect]:
        """Take up the persisted state; None: the file is not there, and nothing was ever promised.

        What recovery left in the log is synced before it is vouched for.
        """
        log = self._context.log
        self._persisted = state or ElectionState()
        self._standing.restore(self._persisted, log.last_epoch, now_ms)
        role = self._standing.role
        if self._abstention is not None:
            self._abstention.begin()
        if isinstance(role, Resigned):
            cause = ResignCause.RESTARTED
            self._context.report(LeaderResigned(leader_epoch=role.leader_epoch, cause=cause))
        self._sync_what_it_vouches_for()
        return self._finish(role, now_ms)

    def step(self, event: QuorumEvent, now_ms: int) -> list[QuorumEffect]:
        """Take an event; return what is to be done, in order."""
        if self._is_persisting:
            self._is_persisting = False
            if isinstance(event, PromiseFailed):
                return self._take_back(event, now_ms)
            self._is_refused = False
        before = self._standing.role
        if isinstance(event, QuorumRequestReceived):
            self._on_request(event, now_ms)
        elif isinstance(event, QuorumResponseReceived):
            self._on_response(event, now_ms)
        elif isinstance(event, RequestFailed):
            pending = self._context.requests.answered(event.request_id)
            if pending is not None:
                self._on_silence(pending.member_id, now_ms, reset=True)
        elif isinstance(event, MemberConnectionLost):
            self._leading.member_lost(event.member_id)
            self._on_silence(event.member_id, now_ms, reset=True)
        elif isinstance(event, RecordsProposed):
            self._on_proposal(event)
        elif isinstance(event, ResignWanted):
            if event.leader_epoch == self.leader_epoch:
                self._leading.resign(ResignCause.ASKED, now_ms)
        else:
            self._on_completion(event, now_ms)
        return self._finish(before, now_ms)

    def _finish(self, before: Role, now_ms: int) -> list[QuorumEffect]:
        """Do what is due, then put promises and fences in front of all that follows from them.

        What was asked in an earlier role or epoch is forgotten: no answer to it counts.
        """
        context, standing = self._context, self._standing
        if context.requests.any_asked:
            for member_id in context.requests.expired(now_ms):
                self._on_silence(member_id, now_ms, reset=False)
        if not (self._only_follows(now_ms) or self._only_leads(now_ms)):
            while self._voting.advance(now_ms) or self._leading.advance(now_ms):
                pass
        if standing.role is not before:
            context.requests.clear()
        if self._abstention is not None:
            self._abstain(self._abstention, now_ms)
        kind = type(standing.role)
        if kind is Leader:
            self._leading.send_due(now_ms)
        else:
            if kind is not Follower:
                self._voting.send_due(now_ms)
                self._leading.send_due(now_ms)
            self._following.send_due(now_ms)
        self.next_deadline_ms = self._find_deadline(now_ms)
        effects, context.effects = context.effects, []
        is_known = standing.is_voter or getattr(standing.role, "has_answered", False)
        if standing.role is not self._fenced or is_known is not self._is_known:
            self._fenced, self._is_known = standing.role, is_known
            effects[:0] = self._fences()
        return effects

    def _abstain(self, abstention: Abstention, now_ms: int) -> None:
        """As an observer; what is promised once it is over comes in front of what follows."""
        abstention.send_due(now_ms)
        if abstention.ended(self._following.leader_high_watermark, now_ms):
            self._abstention = self._fenced = None
            self._sync_what_it_vouches_for()

    def _only_follows(self, now_ms: int) -> bool:
        """Whether nothing of an election or of a leadership can be due: so it is most of the time
        for most members.
        """
        role = self._standing.role
        return type(role) is Follower and role.deadline_ms > now_ms and not self._leading.is_asked

    def _only_leads(self, now_ms: int) -> bool:
        """Whether a leader has nothing to do but to serve: what time brings about for it is due
        when the last step found it to be, or later, if somebody has been heard of since.
        """
        role, due_ms = self._standing.role, self.next_deadline_ms
        return type(role) is Leader and role is self._fenced and (due_ms is None or now_ms < due_ms)

    def _fences(self) -> list[QuorumEffect]:
        """What a role promises and tells is set when it is taken up, and never changes in it."""
        standing, role = self._standing, self._standing.role
        fences: list[QuorumEffect] = []
        state = standing.election_state
        if state != self._persisted and not standing.abstains:
            self._persisted_before, self._persisted = self._persisted, state
            self._is_persisting = True
            fences.append(PersistQuorumState(state))
        start_offset = role.epoch_start_offset if isinstance(role, Leader) else None
        # Nobody is sent to a leader that may lack what is committed (see `Following`).
        leader_id = standing.known_leader_id if self._is_known else None
        told = LeaderChanged(leader_id, role.leader_epoch, start_offset)
        if told != self._told:
            self._told = told
            fences.append(told)
        return fences

    def _take_back(self, event: PromiseFailed, now_ms: int) -> list[QuorumEffect]:
        """Stand where a crash would have left us: nobody has heard of the promise.

        Who has asked hears that it was in vain, and asks again after a pause, as we do; whoever
        campaigns waits for a whole election. Each attempt tries to write again.
        """
        context, standing = self._context, self._standing
        kept = self._persisted_before
        standing.restore(kept, context.log.last_epoch, now_ms, waits=True)
        role = standing.role
        self._persisted, self._told = standing.election_state, None
        self._following.forget_change()
        context.requests.clear()
        for member_id in standing.other_voters:
            context.requests.pause(member_id, now_ms)
        if not self._is_refused:
            self._is_refused = True
            incident = PromiseRefused(leader_epoch=kept.leader_epoch, error=event.error)
            context.report(incident)
        for effect in event.undone:
            self._undo(effect)
        self._sync_what_it_vouches_for()
        return self._finish(role, now_ms)

    def _undo(self, effect: QuorumEffect) -> None:
        """It was not carried out, and will not be, unless it promises nothing."""
        context = self._context
        if isinstance(effect, RespondToMember):
            refusal = type(effect.response)(
                error=ErrorCode.KAFKA_STORAGE_ERROR,
                leader_id=self.leader_id,
                leader_epoch=self.leader_epoch,
            )
            context.respond(effect.request_id, refusal)
        elif isinstance(effect, AppendAsLeader | RefuseProposal):
            refused = RefuseProposal(effect.proposal_id, self.leader_id, self.leader_epoch)
            context.effects.append(refused)
        elif isinstance(effect, SetHighWatermark | ReportQuorum):
            context.effects.append(effect)

    def _sync_what_it_vouches_for(self) -> None:
        log = self._context.log
        if self._standing.is_voter and log.synced_end_offset < log.log_end_offset:
            self._context.effects.append(FlushLog())

    def _find_deadline(self, now_ms: int) -> int | None:
        role = self._standing.role
        earliest = role.deadline_ms
        if type(role) is not Follower or self._leading.is_asked:
            earliest = min(earliest, self._leading.deadline_ms(now_ms))
        request_deadline_ms = self._context.requests.next_deadline_ms(now_ms)
        if request_deadline_ms is not None and request_deadline_ms < earliest:
            earliest = request_deadline_ms
        if earliest == NEVER_MS:
            return None
        return earliest if earliest > now_ms else now_ms + 1

    # -- requests of others

    def _on_request(self, event: QuorumRequestReceived, now_ms: int) -> None:
        request_id, request = event.request_id, event.request
        if isinstance(request, QuorumFetchRequest):
            self._leading.on_fetch(request_id, request, now_ms)
        elif isinstance(request, FetchSnapshotRequest):
            self._leading.on_fetch_snapshot(request_id, request, now_ms)
        elif isinstance(request, VoteRequest):
            self._voting.on_request(request_id, request, now_ms)
        else:
            self._on_leader_news(request_id, request, now_ms)

    def _on_leader_news(
        self,
        request_id: int,
        request: BeginQuorumEpochRequest | EndQuorumEpochRequest,
        now_ms: int,
    ) -> None:
        """A leader says that its epoch has begun, or that it is over."""
        ends = isinstance(request, EndQuorumEpochRequest)
        if request.leader_id not in self._standing.other_voters:
            error = ErrorCode.INCONSISTENT_VOTER_SET
        elif request.leader_epoch < self.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            error = ErrorCode.NONE
            self._heed(request.leader_id, request.leader_epoch, now_ms)
            if isinstance(request, EndQuorumEpochRequest):
                self._succeed(request, now_ms)
        kind = EndQuorumEpochResponse if ends else BeginQuorumEpochResponse
        self._context.respond(
            request_id, kind(error=error, leader_id=self.leader_id, leader_epoch=self.leader_epoch)
        )

    def _succeed(self, request: EndQuorumEpochRequest, now_ms: int) -> None:
        """Campaign at once if we are first in line; later ones wait twice as long each."""
        role, successors = self._standing.role, request.preferred_successors
        if not isinstance(role, Follower) or role.leader_id != request.leader_id:
            return
        me = self._standing.member_id
        if successors[:1] == (me,):
            wait_ms = 0
        else:
            place = successors.index(me) if me in successors else len(successors)
            wait_ms = self._context.options.retry_backoff_ms << min(place, 5)
            wait_ms += self._standing.draw_wait_ms()
        self._standing.lose_leader(wait_ms, now_ms)

    def _heed(self, leader_id: int | None, leader_epoch: int, now_ms: int) -> None:
        """Somebody knows this of the quorum: follow a leader or an epoch that is news."""
        standing, before = self._standing, self._standing.role
        if leader_id is not None and leader_id not in standing.other_voters:
            leader_id = None
        if leader_epoch > before.leader_epoch:
            if leader_id is None:
                standing.become_unattached(leader_epoch, now_ms)
            else:
                standing.become_follower(leader_epoch, leader_id, now_ms)
        elif leader_epoch == before.leader_epoch and leader_id is not None:
            invariant(
                before.leader_id in {None, leader_id},
                "one leader an epoch; voters may be configured differently, or lost their disks",
                leader_epoch=leader_epoch,
                known=before.leader_id,
                told=leader_id,
            )
            if before.leader_id is None:
                standing.become_follower(leader_epoch, leader_id, now_ms)

    # -- answers, and their absence

    def _on_response(self, event: QuorumResponseReceived, now_ms: int) -> None:
        pending = self._context.requests.answered(event.request_id)
        if pending is None:
            return  # asked in an earlier role or epoch
        if self._abstention is not None:
            self._abstention.heard_of(pending.member_id)
        response, before = event.response, self._standing.role
        if response.leader_epoch < before.leader_epoch:
            self._context.requests.pause(pending.member_id, now_ms)
            return
        self._heed(response.leader_id, response.leader_epoch, now_ms)
        if self._standing.role is before:
            self._take_response(pending, response, now_ms)

    def _take_response(
        self, pending: PendingRequest, response: QuorumResponse, now_ms: int
    ) -> None:
        member_id, request = pending.member_id, pending.request
        if isinstance(response, QuorumFetchResponse) and isinstance(request, QuorumFetchRequest):
            self._following.on_fetch_response(member_id, request, response, now_ms)
        elif isinstance(response, FetchSnapshotResponse):
            self._following.on_snapshot_response(member_id, response, now_ms)
        elif isinstance(response, VoteResponse) and isinstance(request, VoteRequest):
            self._voting.on_response(member_id, request, response)
        elif isinstance(response, EndQuorumEpochResponse):
            self._leading.on_end_answered(member_id)

    def _on_silence(self, member_id: int, now_ms: int, *, reset: bool) -> None:
        """A member did not answer in time, or (`reset`) its process seems to be gone."""
        self._context.requests.pause(member_id, now_ms)
        self._voting.on_silence(member_id)
        role = self._standing.role
        if isinstance(role, Follower) and role.leader_id == member_id:
            role.snapshot_id = None
            if reset or not self._standing.is_voter:
                self._following.leader_lost(now_ms)

    # -- the log

    def _on_proposal(self, event: RecordsProposed) -> None:
        role = self._standing.role
        if isinstance(role, Leader) and role.leader_epoch == event.leader_epoch:
            effect = AppendAsLeader(event.proposal_id, role.leader_epoch, event.batches)
            self._context.effects.append(effect)
        else:
            refusal = RefuseProposal(event.proposal_id, self.leader_id, self.leader_epoch)
            self._context.effects.append(refusal)

    def _epoch_has_begun(self, role: Leader) -> bool:
        return self._context.log.log_end_offset > role.epoch_start_offset

    def _on_completion(self, event: QuorumEvent, now_ms: int) -> None:
        role = self._standing.role
        if isinstance(event, RecordsAppended):
            if isinstance(role, Leader):
                self._context.effects.append(FlushLog())
                self._leading.serve_waiting()
            else:
                self._following.on_appended()
        elif isinstance(event, AppendFailed):
            if isinstance(role, Leader):
                # A proposal that does not suit the log is its proposer's affair.
                if isinstance(event.error, StorageError) or not self._epoch_has_begun(role):
                    self._leading.resign(ResignCause.APPEND_FAILED, now_ms, event.error)
            else:
                self._following.on_append_failed(event.error, now_ms)
        elif isinstance(event, LogTruncated):
            self._following.on_truncated()
        elif isinstance(event, LogFlushed):
            self._leading.maybe_commit()
        elif isinstance(event, SnapshotInstalled):
            self._following.on_snapshot_installed()
        elif isinstance(event, SnapshotRefused):
            self._following.on_append_failed(event.error, now_ms)
