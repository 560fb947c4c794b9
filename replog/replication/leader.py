"""The leading role of one replica: followers' progress, the high watermark, the in-sync set.

What may be served or appended is decided elsewhere; here stands who is how far, and what follows
from it: offsets that are committed, producers that may be told so, replicas that join or leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import invariant
from replog.messages import Durability, ErrorCode, IsrProposal
from replog.replication.effects import AssignEpoch, FlushLog, SetHighWatermark
from replog.replication.high_watermark import leader_high_watermark
from replog.replication.incidents import (
    IsrCause,
    IsrChanged,
    IsrStage,
    ReplicaLag,
    Uncommitted,
)
from replog.replication.isr import CommittedIsr, PendingExpand, PendingIsr, PendingShrink
from replog.replication.produce_waits import AckQueue
from replog.replication.replica_progress import NEVER_MS, ReplicaProgress
from replog.types import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from replog.messages import FetchPartition, IsrDecision
    from replog.registrations import PartitionRegistration
    from replog.replication.alter_partition import ProposalQueue
    from replog.replication.host_context import HostContext
    from replog.replication.isr import IsrState
    from replog.replication.log_view import LogView

_REVERT = {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED}
_AWAIT_METADATA = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
}


class Leader:
    """One leadership, over one or more consecutive leader epochs of the same leader.

    Invariant: high_watermark <= log_end_offset; it never goes back (I7).
    """

    def __init__(
        self,
        context: HostContext,
        registration: PartitionRegistration,
        log: LogView,
        proposals: ProposalQueue,
        now_ms: int,
    ) -> None:
        self._context = context
        self._log = log
        self.isr: IsrState
        self._proposals = proposals
        self.topic_partition = registration.topic_partition
        self.high_watermark = log.high_watermark
        """Ours and the log's; ahead of the log's only within a step."""
        self.followers: dict[int, ReplicaProgress] = {}
        """By broker id, in the order of the assignment."""
        self.replicated = AckQueue()
        """acks=all: what the high watermark has yet to reach."""
        self.synced = AckQueue()
        """acks=1 in flush mode `commit`: what our own sync has yet to reach."""
        self._is_syncing = False
        self._begin_epoch(registration, now_ms, re_elected=False)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr.isr) < self.min_insync_replicas

    @property
    def is_high_watermark_behind(self) -> bool:
        """Whether what former leaders committed may lie above what we know as committed."""
        return self.high_watermark < self.epoch_start_offset

    @property
    def durable_end_offset(self) -> int:
        """How much of its own log the leader may count."""
        return self._log.synced_end_offset if self.syncs else self._log.log_end_offset

    def apply(self, registration: PartitionRegistration, now_ms: int) -> None:
        """The controller's word on the partition that we lead: not older than what we have."""
        if registration.leader_epoch > self.leader_epoch:
            self._begin_epoch(registration, now_ms, re_elected=True)
            return
        self._take(registration)
        before = self.isr
        if registration.partition_epoch > before.committed.partition_epoch:
            self._track(registration, now_ms)
            self._commit(CommittedIsr(registration.isr, registration.partition_epoch), now_ms)
        self.advance_high_watermark(now_ms)

    def record_fetch(
        self, progress: ReplicaProgress, fetch: FetchPartition, broker_epoch: int, now_ms: int
    ) -> None:
        """A follower's claim holds: it counts, the follower may join, and more may be committed."""
        if fetch.log_start_offset != progress.log_start_offset:
            self._context.moved.setdefault(self.topic_partition, False)
        if self._context.unheard:
            self._context.hear(progress.replica_id, self.topic_partition)
        changed = progress.record_fetch(
            fetch.fetch_offset,
            fetch.log_start_offset,
            broker_epoch,
            self._log.log_end_offset,
            now_ms,
        )
        if progress.replica_id not in self.isr.maximal and self._may_join(progress, now_ms):
            self._propose_expand(progress, now_ms)
        if changed:
            self.advance_high_watermark(now_ms)

    def advance_high_watermark(self, now_ms: int) -> None:
        """Move it as far as the replicas allow, and tell those who wait for it."""
        if self.is_under_min_isr:
            return
        end_offset = self.durable_end_offset
        if end_offset <= self.high_watermark:
            return
        advanced = leader_high_watermark(
            self.high_watermark,
            end_offset,
            self.followers.values(),
            self.isr.maximal,
            lambda follower: self._is_joining(follower, now_ms),
        )
        if advanced == self.high_watermark:
            return
        self.high_watermark = advanced
        self._context.emit(SetHighWatermark(self.topic_partition, advanced))
        self._context.moved.setdefault(self.topic_partition, False)
        self.acknowledge_reached()

    def acknowledge_reached(self) -> None:
        """Answer acks=all below the high watermark, if enough replicas are left to vouch for it."""
        floor = self.min_insync_replicas
        for pending in self.replicated.take_reached(self.high_watermark):
            if len(self.isr.maximal) >= floor:
                pending.acknowledge(Durability.PERSISTED if self.syncs else Durability.REPLICATED)
                continue
            pending.refuse(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"expected {floor} in-sync replicas of {self.topic_partition}, found "
                f"{self.isr.maximal}; the records are committed, sending them again may repeat "
                f"them",
            )

    def log_synced(self, now_ms: int) -> None:
        """Our log is on disk up to its synced_end_offset."""
        self._is_syncing = False
        self.acknowledge_synced()
        self.advance_high_watermark(now_ms)
        self.maybe_flush()

    def acknowledge_synced(self) -> None:
        """Answer acks=1 below what is on disk."""
        for pending in self.synced.take_reached(self._log.synced_end_offset):
            pending.acknowledge(Durability.LEADER)

    def maybe_flush(self) -> None:
        """In flush mode `commit`, sync what is not yet; one sync at a time, for all before it."""
        if (
            self.syncs
            and not self._is_syncing
            and self._log.synced_end_offset < self._log.log_end_offset
        ):
            self._is_syncing = True
            self._context.emit(FlushLog(self.topic_partition))

    def check_isr(self, now_ms: int) -> None:
        """Propose to drop those that have not been level with us for the lag time (KIP-16)."""
        self.advance_high_watermark(now_ms)
        self.replicated.sweep()
        if not isinstance(self.isr, CommittedIsr):
            return
        end_offset = self._log.log_end_offset
        lag_ms_max = self._context.options.replica_lag_time_max_ms
        laggards = tuple(
            replica_id
            for replica_id in self.isr.isr
            if replica_id in self.followers
            and not self.followers[replica_id].is_caught_up(end_offset, lag_ms_max, now_ms)
        )
        if not laggards:
            return
        staying = tuple(one for one in self.isr.isr if one not in laggards)
        proposal = self._proposal(staying)
        self._propose(PendingShrink(self.isr, laggards, proposal), now_ms)

    def decided(self, proposal: IsrProposal, decision: IsrDecision, now_ms: int) -> bool:
        """The controller's answer to a proposal; returns whether to send it again (KIP-497)."""
        state = self.isr
        if isinstance(state, CommittedIsr) or state.proposal is not proposal:
            return False
        error = decision.error
        if error is ErrorCode.NONE:
            members = set(decision.isr)
            if (
                decision.leader_epoch == self.leader_epoch
                and decision.partition_epoch >= state.committed.partition_epoch
                and self._context.cluster.broker_id in members
                and members <= set(self.registration.replicas)
            ):
                self._commit(CommittedIsr(decision.isr, decision.partition_epoch), now_ms)
                self.advance_high_watermark(now_ms)
            return False
        if error in _REVERT:
            self.isr = state.committed
            self._context.moved.setdefault(self.topic_partition, False)
            self._report(IsrStage.REFUSED, state, now_ms, error=error)
            self.advance_high_watermark(now_ms)
            return False
        if error in _AWAIT_METADATA:
            # It may have been decided: until the metadata tells, the maximal set counts.
            self._report(IsrStage.REFUSED, state, now_ms, error=error)
            return False
        return True

    def why_uncommitted(self, offset: int, now_ms: int) -> Uncommitted | None:
        """None where the offset is committed, or not in the log."""
        if not self.high_watermark <= offset < self._log.log_end_offset:
            return None
        return Uncommitted(
            topic_partition=self.topic_partition,
            offset=offset,
            high_watermark=self.high_watermark,
            log_end_offset=self._log.log_end_offset,
            isr=self.isr.isr,
            min_insync_replicas=self.registration.min_insync_replicas,
            held_back_by=self.held_back_by(offset, now_ms),
        )

    def held_back_by(self, offset: int, now_ms: int) -> tuple[ReplicaLag, ...]:
        """The replicas without which `offset` is not committed, and that do not have it yet."""
        lags = [
            self._lag(follower, now_ms)
            for follower in self.followers.values()
            if follower.log_end_offset <= offset
            and (follower.replica_id in self.isr.maximal or self._is_joining(follower, now_ms))
        ]
        if self.durable_end_offset <= offset:
            end_offset = self.durable_end_offset
            lags.append(
                ReplicaLag(
                    replica_id=self._context.cluster.broker_id,
                    log_end_offset=end_offset,
                    lag_offsets=self._log.log_end_offset - end_offset,
                    caught_up_ms_ago=None,
                    fetched_ms_ago=None,
                    in_isr=True,
                )
            )
        return tuple(lags)

    def low_watermark(self, log_start_offset: int | None = None) -> int:
        """The smallest log start of all replicas that live or are in sync; UNKNOWN_OFFSET while one
        is unheard of. Of those in sync one that is dead may lead when it is back, and would show
        what was deleted: it has heard of it from nobody.

        log_start_offset: our own, where this step has moved it.
        """
        is_alive, in_sync = self._context.cluster.is_alive, self.isr.maximal
        lowest = self._log.log_start_offset if log_start_offset is None else log_start_offset
        for follower in self.followers.values():
            replica_id = follower.replica_id
            if follower.log_start_offset < lowest and (
                replica_id in in_sync or is_alive(replica_id)
            ):
                lowest = follower.log_start_offset
        return lowest

    def resign(self, error: ErrorCode, message: str) -> None:
        """Stop leading: whoever waits for an acknowledgement is told so."""
        self._proposals.withdraw(self.topic_partition)
        self._await(())
        for pending in self.replicated.take_all() + self.synced.take_all():
            pending.refuse(error, message)

    def _begin_epoch(
        self, registration: PartitionRegistration, now_ms: int, *, re_elected: bool
    ) -> None:
        broker_id = self._context.cluster.broker_id
        invariant(
            registration.leader_id == broker_id and broker_id in registration.isr,
            "the leader to be this replica, and in the ISR",
            broker_id=broker_id,
            registration=registration,
        )
        self._proposals.withdraw(self.topic_partition)
        self._take(registration)
        self.isr = CommittedIsr(registration.isr, registration.partition_epoch)
        # The epoch is on record before its first append: a leader that dies in between must be able
        # to tell its followers where its epoch began (KAFKA-7415).
        self.epoch_start_offset = self._log.log_end_offset
        self._context.emit(
            AssignEpoch(self.topic_partition, registration.leader_epoch, self.epoch_start_offset)
        )
        known = self.followers if re_elected else {}
        self._track(registration, now_ms)
        for replica_id, follower in self.followers.items():
            follower.begin_epoch(
                self.epoch_start_offset,
                now_ms,
                in_isr=replica_id in registration.isr,
                re_elected=replica_id in known,
            )
        self._await(registration.isr)
        self.advance_high_watermark(now_ms)
        self.maybe_flush()

    def _await(self, replica_ids: tuple[int, ...]) -> None:
        """Wait to hear of these followers and of no others."""
        for follower_id in self.followers:
            self._context.hear(follower_id, self.topic_partition)
        for follower_id in self.followers:
            if follower_id in replica_ids:
                partitions = self._context.unheard.setdefault(follower_id, {})
                partitions[self.topic_partition] = None

    def _take(self, registration: PartitionRegistration) -> None:
        self.registration = registration
        self.leader_epoch = registration.leader_epoch
        self.min_insync_replicas = registration.min_insync_replicas
        self.syncs = registration.config.log.flush_mode == "commit"
        """Flush mode `commit`: what is not synced does not count."""

    def _track(self, registration: PartitionRegistration, now_ms: int) -> None:
        """Have progress for exactly the assigned replicas; those new in the ISR get their grace."""
        broker_id = self._context.cluster.broker_id
        followers = {}
        for replica_id in self.followers:
            if replica_id not in registration.isr:
                self._context.hear(replica_id, self.topic_partition)
        for replica_id in registration.replicas:
            if replica_id == broker_id:
                continue
            follower = self.followers.get(replica_id)
            if follower is None:
                follower = ReplicaProgress(replica_id)
                if replica_id in registration.isr:
                    follower.last_caught_up_ms = now_ms
            followers[replica_id] = follower
        self.followers = followers

    def _may_join(self, follower: ReplicaProgress, now_ms: int) -> bool:
        if not isinstance(self.isr, CommittedIsr):
            return False
        if follower.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return False
        if not self._is_eligible(follower):
            return False
        if follower.log_start_offset < self._log.log_start_offset:
            # Where our log begins, epochs begin too: what it still has below may be another
            # leader's, and must be hidden before it can lead (it hears so with this answer).
            return False
        # Below the floor the high watermark stands still, and reaching it proves nothing: a replica
        # that does not keep up would be taken in and dropped over and over (KAFKA-19996).
        return not self.is_under_min_isr or self._is_caught_up(follower, now_ms)

    def _is_joining(self, follower: ReplicaProgress, now_ms: int) -> bool:
        return self._is_caught_up(follower, now_ms) and self._is_eligible(follower)

    def _is_eligible(self, follower: ReplicaProgress) -> bool:
        return self._context.cluster.may_be_in_sync(follower.replica_id, follower.broker_epoch)

    def _is_caught_up(self, follower: ReplicaProgress, now_ms: int) -> bool:
        return follower.is_caught_up(
            self._log.log_end_offset, self._context.options.replica_lag_time_max_ms, now_ms
        )

    def _propose_expand(self, follower: ReplicaProgress, now_ms: int) -> None:
        committed = self.isr.committed
        proposal = self._proposal((*committed.isr, follower.replica_id))
        self._propose(PendingExpand(committed, follower.replica_id, proposal), now_ms)

    def _proposal(self, isr: tuple[int, ...]) -> IsrProposal:
        cluster = self._context.cluster
        members = tuple(
            (
                replica_id,
                cluster.broker_epoch
                if replica_id == cluster.broker_id
                else self.followers[replica_id].broker_epoch,
            )
            for replica_id in isr
        )
        return IsrProposal(
            topic_partition=self.topic_partition,
            topic_id=self.registration.topic_id,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.isr.committed.partition_epoch,
            isr=members,
        )

    def _propose(self, state: PendingIsr, now_ms: int) -> None:
        self.isr = state
        self._report(IsrStage.PROPOSED, state, now_ms)
        self._proposals.submit(state.proposal)

    def _commit(self, committed: CommittedIsr, now_ms: int) -> None:
        """What the controller decided, whether we had asked for it or not."""
        before, self.isr = self.isr, committed
        self._context.moved.setdefault(self.topic_partition, False)
        self._proposals.withdraw(self.topic_partition)
        if set(before.isr) == set(committed.isr):
            return
        self._report(IsrStage.COMMITTED, before, now_ms)

    def _report(
        self, stage: IsrStage, state: IsrState, now_ms: int, error: ErrorCode | None = None
    ) -> None:
        after = self.isr.isr
        cause = IsrCause.CONTROLLER
        if not isinstance(state, CommittedIsr):
            if stage is not IsrStage.COMMITTED:
                after = state.wanted
            if set(after) == set(state.wanted):
                expands = isinstance(state, PendingExpand)
                cause = IsrCause.CAUGHT_UP if expands else IsrCause.LAGGING
        moved = sorted(set(state.isr) ^ set(after))
        self._context.report(
            IsrChanged(
                topic_partition=self.topic_partition,
                leader_epoch=self.leader_epoch,
                stage=stage,
                cause=cause,
                before=state.isr,
                after=after,
                replicas=tuple(
                    self._lag(self.followers[one], now_ms) for one in moved if one in self.followers
                ),
                high_watermark=self.high_watermark,
                log_end_offset=self._log.log_end_offset,
                error=error,
            )
        )

    def _lag(self, follower: ReplicaProgress, now_ms: int) -> ReplicaLag:
        end_offset = follower.log_end_offset
        heard_of = end_offset != UNKNOWN_OFFSET
        caught_up_ms, fetch_ms = follower.last_caught_up_ms, follower.last_fetch_ms
        return ReplicaLag(
            replica_id=follower.replica_id,
            log_end_offset=end_offset if heard_of else None,
            lag_offsets=self._log.log_end_offset - end_offset if heard_of else None,
            caught_up_ms_ago=None if caught_up_ms == NEVER_MS else now_ms - caught_up_ms,
            fetched_ms_ago=None if fetch_ms == NEVER_MS else now_ms - fetch_ms,
            in_isr=follower.replica_id in self.isr.isr,
        )
