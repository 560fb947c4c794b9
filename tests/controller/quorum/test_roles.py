"""Which role may follow which, walked over every pair and every step of the epoch."""

from __future__ import annotations

import itertools

import pytest

from replog.controller.quorum.ballot import Ballot, majority_of
from replog.controller.quorum.roles import (
    LATER,
    NEXT,
    SAME,
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
    Voted,
    check_transition,
)
from replog.errors import InvariantViolation

ME = 1
ROLES = (Unattached, Voted, Prospective, Candidate, Leader, Follower, Resigned)

# before: {after: how far the epoch may move}; "same", "next" (one later), "later" (one or more)
TABLE = {
    Unattached: {Unattached: "later", Voted: "same", Prospective: "same", Follower: "same later"},
    Voted: {Unattached: "later", Prospective: "same", Follower: "same later"},
    Prospective: {
        Unattached: "same later",
        Voted: "same",
        Candidate: "next",
        Follower: "same later",
    },
    Candidate: {
        Unattached: "later",
        Prospective: "same",
        Leader: "same",
        Follower: "same later",
    },
    Leader: {Unattached: "later", Follower: "later", Resigned: "same"},
    Follower: {Unattached: "later", Prospective: "same", Follower: "later"},
    Resigned: {Unattached: "later", Follower: "later"},
}


def make(kind, epoch, *, voted_id=None, leader_id=None):
    match kind.__name__:
        case "Unattached":
            return Unattached(leader_epoch=epoch, deadline_ms=0)
        case "Voted":
            return Voted(leader_epoch=epoch, voted_id=voted_id or 2, deadline_ms=0)
        case "Prospective":
            ballot = Ballot((1, 2, 3), ME)
            return Prospective(
                leader_epoch=epoch,
                leader_id=leader_id,
                voted_id=voted_id,
                ballot=ballot,
                deadline_ms=0,
            )
        case "Candidate":
            ballot = Ballot((1, 2, 3), ME)
            return Candidate(leader_epoch=epoch, voted_id=ME, ballot=ballot, deadline_ms=0)
        case "Leader":
            return Leader(
                leader_epoch=epoch, leader_id=ME, voted_id=ME, epoch_start_offset=0, progress={}
            )
        case "Follower":
            return Follower(
                leader_epoch=epoch, leader_id=leader_id or 3, voted_id=voted_id, deadline_ms=0
            )
        case _:
            return Resigned(
                leader_epoch=epoch,
                leader_id=ME,
                voted_id=ME,
                successors=(),
                unaware=set(),
                deadline_ms=0,
            )


def pair(before_kind, after_kind, step):
    """The later role keeps what the epoch has promised, where it can."""
    before = make(before_kind, 5)
    same = step == 0
    after = make(
        after_kind,
        5 + step,
        voted_id=before.voted_id if same else None,
        leader_id=before.leader_id if same else None,
    )
    return before, after


@pytest.mark.parametrize("before_kind", ROLES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("after_kind", ROLES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("step", [-1, 0, 1, 2])
def test_every_transition_is_as_the_table_says(before_kind, after_kind, step):
    words = TABLE[before_kind].get(after_kind, "")
    legal = (
        (step == 0 and "same" in words)
        or (step == 1 and "next" in words)
        or (step > 0 and "later" in words)
    )
    before, after = pair(before_kind, after_kind, step)
    if legal:
        check_transition(before, after, is_voter=True)
        return
    with pytest.raises(InvariantViolation) as refused:
        check_transition(before, after, is_voter=True)
    assert before_kind.__name__ in str(refused.value)
    assert after_kind.__name__ in str(refused.value)


def test_the_table_of_the_code_has_no_more_than_the_one_here():
    words = {SAME: "same", NEXT: "next", LATER: "later", SAME | LATER: "same later"}
    found = {key: words[step] for key, step in TRANSITIONS.items()}
    assert found == {(b, a): w for b, row in TABLE.items() for a, w in row.items()}


@pytest.mark.parametrize("after_kind", [Voted, Prospective, Candidate, Leader, Resigned])
def test_an_observer_never_campaigns_votes_or_leads(after_kind):
    for before_kind in ROLES:
        for step in (0, 1):
            before, after = pair(before_kind, after_kind, step)
            with pytest.raises(InvariantViolation):
                check_transition(before, after, is_voter=False)


def test_a_vote_stays_given_as_long_as_its_epoch_lasts():
    before = make(Voted, 5, voted_id=2)
    for forgetful in (make(Prospective, 5), make(Follower, 5), make(Follower, 5, voted_id=3)):
        with pytest.raises(InvariantViolation, match="a vote to stay given"):
            check_transition(before, forgetful, is_voter=True)


def test_the_leader_of_an_epoch_stays_the_same():
    before = make(Prospective, 5, leader_id=3)
    with pytest.raises(InvariantViolation, match="the leader of an epoch"):
        check_transition(before, make(Follower, 5, leader_id=2), is_voter=True)
    with pytest.raises(InvariantViolation, match="the leader of an epoch"):
        check_transition(before, make(Unattached, 5), is_voter=True)


@pytest.mark.parametrize("voters", range(1, 8))
def test_two_majorities_share_a_voter(voters):
    assert 2 * majority_of(voters) > voters
    assert 2 * (majority_of(voters) - 1) <= voters


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_a_ballot_counts_as_a_dumb_count_does(voters):
    """Method: every order-free combination of answers, against counting them by hand."""
    everybody = tuple(range(1, voters + 1))
    for answers in itertools.product([True, False, None], repeat=voters - 1):
        ballot = Ballot(everybody, 1)
        for voter, answer in zip(everybody[1:], answers, strict=True):
            if answer is not None:
                ballot.record(voter, granted=answer)
                ballot.record(voter, granted=not answer)
        granted, open_ = 1 + answers.count(True), answers.count(None)
        assert ballot.won == (granted * 2 > voters)
        assert ballot.lost == ((granted + open_) * 2 <= voters)
        assert len(ballot.granting) == granted
        assert len(ballot.unanswered) == open_


def test_a_ballot_counts_only_voters():
    ballot = Ballot((1, 2, 3), 1)
    ballot.record(9, granted=True)
    assert not ballot.won
    ballot.record(2, granted=True)
    assert ballot.won


def test_a_ballot_is_stuck_when_it_was_rejected_and_the_rest_cannot_be_reached():
    ballot = Ballot((1, 2, 3), 1)
    ballot.not_reached(3)
    assert not ballot.stuck
    ballot.record(2, granted=False)
    assert ballot.stuck
    assert not ballot.lost
    ballot.record(3, granted=True)
    assert ballot.won
    assert not ballot.stuck


def test_a_rejected_pre_vote_may_be_asked_for_again():
    ballot = Ballot((1, 2, 3), 1)
    ballot.record(2, granted=False)
    ballot.reopen(2)
    ballot.reopen(3)
    assert ballot.unanswered == [2, 3]
