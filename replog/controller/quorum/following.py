"""What a follower or observer does: finds the leader, fetches, cuts, appends, loads snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.quorum.effects import (
    AppendAsFollower,
    FlushLog,
    InstallSnapshot,
    TruncateLog,
    WriteSnapshotChunk,
)
from replog.controller.quorum.incidents import (
    FetchFailed,
    MetadataLogTruncated,
    OlderMetadataRefused,
    SnapshotFetched,
)
from replog.controller.quorum.messages import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumFetchRequest,
    QuorumFetchResponse,
)
from replog.controller.quorum.roles import Follower, Unattached, Voted
from replog.divergence import truncation_for
from replog.messages import ErrorCode
from replog.types import UNKNOWN_OFFSET, EpochEndOffset

if TYPE_CHECKING:
    from replog.controller.quorum.member_context import MemberContext
    from replog.errors import ReplogError


class Following:
    """Responses come in the role and epoch in which they were asked for."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._standing = context.standing
        self._next_guess = 0
        """Which voter is asked next for a leader that is not known, or not reached."""
        self.leader_high_watermark = UNKNOWN_OFFSET
        """As the latest answer told it."""
        self._refused_epoch: int | None = None
        """Of the leader that was refused last."""
        self._log_is_changing = False
        """What was asked of the log is not done yet: its end is not what it will be."""

    def on_fetch_response(
        self,
        member_id: int,
        request: QuorumFetchRequest,
        response: QuorumFetchResponse,
        now_ms: int,
    ) -> None:
        """Append, cut or load what the leader says; anything else is tried again after a pause."""
        role, context = self._standing.role, self._context
        if not isinstance(role, Follower) or member_id != role.leader_id:
            context.requests.pause(member_id, now_ms)
            return
        if response.error != ErrorCode.NONE:
            self._on_error(role, member_id, response.error, now_ms)
            return
        if response.diverging_epoch is not None:
            self._truncate(role, response.diverging_epoch, request.fetch_offset, now_ms)
            return
        if (
            response.snapshot_id is not None
            and response.snapshot_id.end_offset <= context.high_watermark
        ):
            # Nothing that we need; the leader is mistaken about what we asked.
            self._on_error(role, member_id, ErrorCode.OFFSET_OUT_OF_RANGE, now_ms)
            return
        self._standing.reach_leader(now_ms)
        if response.snapshot_id is not None:
            role.snapshot_id, role.snapshot_position = response.snapshot_id, 0
        else:
            self.leader_high_watermark = response.high_watermark
            if response.records is not None:
                self._change_log(AppendAsFollower(response.records))
            else:
                self._follow_high_watermark()

    def _truncate(
        self, role: Follower, diverging: EpochEndOffset, fetch_offset: int, now_ms: int
    ) -> None:
        context = self._context
        offset = truncation_for(context.log, diverging, fetch_offset).offset
        if offset < context.high_watermark:
            self._refuse(role, offset, now_ms)
            return
        self._standing.reach_leader(now_ms)
        context.report(
            MetadataLogTruncated(
                leader_id=role.leader_id,
                leader_epoch=role.leader_epoch,
                from_offset=context.log.log_end_offset,
                to_offset=offset,
            )
        )
        self._change_log(TruncateLog(offset))

    def _refuse(self, role: Follower, offset: int, now_ms: int) -> None:
        """A majority has lost its disks, or was given older ones: what we have may be all there is
        of what was acknowledged. It is kept, and asked for again later.
        """
        context = self._context
        if self._refused_epoch != role.leader_epoch:
            self._refused_epoch = role.leader_epoch
            context.report(
                OlderMetadataRefused(
                    leader_id=role.leader_id,
                    leader_epoch=role.leader_epoch,
                    message=(
                        f"expected a leader of the metadata log with all that is committed below "
                        f"offset {context.high_watermark}, found that {role.leader_id}, in epoch "
                        f"{role.leader_epoch}, has nothing of it from {offset} on; member "
                        f"{self._standing.member_id} keeps what it has, and goes on with it: give "
                        f"the controllers the directories that they had, or the log of a member "
                        f"that goes further"
                    ),
                )
            )
        context.requests.pause(role.leader_id, now_ms)

    def _change_log(self, effect: AppendAsFollower | TruncateLog | InstallSnapshot) -> None:
        self._log_is_changing = True
        self._context.effects.append(effect)

    def _on_error(
        self, role: Follower, member_id: int, error: ErrorCode | ReplogError, now_ms: int
    ) -> None:
        context = self._context
        if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # It led this epoch, and whoever stops leading an epoch never leads it again.
            self.leader_lost(now_ms)
        else:
            context.report(FetchFailed(member_id=member_id, error=error))
        context.requests.pause(member_id, now_ms)
        role.snapshot_id = None

    def leader_lost(self, now_ms: int) -> None:
        """It resigned or cannot be reached: do not wait for the whole fetch timeout."""
        self._standing.lose_leader(self._standing.draw_wait_ms(), now_ms)

    def forget_change(self) -> None:
        """What was asked of the log last will not be done."""
        self._log_is_changing = False

    def on_truncated(self) -> None:
        """The rest is fetched from there on."""
        self._log_is_changing = False

    def on_appended(self) -> None:
        """A voter vouches for an offset by asking for the next one, so it syncs first."""
        self._log_is_changing = False
        if self._standing.is_voter:
            self._context.effects.append(FlushLog())
        self._follow_high_watermark()

    def on_append_failed(self, error: ReplogError, now_ms: int) -> None:
        """Try again, from the leader's log as it then is."""
        self._log_is_changing = False
        role = self._standing.role
        if isinstance(role, Follower):
            self._on_error(role, role.leader_id, error, now_ms)

    def _follow_high_watermark(self) -> None:
        end_offset = self._context.log.log_end_offset
        self._context.raise_high_watermark(min(self.leader_high_watermark, end_offset))

    def on_snapshot_response(
        self, member_id: int, response: FetchSnapshotResponse, now_ms: int
    ) -> None:
        """Write the bytes where they belong; install the snapshot behind its last one."""
        role, context = self._standing.role, self._context
        if not isinstance(role, Follower) or role.snapshot_id is None:
            return
        if response.error != ErrorCode.NONE:
            self._on_error(role, member_id, response.error, now_ms)
            return
        self._standing.reach_leader(now_ms)
        expected = (role.snapshot_id, role.snapshot_position)
        if (response.snapshot_id, response.position) != expected or not len(response.chunk):
            self._on_error(role, member_id, ErrorCode.POSITION_OUT_OF_RANGE, now_ms)
            return
        context.effects.append(
            WriteSnapshotChunk(role.snapshot_id, role.snapshot_position, response.chunk)
        )
        role.snapshot_position += len(response.chunk)
        if role.snapshot_position >= response.size:
            self._change_log(InstallSnapshot(role.snapshot_id))

    def on_snapshot_installed(self) -> None:
        """The log starts anew behind it."""
        self._log_is_changing = False
        role, context = self._standing.role, self._context
        context.snapshot_loaded()
        if isinstance(role, Follower) and role.snapshot_id is not None:
            context.report(SnapshotFetched(leader_id=role.leader_id, snapshot_id=role.snapshot_id))
            role.snapshot_id = None

    def send_due(self, now_ms: int) -> None:
        """Fetch from the leader; where it is not known or not reached, ask others who leads."""
        role, context = self._standing.role, self._context
        log = context.log
        if isinstance(role, Follower) and not (role.leader_gone and not self._standing.is_voter):
            member_id = role.leader_id
        elif isinstance(role, Unattached | Voted | Follower) and self._standing.other_voters:
            member_id = self._guess(now_ms)
        else:
            return
        if self._log_is_changing or not context.requests.ready(member_id, now_ms):
            return
        if not self._may_vouch():
            return
        if isinstance(role, Follower) and role.snapshot_id is not None:
            snapshot_request = FetchSnapshotRequest(
                replica_id=self._standing.member_id,
                current_leader_epoch=role.leader_epoch,
                snapshot_id=role.snapshot_id,
                position=role.snapshot_position,
                max_bytes=context.options.fetch_max_bytes,
            )
            context.send(member_id, snapshot_request, now_ms)
            return
        fetch = QuorumFetchRequest(
            replica_id=self._standing.member_id,
            current_leader_epoch=role.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.last_epoch,
            high_watermark=context.high_watermark,
            # Whoever only asks who leads wants to know it at once.
            wait_ms_max=context.options.fetch_wait_max_ms if isinstance(role, Follower) else 0,
            max_bytes=context.options.fetch_max_bytes,
            counts=not self._standing.abstains,
            directory_id=context.directory_id,
        )
        context.send(member_id, fetch, now_ms)

    def _may_vouch(self) -> bool:
        """A voter asks for nothing past what it has synced; LogFlushed steps it again."""
        log = self._context.log
        return not self._standing.is_voter or log.synced_end_offset == log.log_end_offset

    def _guess(self, now_ms: int) -> int:
        """The next voter in turn that may be asked; one question at a time."""
        others, requests = self._standing.other_voters, self._context.requests
        for voter_id in others:
            if requests.asked(voter_id):
                return voter_id
        for step in range(len(others)):
            voter_id = others[(self._next_guess + step) % len(others)]
            if requests.ready(voter_id, now_ms):
                self._next_guess = (self._next_guess + step + 1) % len(others)
                return voter_id
        return others[0]
