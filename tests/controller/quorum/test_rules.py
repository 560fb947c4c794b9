"""The rules that are functions of values: votes, commits, claims; against dumb twins."""

from __future__ import annotations

import itertools

import pytest

from replog.controller.quorum.commit_rules import committed_offset, quorum_silent_since
from replog.controller.quorum.fetch_claim import judge_claim
from replog.controller.quorum.messages import VoteRequest
from replog.controller.quorum.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
    Voted,
)
from replog.controller.quorum.vote_rules import grants_pre_vote, grants_vote, is_up_to_date
from replog.types import EpochEndOffset, SnapshotId
from tests.controller.quorum.memory_quorum_log import Entry, MemoryQuorumLog
from tests.controller.quorum.test_roles import make


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_committed_is_what_a_majority_has_and_reaches_past_the_epochs_start(voters):
    for ends in itertools.combinations_with_replacement(range(-1, 4), voters):
        for start in range(3):
            reached = [
                offset for offset in range(-1, 4) if sum(e >= offset for e in ends) * 2 > voters
            ]
            expected = max(reached) if reached and max(reached) > start else None
            for order in (ends, ends[::-1]):
                assert committed_offset(order, start) == expected


def test_records_of_earlier_epochs_are_committed_only_with_one_of_the_leaders_own():
    """Figure 8 of the Raft paper: a majority alone does not keep them from being overwritten."""
    epoch_start_offset = 3
    assert committed_offset([3, 3, 3, 1, 1], epoch_start_offset) is None
    assert committed_offset([4, 4, 3, 1, 1], epoch_start_offset) is None
    assert committed_offset([4, 4, 4, 1, 1], epoch_start_offset) == 4


@pytest.mark.parametrize(
    ("contacts_ms", "expected"),
    [((), None), ((5,), 5), ((5, 9), 9), ((5, 9, 7), 7), ((1, 2, 3, 4), 3)],
)
def test_a_quorum_is_silent_since_its_last_majority_was_complete(contacts_ms, expected):
    """With the leader itself: 2 of 2, 2 of 3, 3 of 4, 3 of 5."""
    assert quorum_silent_since(contacts_ms) == expected


def vote(epoch, end, *, pre_vote=False):
    return VoteRequest(
        candidate_id=2, candidate_epoch=9, last_epoch=epoch, log_end_offset=end, pre_vote=pre_vote
    )


@pytest.mark.parametrize(
    ("epoch", "end", "expected"),
    [(3, 4, True), (3, 5, True), (3, 3, False), (4, 1, True), (2, 9, False), (-1, 0, False)],
)
def test_a_log_is_compared_by_its_last_epoch_first(epoch, end, expected):
    log = MemoryQuorumLog([1, 1, 3, 3])
    assert is_up_to_date(log, vote(epoch, end)) is expected
    assert is_up_to_date(MemoryQuorumLog(), vote(epoch, end))


FREE = {Unattached, Prospective}


@pytest.mark.parametrize(
    "kind", [Unattached, Voted, Prospective, Candidate, Leader, Follower, Resigned]
)
def test_a_vote_is_given_once_an_epoch_to_a_log_that_has_all_of_ours(kind):
    assert grants_vote(make(kind, 5), 2, up_to_date=True) == (kind in {*FREE, Voted})
    assert grants_vote(make(kind, 5), 3, up_to_date=True) == (kind in FREE)
    assert not grants_vote(make(kind, 5), 2, up_to_date=False)


def test_a_prospective_voter_keeps_to_its_vote_and_its_leader():
    assert grants_vote(make(Prospective, 5, voted_id=2), 2, up_to_date=True)
    assert not grants_vote(make(Prospective, 5, voted_id=3), 2, up_to_date=True)
    assert not grants_vote(make(Prospective, 5, leader_id=3), 2, up_to_date=True)


def test_a_repeated_vote_request_is_judged_by_the_log_again():
    """The candidate may have crashed in between and lost what it was first elected for."""
    assert not grants_vote(make(Voted, 5, voted_id=2), 2, up_to_date=False)


@pytest.mark.parametrize("kind", [Unattached, Voted, Prospective, Candidate, Follower, Resigned])
def test_a_pre_vote_is_granted_by_whoever_does_not_hear_from_a_leader(kind):
    assert grants_pre_vote(make(kind, 5), up_to_date=True)
    assert not grants_pre_vote(make(kind, 5), up_to_date=False)


def test_a_pre_vote_is_rejected_by_the_leader_and_by_followers_that_have_fetched():
    follower = make(Follower, 5)
    follower.in_touch = True
    assert not grants_pre_vote(follower, up_to_date=True)
    assert not grants_pre_vote(make(Leader, 5), up_to_date=True)


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "expected"),
    [
        (0, -1, None),
        (2, 1, None),
        (4, 3, None),
        (3, 1, EpochEndOffset(1, 2)),
        (3, 2, EpochEndOffset(1, 2)),
        (9, 3, EpochEndOffset(3, 4)),
        (5, 7, EpochEndOffset(3, 4)),
        (3, -1, EpochEndOffset(-1, 0)),
    ],
)
def test_a_claim_is_judged_by_offset_and_epoch(fetch_offset, last_epoch, expected):
    log = MemoryQuorumLog([1, 1, 3, 3])
    assert judge_claim(log, fetch_offset, last_epoch) == expected


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "needs_snapshot"),
    [
        (0, -1, True),  # empty: the snapshot is shorter than the records
        (2, 1, True),  # below the log start
        (3, 1, True),  # at the log start, with another epoch than the snapshot's
        (3, 2, False),  # right behind the snapshot
        (4, 1, True),  # of an epoch that only the snapshot knew
        (4, 2, False),
        (5, 3, False),
    ],
)
def test_a_claim_from_before_the_log_start_needs_the_snapshot(
    fetch_offset, last_epoch, needs_snapshot
):
    """The log: epochs 1 1 2 | 2 3, cut behind offset 2."""
    log = MemoryQuorumLog([1, 1, 2, 2, 3])
    log.high_watermark = 3
    log.take_snapshot()
    found = judge_claim(log, fetch_offset, last_epoch)
    assert found == (SnapshotId(3, 2) if needs_snapshot else None)


def test_a_log_that_a_snapshot_began_is_followed_from_its_end():
    log = MemoryQuorumLog()
    log.write_chunk(0, [Entry(1, "a"), Entry(4, "b")])
    log.install(SnapshotId(2, 4))
    assert (log.last_epoch, log.log_end_offset) == (4, 2)
    assert judge_claim(log, 2, 4) is None
    assert judge_claim(log, 2, 3) == SnapshotId(2, 4)
