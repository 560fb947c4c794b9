"""Leaders and in-sync sets: each change of one partition is decided here and nowhere else."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from replog.controller.copy_identity import ReturnedCopy
from replog.controller.decision import Decision
from replog.controller.incidents import (
    DamageFound,
    ElectionCause,
    Incident,
    InSyncSetChanged,
    LeaderElected,
    PartitionOffline,
    TransitionRefused,
)
from replog.controller.leader_selection import (
    Candidates,
    LogEnd,
    Selection,
    controlled_shutdown,
    offline_partition,
    without,
)
from replog.controller.partition_change import PartitionChange
from replog.controller.partition_image import PartitionImage
from replog.controller.replica_reports import ReplicaReports
from replog.controller.state_machines import (
    IllegalTransitionError,
    PartitionState,
    ReplicaState,
    move_partition,
    move_replica,
    partition_state,
    partition_state_after,
    replica_state,
)
from replog.controller.unclean_losses import UncleanLosses

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.types import TopicPartition
    from replog.wire.metadata_records import PartitionChangeRecord


class PartitionControl:
    """Decides on the image of a `Decision`, with what brokers have said of their logs."""

    def __init__(
        self, decision: Decision, reports: ReplicaReports, is_there: Callable[[int], bool]
    ) -> None:
        """is_there(broker_id): whether it may lead, for all that this controller has heard."""
        self.is_there = is_there
        self._decision = decision
        self._image = decision.image
        self.reports = reports
        self.losses = UncleanLosses(decision)
        self.reassigning_changed: dict[PartitionImage, int] = {}
        """Partitions that are being reassigned, by the end offset of their latest change."""

    def candidates(self, partition: PartitionImage) -> Candidates:
        """What is known of a partition's replicas."""
        return Candidates(
            replicas=partition.replicas,
            isr=partition.isr,
            elr=partition.elr,
            suspects=partition.last_known_elr,
            ends=self.reports.ends(partition),
            damaged=self.reports.damaged(partition),
            lost=partition.lost,
            leader_id=partition.leader_id,
            removing=partition.removing,
            floor=partition.min_insync_replicas,
            unclean_allowed=partition.topic.config.unclean_leader_election_enable,
        )

    def settle(
        self, partition: PartitionImage, *, leaving: int | None = None, unclean: bool | None = None
    ) -> bool:
        """Keep the leader if it may lead on, else elect one or none; whether anything changed.

        leaving: leaves the in-sync set, if somebody leads then who may commit without it. unclean:
        as `offline_partition` has it.
        """
        change = self.change(partition)
        if leaving is not None and partition.leader_id is not None:
            change.isr = without(change.isr, leaving)
        self.keep_or_elect(partition, change, unclean=unclean)
        return self.carry_out(partition, change)

    def hand_over(self, partition: PartitionImage, leaving: int) -> bool:
        """A broker shuts down: it leaves the in-sync set, and another leads in its place.

        Where no other may, the set stays as it is: each member holds all that was acknowledged.
        """
        change = self.change(partition)
        if partition.leader_id is not None:
            change.isr = without(change.isr, leaving)
        if partition.leader_id == leaving or partition.leader_id is None:
            chosen = controlled_shutdown(self.candidates(partition), self.is_there, leaving)
            change.elect(chosen)
        if not change.has_leader:
            change.keep_set()
        return self.carry_out(partition, change)

    def switch(self, partition: PartitionImage, selection: Selection) -> None:
        """Another leader, though the one there is may lead on."""
        change = self.change(partition)
        change.elect(selection)
        self.carry_out(partition, change)

    def commit_isr(
        self,
        partition: PartitionImage,
        isr: tuple[int, ...],
        proposed_by: int,
        *,
        recovers: bool = False,
    ) -> bool:
        """Grant a leader's proposal: who is in it has caught up, whatever it had lost before.

        recovers: with it the unclean election that it came by is over.
        """
        self.reports.mended(partition, isr)
        change = self.change(partition)
        change.isr = isr
        change.suspects -= frozenset(isr)
        if recovers:
            change.recover()
        return self.carry_out(partition, change, proposed_by=proposed_by)

    def found_damaged(self, partition: PartitionImage, broker_id: int) -> None:
        """A replica's log is corrupt: it vouches for nothing until it has caught up again.

        Changes the partition even if nobody leaves the in-sync set, and names its leader, so that
        no proposal and no fetch made before the damage was found counts the replica in.
        """
        self.reports.found_damaged(partition, broker_id)
        change = self.change(partition)
        change.isr = without(change.isr, broker_id)
        if broker_id in change.isr:
            change.suspects |= {broker_id}
        self.keep_or_elect(partition, change)
        if not change.names_leader and partition.leader_id is not None:
            change.keep_leader()
        self.carry_out(partition, change, force=True)
        self.report(DamageFound(topic_partition=partition.name, broker_id=broker_id))

    def returned(self, partition: PartitionImage, broker_id: int, copy: ReturnedCopy) -> None:
        """A broker has registered anew, fenced, with the replica's log: as it was when it stopped,
        not certainly so, or another one.
        """
        self.reports.left(broker_id, partition)
        if broker_id in partition.isr:
            # A damaged last copy is never set aside, so this is that copy, mended by its owner.
            self.reports.mended(partition, (broker_id,))
        change = self.change(partition)
        if copy.is_the_lost:
            change.lost = {one: lost for one, lost in partition.lost.items() if one != broker_id}
        if broker_id in partition.holders:
            if copy.lost is not None:
                change.lost = {broker_id: copy.lost, **partition.lost}
            elif not copy.sound:
                change.suspects |= {broker_id}
        if partition.leader_id is not None or broker_id in change.lost:
            change.isr = without(change.isr, broker_id)
        self.keep_or_elect(partition, change)
        self.carry_out(partition, change)

    def told_end(
        self, partition: PartitionImage, broker_id: int, leader_epoch: int, end: LogEnd
    ) -> None:
        """A broker says how long its log is while nobody leads; that may be what was waited for."""
        if self.reports.told(partition, broker_id, leader_epoch, end):
            self.settle(partition)

    def carry_out(
        self,
        partition: PartitionImage,
        change: PartitionChange,
        *,
        proposed_by: int | None = None,
        force: bool = False,
    ) -> bool:
        """Write the change, if it is one; whether it was."""
        record = change.record(force=force)
        if record is None:
            return False
        isr, leader_id, replicas = partition.isr, partition.leader_id, partition.replicas
        ends, lost = self.reports.ends(partition), partition.lost
        self._check_transitions(partition, record)
        self._decision.write(record)
        if partition.reassigning:
            self.reassigning_changed[partition] = self._decision.next_offset
        if partition.isr != isr:
            self._decision.report(
                InSyncSetChanged(
                    topic_partition=partition.name,
                    partition_epoch=partition.partition_epoch,
                    before=isr,
                    after=partition.isr,
                    proposed_by=proposed_by,
                )
            )
        self._report_leader(partition, leader_id, change)
        if partition.topic.name in self._image.notes:
            self.losses.caught_up(partition, set(partition.isr).difference(isr))
            self.losses.gone(partition, set(replicas).difference(partition.replicas))
        if change.cause is ElectionCause.UNCLEAN and partition.leader_id is not None:
            self.losses.elected(partition, ends.get(partition.leader_id), lost)
        return True

    def attempt(self, partition: PartitionImage, decide: Callable[[], object]) -> None:
        """Decide on one partition among others; what would be illegal is left, and reported.

        Nothing of it is written then, and the others are decided all the same.
        """
        try:
            decide()
        except IllegalTransitionError as error:
            self.report(TransitionRefused(topic_partition=partition.name, message=str(error)))

    def report(self, incident: Incident) -> None:
        """Tell operators, once it is committed."""
        self._decision.report(incident)

    def _check_transitions(self, partition: PartitionImage, record: PartitionChangeRecord) -> None:
        """Hold the states that the record leads to against the tables, before it is written.

        Raises IllegalTransitionError.
        """
        state, next_state = partition_state(partition), partition_state_after(partition, record)
        if next_state is not state or state is PartitionState.ONLINE:
            move_partition(partition.name, state, next_state)
        if partition.reassigning or record.replicas is not None:
            # Without a reassignment a replica's state is its broker's, which is not decided here.
            after = partition.with_change(record)
            for replica in {*partition.replicas, *after.replicas}:
                self._check_replica(
                    partition.name,
                    replica,
                    replica_state(self._image, partition, replica),
                    replica_state(self._image, after, replica),
                )

    @staticmethod
    def _check_replica(
        name: TopicPartition, replica: int, state: ReplicaState, after: ReplicaState
    ) -> None:
        """One that comes is New on its way, one that goes is Offline."""
        if after is state:
            return
        if state is ReplicaState.ONLINE and after is ReplicaState.NEW:
            # It left the in-sync set before its move was complete, which the metadata do not tell
            # from one that has yet to join.
            after = ReplicaState.OFFLINE
        if after is ReplicaState.NON_EXISTENT and state is not ReplicaState.OFFLINE:
            state = move_replica(name, replica, state, ReplicaState.OFFLINE)
        if state is ReplicaState.NON_EXISTENT and after is not ReplicaState.NEW:
            state = move_replica(name, replica, state, ReplicaState.NEW)
        move_replica(name, replica, state, after)

    def _report_leader(
        self, partition: PartitionImage, before: int | None, change: PartitionChange
    ) -> None:
        if partition.leader_id is None:
            holders = partition.holders
            damaged = self.reports.damaged(partition)
            self._decision.report(
                PartitionOffline(
                    topic_partition=partition.name,
                    leader_epoch=partition.leader_epoch,
                    isr=partition.isr,
                    waiting_for=tuple(sorted(holders - damaged)),
                    unclean=tuple(sorted(partition.last_known_elr)),
                    damaged=tuple(sorted(damaged)),
                    lost=tuple(sorted(partition.lost)),
                )
            )
        elif change.cause is not None:
            self._decision.report(
                LeaderElected(
                    topic_partition=partition.name,
                    leader_id=partition.leader_id,
                    leader_epoch=partition.leader_epoch,
                    previous_leader_id=before,
                    isr=partition.isr,
                    told=change.told,
                    cause=change.cause,
                )
            )

    def change(self, partition: PartitionImage) -> PartitionChange:
        """The beginning of a change: as it is."""
        return PartitionChange(partition, self.reports.damaged(partition))

    def keep_or_elect(
        self, partition: PartitionImage, change: PartitionChange, *, unclean: bool | None = None
    ) -> None:
        """Complete a change by a leader: the one there is, if it may lead on, else one or none."""
        leader_id = partition.leader_id
        if (
            leader_id is not None
            and leader_id in change.isr
            and leader_id not in change.suspects
            and leader_id not in change.damaged
            and self.is_there(leader_id)
        ):
            return
        elr, suspects = change.vouchers()
        candidates = dataclasses.replace(
            self.candidates(partition),
            replicas=change.replicas,
            isr=change.isr,
            elr=elr,
            suspects=suspects,
            lost=change.lost,
            removing=change.removing,
        )
        change.elect(offline_partition(candidates, self.is_there, unclean=unclean))
        if not change.has_leader:
            change.keep_set()
