"""All replicas of one broker: takes events in, gives effects out, and holds the two roles together.

The caller carries out the effects of a step in order, feeds back their completions, and only then
steps the next event. What one event moves in several places (a high watermark, a log's end, a
proposal) is acted on once, when its last completion is in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replog.errors import ReplogError, UsageError
from replog.messages import (
    DeleteRecordsRequest,
    ErrorCode,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
)
from replog.replication import events as ev
from replog.replication.alter_partition import ProposalQueue
from replog.replication.cluster_view import ClusterView
from replog.replication.delete_server import DeleteServer
from replog.replication.effects import (
    CheckpointHighWatermarks,
    Effect,
    GiveUpLog,
    Respond,
)
from replog.replication.fetch_server import FetchServer
from replog.replication.follower import Follower
from replog.replication.host_context import HostContext
from replog.replication.incidents import LeadingResumed, LeadingStopped
from replog.replication.leader import Leader
from replog.replication.offsets_server import list_offsets
from replog.replication.partition_table import PartitionTable
from replog.replication.produce_server import ProduceServer
from replog.replication.replica import Role
from replog.replication.replica_roles import ReplicaRoles
from replog.replication.throttle import ReplicationThrottle

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.config import ReplicationOptions
    from replog.messages import IsrDecision, IsrProposal
    from replog.registrations import PartitionRegistration
    from replog.replication.incidents import Uncommitted
    from replog.replication.log_view import LogView
    from replog.types import TopicPartition


class ReplicaHost:
    """The pure core of one broker."""

    def __init__(
        self,
        broker_id: int,
        logs: Callable[[TopicPartition], LogView | None],
        options: ReplicationOptions,
    ) -> None:
        """logs: the open log of a partition; None where there is none that can be used."""
        self.broker_id = broker_id
        self._effects: list[Effect] = []
        self._context = HostContext(
            ClusterView(broker_id), options, self._effects.append, ReplicationThrottle(broker_id)
        )
        self._table = PartitionTable()
        self._proposals = ProposalQueue(self._context, self._decide)
        self._produces = ProduceServer(self._context, self._table)
        self._fetches = FetchServer(self._context, self._table)
        self._deletes = DeleteServer(self._context, self._table)
        self._roles = ReplicaRoles(
            self._context, self._table, logs, self._proposals, self._produces, self._fetches
        )
        self._fetchers = self._roles.fetchers
        self._is_running = False
        """Metadata has come: the periodic tasks go on."""
        self._spares_followers = False
        """They could not fetch of late, through no fault of theirs."""
        self._now_ms = 0
        self._handle: dict[type, Callable[[Any, int], None]] = {
            ev.BrokerRegistered: self._register,
            ev.LeadingSuspended: self._suspend,
            ev.MetadataChanged: self._apply_metadata,
            ev.LogUnavailable: self._roles.lose_log,
            ev.LogReplaced: self._replace_log,
            ev.RequestReceived: self._receive,
            ev.RequesterGone: self._forget_requester,
            ev.ResponseReceived: self._hear,
            ev.RequestFailed: self._request_failed,
            ev.LeaderAppendCompleted: self._produces.append_completed,
            ev.LeaderAppendFailed: self._leader_append_failed,
            ev.FollowerAppendCompleted: self._follower_append_completed,
            ev.FollowerAppendFailed: self._follower_append_failed,
            ev.LossHeard: self._loss_heard,
            ev.LogStartKept: self._log_start_kept,
            ev.TruncationCompleted: self._truncation_completed,
            ev.LogFlushed: self._log_flushed,
            ev.Tick: self._tick,
        }
        self._receivers: dict[type, Callable[[int, Any, int], None]] = {
            FetchRequest: self._fetches.receive,
            ProduceRequest: self._produces.receive,
            DeleteRecordsRequest: self._deletes.receive,
            ListOffsetsRequest: self._list_offsets,
        }

    @property
    def broker_epoch(self) -> int:
        return self._context.cluster.broker_epoch

    @property
    def next_deadline_ms(self) -> int | None:
        """When a Tick is due; None: never, unless something happens first."""
        return self._context.deadlines.next_ms

    def role_of(self, topic_partition: TopicPartition) -> Role | None:
        """None: this broker holds no replica of it."""
        replica = self._table.replicas.get(topic_partition)
        return replica.role if replica is not None else None

    def is_alive(self, broker_id: int) -> bool:
        """Whether the metadata that was applied says that the broker is registered and unfenced."""
        return self._context.cluster.is_alive(broker_id)

    def leader(self, topic_partition: TopicPartition) -> Leader | None:
        """The leading role, if it is ours."""
        replica = self._table.replicas.get(topic_partition)
        return replica.leader if replica is not None else None

    def follower(self, topic_partition: TopicPartition) -> Follower | None:
        """The following role, if it is ours."""
        replica = self._table.replicas.get(topic_partition)
        return replica.follower if replica is not None else None

    def registration(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        """As the controller last told, of any partition of the cluster."""
        return self._table.registrations.get(topic_partition)

    def damaged_epoch(self, topic_partition: TopicPartition) -> int | None:
        """Set while our log of it was found corrupt, and no new one is in sync in its place yet:
        the latest leader epoch in which the corrupt one may have been fetched into.
        """
        return self._roles.damaged_epoch(topic_partition)

    def why_uncommitted(self, topic_partition: TopicPartition, offset: int) -> Uncommitted | None:
        """What holds `offset` back; None where we do not lead, or it is committed or not there."""
        leader = self.leader(topic_partition)
        return leader.why_uncommitted(offset, self._now_ms) if leader is not None else None

    def step(self, event: ev.Event, now_ms: int, more: bool = False) -> list[Effect]:
        """Take in one event; returns what to do about it, in order.

        more: a request is stepped right after this event and its completions. What they move is
        acted on then: waiting fetches are answered once, with all that has been appended meanwhile.
        """
        self._now_ms = now_ms
        self._handle[type(event)](event, now_ms)
        if not (more or self._produces.appending):
            self._settle(now_ms)
        # The list itself stays: everybody emits into it.
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def _settle(self, now_ms: int) -> None:
        """Act on what has moved: wake those who wait for it, send what is due."""
        moved = self._context.moved
        if moved:
            self._fetches.wake(moved, now_ms)
            if self._deletes.waits:
                self._deletes.wake()
        for fetcher in self._fetchers.values():
            if fetcher.request_id is None and not fetcher.idle:
                fetcher.maybe_send(now_ms)
        if self._proposals.waiting:
            self._proposals.maybe_send(now_ms)

    # Requests of peers and clients.

    def _receive(self, event: ev.RequestReceived, now_ms: int) -> None:
        self._receivers[type(event.request)](event.request_id, event.request, now_ms)

    def _list_offsets(self, request_id: int, request: ListOffsetsRequest, now_ms: int) -> None:
        try:
            response = list_offsets(self._table, request)
        except UsageError:
            response = ListOffsetsResponse(
                topic_partition=request.topic_partition, error=ErrorCode.INVALID_REQUEST
            )
        except ReplogError as error:
            response = ListOffsetsResponse(
                topic_partition=request.topic_partition, error=ErrorCode.KAFKA_STORAGE_ERROR
            )
            if not error.retriable:
                self._context.emit(GiveUpLog(request.topic_partition, error))
        self._context.emit(Respond(request_id, response))

    def _forget_requester(self, event: ev.RequesterGone, now_ms: int) -> None:
        self._produces.gone(event.request_id)
        self._fetches.gone(event.request_id)
        self._deletes.gone(event.request_id)

    # Answers to our own requests.

    def _hear(self, event: ev.ResponseReceived, now_ms: int) -> None:
        request_id = event.request_id
        if self._proposals.request_id == request_id:
            self._proposals.answered(event.response, now_ms)
            return
        for fetcher in self._fetchers.values():
            if fetcher.request_id == request_id:
                fetcher.answered(event.response, now_ms)
                return
            if request_id in fetcher.offset_requests:
                fetcher.offset_answered(request_id, event.response, now_ms)
                return

    def _request_failed(self, event: ev.RequestFailed, now_ms: int) -> None:
        request_id = event.request_id
        if self._proposals.failed(request_id, now_ms):
            return
        for fetcher in self._fetchers.values():
            if fetcher.request_id == request_id:
                fetcher.failed(now_ms)
                return
            if request_id in fetcher.offset_requests:
                fetcher.offset_failed(request_id, now_ms)
                return

    def _decide(self, proposal: IsrProposal, decision: IsrDecision, now_ms: int) -> bool:
        leader = self.leader(proposal.topic_partition)
        return leader is not None and leader.decided(proposal, decision, now_ms)

    # Completions.

    def _leader_append_failed(self, event: ev.LeaderAppendFailed, now_ms: int) -> None:
        self._produces.append_failed(event)

    def _follower_append_completed(self, event: ev.FollowerAppendCompleted, now_ms: int) -> None:
        replica = self._table.replicas.get(event.topic_partition)
        if replica is not None and replica.follower is not None:
            replica.follower.append_completed(now_ms)

    def _follower_append_failed(self, event: ev.FollowerAppendFailed, now_ms: int) -> None:
        follower = self.follower(event.topic_partition)
        if follower is not None:
            follower.append_failed(event.error, now_ms)

    def _log_start_kept(self, event: ev.LogStartKept, now_ms: int) -> None:
        self._deletes.refuse(event.topic_partition)
        follower = self.follower(event.topic_partition)
        if follower is not None:
            follower.log_start_kept()

    def _loss_heard(self, event: ev.LossHeard, now_ms: int) -> None:
        follower = self.follower(event.lost.topic_partition)
        if follower is not None:
            follower.loss_heard(event.lost)

    def _truncation_completed(self, event: ev.TruncationCompleted, now_ms: int) -> None:
        follower = self.follower(event.topic_partition)
        if follower is not None:
            follower.truncation_completed(now_ms)

    def _log_flushed(self, event: ev.LogFlushed, now_ms: int) -> None:
        replica = self._table.replicas.get(event.topic_partition)
        if replica is None:
            return
        if replica.leader is not None:
            replica.leader.log_synced(now_ms)
        elif replica.follower is not None:
            replica.follower.log_synced()

    # Time.

    def _tick(self, event: ev.Tick, now_ms: int) -> None:
        self._context.deadlines.run_due(now_ms)

    def _start_periods(self, now_ms: int) -> None:
        if self._is_running:
            return
        self._is_running = True
        self._schedule_isr_check(now_ms)
        self._schedule_checkpoint(now_ms)

    def _schedule_isr_check(self, now_ms: int) -> None:
        due_ms = now_ms + max(self._context.options.replica_lag_time_max_ms // 2, 1)
        self._context.deadlines.schedule(due_ms, lambda now_ms: self._check_isrs(due_ms, now_ms))

    def _check_isrs(self, due_ms: int, now_ms: int) -> None:
        self._schedule_isr_check(now_ms)
        if self._spares_followers:
            self._spares_followers = self._table.is_suspended
            return
        if now_ms - due_ms > self._context.options.replica_lag_time_max_ms // 4:
            # We have slept, and the fetches that came meanwhile may still lie before us: nobody is
            # to blame until the next check.
            return
        for replica in self._table.replicas.values():
            if replica.leader is not None:
                replica.leader.check_isr(now_ms)

    def _schedule_checkpoint(self, now_ms: int) -> None:
        period_ms = max(self._context.options.replica_high_watermark_checkpoint_interval_ms, 1)
        self._context.deadlines.schedule(now_ms + period_ms, self._checkpoint)

    def _checkpoint(self, now_ms: int) -> None:
        self._schedule_checkpoint(now_ms)
        self._context.emit(CheckpointHighWatermarks())

    # What the controller says, and what becomes of logs.

    def _register(self, event: ev.BrokerRegistered, now_ms: int) -> None:
        self._context.cluster.broker_epoch = event.broker_epoch

    def _suspend(self, event: ev.LeadingSuspended, now_ms: int) -> None:
        """Refuse, or take, what is asked of a leader. Roles stay as they are: what they know of
        proposals under way still counts when they go on.
        """
        self._table.is_suspended = event.is_suspended
        epoch = self.broker_epoch
        if not event.is_suspended:
            self._context.report(LeadingResumed(broker_epoch=epoch))
            return
        self._spares_followers = True
        led = tuple(name for name, one in self._table.replicas.items() if one.leader is not None)
        self._context.report(LeadingStopped(broker_epoch=epoch, led=led, message=event.message))

    def _apply_metadata(self, event: ev.MetadataChanged, now_ms: int) -> None:
        self._start_periods(now_ms)
        self._roles.apply(event.delta, now_ms)

    def _replace_log(self, event: ev.LogReplaced, now_ms: int) -> None:
        self._roles.replace_log(event.topic_partition, now_ms)
