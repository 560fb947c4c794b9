"""One partition as the controller keeps it: its registration, and who can vouch for its records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from replog.controller.election import Candidates, Elected, LogEnd, elect
from replog.controller.incidents import ElectionCause
from replog.errors import invariant
from replog.registrations import PartitionRegistration


class PartitionState:
    """A partition's registration with the rules by which it changes.

    Every change raises `partition_epoch` by one, and `leader_epoch` exactly where it names the
    leader anew (facts 10.4): another leader, or none. Nothing ever lowers either.
    Invariant: isr is a non-empty subset of holders and holds the leader; unclean names holders
    only; who is damaged is no holder unless it is the last of the isr. While there is a leader no
    log end is known: logs grow, and controllers hear nothing of it.
    """

    __slots__ = ("damaged", "holders", "registration", "unclean")

    def __init__(self, registration: PartitionRegistration) -> None:
        self.registration = registration
        self.holders = frozenset(registration.isr)
        self.unclean: dict[int, LogEnd | None] = {}
        """Holders that may have lost their tails, with their log ends as told since the partition
        has had no leader; None before."""
        self.damaged: frozenset[int] = frozenset()

    def commit_isr(self, isr: tuple[int, ...]) -> None:
        """Grant the leader's proposal: who is in it has caught up, whatever it had lost before."""
        self.damaged -= set(isr)
        for replica in isr:
            self.unclean.pop(replica, None)
        self._register(isr=isr)

    def returned_sound(self, broker_id: int, log_end: LogEnd) -> None:
        """The replica came back from a clean stop: as good as it was, however good that is."""
        if broker_id in self.registration.isr:
            # A damaged last copy is never set aside, so this is that copy, mended by its owner.
            self.damaged -= {broker_id}
        if broker_id in self.unclean:
            self.unclean[broker_id] = self._final(log_end)

    def returned_unclean(self, broker_id: int, log_end: LogEnd) -> None:
        """The replica may have lost its tail: alone it vouches for nothing any more."""
        if broker_id in self.registration.isr:
            self.damaged -= {broker_id}
        if broker_id in self.holders:
            self.unclean[broker_id] = self._final(log_end)

    def told(self, broker_id: int, leader_epoch: int, log_end: LogEnd) -> bool:
        """Hear how long a replica's log is, that obeys this epoch; whether it is news that counts.

        It does where the epoch is the registered one and has no leader: such a log stands still.
        """
        if leader_epoch != self.registration.leader_epoch or broker_id not in self.unclean:
            return False
        before, self.unclean[broker_id] = self.unclean[broker_id], self._final(log_end)
        return self.unclean[broker_id] != before

    def found_damaged(self, broker_id: int) -> None:
        """The replica's log is corrupt: it vouches for nothing until it has caught up again.

        Changes the registration even if nobody leaves the in-sync set, so that a proposal made
        before the damage was found comes too late to count it in.
        """
        self.damaged |= {broker_id}
        self.unclean.pop(broker_id, None)
        self._register(isr=self._without(broker_id))

    def settle(self, is_live: Callable[[int], bool], leaving: int | None = None) -> Elected | None:
        """Take `leaving` out of the in-sync set, then keep the leader, else elect one or none.

        The last member of an in-sync set never leaves it: its copy is the one that counts. All of
        it is one change. Returns the election if there was one.
        """
        before = self.registration
        isr = before.isr if leaving is None else self._without(leaving)
        if self._may_stay(before.leader_id, isr, is_live):
            if isr != before.isr:
                self._register(isr=isr)
            return None
        elected = elect(self._candidates(isr), is_live)
        if elected is None:
            if isr != before.isr or before.leader_id is not None:
                self._register(isr=isr, names_leader=before.leader_id is not None)
            return None
        if elected.cause is ElectionCause.UNCLEAN:
            # Only what the winner has counts from here on; nobody holds more of it.
            self.holders = frozenset(elected.isr)
            self.unclean.clear()
        self.unclean.pop(elected.leader_id, None)
        self._register(isr=elected.isr, names_leader=True, elected=elected)
        return elected

    def _final(self, log_end: LogEnd) -> LogEnd | None:
        """What a log end is worth: nothing while a leader may make the log longer."""
        return None if self.registration.leader_id is not None else log_end

    def _may_stay(
        self, leader_id: int | None, isr: tuple[int, ...], is_live: Callable[[int], bool]
    ) -> bool:
        return (
            leader_id is not None
            and leader_id in isr
            and leader_id not in self.damaged
            and leader_id not in self.unclean
            and is_live(leader_id)
        )

    def _without(self, broker_id: int) -> tuple[int, ...]:
        isr = self.registration.isr
        return tuple(replica for replica in isr if replica != broker_id) or isr

    def _candidates(self, isr: tuple[int, ...]) -> Candidates:
        registration = self.registration
        return Candidates(
            replicas=registration.replicas,
            isr=isr,
            holders=self._holders_with(isr),
            unclean=self.unclean,
            damaged=self.damaged,
            min_insync_replicas=registration.min_insync_replicas,
            unclean_leader_election=registration.config.unclean_leader_election_enable,
        )

    def _holders_with(self, isr: tuple[int, ...]) -> frozenset[int]:
        if len(isr) >= self.registration.min_insync_replicas:
            return frozenset(isr)
        return (self.holders - self.damaged) | frozenset(isr)

    def _register(
        self, isr: tuple[int, ...], *, names_leader: bool = False, elected: Elected | None = None
    ) -> None:
        """One change record; with `names_leader` it names the elected leader, or none."""
        before = self.registration
        self.holders = self._holders_with(isr)
        for replica in [replica for replica in self.unclean if replica not in self.holders]:
            del self.unclean[replica]
        after = dataclasses.replace(before, isr=isr, partition_epoch=before.partition_epoch + 1)
        if names_leader:
            leader_epoch = before.leader_epoch + 1
            self.unclean = dict.fromkeys(self.unclean)
            unclean = elected is not None and elected.cause is ElectionCause.UNCLEAN
            after = dataclasses.replace(
                after,
                leader_id=elected.leader_id if elected else None,
                leader_epoch=leader_epoch,
                unclean=unclean,
                unclean_epoch=leader_epoch if unclean else before.unclean_epoch,
            )
        self.registration = after
        invariant(
            bool(isr) and self.holders.issuperset(isr) and set(isr) <= set(after.replicas),
            "a non-empty in-sync set among the holders",
            partition=str(before.topic_partition),
            isr=isr,
            holders=sorted(self.holders),
        )
