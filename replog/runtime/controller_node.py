"""One controller: a member of the quorum, and the state machine that its log drives.

A standby applies what is committed. The member that leads becomes active once a record of its own
epoch is committed and everything up to there is applied; from then on the controller predicts the
offsets of what it appends, and answers when that is committed. A controller that lost its
leadership answers nothing as done: what is open is answered NOT_CONTROLLER, and what it had applied
without a majority is forgotten by loading the committed log anew.

Synchronous like the nodes it is made of; see `quorum_node`.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Protocol

from replog.config import QuorumOptions
from replog.controller import effects as fx
from replog.controller.events import (
    Committed,
    ConnectionLost,
    LeadershipGained,
    LeadershipLost,
    RecordsAppended,
    RequestReceived,
    Tick,
)
from replog.controller.incidents import EventFailed
from replog.controller.quorum.messages import QuorumFetchRequest
from replog.errors import ReplogError, invariant
from replog.messages import (
    AlterPartitionRequest,
    HeartbeatRequest,
    RegisterBrokerRequest,
)
from replog.runtime.metadata_state import SNAPSHOT_PAUSE_MS, MetadataReplay
from replog.runtime.quorum_node import QuorumNode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replog.controller.controller import Controller
    from replog.controller.events import ControllerEvent
    from replog.controller.quorum.incidents import QuorumIncident
    from replog.controller.quorum.messages import QuorumRequest
    from replog.messages import ControllerRequest, ControllerResponse
    from replog.runtime.journal import Journal
    from replog.runtime.quorum_node import QuorumListener, QuorumPorts
    from replog.types import SnapshotId


_FROM_BROKERS = frozenset(
    {
        AlterPartitionRequest,
        HeartbeatRequest,
        RegisterBrokerRequest,
    }
)
logger = logging.getLogger(__name__)

COMMANDS_PER_TICK = 8
"""How many commands of clients are begun before everybody else has a turn, so that no queue of them
ever stands in the way of brokers: whether somebody leads is decided first."""
COMMANDS_WAITING_MAX = 64
"""How many are taken in before clients have to wait: what lies with them costs the loop nothing,
which then has time for brokers, or stands still and leaves the interpreter to the log's sync."""
COMMANDS_WAIT_MS_MAX = 20
"""How long none is begun while what was decided for brokers has yet to be committed."""


class ControllerNetwork(Protocol):
    """Where answers to brokers and clients go."""

    def respond(self, request_id: int, response: ControllerResponse) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Leadership:
    """The epoch in which this member leads, whose first record is at `start_offset`."""

    epoch: int
    start_offset: int


class ControllerNode:
    """See the module. Life: `start` once, then anything, then being dropped."""

    def __init__(
        self,
        member_id: int,
        voters: Sequence[int],
        controller: Controller,
        ports: QuorumPorts,
        network: ControllerNetwork,
        journal: Journal,
        draw_below: Callable[[int], int],
        options: QuorumOptions | None = None,
        *,
        has_forgotten: bool = False,
        directory_id: bytes | None = None,
    ) -> None:
        """has_forgotten, directory_id: as `Quorum` has them."""
        self.member_id = member_id
        self.controller = controller
        self.is_active = False
        self.journal = journal
        self._network = network
        self.follower: QuorumListener | None = None
        """Of a broker in the same process, which needs no copy of the log of its own."""
        self._log = ports.log
        self._wall_ms = ports.wall_ms
        self._leadership: Leadership | None = None
        self._events: collections.deque[ControllerEvent] = collections.deque()
        """What waits for office, or for the append under way: the controller is told of each append
        before anything else, so that it can tell a rival's records from its own."""
        self._commands: collections.deque[tuple[int, ControllerRequest]] = collections.deque()
        """What clients want and what has not been begun, by request id."""
        self._begun_ms = 0
        self._begun = 0
        """How many commands were begun since the last tick, which was then."""
        self._next_piece_ms = 0
        """Of a snapshot."""
        self._urgent_end = 0
        """Records below it were decided for brokers; commands let them be committed first,"""
        self._urgent_until_ms = 0
        """up to this time."""
        self._is_appending = False
        self._proposals = 0
        self._first_of_leadership = 0
        """Proposals up to this one were made in an earlier epoch."""
        self.replay = MetadataReplay(
            ports.log, controller, (options or QuorumOptions()).snapshot_interval_bytes
        )
        self.quorum = QuorumNode(
            member_id,
            voters,
            ports,
            self,
            draw_below,
            options,
            has_forgotten=has_forgotten,
            directory_id=directory_id,
        )

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` is due."""
        quorum = self.quorum.next_deadline_ms
        if self._can_take_snapshot and (quorum is None or self._next_piece_ms < quorum):
            quorum = self._next_piece_ms
        controller = self.controller.next_deadline_ms if self.is_active else None
        if self.is_active and self._commands and not self._is_appending:
            controller = self._begun_ms + 1
        if quorum is None or controller is None:
            return controller if quorum is None else quorum
        return min(quorum, controller)

    def start(self, now_ms: int) -> None:
        """Load what is known to be committed, then take up the role in the quorum."""
        self.replay.reload()
        self.quorum.start(now_ms)

    def receive_request(
        self, request_id: int, sender: int | None, request: ControllerRequest, now_ms: int
    ) -> None:
        """A broker (`sender`) or a client (None) asks; answered once, by `respond`."""
        if type(request) in _FROM_BROKERS:
            event = RequestReceived(request_id=request_id, sender=sender, request=request)
            self._take(event, now_ms)
        else:
            self._commands.append((request_id, request))
            self._work_off(now_ms)

    def receive_member_request(self, request_id: int, request: QuorumRequest, now_ms: int) -> None:
        """A member of the quorum asks; answered once, by the member here.

        What a broker's observer knows to be committed when it fetches, the broker has received.
        """
        if self.is_active and isinstance(request, QuorumFetchRequest):
            self.controller.journal.received(request.replica_id, request.high_watermark, now_ms)
        self.quorum.receive_request(request_id, request, now_ms)

    @property
    def is_full(self) -> bool:
        """Whether clients had better wait with further commands."""
        return len(self._commands) >= COMMANDS_WAITING_MAX

    def put_off(self, request_id: int, request: ControllerRequest) -> bool:
        """Take a client's command whose turn comes with some tick, if it does: nothing moves."""
        if not self._commands or not self.is_active or type(request) in _FROM_BROKERS:
            return False
        self._commands.append((request_id, request))
        return True

    def broker_lost(self, broker_id: int, now_ms: int) -> None:
        """All connections of a broker were reset."""
        if self.is_active:
            self._take(ConnectionLost(broker_id=broker_id), now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due by now."""
        quorum_ms = self.quorum.next_deadline_ms
        if quorum_ms is not None and quorum_ms <= now_ms:
            self.quorum.tick(now_ms)
        self.replay.checkpoint_if_due(now_ms)
        if self._can_take_snapshot and self._next_piece_ms <= now_ms:
            self._write_snapshot_piece(now_ms)
        if not self.is_active:
            return
        controller_ms = self.controller.next_deadline_ms
        if controller_ms is not None and controller_ms <= now_ms:
            self._take(Tick(), now_ms)
        self._begun_ms, self._begun = now_ms, 0
        self._work_off(now_ms)

    # -- told by the quorum

    def leader_changed(
        self, leader_id: int | None, leader_epoch: int, epoch_start_offset: int | None, now_ms: int
    ) -> None:
        self._stop_being_active(now_ms)
        if epoch_start_offset is not None:
            self._leadership = Leadership(leader_epoch, epoch_start_offset)
        if self.follower is not None:
            self.follower.leader_changed(leader_id, leader_epoch, epoch_start_offset, now_ms)

    def records_appended(self, proposal_id: int, last_offset: int, now_ms: int) -> None:
        if self.is_active and proposal_id > self._first_of_leadership:
            self._is_appending = False
            self._step(RecordsAppended(last_offset=last_offset), now_ms)
            self._work_off(now_ms)

    def proposal_failed(self, proposal_id: int, now_ms: int) -> None:
        if self.is_active and proposal_id > self._first_of_leadership:
            assert self._leadership is not None
            epoch = self._leadership.epoch
            self._stop_being_active(now_ms)
            # What it predicted for later proposals is wrong now: only a new epoch mends that.
            self.quorum.resign(epoch, now_ms)

    def committed(self, high_watermark: int, now_ms: int) -> None:
        if self.is_active:
            self.replay.skip_to(high_watermark)
            self._take(Committed(high_watermark=high_watermark), now_ms)
        else:
            self.replay.apply_committed(high_watermark)
            self._maybe_become_active(high_watermark, now_ms)
        if self.follower is not None:
            self.follower.committed(high_watermark, now_ms)

    def snapshot_installed(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        self.replay.load_snapshot(snapshot_id)
        if self.follower is not None:
            self.follower.snapshot_installed(snapshot_id, now_ms)

    def report(self, incident: QuorumIncident, now_ms: int) -> None:
        self.journal.add(incident, now_ms)

    # -- active, or not

    def _maybe_become_active(self, high_watermark: int, now_ms: int) -> None:
        """Take office once a record of this very epoch is committed (Raft section 8)."""
        leadership = self._leadership
        if leadership is None:
            return
        invariant(
            high_watermark > leadership.start_offset,
            "the quorum to commit nothing before a record of its leader's epoch",
            high_watermark=high_watermark,
            epoch_start_offset=leadership.start_offset,
        )
        self.is_active = True
        self._first_of_leadership = self._proposals
        self._step(
            LeadershipGained(controller_epoch=leadership.epoch, end_offset=high_watermark), now_ms
        )
        self._work_off(now_ms)

    def _stop_being_active(self, now_ms: int) -> None:
        self._leadership = None
        self._is_appending = False
        self._urgent_end = 0
        if self.is_active:
            self.is_active = False
            self._step(LeadershipLost(), now_ms)
        self._work_off(now_ms)  # what waited is answered, too: by one that is not in office

    @property
    def _can_take_snapshot(self) -> bool:
        """It cuts the log: who waits for a commit must have its records before that."""
        controller = self.controller
        return self.replay.snapshot_due and (
            self.replay.is_writing_snapshot
            or controller.uncommitted_end_offset == controller.version
        )

    def _write_snapshot_piece(self, now_ms: int) -> None:
        self._next_piece_ms = now_ms + SNAPSHOT_PAUSE_MS
        try:
            self.replay.write_snapshot_piece(self._wall_ms())
        except ReplogError as error:
            self.quorum.flush_completed(error, now_ms)

    def _take(self, event: ControllerEvent, now_ms: int) -> None:
        self._events.append(event)
        self._work_off(now_ms)

    def _work_off(self, now_ms: int) -> None:
        """Step what waits, one by one, unless it has to wait on."""
        while (self._events or self._commands) and not self._is_appending:
            if self._leadership is not None and not self.is_active:
                return
            if self._events:
                decided = self.controller.uncommitted_end_offset
                self._step(self._events.popleft(), now_ms)
                self._note_urgent(decided, now_ms)
            elif not self.is_active or (
                self._begun < COMMANDS_PER_TICK and not self._urgent(now_ms)
            ):
                self._begun += 1
                request_id, request = self._commands.popleft()
                self._step(
                    RequestReceived(request_id=request_id, sender=None, request=request), now_ms
                )
            else:
                return  # `tick` goes on

    def _note_urgent(self, decided: int, now_ms: int) -> None:
        """Something was said by a broker, or has been committed; `decided`: all that was before."""
        is_settled = self._urgent_end <= self.controller.version
        if self.controller.uncommitted_end_offset > decided:
            if is_settled:
                self._urgent_until_ms = now_ms + COMMANDS_WAIT_MS_MAX
            self._urgent_end = self.controller.uncommitted_end_offset
        elif self._urgent_end and is_settled:
            self._urgent_end = 0
            if self._commands:
                self._begun = COMMANDS_PER_TICK  # brokers are told of it before the next tick

    def _urgent(self, now_ms: int) -> bool:
        """Whether brokers wait for a commit; not for ever, if they always do."""
        return self._urgent_end > self.controller.version and now_ms < self._urgent_until_ms

    def _step(self, event: ControllerEvent, now_ms: int) -> None:
        try:
            effects = self.controller.step(event, now_ms)
        except Exception as error:
            # A bug must not leave the cluster without a controller: what comes next may be sound.
            logger.exception("a controller could not decide about %s", type(event).__name__)
            effects = self.controller.abandon(event, error, now_ms)
        for effect in effects:
            self._carry_out(effect, now_ms)

    def _append(self, effect: fx.AppendRecords, now_ms: int) -> None:
        try:
            batch = self._log.batch_of(effect.records, self._wall_ms())
        except (ValueError, ReplogError) as error:
            # What was decided is no record of Kafka's: the next controller must not know of it.
            logger.exception("a controller decided what cannot be written")
            message = f"{type(error).__name__}: {error}"
            event = type(effect).__name__
            self.journal.add(EventFailed(event=event, message=message, resigned=True), now_ms)
            self._resign(now_ms)
            return
        self._is_appending = True
        self._proposals += 1
        self.replay.note_appended(len(batch))
        self.quorum.propose(self._proposals, effect.controller_epoch, batch, now_ms)

    def _resign(self, now_ms: int) -> None:
        if self._leadership is not None:
            # Nothing more is decided on what is known here.
            self._is_appending = True
            self.quorum.resign(self._leadership.epoch, now_ms)

    def _carry_out(self, effect: Any, now_ms: int) -> None:
        match effect:
            case fx.AppendRecords():
                self._append(effect, now_ms)
            case fx.Respond():
                self._network.respond(effect.request_id, effect.response)
            case fx.Report():
                self.journal.add(effect.incident, now_ms)
            case fx.Resign():
                self._resign(now_ms)
            case fx.ReloadState():
                self.replay.reload()
