"""Who may lead a partition: a pure function of what the controller knows (facts 11.3).

`holders` is a superset of the in-sync set: the replicas that hold all that is committed. While the
in-sync set has at least `min_insync_replicas` members it is the in-sync set. When that shrinks
below the floor the high watermark stands still, so those that left keep holding all that is
committed, and stay holders until the set is large enough again (KIP-966 calls them eligible).

A replica back from an unclean stop may have lost its tail. Of any `min_insync_replicas` holders at
most all but one have (contract C2), so among that many the longest log, compared by (epoch of its
last record, end offset), still holds all that is committed. A damaged holder is one of those that
have lost: it counts among the many, and never leads.

Lengths are compared only as told since the partition lost its leader. Before that an unclean
replica follows, and what its log has grown by may be committed; the leader may even be cut off from
the controller, and go on with replicas that have registered anew meanwhile. A log whose records
were all deleted knows no epoch; beside one, end offsets alone are compared. That is enough among
holders: each has, or had before it lost its tail, all that is committed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from replog.controller.incidents import ElectionCause
from replog.types import NO_LEADER_EPOCH


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
class Elected:
    """The winner, and the in-sync set that its leadership begins with."""

    leader_id: int
    isr: tuple[int, ...]
    cause: ElectionCause


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What is known of a partition's replicas.

    Invariant: isr is a subset of holders, holders of replicas; unclean and damaged are disjoint.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    holders: frozenset[int]
    unclean: Mapping[int, LogEnd | None]
    """Holders that came back from an unclean stop, and how long their logs are; None: not told
    since the leader was lost."""
    damaged: frozenset[int]
    min_insync_replicas: int
    unclean_leader_election: bool


def elect(candidates: Candidates, is_live: Callable[[int], bool]) -> Elected | None:
    """The replica that may lead, by what vouches for it; None if none may."""
    sound = [
        replica
        for replica in candidates.replicas
        if is_live(replica) and replica not in candidates.damaged
    ]
    for replica in sound:
        if replica in candidates.isr and replica not in candidates.unclean:
            return Elected(replica, candidates.isr, ElectionCause.IN_SYNC)
    for replica in sound:
        if replica in candidates.holders and replica not in candidates.unclean:
            return Elected(replica, (replica,), ElectionCause.HOLDS_ALL_COMMITTED)
    longest = _longest(candidates)
    for replica in sound:
        if replica in longest:
            return Elected(replica, (replica,), ElectionCause.LONGEST)
    if candidates.unclean_leader_election and sound:
        return Elected(sound[0], (sound[0],), ElectionCause.UNCLEAN)
    return None


def _longest(candidates: Candidates) -> list[int]:
    """Unclean holders with the largest log, where enough of them have told theirs."""
    needed = min(candidates.min_insync_replicas, len(candidates.holders))
    ends = {replica: end for replica, end in candidates.unclean.items() if end is not None}
    back = len(ends) + len(candidates.damaged & candidates.holders)
    if not ends or back < needed:
        return []
    by_epoch = not any(end.is_emptied for end in ends.values())
    ranks = {
        replica: (end.latest_epoch if by_epoch else NO_LEADER_EPOCH, end.log_end_offset)
        for replica, end in ends.items()
    }
    largest = max(ranks.values())
    return [replica for replica, rank in ranks.items() if rank == largest]
