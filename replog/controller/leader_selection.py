"""Who may lead a partition, with which in-sync set, and who is to be told: four named strategies.

Pure functions of what is known of a partition's replicas (KIP-966).

| strategy               | leader                                  | new ISR             | told   |
|------------------------|-----------------------------------------|---------------------|--------|
| `offline_partition`    | live ISR, else ELR, else longest, else  | the live ISR, or    | live   |
|                        | where the topic allows it any live one  | just the new leader |        |
| `reassigned_partition` | the first live in-sync target replica   | unchanged           | target |
| `preferred_replica`    | the first assigned one, if in sync      | unchanged           | all    |
| `controlled_shutdown`  | live ISR without the leaving, else as   | without the leaving,| live   |
|                        | offline, but never any live one         | or just the leader  |        |

Suspects came back from an unclean stop, and may have lost their tails. Of any `floor` holders at
most all but one have (contract C2), so among that many the longest log, compared by (epoch of its
last record, end offset), still holds all that is committed. More than half of them must be back as
well: below that a few bad copies could be taken for the best there is, and the good ones, back a
moment later, be cut (C4). A damaged holder is one of those that have lost: it counts among the
many, and never leads. Lengths count only as told by brokers that obey the registration without a
leader: until then a leader that is cut off from the controller may still make the logs of its
followers longer. A log whose records were all deleted knows no epoch; beside one, end offsets alone
are compared. That is enough among holders: each has, or had before it lost its tail, all that is
committed.

A lost copy is none: its broker came back with another directory, or with what it had before. Only
where it is the last member of the in-sync set is it known as that, and waited for; it leads by
command, or where the topic allows any replica and no other one has a log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from replog.controller.incidents import ElectionCause
from replog.types import NO_LEADER_EPOCH

Live: TypeAlias = Callable[[int], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class LogEnd:
    """How long a replica's log is while nobody leads; the larger one holds more."""

    latest_epoch: int
    log_end_offset: int

    @property
    def is_emptied(self) -> bool:
        """All its records were deleted, so that nothing says in which epoch they were written."""
        return self.latest_epoch == NO_LEADER_EPOCH and self.log_end_offset > 0


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """The new leader, the in-sync set its leadership begins with, and who acts on it."""

    leader_id: int
    isr: tuple[int, ...]
    cause: ElectionCause
    told: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What is known of a partition's replicas.

    Invariant: isr is a subset of replicas; elr of them, too, and disjoint with isr and suspects.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    ends: Mapping[int, LogEnd] = dataclasses.field(default_factory=dict)
    """How long suspects' logs are, as told since nobody leads."""
    damaged: Collection[int] = ()
    lost: Collection[int] = ()
    leader_id: int | None = None
    removing: tuple[int, ...] = ()
    floor: int = 1
    unclean_allowed: bool = False

    @property
    def holders(self) -> frozenset[int]:
        """Who has held all that is committed, before it may have lost some of it."""
        return frozenset(self.isr) | frozenset(self.elr) | frozenset(self.suspects)

    def vouches(self, replica: int) -> bool:
        """Whether the replica's log is what it was when it was in sync."""
        return not (replica in self.suspects or replica in self.damaged or replica in self.lost)


def offline_partition(
    candidates: Candidates, is_live: Live, *, unclean: bool | None = None
) -> Selection | None:
    """A leader for a partition that has none, by what vouches for it; None if none may lead.

    unclean: whether any live replica will do at last; None leaves it to the topic.
    """
    live = tuple(filter(is_live, candidates.replicas))
    isr = tuple(
        replica for replica in candidates.isr if is_live(replica) and candidates.vouches(replica)
    )
    for replica in live:
        if replica in isr:
            return Selection(replica, isr, ElectionCause.IN_SYNC, live)
    for replica in live:
        if replica in candidates.elr and candidates.vouches(replica):
            return Selection(replica, (replica,), ElectionCause.HOLDS_ALL_COMMITTED, live)
    sound = [replica for replica in live if replica not in candidates.damaged]
    there = [replica for replica in sound if replica not in candidates.lost]
    may_lose = candidates.unclean_allowed if unclean is None else unclean
    longest = _longest(candidates)
    for replica in there:
        if replica in longest:
            # Fewer than the floor hold what is committed after an unclean election, and all may
            # have lost some of it: where that may be, followers are to cut theirs and tell.
            loses = may_lose and len(candidates.holders) < candidates.floor
            cause = ElectionCause.UNCLEAN if loses else ElectionCause.LONGEST
            return Selection(replica, (replica,), cause, live)
    if not may_lose:
        return None
    if not there and (unclean or not _others(candidates)):
        there = sound
    if there:
        return Selection(there[0], (there[0],), ElectionCause.UNCLEAN, live)
    return None


def reassigned_partition(candidates: Candidates, is_live: Live) -> Selection | None:
    """The leader among the replicas that a reassignment leads to."""
    target = _target(candidates)
    for replica in target:
        if _may_take_over(candidates, replica, is_live):
            return Selection(replica, candidates.isr, ElectionCause.REASSIGNED, target)
    return None


def preferred_replica(candidates: Candidates, is_live: Live) -> Selection | None:
    """The first assigned replica, where it may lead and does not yet."""
    first = candidates.replicas[0]
    if first == candidates.leader_id or not _may_take_over(candidates, first, is_live):
        return None
    return Selection(first, candidates.isr, ElectionCause.PREFERRED, candidates.replicas)


def controlled_shutdown(candidates: Candidates, is_live: Live, leaving: int) -> Selection | None:
    """Another leader before this one goes; `is_live` says of it that it lives, or not."""
    stays = without(candidates.isr, leaving)
    # It may not lead, but what is committed it holds: the longest of too few is not enough.
    leaves = (one for one in candidates.isr if one not in {*stays, *candidates.suspects})
    chosen = offline_partition(
        dataclasses.replace(candidates, isr=stays, elr=(*candidates.elr, *leaves)),
        lambda replica: replica != leaving and is_live(replica),
        unclean=False,
    )
    if chosen is None:
        return None
    if chosen.cause is ElectionCause.IN_SYNC:
        return dataclasses.replace(chosen, cause=ElectionCause.SHUT_DOWN)
    return chosen


def without(isr: tuple[int, ...], leaving: int) -> tuple[int, ...]:
    """The in-sync set without a member; the last one never leaves: its copy is what counts."""
    return tuple(replica for replica in isr if replica != leaving) or isr


def _target(candidates: Candidates) -> tuple[int, ...]:
    return tuple(replica for replica in candidates.replicas if replica not in candidates.removing)


def _may_take_over(candidates: Candidates, replica: int, is_live: Live) -> bool:
    return replica in candidates.isr and is_live(replica) and candidates.vouches(replica)


def enough_of(floor: int, holders: int) -> int:
    """How many holders that may have lost their tails must be back for the longest to lead."""
    return min(max(floor, holders // 2 + 1), holders)


def _others(candidates: Candidates) -> bool:
    """Whether a replica may be back some time that has a log."""
    gone = {*candidates.damaged, *candidates.lost}
    return not gone.issuperset(candidates.replicas)


def _longest(candidates: Candidates) -> list[int]:
    """Suspects with the largest log, where enough of them have told theirs."""
    ends = {
        replica: candidates.ends[replica]
        for replica in candidates.suspects
        if replica in candidates.ends and replica not in {*candidates.damaged, *candidates.lost}
    }
    holders = candidates.holders.difference(candidates.lost)
    back = len(ends) + sum(replica in holders for replica in candidates.damaged)
    if not ends or back < enough_of(candidates.floor, len(holders)):
        return []
    by_epoch = not any(end.is_emptied for end in ends.values())
    ranks = {
        replica: (end.latest_epoch if by_epoch else NO_LEADER_EPOCH, end.log_end_offset)
        for replica, end in ends.items()
    }
    largest = max(ranks.values())
    return [replica for replica, rank in ranks.items() if rank == largest]
