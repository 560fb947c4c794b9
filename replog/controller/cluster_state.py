"""All that the controller knows, and the one place where a step's changes become a version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from replog.controller.broker_state import BrokerState
from replog.controller.election import Elected
from replog.controller.incidents import (
    Incident,
    InSyncSetChanged,
    LeaderElected,
    PartitionOffline,
)
from replog.controller.metadata_history import MetadataHistory
from replog.controller.partition_state import PartitionState
from replog.registrations import BrokerRegistration, MetadataDelta, PartitionRegistration
from replog.types import TopicPartition

if TYPE_CHECKING:
    import uuid


class Topic(NamedTuple):
    """A topic's identity: the same name created again has another id."""

    topic_id: uuid.UUID
    partitions: tuple[TopicPartition, ...]


class ClusterState:
    """Brokers, topics and partitions; changes gather until `commit` gives them a version."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerState] = {}
        self.topics: dict[str, Topic] = {}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.incidents: list[Incident] = []
        self._held_by: dict[int, dict[TopicPartition, None]] = {}
        self._leaderless: set[TopicPartition] = set()
        self._history = MetadataHistory()
        self._changed_brokers: dict[int, None] = {}
        self._changed_partitions: dict[TopicPartition, None] = {}
        self._removed: list[tuple[TopicPartition, uuid.UUID]] = []

    @property
    def version(self) -> int:
        """The latest version that brokers may ask for."""
        return self._history.version

    @property
    def next_version(self) -> int:
        """The version that the changes of this step will have; a new broker's epoch."""
        return self._history.version + 1

    def is_live(self, broker_id: int) -> bool:
        """Whether its replicas may lead and be in sync."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.registration.eligible

    def registration_of(self, broker_id: int) -> BrokerRegistration | None:
        """What is registered of a broker."""
        broker = self.brokers.get(broker_id)
        return broker.registration if broker else None

    def held_by(self, broker_id: int) -> list[PartitionState]:
        """The partitions that a broker has a replica of, oldest first."""
        return [self.partitions[held] for held in self._held_by.get(broker_id, ())]

    def leaderless_held_by(self, broker_id: int) -> list[PartitionState]:
        """Those of them that nobody leads."""
        return [
            self.partitions[held]
            for held in sorted(self._leaderless)
            if broker_id in self.partitions[held].registration.replicas
        ]

    def broker_changed(self, broker_id: int) -> None:
        """This step has changed a broker's registration."""
        self._changed_brokers[broker_id] = None

    def add_topic(self, topic: str, registrations: Iterable[PartitionRegistration]) -> None:
        """Begin partitions; there is at least one."""
        names = []
        for registration in registrations:
            name = registration.topic_partition
            names.append(name)
            self.partitions[name] = PartitionState(registration)
            self._changed_partitions[name] = None
            for replica in registration.replicas:
                self._held_by.setdefault(replica, {})[name] = None
        self.topics[topic] = Topic(self.partitions[names[0]].registration.topic_id, tuple(names))

    def remove_topic(self, topic: str) -> None:
        """Forget a topic's partitions."""
        topic_id, names = self.topics.pop(topic)
        for name in names:
            for replica in self.partitions.pop(name).registration.replicas:
                del self._held_by[replica][name]
            self._leaderless.discard(name)
            self._changed_partitions.pop(name, None)
            self._removed.append((name, topic_id))

    def commit_isr(self, partition: PartitionState, isr: tuple[int, ...], leader_id: int) -> None:
        """Register a leader's proposal."""
        before = partition.registration
        partition.commit_isr(isr)
        self._report_change(partition, before, None, proposed_by=leader_id)

    def found_damaged(self, partition: PartitionState, broker_id: int) -> None:
        """A replica's log is corrupt: others take over where there are any."""
        before = partition.registration
        partition.found_damaged(broker_id)
        self._report_change(partition, before, partition.settle(self.is_live))

    def settle(self, partition: PartitionState, leaving: int | None = None) -> None:
        """Let the partition have the leader and in-sync set that the live brokers allow."""
        before = partition.registration
        self._report_change(partition, before, partition.settle(self.is_live, leaving))

    def commit(self) -> bool:
        """Give this step's changes the next version; False if there are none."""
        if not (self._changed_brokers or self._changed_partitions or self._removed):
            return False
        self._history.append(
            [self.brokers[changed].registration for changed in self._changed_brokers],
            [self.partitions[changed].registration for changed in self._changed_partitions],
            self._removed,
        )
        self._changed_brokers.clear()
        self._changed_partitions.clear()
        self._removed.clear()
        return True

    def deltas_after(self, version: int, broker_id: int) -> tuple[MetadataDelta, ...]:
        """What a broker that has applied `version` lacks; a snapshot first if it starts anew."""
        deltas = self._history.after(version)
        return (self._snapshot(version, broker_id),) if deltas is None else deltas

    def _snapshot(self, version: int, broker_id: int) -> MetadataDelta:
        removed = self._history.removed_after(version) if version else self._strays_of(broker_id)
        return MetadataDelta(
            version=self.version,
            brokers=tuple(self.brokers[known].registration for known in sorted(self.brokers)),
            partitions=tuple(known.registration for known in self.partitions.values()),
            removed_partitions=tuple(removed),
        )

    def _strays_of(self, broker_id: int) -> list[tuple[TopicPartition, uuid.UUID]]:
        """Logs that a starting broker has found of topics that are gone, by topic id."""
        broker = self.brokers.get(broker_id)
        return [
            (name, topic_id)
            for name, topic_id in (broker.logs_found if broker else ())
            if name not in self.partitions
            or self.partitions[name].registration.topic_id != topic_id
        ]

    def _report_change(
        self,
        partition: PartitionState,
        before: PartitionRegistration,
        elected: Elected | None,
        proposed_by: int | None = None,
    ) -> None:
        after = partition.registration
        if after is before:
            return
        name = after.topic_partition
        self._changed_partitions[name] = None
        if after.isr != before.isr:
            self.incidents.append(
                InSyncSetChanged(
                    topic_partition=name,
                    partition_epoch=after.partition_epoch,
                    before=before.isr,
                    after=after.isr,
                    proposed_by=proposed_by,
                )
            )
        if after.leader_id is None:
            self._leaderless.add(name)
            self.incidents.append(_offline(partition))
            return
        self._leaderless.discard(name)
        if elected is not None:
            self.incidents.append(
                LeaderElected(
                    topic_partition=name,
                    leader_id=elected.leader_id,
                    leader_epoch=after.leader_epoch,
                    previous_leader_id=before.leader_id,
                    isr=after.isr,
                    cause=elected.cause,
                )
            )


def _offline(partition: PartitionState) -> PartitionOffline:
    registration = partition.registration
    return PartitionOffline(
        topic_partition=registration.topic_partition,
        leader_epoch=registration.leader_epoch,
        isr=registration.isr,
        waiting_for=tuple(sorted(partition.holders - partition.damaged)),
        unclean=tuple(sorted(partition.unclean)),
        damaged=tuple(sorted(partition.damaged)),
    )
