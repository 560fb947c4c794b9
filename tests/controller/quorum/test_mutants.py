"""The checkers find known bugs: each mutant takes one guard away, and some seed's life shows it.

A safety rule whose removal nothing notices is either not needed or not tested.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from replog.controller.quorum import fetch_claim, leading, voting
from replog.controller.quorum.ballot import majority_of
from replog.controller.quorum.following import Following
from replog.controller.quorum.leading import Leading
from replog.controller.quorum.quorum import Quorum
from replog.controller.quorum.roles import Leader, Unattached, Voted
from replog.controller.quorum.standing import Standing
from replog.controller.quorum.voter_progress import VoterProgress
from replog.errors import InvariantViolation
from replog.messages import ErrorCode
from tests.controller.quorum.quorum_chaos import live
from tests.controller.quorum.quorum_checkers import Violation
from tests.controller.quorum.quorum_world import World

SEEDS = 60


def vote_again(patch):
    def grants(role, candidate_id, *, up_to_date):
        return up_to_date and isinstance(role, Unattached | Voted)

    patch.setattr(voting, "grants_vote", grants)


def vote_for_anybody(patch):
    patch.setattr(voting, "is_up_to_date", lambda _log, _request: True)


def forget_votes(patch):
    real = Standing.election_state.fget

    def without_vote(self):
        return dataclasses.replace(real(self), voted_id=None)

    patch.setattr(Standing, "election_state", property(without_vote))


def persist_after_answering(patch):
    real = Quorum._finish

    def finish(self, before, now_ms):
        effects = real(self, before, now_ms)
        return effects[1:] + effects[:1]

    patch.setattr(Quorum, "_finish", finish)


def commit_earlier_epochs(patch):
    def committed(end_offsets, epoch_start_offset):
        offset = sorted(end_offsets, reverse=True)[majority_of(len(end_offsets)) - 1]
        return offset if offset > 0 else None

    patch.setattr(leading, "committed_offset", committed)


def commit_by_a_minority(patch):
    def committed(end_offsets, epoch_start_offset):
        offset = sorted(end_offsets, reverse=True)[majority_of(len(end_offsets)) - 2]
        return offset if offset > epoch_start_offset else None

    patch.setattr(leading, "committed_offset", committed)


def serve_any_epoch(patch):
    real = Leading._refusal

    def refusal(self, replica_id, leader_epoch):
        error = real(self, replica_id, leader_epoch)
        return ErrorCode.NONE if error == ErrorCode.FENCED_LEADER_EPOCH else error

    patch.setattr(Leading, "_refusal", refusal)


def serve_without_a_look_at_the_claim(patch):
    patch.setattr(leading, "judge_claim", lambda _log, _offset, _epoch: None)


def judge_the_claim_by_offset_alone(patch):
    patch.setattr(fetch_claim, "check_claim", lambda _log, _offset, _epoch: None)


def lead_without_a_quorum(patch):
    patch.setattr(leading, "quorum_silent_since", lambda _contacts_ms: None)


def vouch_for_what_is_not_synced(patch):
    patch.setattr(Following, "_may_vouch", lambda _self: True)


def count_what_the_leader_has_not_synced(patch):
    patch.setattr(Leading, "_own_end_offset", lambda self: self._context.log.log_end_offset)


def lead_again_after_a_crash(patch):
    real = Standing.restore

    def restore(self, state, last_epoch, now_ms, **how):
        real(self, state, last_epoch, now_ms, **how)
        if state.leader_id == self.member_id and last_epoch == state.leader_epoch:
            self.role = Leader(
                leader_epoch=state.leader_epoch,
                leader_id=self.member_id,
                voted_id=self.member_id,
                epoch_start_offset=0,
                progress={v: VoterProgress(contact_ms=now_ms) for v in self.other_voters},
            )

    patch.setattr(Standing, "restore", restore)


def campaign_without_a_pre_vote(patch):
    real = Standing.become_prospective

    def become_prospective(self, now_ms):
        real(self, now_ms)
        for voter_id in self.voters:
            self.role.ballot.record(voter_id, granted=True)

    patch.setattr(Standing, "become_prospective", become_prospective)


def grant_pre_votes_against_a_living_leader(patch):
    patch.setattr(voting, "grants_pre_vote", lambda _role, *, up_to_date: up_to_date)


def vote_with_promises_forgotten(patch):
    real = Standing.__init__

    def init(self, *arguments, abstains=False):
        real(self, *arguments)

    patch.setattr(Standing, "__init__", init)


SHOWN_BY_SOME_SEED = {
    vote_again: "one vote an epoch",
    vote_for_anybody: "a leader has all that is committed",
    forget_votes: "one vote an epoch",
    persist_after_answering: "promises are persisted first",
    commit_earlier_epochs: "a record of the leader's own epoch",
    commit_by_a_minority: "synced by a majority",
    serve_any_epoch: "only a member of the leader's own epoch",
    serve_without_a_look_at_the_claim: "one record everywhere|never change|by a majority",
    judge_the_claim_by_offset_alone: "one record everywhere|never change|by a majority",
    lead_without_a_quorum: "a leader that no majority fetches from resigns",
    vouch_for_what_is_not_synced: "synced by a majority",
    count_what_the_leader_has_not_synced: "synced by a majority",
    vote_with_promises_forgotten: "one vote an epoch|a leader has all that is committed",
    lead_again_after_a_crash: "one run of one leader an epoch",
}
"""And the claim that it breaks first."""

FIRST_SEEDS = {forget_votes: 440}
"""Of those that one life in some hundreds shows: where to look."""


@pytest.mark.parametrize("mutant", SHOWN_BY_SOME_SEED, ids=lambda mutant: mutant.__name__)
def test_a_guard_that_is_taken_away_is_missed_within_a_few_lives(mutant, monkeypatch):
    mutant(monkeypatch)
    first = FIRST_SEEDS.get(mutant, 0)
    seeds = range(first, first + SEEDS)
    found = next(filter(None, map(broken_claim, seeds)), None)
    assert found is not None, f"{SEEDS} lives did not show {mutant.__name__}"
    assert re.search(SHOWN_BY_SOME_SEED[mutant], found)


def broken_claim(seed: int) -> str | None:
    try:
        live(seed, voters=3 if seed % 2 else 5)
    except (Violation, InvariantViolation) as broken:
        return str(broken)
    return None


def epochs_around_a_cut(*, from_leader_alone: bool) -> tuple[int, int]:
    """The epoch before a follower was cut off for long, and the one after."""
    world = World(3, seed=4)
    leader = world.elect()
    world.run_for(1000)
    before = leader.quorum.leader_epoch
    follower = next(member for member in world.members.values() if member is not leader)
    if from_leader_alone:
        world.cut |= {(leader.id, follower.id), (follower.id, leader.id)}
    else:
        world.isolate(follower.id)
    world.run_for(3000)
    world.heal()
    world.run_for(2000)
    return before, max(member.quorum.leader_epoch for member in world.members.values())


@pytest.mark.parametrize("from_leader_alone", [False, True])
def test_a_voter_that_was_cut_off_does_not_depose_the_leader(from_leader_alone):
    before, after = epochs_around_a_cut(from_leader_alone=from_leader_alone)
    assert after == before


@pytest.mark.parametrize(
    ("mutant", "from_leader_alone"),
    [
        (campaign_without_a_pre_vote, False),
        (campaign_without_a_pre_vote, True),
        (grant_pre_votes_against_a_living_leader, True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_without_the_rules_of_pre_votes_it_does(mutant, from_leader_alone, monkeypatch):
    mutant(monkeypatch)
    before, after = epochs_around_a_cut(from_leader_alone=from_leader_alone)
    assert after > before
