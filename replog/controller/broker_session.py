"""A broker's side of the conversation with the controller, as pure code.

Registration, then heartbeats: one is always under way or waiting for its time. A request that gets
no answer is made again, with a growing pause; an answer to an older request than the latest of its
kind is dropped. The metadata comes from the broker's own copy of its log, by MetadataFollowed.
Nothing here knows what it means for a partition.

    REGISTERING ── epoch ──> RUNNING ── shutdown wanted ──> LEAVING ── may stop ──> ENDED
     ^      │                   │
     │      └── another incarnation has registered ──> ENDED
     └── epoch over ────────────┘

An epoch is over when the controller has fenced the broker under it: then it stops leading, and
registers again. It stops by its own clock before (see `leading_time`).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from replog.config import LONG_MAX, ControllerOptions
from replog.controller.effects import (
    ApplyMetadata,
    CutLosses,
    LeadAgain,
    SendToController,
    SessionEffect,
    SessionEnded,
    SetBrokerEpoch,
    StopLeading,
)
from replog.controller.events import (
    ControllerFound,
    LeadersChanged,
    MetadataFollowed,
    RecordsToCut,
    ReplicaDamaged,
    RequestFailed,
    ResponseReceived,
    SessionEvent,
    ShutdownWanted,
)
from replog.controller.leading_time import LeadingTime
from replog.controller.session_request import SessionRequest
from replog.errors import invariant
from replog.messages import (
    DamagedLog,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaderlessLog,
    LogSize,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReplicaState,
)
from replog.registrations import NO_BROKER_EPOCH, MetadataDelta
from replog.types import LostRecords, TopicPartition

if TYPE_CHECKING:
    import uuid

LEAVING_HEARTBEAT_INTERVAL_MS = 50
"""A broker that wants to stop asks more often than one that only lives."""


class SessionState(enum.Enum):
    """Where the conversation stands."""

    NEW = "not started"
    REGISTERING = "has asked for a broker epoch"
    RUNNING = "registered"
    LEAVING = "has asked to be relieved of its leaderships"
    ENDED = "over"


class BrokerSession:
    """One run of one broker. `start` once, then `step`; effects are carried out in order.

    `incarnation_id` must differ from that of every other run. Times are of one monotonic clock.
    """

    def __init__(
        self,
        broker_id: int,
        incarnation_id: str,
        rack: str | None,
        options: ControllerOptions,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self.version = 0
        """Metadata applied so far."""
        self.log_sizes: Callable[[], tuple[LogSize, ...]] = tuple
        """Asked with each heartbeat: the logs here whose partitions have replicas to catch up."""
        self.fenced = True
        self.state = SessionState.NEW
        self.leading = LeadingTime(options.broker_session_timeout_ms)
        self._yields_ms = LONG_MAX
        """From when on a run that has the session under this id is taken to be alive, and to have
        replaced this one; LONG_MAX: this is the one to replace it."""
        self._incarnation_id = incarnation_id
        self._rack = rack
        self._options = options
        self._previous_broker_epoch = NO_BROKER_EPOCH
        self._directory_id: uuid.UUID | None = None
        self._last_broker_epoch = NO_BROKER_EPOCH
        self._replicas: tuple[ReplicaState, ...] = ()
        self._damaged: dict[TopicPartition, DamagedLog] = {}
        """To be told; again and again where nobody leads: another controller knows nothing of it,
        and elects."""
        self._damaged_told: tuple[DamagedLog, ...] = ()
        self._leaderless: dict[TopicPartition, LeaderlessLog | None] = {}
        """None: a log that is not open."""
        self._lost: list[LostRecords] = []
        self._lost_told = 0
        """How many of these the heartbeat under way tells."""
        self._next_request_id = 0
        timeout_ms = options.broker_session_timeout_ms // 2
        self._first_broker_epoch = NO_BROKER_EPOCH
        self._registration = SessionRequest(timeout_ms, options.broker_session_timeout_ms)
        # A pause that lasts as long as the session would let it run out between two of them.
        self._heartbeat = SessionRequest(timeout_ms, timeout_ms)
        self._requests = (self._registration, self._heartbeat)
        self.next_deadline_ms: int | None = None
        """When a Tick is due; None once nothing is to be done any more. To be read only."""

    def start(
        self,
        previous_broker_epoch: int,
        replicas: Sequence[ReplicaState],
        now_ms: int,
        *,
        directory_id: uuid.UUID | None = None,
        last_broker_epoch: int = NO_BROKER_EPOCH,
    ) -> list[SessionEffect]:
        """Register, saying how the last run ended and what logs were found.

        `previous_broker_epoch` is the clean-shutdown marker's, NO_BROKER_EPOCH without one,
        `last_broker_epoch` the latest that was noted in the directory.
        """
        invariant(self.state is SessionState.NEW, "a session that starts once", state=self.state)
        self._previous_broker_epoch = previous_broker_epoch
        self._directory_id = directory_id
        self._last_broker_epoch = last_broker_epoch
        self._replicas = tuple(replicas)
        self.state = SessionState.REGISTERING
        self._registration.want(now_ms)
        return self._finish(now_ms)

    def step(self, event: SessionEvent, now_ms: int) -> list[SessionEffect]:
        """Take one event; the effects are to be carried out in order."""
        effects: list[SessionEffect] = []
        if self.state is SessionState.NEW or self.state is SessionState.ENDED:
            return effects
        if isinstance(event, ResponseReceived):
            if event.response.error is ErrorCode.NOT_CONTROLLER:
                self._failed(event.request_id, now_ms)  # nobody is there who decides
            else:
                effects.extend(self._received(event, now_ms))
        elif isinstance(event, RequestFailed):
            self._failed(event.request_id, now_ms)
        elif isinstance(event, ShutdownWanted):
            effects.extend(self._leave(now_ms))
        elif isinstance(event, ReplicaDamaged):
            self._damaged[event.log.topic_partition] = event.log
            self._heartbeat_soon(now_ms)
        elif isinstance(event, RecordsToCut):
            if event.lost not in self._lost:
                self._lost.append(event.lost)
            self._heartbeat_soon(now_ms)
        elif isinstance(event, LeadersChanged):
            self._leaders_changed(event, now_ms)
        elif isinstance(event, MetadataFollowed):
            effects.extend(self._applied(event.delta, now_ms))
        elif isinstance(event, ControllerFound):
            for request in self._requests:
                request.try_again(now_ms)
            self._heartbeat_soon(now_ms)  # it elects nobody of whom it has not heard
        if self.leading.has_run_out(now_ms):
            effects.append(
                StopLeading(
                    f"expected an answer of the controller within the "
                    f"{self._options.broker_session_timeout_ms} ms of broker {self.broker_id}'s "
                    f"session, found none; it leads again when one comes"
                )
            )
        effects += self._finish(now_ms)
        return effects

    def _finish(self, now_ms: int) -> list[SessionEffect]:
        sent = self._send_what_is_due(now_ms)
        self.next_deadline_ms = self._find_deadline()
        return sent

    def _find_deadline(self) -> int | None:
        first_ms = None
        for request in self._requests:
            due_ms = request.deadline_ms
            if due_ms is not None and (first_ms is None or due_ms < first_ms):
                first_ms = due_ms
        return first_ms if first_ms is None else min(first_ms, self.leading.until_ms)

    def _failed(self, request_id: int, now_ms: int) -> None:
        if self._heartbeat.is_under_way(request_id):
            self.leading.refused_at_once(now_ms)
        for request in self._requests:
            request.failed(request_id, now_ms)

    def _leaders_changed(self, event: LeadersChanged, now_ms: int) -> None:
        for name in event.led:
            self._leaderless.pop(name, None)
            self._damaged.pop(name, None)
        for name in event.unopened:
            self._leaderless[name] = None
        for log in event.leaderless:
            self._leaderless[log.topic_partition] = log
        for damaged in event.damaged:
            self._damaged[damaged.topic_partition] = damaged
        if event.leaderless or event.damaged:
            # An election may wait for how long this log is.
            self._heartbeat_soon(now_ms)

    def _received(self, event: ResponseReceived, now_ms: int) -> Iterable[SessionEffect]:
        response = event.response
        if isinstance(response, RegisterBrokerResponse):
            if self._registration.answered(event.request_id):
                return self._registered(response, now_ms)
        elif isinstance(response, HeartbeatResponse) and self._heartbeat.answered(event.request_id):
            return self._heartbeat_answered(response, now_ms)
        return ()

    def _registered(self, response: RegisterBrokerResponse, now_ms: int) -> Iterable[SessionEffect]:
        taken = response.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        failed = response.error is ErrorCode.UNKNOWN_SERVER_ERROR
        if failed or (taken and now_ms < self._yields_ms):
            # Nothing is wrong with what was asked; or another run has a session, which ends when
            # nobody renews it.
            self._registration.back_off(now_ms)
            return ()
        if taken:
            return self._end(
                response.error,
                f"expected broker {self.broker_id} to register again after epoch "
                f"{self.broker_epoch}, found another process registered under this id; stop one "
                f"of the two",
            )
        if response.error is not ErrorCode.NONE:
            return self._end(
                response.error,
                f"expected the controller to register broker {self.broker_id}, it answered "
                f"{response.error.name}; check its id",
            )
        # A later registration could find the log whole again, and in sync.
        self._replicas = tuple(
            dataclasses.replace(replica, damaged=False) if replica.damaged else replica
            for replica in self._replicas
            if not replica.missing
        )
        self.broker_epoch = response.broker_epoch
        if self._first_broker_epoch == NO_BROKER_EPOCH:
            self._first_broker_epoch = response.broker_epoch
        self.fenced = True
        self.state = SessionState.RUNNING
        if self.version >= response.version:
            # The registration was followed before its answer came: nothing else would hurry us.
            self._heartbeat.want(now_ms)
        else:
            self._heartbeat.want(now_ms + self._options.broker_heartbeat_interval_ms)
        effects: list[SessionEffect] = [SetBrokerEpoch(response.broker_epoch)]
        if self.leading.got_epoch(response.version, self.version):
            effects.append(LeadAgain())
        return effects

    def _applied(self, delta: MetadataDelta, now_ms: int) -> Iterable[SessionEffect]:
        if delta.version <= self.version:
            return ()
        self.version = delta.version
        for broker in delta.brokers:
            if broker.broker_id == self.broker_id and broker.broker_epoch == self.broker_epoch:
                self.fenced = broker.fenced
        effects: list[SessionEffect] = [ApplyMetadata(delta)]
        if self.leading.applied(delta.version):
            effects.append(LeadAgain())
        if delta.is_awaited or self.fenced or self.state is SessionState.LEAVING:
            # The controller waits for no more than to hear that this version is applied.
            self._heartbeat_soon(now_ms)
        return effects

    def _heartbeat_answered(
        self, response: HeartbeatResponse, now_ms: int
    ) -> Iterable[SessionEffect]:
        if response.error is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._heartbeat.back_off(now_ms)
            return ()
        if response.error in {ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED}:
            return self._lose_epoch(now_ms)
        if response.error is not ErrorCode.NONE:
            return self._end(
                response.error,
                f"expected the controller to hear a heartbeat of broker {self.broker_id}, it "
                f"answered {response.error.name}",
            )
        leads_again = self.leading.heard()
        if response.should_shut_down:
            return self._end(ErrorCode.NONE, "all leaderships have been moved away")
        effects: list[SessionEffect] = [LeadAgain()] if leads_again else []
        if self._lost_told:
            effects.append(CutLosses(tuple(self._lost[: self._lost_told])))
            del self._lost[: self._lost_told]
            self._lost_told = 0
        for told in self._damaged_told:
            name = told.topic_partition
            if name not in self._leaderless and self._damaged.get(name) == told:
                del self._damaged[name]
        if self.state is SessionState.LEAVING:
            interval_ms = LEAVING_HEARTBEAT_INTERVAL_MS
        else:
            interval_ms = self._options.broker_heartbeat_interval_ms
        self._heartbeat.want(now_ms + interval_ms)
        return effects

    def _lose_epoch(self, now_ms: int) -> Iterable[SessionEffect]:
        """The controller has fenced us, or has forgotten us; we never stopped. Register again."""
        if self.state is SessionState.LEAVING:
            return self._end(ErrorCode.NONE, "nothing is led any more")
        self._previous_broker_epoch = self._last_broker_epoch = self.broker_epoch
        self.state = SessionState.REGISTERING
        self._yields_ms = now_ms + 2 * self._options.broker_session_timeout_ms
        self._heartbeat.drop()
        self._registration.want(now_ms)
        if not self.leading.lost_epoch():
            return ()
        return [
            StopLeading(
                f"expected epoch {self.broker_epoch} of broker {self.broker_id} to be its latest, "
                f"found that the controller has ended its session; it registers again"
            )
        ]

    def _leave(self, now_ms: int) -> Iterable[SessionEffect]:
        if self.state is SessionState.REGISTERING:
            return self._end(ErrorCode.NONE, "nothing was led yet")
        self.state = SessionState.LEAVING
        self._heartbeat_soon(now_ms)
        return ()

    def _heartbeat_soon(self, now_ms: int) -> None:
        """Say something new: now, or right after the answer to the heartbeat under way."""
        if self.state in {SessionState.RUNNING, SessionState.LEAVING}:
            self._heartbeat.hurry(now_ms)

    def _end(self, error: ErrorCode, message: str) -> Iterable[SessionEffect]:
        self.state = SessionState.ENDED
        for request in self._requests:
            request.drop()
        return [SessionEnded(error, message)]

    def _send_what_is_due(self, now_ms: int) -> list[SessionEffect]:
        sent: list[SessionEffect] = []
        if self._registration.due(now_ms):
            register = RegisterBrokerRequest(
                broker_id=self.broker_id,
                incarnation_id=self._incarnation_id,
                previous_broker_epoch=self._previous_broker_epoch,
                rack=self._rack,
                replicas=self._replicas,
                directory_id=self._directory_id,
                last_broker_epoch=self._last_broker_epoch,
            )
            self.leading.asked(now_ms)
            request_id = self._registration.sent(self._new_request_id(), now_ms)
            sent.append(SendToController(request_id, register))
        if self._heartbeat.due(now_ms):
            self._damaged_told = tuple(self._damaged.values())
            self._lost_told = len(self._lost)
            heartbeat = HeartbeatRequest(
                broker_id=self.broker_id,
                broker_epoch=self.broker_epoch,
                first_broker_epoch=self._first_broker_epoch,
                version=self.version,
                want_shut_down=self.state is SessionState.LEAVING,
                damaged=self._damaged_told,
                leaderless=tuple(filter(None, self._leaderless.values())),
                sizes=self.log_sizes(),
                lost=tuple(self._lost),
            )
            self.leading.asked(now_ms)
            request_id = self._heartbeat.sent(self._new_request_id(), now_ms)
            sent.append(SendToController(request_id, heartbeat))
        return sent

    def _new_request_id(self) -> int:
        self._next_request_id += 1
        return self._next_request_id
