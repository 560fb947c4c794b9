"""Brokers' lives as the controller sees them: registration, heartbeats, fencing, shutdown.

A broker registers (fenced), catches up with the metadata of that version, and is unfenced. It is
fenced again when its session runs out or its connections are reset, and unfenced when it has
caught up with the version that fenced it. Before it stops it asks for a controlled shutdown: its
leaderships move, and it may go when every live broker has heard of it (facts 11.2, 11.4).
"""

from __future__ import annotations

from replog.config import ControllerOptions
from replog.controller.broker_state import BrokerState
from replog.controller.cluster_state import ClusterState
from replog.controller.election import LogEnd
from replog.controller.incidents import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    FenceCause,
)
from replog.messages import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from replog.registrations import BrokerRegistration
from replog.types import NO_LEADER_EPOCH

_LOG_MISSING = LogEnd(NO_LEADER_EPOCH, 0)


class BrokerRegistry:
    """Carries out what brokers say of themselves on the state of the cluster."""

    def __init__(self, state: ClusterState, options: ControllerOptions) -> None:
        self._state = state
        self._options = options

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first session runs out."""
        deadlines = [
            broker.heard_ms + self._options.broker_session_timeout_ms
            for broker in self._state.brokers.values()
            if not broker.fenced
        ]
        return min(deadlines, default=None)

    def register(self, request: RegisterBrokerRequest, now_ms: int) -> RegisterBrokerResponse:
        """Give a started broker its epoch: the version that registers it, so it only grows."""
        state = self._state
        known = state.brokers.get(request.broker_id)
        if known and known.incarnation_id == request.incarnation_id:
            # The first answer was lost or late: it is the same process, and so the same epoch.
            known.heard_of(now_ms)
            return RegisterBrokerResponse(
                broker_epoch=known.registration.broker_epoch, version=known.catch_up_version
            )
        if known and known.has_session(now_ms, self._options.broker_session_timeout_ms):
            return RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        previous_epoch = known.registration.broker_epoch if known else None
        broker = BrokerState(
            registration=BrokerRegistration(
                broker_id=request.broker_id,
                broker_epoch=state.next_version,
                rack=request.rack,
                fenced=True,
            ),
            incarnation_id=request.incarnation_id,
            catch_up_version=state.next_version,
            heard_ms=now_ms,
            logs_found=tuple((log.topic_partition, log.topic_id) for log in request.replicas),
        )
        state.brokers[request.broker_id] = broker
        state.broker_changed(request.broker_id)
        unclean = previous_epoch is not None and request.previous_broker_epoch != previous_epoch
        state.incidents.append(
            BrokerRegistered(
                broker_id=request.broker_id,
                broker_epoch=broker.registration.broker_epoch,
                previous_epoch=previous_epoch,
                unclean=unclean,
            )
        )
        self._judge_logs(request, unclean=unclean)
        return RegisterBrokerResponse(
            broker_epoch=broker.registration.broker_epoch, version=broker.catch_up_version
        )

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Hear that a broker lives, how far it is, and what it wants."""
        broker = self._state.brokers.get(request.broker_id)
        if broker is None:
            return HeartbeatResponse(error=ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.registration.broker_epoch != request.broker_epoch:
            return HeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH)
        broker.heard_of(now_ms)
        broker.applied_version = max(broker.applied_version, request.version)
        for name in request.damaged:
            partition = self._state.partitions.get(name)
            if (
                partition is not None
                and request.broker_id in partition.registration.replicas
                and request.broker_id not in partition.damaged
            ):
                self._state.found_damaged(partition, request.broker_id)
        self._hear_log_ends(request)
        if request.want_shut_down:
            return self._shut_down(broker, now_ms)
        if broker.fenced and request.version >= broker.catch_up_version:
            self._unfence(broker)
        return HeartbeatResponse(fenced=broker.fenced)

    def connection_lost(self, broker_id: int, now_ms: int) -> None:
        """Its process is gone, most likely: fence it now, a heartbeat unfences it if not."""
        broker = self._state.brokers.get(broker_id)
        if broker is None:
            return
        broker.session_open = False
        if not broker.fenced:
            self._fence(broker, FenceCause.CONNECTION_LOST, now_ms)

    def expire(self, now_ms: int) -> None:
        """Fence the brokers that have been silent for too long."""
        for broker_id in sorted(self._state.brokers):
            broker = self._state.brokers[broker_id]
            silent_ms = now_ms - broker.heard_ms
            if not broker.fenced and silent_ms >= self._options.broker_session_timeout_ms:
                self._fence(broker, FenceCause.SESSION_EXPIRED, now_ms)

    def _hear_log_ends(self, request: HeartbeatRequest) -> None:
        """Partitions without a leader may wait for the length of a log that cannot grow."""
        for log in request.leaderless:
            partition = self._state.partitions.get(log.topic_partition)
            if partition is None or partition.registration.topic_id != log.topic_id:
                continue
            end = LogEnd(log.latest_epoch, log.log_end_offset)
            if partition.told(request.broker_id, log.leader_epoch, end):
                self._state.settle(partition)

    def _judge_logs(self, request: RegisterBrokerRequest, *, unclean: bool) -> None:
        """What the broker found on its disks decides what its replicas may vouch for.

        A log that is missing is as suspect as one after an unclean stop.
        """
        found = {(log.topic_partition, log.topic_id): log for log in request.replicas}
        for partition in self._state.held_by(request.broker_id):
            registration = partition.registration
            log = found.get((registration.topic_partition, registration.topic_id))
            if log is not None and log.damaged:
                self._state.found_damaged(partition, request.broker_id)
                continue
            end = LogEnd(log.latest_epoch, log.log_end_offset) if log else _LOG_MISSING
            if unclean or log is None:
                partition.returned_unclean(request.broker_id, end)
            else:
                partition.returned_sound(request.broker_id, end)
            self._state.settle(partition, leaving=request.broker_id)

    def _unfence(self, broker: BrokerState) -> None:
        registration = broker.replace(fenced=False)
        self._state.broker_changed(broker.broker_id)
        self._state.incidents.append(
            BrokerUnfenced(broker_id=broker.broker_id, broker_epoch=registration.broker_epoch)
        )
        for partition in self._state.leaderless_held_by(broker.broker_id):
            self._state.settle(partition)

    def _fence(self, broker: BrokerState, cause: FenceCause, now_ms: int) -> None:
        registration = broker.replace(fenced=True, in_controlled_shutdown=False)
        broker.catch_up_version = self._state.next_version
        broker.shutdown_version = None
        self._state.broker_changed(broker.broker_id)
        self._state.incidents.append(
            BrokerFenced(
                broker_id=broker.broker_id,
                broker_epoch=registration.broker_epoch,
                cause=cause,
                silent_ms=now_ms - broker.heard_ms,
            )
        )
        self._leave_in_sync_sets(broker.broker_id)

    def _shut_down(self, broker: BrokerState, now_ms: int) -> HeartbeatResponse:
        if not broker.fenced and broker.shutdown_version is None:
            broker.replace(in_controlled_shutdown=True)
            broker.shutdown_version = self._state.next_version
            self._state.broker_changed(broker.broker_id)
            self._leave_in_sync_sets(broker.broker_id)
        if not broker.fenced and not self._handed_over(broker):
            return HeartbeatResponse(fenced=False)
        if not broker.fenced:
            self._fence(broker, FenceCause.SHUT_DOWN, now_ms)
        broker.session_open = False
        return HeartbeatResponse(fenced=True, should_shut_down=True)

    def _handed_over(self, leaving: BrokerState) -> bool:
        """Whether every live broker knows that another leads what this one led."""
        version = leaving.shutdown_version
        return version is not None and all(
            broker.applied_version >= version
            for broker in self._state.brokers.values()
            if broker.registration.eligible
        )

    def _leave_in_sync_sets(self, broker_id: int) -> None:
        for partition in self._state.held_by(broker_id):
            if broker_id in partition.registration.isr:
                self._state.settle(partition, leaving=broker_id)
