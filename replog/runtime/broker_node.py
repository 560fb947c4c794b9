"""One broker: its replicas, its session with the controller, and the carrying out of both's wishes.

Synchronous, without clock, threads or chance: whoever drives it calls a method per thing that has
happened, with the time, and `tick` when `next_deadline_ms` has come; between two calls nothing
moves. The in-process cluster drives it from asyncio, the simulator from its heap. One thing at a
time, never from within one of the ports' methods.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple, cast

from replog.controller import effects as session_fx
from replog.controller import events as session_ev
from replog.controller.broker_session import BrokerSession
from replog.errors import LogFailedError, ReplogError, StorageError
from replog.messages import (
    DamagedLog,
    ErrorCode,
    LeaderlessLog,
    LogSize,
    RegisterBrokerResponse,
    ReplicaState,
)
from replog.registrations import NO_BROKER_EPOCH, MetadataDelta
from replog.replication.events import (
    BrokerRegistered,
    LeadingSuspended,
    LogFlushed,
    LogUnavailable,
    LossHeard,
    MetadataChanged,
    RequesterGone,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Tick,
)
from replog.replication.replica_host import ReplicaHost
from replog.runtime.effect_executor import DAMAGE, EffectExecutor
from replog.runtime.journal import Journal
from replog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    import uuid

    from replog.config import ControllerOptions, ReplicationOptions
    from replog.controller.metadata_image import MetadataImage
    from replog.messages import ControllerResponse, PartitionRequest, Response
    from replog.registrations import PartitionRegistration
    from replog.runtime.ports import Ports, ReplicatedLog
    from replog.types import LostRecords, TopicPartition

_HOST, _SESSION = 0, 1
"""Lowest bit of a request's id on the network: which of the two asked."""

_HOST_TICK = Tick()
_SESSION_TICK = session_ev.Tick()


def _host_id(request_id: int) -> int:
    return request_id << 1 | _HOST


class ObeyedEpoch(NamedTuple):
    """The latest leader epoch of a partition that a broker has heard of."""

    topic_id: uuid.UUID
    leader_epoch: int


def obeyed_epochs(known: MetadataImage) -> dict[TopicPartition, ObeyedEpoch]:
    """Those of all partitions."""
    return {
        partition.name: ObeyedEpoch(partition.topic.topic_id, partition.leader_epoch)
        for partition in known.partitions()
    }


class BrokerNode:
    """See the module. Life: `start` once, then anything, then `close` (or being dropped: a crash).

    `ended` is set when the session is over: with ErrorCode.NONE the broker may be closed, with any
    other it has been replaced or its disk has failed; it takes nothing more and must be dropped.
    """

    def __init__(
        self,
        broker_id: int,
        incarnation_id: str,
        ports: Ports,
        *,
        replication: ReplicationOptions,
        controller: ControllerOptions,
        rack: str | None = None,
        journal: Journal | None = None,
    ) -> None:
        """journal: where incidents go on from an earlier run; None begins one."""
        self.broker_id = broker_id
        self.store = ports.store
        self.journal = Journal(broker_id) if journal is None else journal
        self.host = ReplicaHost(broker_id, ports.store.get, replication)
        self.session = BrokerSession(broker_id, incarnation_id, rack, controller)
        self.session.log_sizes = self._log_sizes
        self.ended: session_fx.SessionEnded | None = None
        self.broker_epoch = NO_BROKER_EPOCH
        self._network = ports.network
        self._executor = EffectExecutor(
            self.host.step, ports, self.journal, _host_id, self._take_fault, self._take_loss
        )
        self.obeyed: dict[TopicPartition, ObeyedEpoch] = {}
        """What an earlier run may have obeyed, by its copy of the metadata: put there before
        `start`, which adds the epochs that it finds in the logs."""
        self._found: dict[TopicPartition, uuid.UUID] = {}
        """Logs that were there at start, by the id of their topic."""
        self._missing: frozenset[TopicPartition] = frozenset()
        """Logs that should have been there."""
        self._behind: dict[TopicPartition, uuid.UUID] = {}
        """Partitions held here of which a replica is not in sync, by the id of their topic."""
        self._registered_version: int | None = None
        """Metadata version at registration, until the logs were held against it."""
        self._may_lead = False
        """Whether it has obeyed the metadata of its registration."""
        self._withheld: dict[TopicPartition, PartitionRegistration] = {}
        """What metadata older than the broker's registration says and it may not obey yet."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` is due; None: never, unless something happens first."""
        host, session = self.host.next_deadline_ms, self.session.next_deadline_ms
        if host is None:
            return session
        return host if session is None or host < session else session

    def start(self, now_ms: int) -> None:
        """Register with the controller; the logs are those that the store has found."""
        replicas = self.store.replica_states()
        self._found = {replica.topic_partition: replica.topic_id for replica in replicas}
        topics = {known.topic_id: name.topic for name, known in self.obeyed.items()}
        for replica in replicas:
            latest = ObeyedEpoch(replica.topic_id, replica.latest_epoch)
            obeyed = self.obeyed.setdefault(replica.topic_partition, latest)
            if obeyed.topic_id == latest.topic_id and obeyed.leader_epoch < latest.leader_epoch:
                self.obeyed[replica.topic_partition] = latest
        self._missing = frozenset(self.store.missing(topics))
        found = (replica for replica in replicas if replica.topic_partition not in self._missing)
        effects = self.session.start(
            self.store.previous_broker_epoch,
            (*found, *map(self._missing_log, sorted(self._missing.intersection(self.obeyed)))),
            now_ms,
            directory_id=self.store.directory_id,
            last_broker_epoch=self.store.last_broker_epoch,
        )
        self._carry_out(effects, now_ms)

    def _missing_log(self, topic_partition: TopicPartition) -> ReplicaState:
        return ReplicaState(
            topic_partition=topic_partition,
            topic_id=self.obeyed[topic_partition].topic_id,
            latest_epoch=NO_LEADER_EPOCH,
            log_end_offset=0,
            missing=True,
        )

    def receive_request(
        self, request_id: int, request: PartitionRequest, now_ms: int, *, more: bool = False
    ) -> None:
        """A peer or client asks; `request_id` is the network's, unique among those unanswered.

        more: another request is received right after this one; see `ReplicaHost.step`.
        """
        if now_ms >= self.session.leading.until_ms:
            self._step_session(_SESSION_TICK, now_ms)  # by its clock it may not lead any more
        self._executor.step(RequestReceived(request_id, request), now_ms, more=more)

    def requester_gone(self, request_id: int, now_ms: int) -> None:
        """The connection that a request came on is broken; its answer is not needed any more."""
        self._executor.step(RequesterGone(request_id), now_ms)

    def receive_response(self, request_id: int, response: Response, now_ms: int) -> None:
        """The answer to a request of ours."""
        if request_id & 1 == _HOST:
            self._executor.step(ResponseReceived(request_id >> 1, response), now_ms)
            return
        answer = cast("ControllerResponse", response)
        if type(response) is RegisterBrokerResponse and response.error is ErrorCode.NONE:
            self._registered_version = response.version
        self._step_session(
            session_ev.ResponseReceived(request_id=request_id >> 1, response=answer), now_ms
        )
        if not self._may_lead and self._is_level(self.session.version):
            self._apply_metadata(MetadataDelta(version=self.session.version), now_ms)

    def follow_metadata(self, delta: MetadataDelta, now_ms: int) -> None:
        """The broker's own copy of the metadata log has gone on; also before it is registered."""
        self._step_session(session_ev.MetadataFollowed(delta), now_ms)

    def controller_found(self, now_ms: int) -> None:
        """There is a controller to talk to that was not there before."""
        self._step_session(session_ev.ControllerFound(), now_ms)

    def request_failed(self, request_id: int, now_ms: int) -> None:
        """A request of ours will not be answered: its connection broke."""
        if request_id & 1 == _HOST:
            self._executor.step(RequestFailed(request_id >> 1), now_ms)
        else:
            self._step_session(session_ev.RequestFailed(request_id=request_id >> 1), now_ms)

    def flush_completed(
        self,
        topic_partition: TopicPartition,
        log: ReplicatedLog,
        now_ms: int,
        error: ReplogError | None = None,
    ) -> None:
        """A sync that the flush scheduler was asked for is done, or has failed with `error`."""
        if self.store.get(topic_partition) is not log:
            return  # deleted or replaced meanwhile
        if error is None:
            self._executor.step(LogFlushed(topic_partition=topic_partition), now_ms)
        else:
            self._executor.step(
                LogUnavailable(topic_partition=topic_partition, error=error), now_ms
            )

    def tick(self, now_ms: int) -> None:
        """Time has passed; call when `next_deadline_ms` has come, harmless at any other time."""
        deadline = self.host.next_deadline_ms
        if deadline is not None and deadline <= now_ms:
            self._executor.step(_HOST_TICK, now_ms)
        deadline = self.session.next_deadline_ms
        if deadline is not None and deadline <= now_ms:
            self._step_session(_SESSION_TICK, now_ms)

    def shut_down(self, now_ms: int) -> None:
        """Ask the controller to move leaderships away first; `ended` says when to `close`."""
        self._step_session(session_ev.ShutdownWanted(), now_ms)

    def close(self) -> None:
        """Flush and close the logs and mark the directory clean. Raises StorageError."""
        # Who stops before it was registered leaves its logs as the run before has left them.
        epoch = self.broker_epoch
        self.store.close(self.store.previous_broker_epoch if epoch == NO_BROKER_EPOCH else epoch)

    def _take_fault(self, fault: LogUnavailable, now_ms: int) -> None:
        registration = self.host.registration(fault.topic_partition)
        # One that could not be opened is told of with the metadata that asked for it.
        was_open = registration is not None and self.store.get(fault.topic_partition) is not None
        if fault.damaged:
            if registration is not None and was_open:
                damaged = self._damaged_log(registration, registration.leader_epoch)
                self._step_session(session_ev.ReplicaDamaged(damaged), now_ms)
            return
        is_final = isinstance(fault.error, StorageError) and not fault.error.retriable
        is_lost = isinstance(fault.error, LogFailedError) or (was_open and is_final)
        if is_lost and self.ended is None:
            # Who cannot write or read stands in everybody's way until somebody restarts it, as the
            # leader or, being in sync, as the next one. Dead, it is replaced at once.
            self.ended = session_fx.SessionEnded(ErrorCode.KAFKA_STORAGE_ERROR, str(fault.error))

    def _damaged_log(self, registration: PartitionRegistration, leader_epoch: int) -> DamagedLog:
        return DamagedLog(
            topic_partition=registration.topic_partition,
            topic_id=self.store.topic_id(registration.topic_partition),
            partition_epoch=registration.partition_epoch,
            leader_epoch=leader_epoch,
        )

    def _take_loss(self, lost: LostRecords, now_ms: int) -> None:
        self._step_session(session_ev.RecordsToCut(lost), now_ms)

    def _step_session(self, event: session_ev.SessionEvent, now_ms: int) -> None:
        self._carry_out(self.session.step(event, now_ms), now_ms)

    def _carry_out(self, effects: list[session_fx.SessionEffect], now_ms: int) -> None:
        for effect in effects:
            match effect:
                case session_fx.SendToController():
                    self._network.send_to_controller(
                        effect.request_id << 1 | _SESSION, effect.request
                    )
                case session_fx.SetBrokerEpoch():
                    self.broker_epoch = effect.broker_epoch
                    self._note_epoch(effect.broker_epoch)
                    self._executor.step(BrokerRegistered(broker_epoch=effect.broker_epoch), now_ms)
                case session_fx.StopLeading():
                    stop = LeadingSuspended(is_suspended=True, message=effect.message)
                    self._executor.step(stop, now_ms)
                case session_fx.LeadAgain():
                    self._executor.step(LeadingSuspended(is_suspended=False), now_ms)
                case session_fx.CutLosses():
                    for lost in effect.heard:
                        self._executor.step(LossHeard(lost), now_ms)
                case session_fx.ApplyMetadata():
                    self._apply_metadata(effect.delta, now_ms)
                case session_fx.SessionEnded():
                    self.ended = effect

    def _note_epoch(self, broker_epoch: int) -> None:
        """Before anything is done under it: whoever takes part, and comes back with a directory as
        it was before, must be told from one that has all.
        """
        try:
            self.store.note_broker_epoch(broker_epoch)
        except StorageError as error:
            self.ended = session_fx.SessionEnded(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _apply_metadata(self, delta: MetadataDelta, now_ms: int) -> None:
        """Delete the logs that are gone, open those that are named, then tell the replicas."""
        if not self._may_lead:
            delta = self._as_far_as_it_may(delta)
        removed = self._removed_by(delta)
        if removed:
            # First of all: the name may be another topic's in the same delta.
            self._executor.step(
                MetadataChanged(
                    delta=MetadataDelta(version=delta.version, removed_partitions=removed)
                ),
                now_ms,
            )
            self._delete_unknown(removed)
        for registration in delta.partitions:
            if self.broker_id in registration.replicas:
                self._open_log(registration, now_ms)
        self._executor.step(MetadataChanged(delta=delta), now_ms)
        if self._is_level(delta.version):
            self._registered_version = None
            self.store.set_aside_strays(self._is_held)
        self._tell_leaders(delta, removed, now_ms)

    def _tell_leaders(
        self,
        delta: MetadataDelta,
        removed: tuple[tuple[TopicPartition, uuid.UUID], ...],
        now_ms: int,
    ) -> None:
        """Let the session know of logs that nobody leads, of those that are led again, and of those
        that are damaged still.
        """
        led = [name for name, _ in removed]
        for name in led:
            self._behind.pop(name, None)
        leaderless: list[LeaderlessLog] = []
        unopened: list[TopicPartition] = []
        damaged: list[DamagedLog] = []
        for registration in delta.partitions:
            if self.broker_id in registration.replicas and len(registration.isr) < len(
                registration.replicas
            ):
                self._behind[registration.topic_partition] = registration.topic_id
            else:
                self._behind.pop(registration.topic_partition, None)
            if self.broker_id not in registration.replicas:
                led.append(registration.topic_partition)  # by whom is others' affair now
                continue
            damaged_epoch = self.host.damaged_epoch(registration.topic_partition)
            if damaged_epoch is not None:
                damaged.append(self._damaged_log(registration, damaged_epoch))
            log = self.store.get(registration.topic_partition)
            if registration.leader_id is not None:
                led.append(registration.topic_partition)
                continue
            if log is None:
                unopened.append(registration.topic_partition)
                continue
            leaderless.append(
                LeaderlessLog(
                    topic_partition=registration.topic_partition,
                    topic_id=registration.topic_id,
                    leader_epoch=registration.leader_epoch,
                    latest_epoch=log.latest_epoch,
                    log_end_offset=log.log_end_offset,
                )
            )
        if led or leaderless or unopened:
            changed = session_ev.LeadersChanged(
                leaderless=tuple(leaderless),
                unopened=tuple(unopened),
                led=tuple(led),
                damaged=tuple(damaged),
            )
            self._step_session(changed, now_ms)

    def _log_sizes(self) -> tuple[LogSize, ...]:
        """How large the logs are of which replicas are catching up, here or elsewhere."""
        sizes = []
        for name, topic_id in self._behind.items():
            log = self.store.get(name)
            if log is not None:
                sizes.append(
                    LogSize(topic_partition=name, topic_id=topic_id, size_bytes=log.size_bytes)
                )
        return tuple(sizes)

    def _is_level(self, version: int) -> bool:
        """Whether metadata of this version has what was decided when the broker registered."""
        return self._registered_version is not None and version >= self._registered_version

    def _as_far_as_it_may(self, delta: MetadataDelta) -> MetadataDelta:
        """What the broker may obey before its registration is in the metadata.

        It opens its logs and follows. To lead an epoch that it led before it died, with less than
        it then had, would cut committed records off its followers. To follow a leader older than
        one that it has obeyed would let that one commit what the newer one knows nothing of; and
        after an unclean stop nobody knows what it had obeyed, since its copy of the metadata may
        have lost its end as any log may. And no log that it has found is deleted yet: the topic of
        another id may be the older one, and a replica that has been moved away may have been moved
        back.
        """
        withheld = self._withheld
        for topic_partition, _ in delta.removed_partitions:
            withheld.pop(topic_partition, None)
        partitions = {one.topic_partition: one for one in delta.partitions}
        if self._is_level(delta.version):
            self._may_lead = True
            partitions = {**withheld, **partitions}
            withheld.clear()
        else:
            unclean = self.store.previous_broker_epoch == NO_BROKER_EPOCH
            for name, registration in list(partitions.items()):
                withheld.pop(name, None)
                if name in self._missing or self._may_be_outdated(registration):
                    withheld[name] = partitions.pop(name)
                elif unclean or registration.leader_id == self.broker_id:
                    withheld[name] = registration
                    partitions[name] = dataclasses.replace(registration, leader_id=None)
        return dataclasses.replace(delta, partitions=tuple(partitions.values()))

    def _may_be_outdated(self, registration: PartitionRegistration) -> bool:
        name, topic_id = registration.topic_partition, registration.topic_id
        found, obeyed = self._found.get(name), self.obeyed.get(name)
        if found is not None and (found != topic_id or self.broker_id not in registration.replicas):
            return True
        return (
            obeyed is not None
            and obeyed.topic_id == topic_id
            and obeyed.leader_epoch > registration.leader_epoch
        )

    def _removed_by(self, delta: MetadataDelta) -> tuple[tuple[TopicPartition, uuid.UUID], ...]:
        """What is gone by the delta's own word, and what a topic of another id stands in for."""
        removed = dict(delta.removed_partitions)
        for registration in delta.partitions:
            known = self.host.registration(registration.topic_partition)
            if known is not None and known.topic_id != registration.topic_id:
                removed[registration.topic_partition] = known.topic_id
        return tuple(removed.items())

    def _delete_unknown(self, removed: tuple[tuple[TopicPartition, uuid.UUID], ...]) -> None:
        """Delete logs from an earlier run whose topic went while this broker was away."""
        for topic_partition, topic_id in removed:
            if self._found.get(topic_partition) == topic_id and not self._is_held(topic_partition):
                del self._found[topic_partition]
                self.store.delete(topic_partition)

    def _open_log(self, registration: PartitionRegistration, now_ms: int) -> None:
        topic_partition = registration.topic_partition
        try:
            self.store.open(registration)
        except ReplogError as error:
            unavailable = LogUnavailable(
                topic_partition=topic_partition, error=error, damaged=isinstance(error, DAMAGE)
            )
            self._executor.step(unavailable, now_ms)

    def _is_held(self, topic_partition: TopicPartition) -> bool:
        registration = self.host.registration(topic_partition)
        return registration is not None and self.broker_id in registration.replicas
