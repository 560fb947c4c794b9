"""What a member can be, one class each, and which role may follow which.

    Unattached --> Voted ------+                 an epoch without a known leader, vote free or given
        |            |         |
        +--> Prospective <--+  |                 would others elect me (pre-vote)? same epoch
                 |          |  |
             Candidate -----+  |                 elect me: the next epoch
                 |             |
              Leader --> Resigned                leads no more, and never again in this epoch
    any but a Leader or Resigned of the same epoch --> Follower
    any, on hearing of a later epoch --> Unattached or Follower

Observers are Unattached or Follower only. A role is left only as TRANSITIONS says; anything else
is a bug and names both roles.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, TypeAlias

from replog.controller.quorum.ballot import Ballot
from replog.controller.quorum.voter_progress import VoterProgress
from replog.errors import invariant

if TYPE_CHECKING:
    from replog.types import SnapshotId

NEVER_MS = 2**63 - 1
"""A deadline that does not come."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Unattached:
    """Knows an epoch, and no leader of it; its vote is free. Campaigns at `deadline_ms`."""

    leader_epoch: int
    deadline_ms: int
    leader_id: None = None
    voted_id: None = None


@dataclasses.dataclass(slots=True, kw_only=True)
class Voted:
    """Has given its vote in this epoch; `voted_id` is itself if it ran and then restarted."""

    leader_epoch: int
    voted_id: int
    deadline_ms: int
    leader_id: None = None


@dataclasses.dataclass(slots=True, kw_only=True)
class Prospective:
    """Asks whether it would be elected; what it knew and promised in this epoch stays so."""

    leader_epoch: int
    leader_id: int | None
    voted_id: int | None
    ballot: Ballot
    deadline_ms: int


@dataclasses.dataclass(slots=True, kw_only=True)
class Candidate:
    """Asks to be elected, and has voted for itself."""

    leader_epoch: int
    voted_id: int
    ballot: Ballot
    deadline_ms: int
    rejected: bool = False
    """It cannot be won as things are, and the deadline says so."""
    leader_id: None = None


@dataclasses.dataclass(slots=True, kw_only=True)
class Leader:
    """Leads this epoch, whose first record, the LeaderChange, is at `epoch_start_offset`."""

    leader_epoch: int
    leader_id: int
    voted_id: int
    epoch_start_offset: int
    progress: dict[int, VoterProgress]
    """Of the other voters, by id."""
    high_watermark: int | None = None
    """Unknown until a record of this epoch is committed. Never falls."""
    deadline_ms: int = NEVER_MS


@dataclasses.dataclass(slots=True, kw_only=True)
class Follower:
    """Fetches from the leader; a voter campaigns at `deadline_ms` if no fetch succeeds."""

    leader_epoch: int
    leader_id: int
    voted_id: int | None
    deadline_ms: int
    in_touch: bool = False
    """A fetch succeeded in this role, and nothing since says that the leader is gone."""
    has_answered: bool = False
    """A fetch has succeeded in this role."""
    leader_gone: bool = False
    """The leader resigned, or its connections were reset."""
    snapshot_id: SnapshotId | None = None
    """A snapshot on its way, whose bytes below `snapshot_position` are written."""
    snapshot_position: int = 0


@dataclasses.dataclass(slots=True, kw_only=True)
class Resigned:
    """Led this epoch. Its vote stays given; tells the others until they have heard it."""

    leader_epoch: int
    leader_id: int
    voted_id: int
    successors: tuple[int, ...]
    unaware: set[int]
    deadline_ms: int


Role: TypeAlias = Unattached | Voted | Prospective | Candidate | Leader | Follower | Resigned


class EpochStep(enum.Flag):
    """How the epoch may move in a transition."""

    SAME = enum.auto()
    NEXT = enum.auto()
    LATER = enum.auto()
    """Any later one, the next included."""


SAME, NEXT, LATER = EpochStep.SAME, EpochStep.NEXT, EpochStep.LATER

TRANSITIONS: dict[tuple[type[Role], type[Role]], EpochStep] = {
    (Unattached, Unattached): LATER,
    (Unattached, Voted): SAME,
    (Unattached, Prospective): SAME,
    (Unattached, Follower): SAME | LATER,
    (Voted, Unattached): LATER,
    (Voted, Prospective): SAME,
    (Voted, Follower): SAME | LATER,
    (Prospective, Unattached): SAME | LATER,
    (Prospective, Voted): SAME,
    (Prospective, Candidate): NEXT,
    (Prospective, Follower): SAME | LATER,
    (Candidate, Unattached): LATER,
    (Candidate, Prospective): SAME,
    (Candidate, Leader): SAME,
    (Candidate, Follower): SAME | LATER,
    (Leader, Unattached): LATER,
    (Leader, Follower): LATER,
    (Leader, Resigned): SAME,
    (Follower, Unattached): LATER,
    (Follower, Prospective): SAME,
    (Follower, Follower): LATER,
    (Resigned, Unattached): LATER,
    (Resigned, Follower): LATER,
}

VOTERS_ONLY = (Voted, Prospective, Candidate, Leader, Resigned)


def check_transition(before: Role, after: Role, *, is_voter: bool) -> None:
    """Raise InvariantViolation, naming both roles, unless the one may become the other."""
    allowed = TRANSITIONS.get((type(before), type(after)))
    step = after.leader_epoch - before.leader_epoch
    legal = allowed is not None and (
        (step == 0 and SAME in allowed)
        or (step == 1 and NEXT in allowed)
        or (step > 0 and LATER in allowed)
    )
    invariant(
        legal,
        "a legal transition between roles",
        before=type(before).__name__,
        before_epoch=before.leader_epoch,
        after=type(after).__name__,
        after_epoch=after.leader_epoch,
    )
    invariant(
        is_voter or not isinstance(after, VOTERS_ONLY),
        "an observer to be Unattached or Follower",
        after=type(after).__name__,
    )
    if step == 0:
        invariant(
            before.voted_id in {None, after.voted_id},
            "a vote to stay given as long as its epoch lasts",
            before=before.voted_id,
            after=after.voted_id,
            leader_epoch=after.leader_epoch,
        )
        invariant(
            before.leader_id in {None, after.leader_id},
            "the leader of an epoch to stay known as long as it lasts",
            before=before.leader_id,
            after=after.leader_id,
            leader_epoch=after.leader_epoch,
        )
