"""What is true of the simulated cluster, kept apart from the code under test.

Built from effects alone: what logs were told to do, what the controller registered, which
processes ran on which disks. The true high watermark is the highest that any leader has set;
`committed` holds the batches below it, in order, and never changes.
"""

from __future__ import annotations

import bisect
from typing import TypeAlias

from replog.registrations import BrokerRegistration, PartitionRegistration
from replog.testing.simulation.batches import StoredBatch
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_log import SimLog
from replog.types import TopicPartition

BatchKey: TypeAlias = tuple[int, int]
"""(base_offset, leader_epoch): two logs that have it in common are equal up to it (I4)."""


class PartitionTruth:
    """One partition of one topic id."""

    def __init__(self, registration: PartitionRegistration) -> None:
        self.name = registration.topic_partition
        self.registration = registration
        self.leader_of_epoch: dict[int, int | None] = {}
        self.epoch_starts: dict[int, int] = {}
        """Where the leader of each epoch began it."""
        self.committed: list[StoredBatch] = []
        self.committed_bases: list[int] = []
        self.high_watermark = 0
        """The true one."""
        self.log_start = 0
        """The highest that any leader has set."""
        self.low_watermark = 0
        """The highest that was answered: no live replica had anything below it then."""
        self.written: dict[BatchKey, tuple[StoredBatch, BatchKey | None]] = {}
        """Every batch ever written, with the one before it."""
        self.zombie_batches: set[BatchKey] = set()
        """Appended by a leader of the past when a replica followed a newer one."""
        self.accepted_epochs: dict[int, int] = {}
        """Broker -> the highest leader epoch, of those that have a leader, that it has obeyed as a
        member of the in-sync set; a loss of power takes nothing of it back."""
        self.had_enough_in_sync = False
        """`min_insync_replicas` were in sync with a leader once: from then on as many have copies
        of what is committed, before that nothing was promised."""

    @property
    def may_lose(self) -> bool:
        """Whether a replica that lacks what is committed may lead it."""
        return self.registration.config.unclean_leader_election_enable

    @property
    def newest_accepted_epoch(self) -> int:
        """Of all brokers."""
        return max(self.accepted_epochs.values(), default=-1)

    def accepted(self, broker_id: int, leader_epoch: int) -> None:
        """An in-sync replica has begun to obey this epoch and its leader."""
        known = self.accepted_epochs.get(broker_id, -1)
        self.accepted_epochs[broker_id] = max(known, leader_epoch)

    def committed_at(self, offset: int) -> StoredBatch | None:
        """The committed batch that holds `offset`."""
        place = bisect.bisect_right(self.committed_bases, offset) - 1
        if place < 0 or self.committed[place].last_offset < offset:
            return None
        return self.committed[place]

    def holds_committed(self, log: SimLog) -> bool:
        """Whether a log has all that is committed (or knows that it was deleted)."""
        end = self.high_watermark
        if log.log_end_offset < end:
            return False
        if end <= log.log_start_offset or not self.committed:
            return True
        last = self.committed[-1]
        found = log.batch_at(last.base_offset)
        return found is not None and found.leader_epoch == last.leader_epoch


class Truth:
    """The whole cluster."""

    def __init__(self, brokers: dict[int, SimBroker]) -> None:
        self.brokers = brokers
        self.partitions: dict[TopicPartition, PartitionTruth] = {}
        self.registered: dict[int, BrokerRegistration] = {}
        self.claims: dict[tuple[int, TopicPartition], int] = {}
        """(broker, partition) -> the epoch in which it acts as leader."""
        self.told: dict[tuple[int, TopicPartition], PartitionRegistration] = {}
        """The latest metadata that each broker has obeyed."""
        self.announced: dict[tuple[int, TopicPartition], tuple[int, ...]] = {}
        """The in-sync set that each broker has said it goes by."""
        self.at_risk: dict[int, dict[TopicPartition, int]] = {}
        """What a broker has lost and the controller cannot know yet: partition -> the incarnation
        that lost it. Nothing is asked of such a replica until a later one has registered."""
        self.incomplete: set[tuple[int, TopicPartition]] = set()
        """(broker, partition) of copies that have lost something and are not in sync since. Never
        iterated."""
        self.unclean: dict[int, int] = {}
        """Broker -> the incarnation that died without a marker, until a later one registers."""

    def log_of(self, broker_id: int, topic_partition: TopicPartition) -> SimLog | None:
        return self.brokers[broker_id].disk.logs.get(topic_partition)

    def vouches(self, broker_id: int, topic_partition: TopicPartition) -> bool:
        """Whether a member of an in-sync set must hold all that is committed now."""
        return topic_partition not in self.at_risk.get(broker_id, ())

    def truth_of(self, log: SimLog) -> PartitionTruth | None:
        """None for a log of a topic that was deleted, or whose name was given anew; or that may
        lose what is committed, and has no one truth: see `loose_truth_of`.
        """
        truth = self._found(log)
        return None if truth is None or truth.may_lose else truth

    def loose_truth_of(self, log: SimLog) -> PartitionTruth | None:
        """Of a log that may lose what is committed; None for any other."""
        truth = self._found(log)
        return truth if truth is not None and truth.may_lose else None

    def _found(self, log: SimLog) -> PartitionTruth | None:
        truth = self.partitions.get(log.topic_partition)
        if truth is None:
            return None
        held_id = self.brokers[log.broker_id].disk.topic_ids.get(log.topic_partition)
        topic_id = truth.registration.topic_id
        # Mostly the same object, and comparing two costs more than all the rest.
        return truth if held_id is topic_id or held_id == topic_id else None
