"""One partition as the metadata log tells it: who holds and leads it, and vouches for its records.

Changed by replaying records only (KIP-500): a change record raises `partition_epoch` by one, and
`leader_epoch` where it names the leader, even the same one (as Kafka's PartitionRegistration).
Nothing lowers either.

Three sets say who holds what is committed (KIP-966). `isr` does. While it is smaller than the floor
the high watermark stands still, so those that left it then do, too: `elr`. Members of either that
come back from an unclean stop, or damaged, may have lost their tails, and no one of them alone
vouches for anything: they move to `last_known_elr`. One of these may be in `isr`, too, since the
last member of an in-sync set never leaves it.

Whose copy is gone for good, since its broker came back with another directory or an older one,
leaves all three. The last member of an in-sync set stays in it, and `lost` says that it is not the
copy that is waited for: that one would be told by what stands there (`copy_identity`). The
metadata keep it as the replica's directory (KIP-858).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from replog.registrations import PartitionRegistration
from replog.types import NO_LEADER_EPOCH, TopicPartition
from replog.wire.metadata_records import PartitionChangeRecord, PartitionRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replog.controller.topic_image import TopicImage

NO_LEADER = -1
LEADER_UNCHANGED = -2
RECOVERED = 0
RECOVERING = 1
RECOVERY_UNCHANGED = -1
NOBODY: Mapping[int, tuple[int, int]] = {}
NO_LOST: Mapping[int, bytes] = {}
COPY_VERSION = 8
"""Of the UUIDs that stand for a lost copy."""
NO_COPY = bytes(16)
"""The directory of a replica whose copy is not lost: Kafka's "unassigned"."""


class PartitionImage:
    """Invariant: isr is a non-empty subset of replicas and holds the leader; elr is one that is
    disjoint with isr and last_known_elr; adding and removing are ones, too. A replica in both was
    added for a target that another one has replaced, and leaves.
    """

    __slots__ = (
        "_registration",
        "adding",
        "elr",
        "isr",
        "joined",
        "last_known_elr",
        "leader_epoch",
        "leader_id",
        "lost",
        "name",
        "partition_epoch",
        "recovering",
        "removing",
        "replicas",
        "topic",
        "unclean_epoch",
    )

    def __init__(self, topic: TopicImage, number: int) -> None:
        self.topic = topic
        self.name = TopicPartition(topic.name, number)
        self.replicas: tuple[int, ...] = ()
        """The first is the preferred leader; target replicas come before removing ones."""
        self.isr: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.elr: tuple[int, ...] = ()
        self.last_known_elr: tuple[int, ...] = ()
        self.lost: Mapping[int, bytes] = NO_LOST
        """Members of the in-sync set whose copy is gone, and which copy that was."""
        self.leader_id: int | None = None
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = -1
        self.recovering = False
        """The leader was elected from outside of all that vouch for records."""
        self.unclean_epoch = NO_LEADER_EPOCH
        """The latest leader epoch of which that was true."""
        self.joined = NOBODY
        """Replicas that a leader has counted in: at which offset of the metadata log, under which
        leader epoch. As far as records that were replayed here tell; a snapshot does not."""
        self._registration: PartitionRegistration | None = None

    @property
    def min_insync_replicas(self) -> int:
        """The floor: never above the replica count."""
        return min(self.topic.config.min_insync_replicas, len(self.replicas))

    @property
    def holders(self) -> frozenset[int]:
        """All that may hold what is committed: in sync, eligible, or back from an unclean stop."""
        return frozenset((*self.isr, *self.elr, *self.last_known_elr))

    @property
    def target(self) -> tuple[int, ...]:
        """Where the replicas are to be once a reassignment is complete."""
        if not self.removing:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def joining(self) -> tuple[int, ...]:
        """Replicas that a reassignment adds, and that are to stay."""
        return tuple(replica for replica in self.adding if replica not in self.removing)

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def registration(self) -> PartitionRegistration:
        """What brokers are told."""
        known = self._registration
        if known is None:
            known = self._registration = PartitionRegistration(
                topic_partition=self.name,
                topic_id=self.topic.topic_id,
                replicas=self.replicas,
                isr=self.isr,
                leader_id=self.leader_id,
                leader_epoch=self.leader_epoch,
                partition_epoch=self.partition_epoch,
                unclean=self.recovering,
                unclean_epoch=self.unclean_epoch,
                config=self.topic.config,
            )
        return known

    def forget_registration(self) -> None:
        """The topic's options have changed."""
        self._registration = None

    def replay(self, record: PartitionRecord) -> None:
        """Take the whole state; an unclean epoch told before it stays (see `records`)."""
        self.replicas = record.replicas
        self.isr = record.replicas if record.isr == record.replicas else record.isr
        self.removing = record.removing_replicas
        self.adding = record.adding_replicas
        self.elr = record.eligible_leader_replicas or ()
        self.last_known_elr = record.last_known_elr or ()
        self.lost = _lost_of(record.replicas, record.directories)
        self.leader_id = None if record.leader == NO_LEADER else record.leader
        self.leader_epoch = record.leader_epoch
        self.partition_epoch = record.partition_epoch
        if not (self.recovering and record.leader_recovery_state == RECOVERING):
            self._recovery(record.leader_recovery_state)
        self._registration = None

    def replay_change(self, record: PartitionChangeRecord, offset: int) -> None:
        """Take what has changed by the record at this offset, or behind it."""
        self.partition_epoch += 1
        if record.isr is not None:
            if record.leader == LEADER_UNCHANGED and not set(record.isr) <= set(self.isr):
                came = set(record.isr).difference(self.isr)
                self.joined = {**self.joined, **dict.fromkeys(came, (offset, self.leader_epoch))}
            self.isr = record.isr
        if record.replicas is not None:
            self.replicas = record.replicas
        if record.removing_replicas is not None:
            self.removing = record.removing_replicas
        if record.adding_replicas is not None:
            self.adding = record.adding_replicas
        if record.eligible_leader_replicas is not None:
            self.elr = record.eligible_leader_replicas
        if record.last_known_elr is not None:
            self.last_known_elr = record.last_known_elr
        if record.directories is not None:
            self.lost = _lost_of(self.replicas, record.directories)
        if record.leader != LEADER_UNCHANGED:
            self.leader_id = None if record.leader == NO_LEADER else record.leader
            self.leader_epoch += 1
        if record.leader_recovery_state != RECOVERY_UNCHANGED:
            self._recovery(record.leader_recovery_state)
        self._registration = None

    def has_joined_since(self, broker_id: int, offset: int, leader_epoch: int) -> bool:
        """Whether a leader of a later epoch has counted the replica in, behind the offset."""
        joined = self.joined.get(broker_id)
        return joined is not None and joined[0] > offset and joined[1] > leader_epoch

    def with_change(self, record: PartitionChangeRecord) -> PartitionImage:
        """What it would be after a change, as a copy."""
        after = copy.copy(self)
        after.replay_change(record, -1)
        return after

    def records(self) -> list[PartitionRecord]:
        """The state as records of a snapshot.

        Kafka's record has no place for `unclean_epoch`. It was the epoch of a recovering leader
        once, so a record that says so comes first; the one after it takes its place.
        """
        records = []
        if self.unclean_epoch not in {NO_LEADER_EPOCH, self.leader_epoch} or (
            self.unclean_epoch == self.leader_epoch and not self.recovering
        ):
            records.append(self._record(self.unclean_epoch, RECOVERING))
        records.append(self._record(self.leader_epoch, RECOVERING if self.recovering else 0))
        return records

    def _record(self, leader_epoch: int, recovery_state: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=self.name.partition,
            topic_id=self.topic.raw_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing,
            adding_replicas=self.adding,
            leader=NO_LEADER if self.leader_id is None else self.leader_id,
            leader_recovery_state=recovery_state,
            leader_epoch=leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=directories_of(self.replicas, self.lost) if self.lost else (),
            eligible_leader_replicas=self.elr or None,
            last_known_elr=self.last_known_elr or None,
        )

    def _recovery(self, state: int) -> None:
        self.recovering = state == RECOVERING
        if self.recovering:
            self.unclean_epoch = self.leader_epoch


def directories_of(replicas: tuple[int, ...], lost: Mapping[int, bytes]) -> tuple[bytes, ...]:
    """A directory for each replica, as records have them."""
    return tuple(lost.get(replica, NO_COPY) for replica in replicas)


def _lost_of(replicas: tuple[int, ...], directories: tuple[bytes, ...]) -> Mapping[int, bytes]:
    """Ids that Kafka has given are of version 4, and say nothing of a loss."""
    if not any(copy[6] >> 4 == COPY_VERSION for copy in directories):
        return NO_LOST
    named = zip(replicas, directories, strict=False)
    return {replica: copy for replica, copy in named if copy[6] >> 4 == COPY_VERSION}
