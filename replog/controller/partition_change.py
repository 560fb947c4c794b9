"""One change of a partition: what shall be different, and the record that says so.

A change record carries what changes and nothing else. Who vouches for records follows from the new
in-sync set: see `partition_image` for the three sets. Naming the leader raises its epoch, also
where it stays the same because a replica left the assignment: that fences its fetches (as Kafka's
PartitionChangeBuilder).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from replog.controller.incidents import ElectionCause
from replog.controller.leader_selection import Selection
from replog.controller.partition_image import (
    LEADER_UNCHANGED,
    NO_LEADER,
    NO_LOST,
    RECOVERED,
    RECOVERING,
    RECOVERY_UNCHANGED,
    PartitionImage,
    directories_of,
)
from replog.errors import invariant
from replog.wire.metadata_records import PartitionChangeRecord


class PartitionChange:
    """What a partition shall be like; `record` compares with what it is.

    Set the fields, then ask for the record. `damaged` are replicas whose logs are known corrupt.
    """

    __slots__ = (
        "_before",
        "_leader",
        "_recovery",
        "adding",
        "cause",
        "damaged",
        "isr",
        "lost",
        "removing",
        "replicas",
        "suspects",
        "told",
    )

    def __init__(self, partition: PartitionImage, damaged: Collection[int] = ()) -> None:
        self._before = partition
        self.replicas = partition.replicas
        self.isr = partition.isr
        self.adding = partition.adding
        self.removing = partition.removing
        self.suspects = frozenset(partition.last_known_elr)
        self.lost = partition.lost
        """Replicas whose copy is gone, and which copy that was."""
        self.damaged = damaged
        self.cause: ElectionCause | None = None
        self.told: tuple[int, ...] = ()
        """Who acts on the election."""
        self._leader = LEADER_UNCHANGED
        self._recovery = RECOVERY_UNCHANGED

    @property
    def names_leader(self) -> bool:
        """Whether the leader epoch grows."""
        return self._leader != LEADER_UNCHANGED

    @property
    def has_leader(self) -> bool:
        """Whether somebody leads after the change."""
        if self._leader == LEADER_UNCHANGED:
            return self._before.leader_id is not None
        return self._leader != NO_LEADER

    def keep_set(self) -> None:
        """Let nobody leave the in-sync set but those whose copies are damaged or gone, and those
        that are replicas no more.

        Where nobody leads, nothing is committed without whoever would have left. What each member
        vouches for yet is told by suspects.
        """
        isr = [
            replica
            for replica in self._before.isr
            if replica in self.replicas and replica not in self.damaged and replica not in self.lost
        ]
        self.isr = tuple(isr) or self.isr

    def elect(self, selection: Selection | None) -> None:
        """Name the leader; None: nobody may lead."""
        partition = self._before
        if selection is None:
            if partition.leader_id is not None:
                self._leader = NO_LEADER
                self._recovery = RECOVERED if partition.recovering else RECOVERY_UNCHANGED
            return
        self._leader = selection.leader_id
        self.isr = selection.isr
        self.cause = selection.cause
        self.told = selection.told
        unclean = selection.cause is ElectionCause.UNCLEAN
        if unclean:
            self._recovery = RECOVERING
        elif partition.recovering:
            self._recovery = RECOVERED
        self.suspects -= {selection.leader_id}

    def recover(self) -> None:
        """The leader has made good what its unclean election broke."""
        self._recovery = RECOVERED

    def keep_leader(self) -> None:
        """Name the leader that is: fetches of the epoch before are fenced."""
        leader_id = self._before.leader_id
        self._leader = NO_LEADER if leader_id is None else leader_id

    def record(self, *, force: bool = False) -> PartitionChangeRecord | None:
        """What has changed; None if nothing has, unless `force` (the epoch grows then)."""
        before = self._before
        elr, last_known = self.vouchers()
        lost = self.lost_members()
        replicas = None if self.replicas == before.replicas else self.replicas
        isr = None if self.isr == before.isr else self.isr
        adding = None if self.adding == before.adding else self.adding
        removing = None if self.removing == before.removing else self.removing
        new_elr = None if elr == before.elr else elr
        new_last_known = None if last_known == before.last_known_elr else last_known
        directories = None
        if lost != before.lost:
            directories = directories_of(self.replicas, lost)
        invariant(
            bool(self.isr) and set(self.isr) <= set(self.replicas),
            "an in-sync set of assigned replicas that is not empty",
            partition=str(before.name),
            isr=self.isr,
            replicas=self.replicas,
        )
        unchanged = (
            self._leader == LEADER_UNCHANGED
            and self._recovery == RECOVERY_UNCHANGED
            and all(
                found is None
                for found in (
                    replicas,
                    isr,
                    adding,
                    removing,
                    new_elr,
                    new_last_known,
                    directories,
                )
            )
        )
        if unchanged and not force:
            return None
        return PartitionChangeRecord(
            partition_id=before.name.partition,
            topic_id=before.topic.raw_id,
            isr=isr,
            leader=self._leader,
            replicas=replicas,
            removing_replicas=removing,
            adding_replicas=adding,
            leader_recovery_state=self._recovery,
            directories=directories,
            eligible_leader_replicas=new_elr,
            last_known_elr=new_last_known,
        )

    def lost_members(self) -> Mapping[int, bytes]:
        """Members of the in-sync set whose copy is gone: none where somebody leads, whose copy is
        what counts.
        """
        if self.has_leader or not self.lost:
            return NO_LOST
        return {replica: copy for replica, copy in self.lost.items() if replica in self.isr}

    def vouchers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Who holds what is committed beside the in-sync set, and who did (`elr` and
        `last_known_elr` of the change): in assigned order.
        """
        before = self._before
        isr = frozenset(self.isr)
        floor = min(before.topic.config.min_insync_replicas, len(self.replicas))
        if len(isr) >= floor or self.cause is ElectionCause.UNCLEAN:
            # Enough replicas to commit, or only what the winner has counts from here on: others may
            # lack what is committed now.
            return (), self._in_order(self.suspects & isr)
        holders = before.holders - frozenset(self.damaged) - frozenset(self.lost) | isr
        suspects = self.suspects & holders
        return self._in_order(holders - isr - suspects), self._in_order(suspects)

    def _in_order(self, members: Iterable[int]) -> tuple[int, ...]:
        chosen = set(members)
        return tuple(replica for replica in self.replicas if replica in chosen)
