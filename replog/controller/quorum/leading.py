"""What a leader does: serves fetches, learns from them what is committed, and whom it has lost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from replog.controller.quorum.commit_rules import committed_offset, quorum_silent_since
from replog.controller.quorum.fetch_claim import judge_claim
from replog.controller.quorum.incidents import LeaderResigned, ResignCause
from replog.controller.quorum.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumFetchRequest,
    QuorumFetchResponse,
    SnapshotRead,
)
from replog.controller.quorum.roles import NEVER_MS, Leader, Resigned
from replog.messages import ErrorCode, LogRead
from replog.types import UNKNOWN_OFFSET, SnapshotId

if TYPE_CHECKING:
    from replog.controller.quorum.member_context import MemberContext
    from replog.errors import ReplogError


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingFetch:
    """A fetch that had nothing to be answered with."""

    request_id: int
    request: QuorumFetchRequest
    deadline_ms: int


class Leading:
    """A member has one fetch waiting at most: a newer one takes the place of its older one."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._standing = context.standing
        self._waiting: dict[int, WaitingFetch] = {}

    @property
    def is_asked(self) -> bool:
        """Whether any fetch waits."""
        return bool(self._waiting)

    # -- requests of others

    def on_fetch(self, request_id: int, request: QuorumFetchRequest, now_ms: int) -> None:
        """Answer at once with records, a cut, a snapshot or an error; otherwise let it wait."""
        error = self._refusal(request.replica_id, request.current_leader_epoch)
        if request.fetch_offset < 0 or request.last_fetched_epoch > request.current_leader_epoch:
            error = ErrorCode.INVALID_REQUEST
        role = self._standing.role
        if error != ErrorCode.NONE or not isinstance(role, Leader):
            self._answer_fetch(request_id, error=error)
            return
        counts = self._counts(role, request)
        if counts:
            self._heard_from(role, request.replica_id, now_ms)
        claim = judge_claim(self._context.log, request.fetch_offset, request.last_fetched_epoch)
        if isinstance(claim, SnapshotId):
            self._answer_fetch(request_id, snapshot_id=claim)
            return
        if claim is not None:
            self._answer_fetch(request_id, diverging_epoch=claim)
            return
        progress = role.progress.get(request.replica_id)
        if progress is not None and counts:
            progress.end_offset = request.fetch_offset
            self.maybe_commit()
        older = self._waiting.pop(request.replica_id, None)
        if older is not None:
            self._serve(older)
        deadline_ms = now_ms + request.wait_ms_max
        fetch = WaitingFetch(request_id, request, deadline_ms)
        if request.wait_ms_max <= 0 or self._has_news(fetch):
            self._serve(fetch)
        else:
            self._waiting[request.replica_id] = fetch

    @staticmethod
    def _counts(role: Leader, request: QuorumFetchRequest) -> bool:
        """Whether a voter vouches by it. What one has asked for from a directory that it has lost
        since may come late, and vouches for nothing.
        """
        progress = role.progress.get(request.replica_id)
        if progress is None or request.counts:
            return progress is None or progress.directory_id in {None, request.directory_id}
        progress.directory_id = request.directory_id
        progress.end_offset = UNKNOWN_OFFSET
        return False

    def on_fetch_snapshot(
        self, request_id: int, request: FetchSnapshotRequest, now_ms: int
    ) -> None:
        """Answer with bytes of a snapshot. Loading one is no silence (check-quorum counts it)."""
        error = self._refusal(request.replica_id, request.current_leader_epoch)
        role = self._standing.role
        size = None
        if error == ErrorCode.NONE and isinstance(role, Leader):
            self._heard_from(role, request.replica_id, now_ms)
            size = self._context.log.snapshot_size(request.snapshot_id)
            if size is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < size:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        if error != ErrorCode.NONE or size is None:
            self._answer_snapshot(request_id, error=error)
            return
        self._answer_snapshot(
            request_id,
            snapshot_id=request.snapshot_id,
            size=size,
            position=request.position,
            chunk=SnapshotRead(
                snapshot_id=request.snapshot_id,
                position=request.position,
                max_bytes=request.max_bytes,
            ),
        )

    def _refusal(self, replica_id: int, leader_epoch: int) -> ErrorCode:
        """Only a member of our own epoch may fetch, and only from its leader."""
        role = self._standing.role
        if leader_epoch < role.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_epoch > role.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if replica_id == self._standing.member_id:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def member_lost(self, member_id: int) -> None:
        """Nobody waits for what it asked any more."""
        self._waiting.pop(member_id, None)

    # -- what the leader's log and its followers' fetches mean

    def maybe_commit(self) -> None:
        """Raise the high watermark to what a majority has synced."""
        role = self._standing.role
        if not isinstance(role, Leader):
            return
        ends = [progress.end_offset for progress in role.progress.values()]
        offset = committed_offset([*ends, self._own_end_offset()], role.epoch_start_offset)
        if offset is not None and (role.high_watermark is None or offset > role.high_watermark):
            role.high_watermark = offset
            self._context.raise_high_watermark(offset)
            self.serve_waiting()

    def _own_end_offset(self) -> int:
        """The leader, too, vouches only for what it has synced."""
        return self._context.log.synced_end_offset

    def serve_waiting(self) -> None:
        """Answer the fetches for which there is something now."""
        for replica_id, fetch in list(self._waiting.items()):
            if self._has_news(fetch):
                del self._waiting[replica_id]
                self._serve(fetch)

    def _has_news(self, fetch: WaitingFetch) -> bool:
        """A voter vouches for records; an observer needs none of them until they are committed,
        and gets them and their commit in one answer.
        """
        role = self._standing.role
        request = fetch.request
        if (
            isinstance(role, Leader)
            and role.high_watermark is not None
            and role.high_watermark > request.high_watermark
        ):
            return True
        return (
            request.replica_id in self._standing.voters
            and request.counts
            and self._context.log.log_end_offset > request.fetch_offset
        )

    def _serve(self, fetch: WaitingFetch) -> None:
        role, log = self._standing.role, self._context.log
        offset, end_offset = fetch.request.fetch_offset, log.log_end_offset
        if not isinstance(role, Leader):
            self._answer_fetch(fetch.request_id, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if offset < log.log_start_offset:
            # What it waited for is cut: an observer waits as long as nothing is known as committed.
            self._answer_fetch(fetch.request_id, snapshot_id=log.latest_snapshot)
            return
        records = LogRead(
            start_offset=offset, end_offset=end_offset, max_bytes=fetch.request.max_bytes
        )
        self._answer_fetch(
            fetch.request_id,
            high_watermark=UNKNOWN_OFFSET if role.high_watermark is None else role.high_watermark,
            log_start_offset=log.log_start_offset,
            records=records if offset < end_offset else None,
        )

    def _answer_fetch(self, request_id: int, **told: Any) -> None:
        standing = self._standing
        response = QuorumFetchResponse(
            leader_id=standing.known_leader_id, leader_epoch=standing.role.leader_epoch, **told
        )
        self._context.respond(request_id, response)

    def _answer_snapshot(self, request_id: int, **told: Any) -> None:
        standing = self._standing
        response = FetchSnapshotResponse(
            leader_id=standing.known_leader_id, leader_epoch=standing.role.leader_epoch, **told
        )
        self._context.respond(request_id, response)

    def _heard_from(self, role: Leader, replica_id: int, now_ms: int) -> None:
        progress = role.progress.get(replica_id)
        if progress is not None:
            progress.contact_ms = now_ms

    # -- time, and the end of the epoch

    def check_quorum_deadline_ms(self, role: Leader) -> int | None:
        """When the leader must resign unless a majority fetches before; None for an only voter.

        One and a half times what a follower waits for its leader: it finds another first.
        """
        since = quorum_silent_since([progress.contact_ms for progress in role.progress.values()])
        return None if since is None else since + self._context.options.fetch_timeout_ms * 3 // 2

    def advance(self, now_ms: int) -> bool:
        """Answer fetches that waited long enough; resign if the quorum is silent."""
        for replica_id, fetch in list(self._waiting.items()):
            if fetch.deadline_ms <= now_ms or not isinstance(self._standing.role, Leader):
                del self._waiting[replica_id]
                self._serve(fetch)
        role = self._standing.role
        if isinstance(role, Resigned):
            if role.deadline_ms > now_ms:
                return False
            # Whoever still takes us for the leader of this epoch learns of the next one.
            self._standing.become_unattached(role.leader_epoch + 1, now_ms)
            return True
        if not isinstance(role, Leader):
            return False
        deadline_ms = self.check_quorum_deadline_ms(role)
        if deadline_ms is None or deadline_ms > now_ms:
            return False
        self.resign(ResignCause.QUORUM_SILENT, now_ms)
        return True

    def resign(self, cause: ResignCause, now_ms: int, error: ReplogError | None = None) -> None:
        """Give up the epoch, and name the voters whose logs reach furthest to go first."""
        role = self._standing.role
        if not isinstance(role, Leader):
            return
        by_progress = sorted(role.progress, key=lambda voter: -role.progress[voter].end_offset)
        incident = LeaderResigned(leader_epoch=role.leader_epoch, cause=cause, error=error)
        self._context.report(incident)
        self._standing.resign(tuple(by_progress), now_ms)

    def on_end_answered(self, voter_id: int) -> None:
        """It has heard that we resigned."""
        role = self._standing.role
        if isinstance(role, Resigned):
            role.unaware.discard(voter_id)

    def send_due(self, now_ms: int) -> None:
        """Tell voters that do not fetch that the epoch has begun, or that it has ended."""
        role, context = self._standing.role, self._context
        if isinstance(role, Leader):
            for voter_id in self._standing.other_voters:
                due_ms = self._begin_due_ms(role, voter_id)
                if due_ms <= now_ms and context.requests.ready(voter_id, now_ms):
                    role.progress[voter_id].told_ms = now_ms
                    begin = BeginQuorumEpochRequest(
                        leader_id=role.leader_id, leader_epoch=role.leader_epoch
                    )
                    context.send(voter_id, begin, now_ms)
        elif isinstance(role, Resigned):
            for voter_id in sorted(role.unaware):
                if context.requests.ready(voter_id, now_ms):
                    end = EndQuorumEpochRequest(
                        leader_id=role.leader_id,
                        leader_epoch=role.leader_epoch,
                        preferred_successors=role.successors,
                    )
                    context.send(voter_id, end, now_ms)

    def _begin_due_ms(self, role: Leader, voter_id: int) -> int:
        """At once, then whenever half a fetch timeout passes without a word from it."""
        progress = role.progress[voter_id]
        if progress.told_ms is None:
            return 0
        heard_ms = max(progress.told_ms, progress.contact_ms)
        return heard_ms + self._context.options.fetch_timeout_ms // 2

    def deadline_ms(self, now_ms: int) -> int:
        """When something is due here; NEVER_MS: nothing is."""
        first_ms = NEVER_MS
        for fetch in self._waiting.values():
            first_ms = min(first_ms, fetch.deadline_ms)
        role = self._standing.role
        if not isinstance(role, Leader):
            return first_ms
        silent_ms = self.check_quorum_deadline_ms(role)
        if silent_ms is not None and silent_ms < first_ms:
            first_ms = silent_ms
        ready = self._context.requests.ready
        for voter_id in self._standing.other_voters:
            due_ms = self._begin_due_ms(role, voter_id)
            if due_ms < first_ms and ready(voter_id, now_ms):
                first_ms = due_ms
        return first_ms
