"""A broker's side of the conversation with the controller, as pure code.

Registration, then two requests that are always under way or waiting for their time: a long-poll
for the metadata after what is applied, and heartbeats. A request that gets no answer is made again,
with a growing pause; an answer to an older request than the latest of its kind is dropped. Nothing
here knows what the metadata means for a partition.

    REGISTERING ── epoch ──> RUNNING ── shutdown wanted ──> LEAVING ── may stop ──> ENDED
         ^                      │                              │
         └── not registered ────┘      registered by another incarnation ──> ENDED
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence

from replog.config import ControllerOptions
from replog.controller.effects import (
    ApplyMetadata,
    SendToController,
    SessionEffect,
    SessionEnded,
    SetBrokerEpoch,
)
from replog.controller.events import (
    ControllerFound,
    LeadersChanged,
    MetadataFollowed,
    ReplicaDamaged,
    RequestFailed,
    ResponseReceived,
    SessionEvent,
    ShutdownWanted,
)
from replog.controller.session_request import SessionRequest
from replog.errors import invariant
from replog.messages import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaderlessLog,
    LogSize,
    MetadataFetchRequest,
    MetadataFetchResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReplicaState,
)
from replog.registrations import NO_BROKER_EPOCH, MetadataDelta
from replog.types import TopicPartition

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
        *,
        follows_log: bool = False,
    ) -> None:
        """follows_log: metadata comes by MetadataFollowed, and is not asked for."""
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self.version = 0
        """Metadata applied so far."""
        self.log_sizes: Callable[[], tuple[LogSize, ...]] = tuple
        """Asked with each heartbeat: the logs here whose partitions have replicas to catch up."""
        self.fenced = True
        self.state = SessionState.NEW
        self._incarnation_id = incarnation_id
        self._rack = rack
        self._follows_log = follows_log
        self._options = options
        self._previous_broker_epoch = NO_BROKER_EPOCH
        self._replicas: tuple[ReplicaState, ...] = ()
        self._damaged: dict[TopicPartition, None] = {}
        self._damaged_told: tuple[TopicPartition, ...] = ()
        self._leaderless: dict[TopicPartition, LeaderlessLog | None] = {}
        """None: a log that is not open."""
        self._damaged_leaderless: dict[TopicPartition, None] = {}
        """Told, and to be told again: another controller knows nothing of it, and elects."""
        self._next_request_id = 0
        timeout_ms = options.broker_session_timeout_ms // 2
        pause_ms_max = options.broker_session_timeout_ms
        self._registration = SessionRequest(timeout_ms, pause_ms_max)
        self._heartbeat = SessionRequest(timeout_ms, pause_ms_max)
        self._fetch = SessionRequest(timeout_ms + options.metadata_fetch_wait_max_ms, pause_ms_max)

        self._requests = (self._registration, self._heartbeat, self._fetch)

    @property
    def next_deadline_ms(self) -> int | None:
        """When a Tick is due; None once nothing is to be done any more."""
        first_ms = None
        for request in self._requests:
            due_ms = request.deadline_ms
            if due_ms is not None and (first_ms is None or due_ms < first_ms):
                first_ms = due_ms
        return first_ms

    def start(
        self, previous_broker_epoch: int, replicas: Sequence[ReplicaState], now_ms: int
    ) -> list[SessionEffect]:
        """Register, saying how the last run ended and what logs were found.

        `previous_broker_epoch` is the clean-shutdown marker's, NO_BROKER_EPOCH without one.
        """
        invariant(self.state is SessionState.NEW, "a session that starts once", state=self.state)
        self._previous_broker_epoch = previous_broker_epoch
        self._replicas = tuple(replicas)
        self.state = SessionState.REGISTERING
        self._registration.want(now_ms)
        return self._send_what_is_due(now_ms)

    def step(self, event: SessionEvent, now_ms: int) -> list[SessionEffect]:
        """Take one event; the effects are to be carried out in order."""
        effects: list[SessionEffect] = []
        if self.state in {SessionState.NEW, SessionState.ENDED}:
            return effects
        if isinstance(event, ResponseReceived):
            effects.extend(self._received(event, now_ms))
        elif isinstance(event, RequestFailed):
            for request in self._requests:
                request.failed(event.request_id, now_ms)
        elif isinstance(event, ShutdownWanted):
            effects.extend(self._leave(now_ms))
        elif isinstance(event, ReplicaDamaged):
            self._damaged[event.topic_partition] = None
            self._heartbeat_soon(now_ms)
        elif isinstance(event, LeadersChanged):
            self._leaders_changed(event, now_ms)
        elif isinstance(event, MetadataFollowed):
            effects.extend(self._applied((event.delta,), now_ms))
        elif isinstance(event, ControllerFound):
            for request in (self._registration, self._heartbeat, self._fetch):
                request.try_again(now_ms)
        effects.extend(self._send_what_is_due(now_ms))
        return effects

    def _leaders_changed(self, event: LeadersChanged, now_ms: int) -> None:
        for name in event.led:
            self._leaderless.pop(name, None)
            self._damaged_leaderless.pop(name, None)
        for name in event.unopened:
            self._leaderless[name] = None
        for log in event.leaderless:
            self._leaderless[log.topic_partition] = log
        if event.leaderless:
            # An election may wait for how long this log is.
            self._heartbeat_soon(now_ms)

    def _received(self, event: ResponseReceived, now_ms: int) -> Iterable[SessionEffect]:
        response = event.response
        if isinstance(response, RegisterBrokerResponse):
            if self._registration.answered(event.request_id):
                return self._registered(response, now_ms)
        elif isinstance(response, MetadataFetchResponse):
            if self._fetch.answered(event.request_id):
                if response.error is not ErrorCode.NONE:
                    self._fetch.back_off(now_ms)
                    return ()
                return self._fetched(response.deltas, now_ms)
        elif isinstance(response, HeartbeatResponse) and self._heartbeat.answered(event.request_id):
            return self._heartbeat_answered(response, now_ms)
        return ()

    def _registered(self, response: RegisterBrokerResponse, now_ms: int) -> Iterable[SessionEffect]:
        if response.error in {ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NOT_CONTROLLER}:
            # The run before this one still has a session, which ends when nobody renews it; or
            # another controller is the active one by now.
            self._registration.back_off(now_ms)
            return ()
        if response.error is not ErrorCode.NONE:
            return self._end(
                response.error,
                f"expected the controller to register broker {self.broker_id}, it answered "
                f"{response.error.name}; check its id",
            )
        self.broker_epoch = response.broker_epoch
        self.state = SessionState.RUNNING
        if not self._follows_log:
            self._fetch.want(now_ms)
        if self._follows_log and self.version >= response.version:
            # The registration was followed before its answer came: nothing else would hurry us.
            self._heartbeat.want(now_ms)
        else:
            self._heartbeat.want(now_ms + self._options.broker_heartbeat_interval_ms)
        return [SetBrokerEpoch(response.broker_epoch)]

    def _fetched(self, deltas: tuple[MetadataDelta, ...], now_ms: int) -> Iterable[SessionEffect]:
        self._fetch.want(now_ms)
        return self._applied(deltas, now_ms)

    def _applied(self, deltas: tuple[MetadataDelta, ...], now_ms: int) -> Iterable[SessionEffect]:
        effects: list[SessionEffect] = []
        for delta in deltas:
            if delta.version <= self.version:
                continue
            self.version = delta.version
            for broker in delta.brokers:
                if broker.broker_id == self.broker_id and broker.broker_epoch == self.broker_epoch:
                    self.fenced = broker.fenced
            effects.append(ApplyMetadata(delta))
        if effects and (self.fenced or self.state is SessionState.LEAVING):
            # The controller waits for no more than to hear that this version is applied.
            self._heartbeat_soon(now_ms)
        return effects

    def _heartbeat_answered(
        self, response: HeartbeatResponse, now_ms: int
    ) -> Iterable[SessionEffect]:
        if response.error is ErrorCode.NOT_CONTROLLER:
            self._heartbeat.back_off(now_ms)
            return ()
        if response.error is ErrorCode.BROKER_ID_NOT_REGISTERED:
            # The controller has forgotten us, not the other way round: we never stopped.
            self._previous_broker_epoch = self.broker_epoch
            self.state = SessionState.REGISTERING
            self._heartbeat.drop()
            self._fetch.drop()
            self._registration.want(now_ms)
            return ()
        if response.error is not ErrorCode.NONE:
            return self._end(
                response.error,
                f"expected broker epoch {self.broker_epoch} of broker {self.broker_id} to be the "
                f"latest, the controller answered {response.error.name}; another process has "
                f"registered under this id",
            )
        if response.should_shut_down:
            return self._end(ErrorCode.NONE, "all leaderships have been moved away")
        for told in self._damaged_told:
            self._damaged.pop(told, None)
            if told in self._leaderless:
                self._damaged_leaderless[told] = None
        if self.state is SessionState.LEAVING:
            interval_ms = LEAVING_HEARTBEAT_INTERVAL_MS
        else:
            interval_ms = self._options.broker_heartbeat_interval_ms
        self._heartbeat.want(now_ms + interval_ms)
        return ()

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
            )
            request_id = self._registration.sent(self._new_request_id(), now_ms)
            sent.append(SendToController(request_id, register))
        if self._heartbeat.due(now_ms):
            self._damaged_told = tuple(self._damaged_leaderless | self._damaged)
            heartbeat = HeartbeatRequest(
                broker_id=self.broker_id,
                broker_epoch=self.broker_epoch,
                version=self.version,
                want_shut_down=self.state is SessionState.LEAVING,
                damaged=self._damaged_told,
                leaderless=tuple(filter(None, self._leaderless.values())),
                sizes=self.log_sizes(),
            )
            request_id = self._heartbeat.sent(self._new_request_id(), now_ms)
            sent.append(SendToController(request_id, heartbeat))
        if self._fetch.due(now_ms):
            fetch = MetadataFetchRequest(
                broker_id=self.broker_id,
                version=self.version,
                wait_ms_max=self._options.metadata_fetch_wait_max_ms,
            )
            request_id = self._fetch.sent(self._new_request_id(), now_ms)
            sent.append(SendToController(request_id, fetch))
        return sent

    def _new_request_id(self) -> int:
        self._next_request_id += 1
        return self._next_request_id
