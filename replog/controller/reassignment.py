"""Moving replicas: one step after the other, each a record of its own, each resumable.

The steps of a reassignment from {1,2,3} to {4,5,6}, with what the metadata says after each:

    step                                     assigned        leader  in sync
    1-3   assigned := old + new; tell; New   {4,5,6,1,2,3}   1       {1,2,3}
    4-5   new catch up, the leader proposes  {4,5,6,1,2,3}   1       {1..6}       Online
    6-7   the leader moves to a new one      {4,5,6,1,2,3}   4       {1..6}
    8-9   the old leave the in-sync set      {4,5,6,1,2,3}   4       {4,5,6}      Offline
    10-12 assigned := new; tell              {4,5,6}         4       {4,5,6}      NonExistent

What is to be done next is read off the metadata alone, so that any controller goes on where another
one stopped; and only when the step before is committed, so that brokers have seen each of them.
Kafka takes the last three in one record.
"""

from __future__ import annotations

import enum
import functools

from replog.controller.incidents import ReassignmentCause, ReassignmentStepped
from replog.controller.leader_selection import reassigned_partition
from replog.controller.metadata_image import MetadataImage
from replog.controller.partition_control import PartitionControl
from replog.controller.partition_image import PartitionImage


class Step(enum.Enum):
    """What a reassignment needs next."""

    CATCH_UP = "the new replicas have to get in sync"
    SWITCH_LEADER = "a new replica has to lead"
    LEAVE = "the old replicas have to leave the in-sync set"
    COMPLETE = "the old replicas have to go"


def next_step(partition: PartitionImage) -> Step:
    """What comes next for a partition that is being reassigned."""
    target = partition.target
    if partition.leader_id is None or not set(target) <= set(partition.isr):
        return Step.CATCH_UP
    if partition.leader_id not in target:
        return Step.SWITCH_LEADER
    if not set(partition.isr).isdisjoint(partition.removing):
        return Step.LEAVE
    return Step.COMPLETE


class Reassignments:
    """Takes the steps of all reassignments under way."""

    def __init__(self, image: MetadataImage, partitions: PartitionControl) -> None:
        self._image = image
        self._partitions = partitions

    def resume(self) -> None:
        """Look at all of them again: another controller may have stopped between two steps."""
        for partition in self._image.reassigning:
            self._partitions.reassigning_changed[partition] = self._image.end_offset

    def start(self, partition: PartitionImage, target: tuple[int, ...]) -> None:
        """Begin, or turn to another target what is under way.

        Replicas that were added for the target before, and hold nothing that is committed yet, go
        at once. Those that do stay until the new target is in sync, both as added and as to be
        removed: calling the new move off must not bring either back.
        """
        original = self.original(partition)
        change = self._partitions.change(partition)
        gone = set(partition.adding) - set(target) - partition.holders
        change.removing = tuple(
            replica for replica in partition.replicas if replica not in {*target, *gone}
        )
        change.replicas = target + change.removing
        change.adding = tuple(sorted(set(change.replicas) - set(original)))
        if gone:
            change.keep_leader()
        self._partitions.carry_out(partition, change)
        if partition.reassigning:
            self._partitions.reassigning_changed[partition] = self._image.end_offset
        self._report(partition, ReassignmentCause.REQUESTED)

    def cancel(self, partition: PartitionImage) -> bool:
        """Go back to what was before, at once; False if too few replicas of that hold what is
        committed.

        Then nothing is changed: records that as many replicas have as the floor wants would be left
        on fewer, or on none (KAFKA-14424, contract C2).
        """
        original = self.original(partition)
        back = tuple(replica for replica in partition.isr if replica in original)
        holders = partition.holders
        floor = min(partition.topic.config.min_insync_replicas, len(original), len(holders))
        if not back or len(holders.intersection(original)) < floor:
            return False
        change = self._partitions.change(partition)
        change.replicas = original
        change.adding = change.removing = ()
        change.isr = back
        self._partitions.keep_or_elect(partition, change)
        if not change.names_leader:
            change.keep_leader()
        self._partitions.carry_out(partition, change)
        self._report(partition, ReassignmentCause.CANCELLED)
        return True

    def advance(self, committed: int) -> None:
        """Take the next step of each whose last change is committed."""
        changed = self._partitions.reassigning_changed
        ready = [partition for partition, offset in changed.items() if offset <= committed]
        for partition in ready:
            del changed[partition]
            if partition in self._image.reassigning:
                self._partitions.attempt(partition, functools.partial(self._step, partition))

    @staticmethod
    def original(partition: PartitionImage) -> tuple[int, ...]:
        """The replicas before the reassignment, or before the first of several that replaced each
        other; their order is the new one as far as it goes.
        """
        return tuple(replica for replica in partition.replicas if replica not in partition.adding)

    def _step(self, partition: PartitionImage) -> None:
        step = next_step(partition)
        change = self._partitions.change(partition)
        if step is Step.CATCH_UP:
            return
        if step is Step.SWITCH_LEADER:
            chosen = reassigned_partition(
                self._partitions.candidates(partition), self._image.is_live
            )
            if chosen is None:
                return
            change.elect(chosen)
        elif step is Step.LEAVE:
            change.isr = tuple(
                replica for replica in partition.isr if replica not in partition.removing
            )
        else:
            change.replicas = partition.target
            if partition.removing:
                change.keep_leader()
            change.adding = change.removing = ()
        self._partitions.carry_out(partition, change)
        self._report(partition, ReassignmentCause.STEPPED)

    def _report(self, partition: PartitionImage, cause: ReassignmentCause) -> None:
        if not partition.reassigning and cause is ReassignmentCause.STEPPED:
            cause = ReassignmentCause.COMPLETED
        self._partitions.report(
            ReassignmentStepped(
                topic_partition=partition.name,
                replicas=partition.replicas,
                leader_id=partition.leader_id,
                isr=partition.isr,
                adding=partition.joining,
                removing=partition.removing,
                cause=cause,
            )
        )
