"""Which states a partition and a replica may be in, and which may follow which.

    NonExistent ──> New ──> Online <──> Offline ──> NonExistent
                     └──────────────────^

A New partition has replicas and no leader; an Online one is led; an Offline one is not. A New
replica may only follow, an Online one lead or follow; one that goes Offline leaves the in-sync set
unless it is its last member; one that is NonExistent has no files. States are read off the
metadata, so that they outlive whoever decided them; each decision is held against the table before
it is written.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from replog.controller.partition_image import LEADER_UNCHANGED, NO_LEADER
from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.controller.metadata_image import MetadataImage
    from replog.controller.partition_image import PartitionImage
    from replog.wire.metadata_records import PartitionChangeRecord


class PartitionState(enum.Enum):
    """Whether anybody leads."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


class ReplicaState(enum.Enum):
    """What a broker may do with a partition."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


_PARTITION = {
    PartitionState.NON_EXISTENT: {PartitionState.NEW},
    PartitionState.NEW: {PartitionState.ONLINE, PartitionState.OFFLINE},
    PartitionState.ONLINE: {PartitionState.ONLINE, PartitionState.OFFLINE},
    PartitionState.OFFLINE: {PartitionState.ONLINE, PartitionState.NON_EXISTENT},
}
_REPLICA = {
    ReplicaState.NON_EXISTENT: {ReplicaState.NEW},
    ReplicaState.NEW: {ReplicaState.ONLINE, ReplicaState.OFFLINE},
    ReplicaState.ONLINE: {ReplicaState.ONLINE, ReplicaState.OFFLINE},
    ReplicaState.OFFLINE: {ReplicaState.ONLINE, ReplicaState.NON_EXISTENT},
}


class IllegalTransitionError(ReplogError):
    """A decision would lead from a state to one that must not follow it; nothing is written."""


def move_partition(name: object, before: PartitionState, after: PartitionState) -> PartitionState:
    """`after`, if it may follow `before`. Raises IllegalTransitionError, which names both."""
    if after not in _PARTITION[before]:
        raise IllegalTransitionError(
            f"expected a legal transition of partition {name}, found {before.value} to "
            f"{after.value}; from {before.value} it may become "
            f"{' or '.join(sorted(state.value for state in _PARTITION[before]))}"
        )
    return after


def move_replica(
    name: object, broker_id: int, before: ReplicaState, after: ReplicaState
) -> ReplicaState:
    """Likewise, for the partition's replica on a broker."""
    if after not in _REPLICA[before]:
        raise IllegalTransitionError(
            f"expected a legal transition of the replica of {name} on broker {broker_id}, found "
            f"{before.value} to {after.value}; from {before.value} it may become "
            f"{' or '.join(sorted(state.value for state in _REPLICA[before]))}"
        )
    return after


def partition_state(partition: PartitionImage | None) -> PartitionState:
    """The state that the metadata says. New is between two records of one decision only."""
    if partition is None:
        return PartitionState.NON_EXISTENT
    return PartitionState.OFFLINE if partition.leader_id is None else PartitionState.ONLINE


def partition_state_after(
    partition: PartitionImage, record: PartitionChangeRecord
) -> PartitionState:
    """The state that the metadata will say once it has this record."""
    if record.leader == LEADER_UNCHANGED:
        return partition_state(partition)
    return PartitionState.OFFLINE if record.leader == NO_LEADER else PartitionState.ONLINE


def replica_state(
    image: MetadataImage, partition: PartitionImage | None, broker_id: int
) -> ReplicaState:
    """The state that the metadata says: a replica that a reassignment adds is New until it is in
    sync, one that it has taken out of the in-sync set for good is Offline.

    One that an earlier reassignment had added, and the present one takes away, was in sync, and is
    never New again: the one in its place may fall out of sync once more before it goes.
    """
    if partition is None or broker_id not in partition.replicas:
        return ReplicaState.NON_EXISTENT
    broker = image.brokers.get(broker_id)
    if broker is None or broker.registration.fenced:
        return ReplicaState.OFFLINE
    if broker_id not in partition.isr:
        if broker_id in partition.removing and set(partition.target) <= set(partition.isr):
            return ReplicaState.OFFLINE
        if broker_id in partition.joining:
            return ReplicaState.NEW
    return ReplicaState.ONLINE
