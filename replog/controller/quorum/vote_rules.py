"""Whether a voter grants a vote, or a pre-vote, to a candidate of its own epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.quorum.roles import Follower, Leader, Prospective, Role, Unattached, Voted

if TYPE_CHECKING:
    from replog.controller.quorum.messages import VoteRequest
    from replog.controller.quorum.quorum_log import QuorumLog


def is_up_to_date(log: QuorumLog, request: VoteRequest) -> bool:
    """The candidate's log may be longer, or of a later epoch, but nothing older (Raft 5.4.1)."""
    theirs = (request.last_epoch, request.log_end_offset)
    return theirs >= (log.last_epoch, log.log_end_offset)


def grants_vote(role: Role, candidate_id: int, *, up_to_date: bool) -> bool:
    """One vote an epoch, for a log that has all we have, where no leader of it is known.

    The log is judged again when the same candidate asks again: it may have crashed in between and
    come back with less than it was elected for.
    """
    if not up_to_date:
        return False
    if isinstance(role, Unattached):
        return True
    if isinstance(role, Voted):
        return role.voted_id == candidate_id
    if isinstance(role, Prospective):
        return role.leader_id is None and role.voted_id in {None, candidate_id}
    return False


def grants_pre_vote(role: Role, *, up_to_date: bool) -> bool:
    """Nothing is promised; but whoever hears from a leader helps nobody to depose it (KIP-996).

    A follower that has not fetched yet grants: two that have both just lost their leader would
    otherwise tell each other of it for ever (KAFKA-17641).
    """
    if isinstance(role, Leader) or (isinstance(role, Follower) and role.in_touch):
        return False
    return up_to_date
