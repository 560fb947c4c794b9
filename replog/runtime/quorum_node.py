"""One member of the quorum: carries out what `Quorum` asks for, strictly in order, over its log.

Synchronous, without clock, threads or chance, like `BrokerNode`: whoever drives it calls a method
for each thing that has happened, with the time. What the listener asks for while it is told
something (`propose`, `resign`) waits until the effects under way are carried out to the end: a
completion is heard before anything else. A member that has no room for its promise goes on without
it. One whose promise could not be written otherwise, or whose log has failed, stops: `failed` says
why, it takes nothing more, and must be dropped.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Protocol

from replog.controller.events import RequestFailed, Tick
from replog.controller.quorum import effects as fx
from replog.controller.quorum.events import (
    AppendFailed,
    LogFlushed,
    LogTruncated,
    MemberConnectionLost,
    PromiseFailed,
    QuorumRequestReceived,
    QuorumResponseReceived,
    RecordsAppended,
    RecordsProposed,
    ResignWanted,
    SnapshotInstalled,
    SnapshotRefused,
)
from replog.controller.quorum.incidents import PromiseRefused
from replog.controller.quorum.messages import (
    FetchSnapshotResponse,
    QuorumFetchResponse,
    SnapshotRead,
)
from replog.controller.quorum.quorum import Quorum
from replog.errors import LogFailedError, NoSpaceError, OutOfDescriptorsError, ReplogError
from replog.messages import LogRead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replog._native.append_result import AppendResult
    from replog.config import QuorumOptions
    from replog.controller.quorum.events import QuorumEvent
    from replog.controller.quorum.incidents import QuorumIncident
    from replog.controller.quorum.messages import QuorumRequest, QuorumResponse
    from replog.messages import RawBatches
    from replog.runtime.quorum_log import QuorumReplicaLog
    from replog.types import SnapshotId


logger = logging.getLogger(__name__)

_NO_ROOM = (NoSpaceError, OutOfDescriptorsError)
"""What passes, with nothing half done."""


class QuorumListener(Protocol):
    """Whom the quorum serves: a controller, or a broker that follows. Told in order."""

    def leader_changed(
        self, leader_id: int | None, leader_epoch: int, epoch_start_offset: int | None, now_ms: int
    ) -> None:
        """Who leads; `epoch_start_offset` is set where this member does."""

    def records_appended(self, proposal_id: int, last_offset: int, now_ms: int) -> None:
        """A proposal is in the log of this member, which leads. It is not committed yet."""

    def proposal_failed(self, proposal_id: int, now_ms: int) -> None:
        """Nothing of it was or will be appended."""

    def committed(self, high_watermark: int, now_ms: int) -> None:
        """Offsets below it are committed, and in this member's log or its snapshot."""

    def snapshot_installed(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """The log begins anew behind it: what it stands for is to be loaded."""

    def report(self, incident: QuorumIncident, now_ms: int) -> None:
        """For operators."""


class QuorumNetwork(Protocol):
    """Where requests to members go, and answers to theirs. Each call returns at once."""

    def send_to_member(self, request_id: int, member_id: int, request: QuorumRequest) -> None: ...

    def respond_to_member(self, request_id: int, response: QuorumResponse) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class QuorumPorts:
    """What a member needs of the world."""

    log: QuorumReplicaLog
    network: QuorumNetwork
    flush: Callable[[QuorumReplicaLog], None]
    """See that all the log holds now is synced, then call `flush_completed`; never from within."""
    wall_ms: Callable[[], int]
    """For the timestamps of records."""


class QuorumNode:
    """See the module. Life: `start` once, then anything, then being dropped."""

    def __init__(
        self,
        member_id: int,
        voters: Sequence[int],
        ports: QuorumPorts,
        listener: QuorumListener,
        draw_below: Callable[[int], int],
        options: QuorumOptions | None = None,
        *,
        has_forgotten: bool = False,
        directory_id: bytes | None = None,
    ) -> None:
        """draw_below(bound) gives a number of [0, bound): the caller's chance. has_forgotten,
        directory_id: as `Quorum` has them.
        """
        self.member_id = member_id
        self.log = ports.log
        self._voters = tuple(voters)
        self.failed: ReplogError | None = None
        self.quorum = Quorum(
            member_id,
            tuple(voters),
            ports.log,
            draw_below,
            options,
            has_forgotten=has_forgotten,
            directory_id=directory_id,
        )
        self._network = ports.network
        self._flush = ports.flush
        self._wall_ms = ports.wall_ms
        self._listener = listener
        self._completions: collections.deque[QuorumEvent] = collections.deque()
        self._waiting: collections.deque[QuorumEvent] = collections.deque()
        self._at_work = False
        self._now_ms = 0
        self._carry_out: dict[type, Callable[[Any], None]] = {
            fx.PersistQuorumState: self._persist,
            fx.LeaderChanged: self._leader_changed,
            fx.AppendLeaderChange: self._append_leader_change,
            fx.AppendAsLeader: self._append_as_leader,
            fx.RefuseProposal: self._refuse_proposal,
            fx.AppendAsFollower: self._append_as_follower,
            fx.TruncateLog: self._truncate,
            fx.FlushLog: self._flush_log,
            fx.SetHighWatermark: self._set_high_watermark,
            fx.WriteSnapshotChunk: self._write_snapshot_chunk,
            fx.InstallSnapshot: self._install_snapshot,
            fx.SendToMember: self._send,
            fx.RespondToMember: self._respond,
            fx.ReportQuorum: self._report,
        }

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` is due; None: never, unless something happens first."""
        return None if self.failed is not None else self.quorum.next_deadline_ms

    def start(self, now_ms: int) -> None:
        """Take up what was promised before. Raises CorruptFileError for a damaged promise."""
        state = self.log.read_state()
        self._now_ms = now_ms
        self._run(lambda: self.quorum.start(state, now_ms))

    def receive_request(self, request_id: int, request: QuorumRequest, now_ms: int) -> None:
        """A member asks; `request_id` is the network's, unique among those unanswered."""
        self._step(QuorumRequestReceived(request_id=request_id, request=request), now_ms)

    def receive_response(self, request_id: int, response: QuorumResponse, now_ms: int) -> None:
        """The answer to a request of ours."""
        self._step(QuorumResponseReceived(request_id=request_id, response=response), now_ms)

    def request_failed(self, request_id: int, now_ms: int) -> None:
        """A request of ours will not be answered: its connection broke."""
        self._step(RequestFailed(request_id=request_id), now_ms)

    def connection_lost(self, member_id: int, now_ms: int) -> None:
        """All connections with a member were reset."""
        self._step(MemberConnectionLost(member_id=member_id), now_ms)

    def propose(
        self, proposal_id: int, leader_epoch: int, batches: RawBatches, now_ms: int
    ) -> None:
        """Append records as the leader of that epoch; the listener hears what became of it."""
        self._step(
            RecordsProposed(proposal_id=proposal_id, leader_epoch=leader_epoch, batches=batches),
            now_ms,
        )

    def resign(self, leader_epoch: int, now_ms: int) -> None:
        """Stop leading that epoch, before anything that was proposed and is not appended yet."""
        self._step(ResignWanted(leader_epoch=leader_epoch), now_ms, first=True)

    def flush_completed(self, error: ReplogError | None, now_ms: int) -> None:
        """A flush that was asked for is done, or has failed for good."""
        if error is not None:
            self._fail(error)
        else:
            self._step(LogFlushed(), now_ms)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._step(Tick(), now_ms)

    # -- stepping

    def _step(self, event: QuorumEvent, now_ms: int, *, first: bool = False) -> None:
        if self.failed is not None:
            return
        if first:
            self._waiting.appendleft(event)
        else:
            self._waiting.append(event)
        self._now_ms = now_ms
        if not self._at_work:
            self._run(None)

    def _run(self, first: Callable[[], list[fx.QuorumEffect]] | None) -> None:
        """Carry out all effects, and those of every event that waits, to the end."""
        self._at_work = True
        try:
            if first is not None:
                self._carry_out_all(first())
            completions, waiting = self._completions, self._waiting
            while self.failed is None and (completions or waiting):
                event = completions.popleft() if completions else waiting.popleft()
                self._carry_out_all(self.quorum.step(event, self._now_ms))
        finally:
            self._at_work = False

    def _carry_out_all(self, effects: list[fx.QuorumEffect]) -> None:
        carry_out = self._carry_out
        for done, effect in enumerate(effects):
            try:
                carry_out[type(effect)](effect)
            except ReplogError as error:
                if isinstance(effect, fx.PersistQuorumState) and isinstance(error, _NO_ROOM):
                    undone = tuple(effects[done + 1 :])
                    self._completions.append(PromiseFailed(error=error, undone=undone))
                    return
                # It has no event of its own: what could not be written must not be acted upon.
                self._fail(error)
            if self.failed is not None:
                return

    def _fail(self, error: ReplogError) -> None:
        self.failed = error
        self._completions.clear()
        self._waiting.clear()

    # -- effects

    def _persist(self, effect: fx.PersistQuorumState) -> None:
        self.log.write_state(effect.state, self._voters)

    def _leader_changed(self, effect: fx.LeaderChanged) -> None:
        self._listener.leader_changed(
            effect.leader_id, effect.leader_epoch, effect.epoch_start_offset, self._now_ms
        )

    def _append_leader_change(self, effect: fx.AppendLeaderChange) -> None:
        batch = self.log.leader_change_of(
            effect.leader_id, effect.voters, effect.granting_voters, self._wall_ms()
        )
        self._append(lambda: self._append_batches(batch, effect.leader_epoch))

    def _append_as_leader(self, effect: fx.AppendAsLeader) -> None:
        appended = self._append(lambda: self._append_batches(effect.batches, effect.leader_epoch))
        if appended is None:
            self._listener.proposal_failed(effect.proposal_id, self._now_ms)
        else:
            last_offset = appended.last_offset
            self._listener.records_appended(effect.proposal_id, last_offset, self._now_ms)

    def _refuse_proposal(self, effect: fx.RefuseProposal) -> None:
        self._listener.proposal_failed(effect.proposal_id, self._now_ms)

    def _append_as_follower(self, effect: fx.AppendAsFollower) -> None:
        self._append(lambda: self.log.append_as_follower(effect.batches))

    def _append_batches(self, batches: RawBatches, leader_epoch: int) -> AppendResult:
        return self.log.append_as_leader(batches, leader_epoch, coordinator=True)

    def _append(self, append: Callable[[], Any]) -> Any:
        try:
            appended = append()
        except LogFailedError:
            raise
        except ReplogError as error:
            self._completions.append(AppendFailed(error=error))
            return None
        self._completions.append(RecordsAppended())
        return appended

    def _truncate(self, effect: fx.TruncateLog) -> None:
        try:
            self.log.truncate_to(effect.offset)
        except _NO_ROOM as error:
            # Nothing was cut, or the log has failed, which the next attempt will hear.
            self._completions.append(AppendFailed(error=error))
        else:
            self._completions.append(LogTruncated())

    def _flush_log(self, _: fx.FlushLog) -> None:
        self._flush(self.log)

    def _set_high_watermark(self, effect: fx.SetHighWatermark) -> None:
        self.log.set_high_watermark(effect.high_watermark)
        self._listener.committed(effect.high_watermark, self._now_ms)

    def _write_snapshot_chunk(self, effect: fx.WriteSnapshotChunk) -> None:
        try:
            self.log.snapshots.write_chunk(effect.snapshot_id, effect.position, effect.chunk)
        except LogFailedError:
            raise
        except ReplogError:
            # Without these bytes it will be refused as a whole, and fetched again.
            self.log.snapshots.discard()

    def _install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        try:
            self.log.install_snapshot(effect.snapshot_id)
        except LogFailedError:
            raise
        except ReplogError as error:
            self.log.snapshots.discard()
            self._completions.append(SnapshotRefused(error=error))
            return
        self._completions.append(SnapshotInstalled())
        self._listener.snapshot_installed(effect.snapshot_id, self._now_ms)

    def _send(self, effect: fx.SendToMember) -> None:
        self._network.send_to_member(effect.request_id, effect.member_id, effect.request)

    def _respond(self, effect: fx.RespondToMember) -> None:
        response = effect.response
        if isinstance(response, QuorumFetchResponse) and isinstance(response.records, LogRead):
            wanted = response.records
            records: Any = b""  # who cannot open a file now is asked again
            with contextlib.suppress(OutOfDescriptorsError):
                records = self.log.read(
                    wanted.start_offset, wanted.max_bytes, end_offset=wanted.end_offset
                )
            response = response._replace(records=records)
        elif isinstance(response, FetchSnapshotResponse) and isinstance(
            response.chunk, SnapshotRead
        ):
            asked = response.chunk
            chunk: Any = b""
            with contextlib.suppress(OutOfDescriptorsError):
                chunk = self.log.snapshots.read(asked.snapshot_id, asked.position, asked.max_bytes)
            response = dataclasses.replace(response, chunk=chunk)
        self._network.respond_to_member(effect.request_id, response)

    def _report(self, effect: fx.ReportQuorum) -> None:
        incident = effect.incident
        if isinstance(incident, PromiseRefused):
            logger.warning(
                "member %d has no room for its promise, and neither votes nor leads beyond epoch "
                "%d until there is: %s",
                self.member_id,
                incident.leader_epoch,
                incident.error,
            )
        self._listener.report(incident, self._now_ms)
