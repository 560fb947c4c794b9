"""A member without room for its promise stays where a crash would have left it, and goes on."""

from __future__ import annotations

import pytest

from replog.controller.quorum import effects as fx
from replog.controller.quorum.election_state import ElectionState
from replog.controller.quorum.events import PromiseFailed, QuorumRequestReceived
from replog.controller.quorum.incidents import PromiseRefused
from replog.controller.quorum.messages import (
    BeginQuorumEpochRequest,
    QuorumFetchRequest,
    QuorumFetchResponse,
    VoteRequest,
)
from replog.errors import NoSpaceError
from replog.messages import ErrorCode
from tests.controller.quorum.memory_quorum_log import MemoryQuorumLog
from tests.controller.quorum.single_member import OPTIONS, SingleMember

FULL = NoSpaceError("expected room for quorum-state, found the disk full; make room")


def vote(candidate, epoch):
    return VoteRequest(
        candidate_id=candidate, candidate_epoch=epoch, last_epoch=-1, log_end_offset=0
    )


def refusals(member):
    incidents = [effect.incident for effect in member.effects(fx.ReportQuorum)]
    return [incident for incident in incidents if isinstance(incident, PromiseRefused)]


@pytest.fixture
def follower():
    """Of voter 2 in epoch 3."""
    member = SingleMember(state=ElectionState(leader_epoch=3, leader_id=2))
    member.refuse_promise = FULL
    return member


def test_a_vote_that_cannot_be_written_down_is_not_given(follower):
    answer = follower.ask(vote(3, 4))
    assert not answer.vote_granted
    assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert answer.leader_epoch == 3, "the epoch that is on the disk"
    assert (follower.role_name, follower.quorum.leader_epoch) == ("Follower", 3)
    assert follower.persisted == ElectionState(leader_epoch=3, leader_id=2)


def test_it_is_given_to_whoever_asks_first_once_there_is_room(follower):
    follower.ask(vote(3, 4))
    follower.refuse_promise = None
    assert follower.ask(vote(2, 4)).vote_granted
    assert not follower.ask(vote(3, 4)).vote_granted
    assert follower.persisted.voted_id == 2


def test_a_leader_that_cannot_be_written_down_is_not_followed_until_there_is_room(follower):
    begun = BeginQuorumEpochRequest(leader_id=3, leader_epoch=4)
    assert follower.ask(begun).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert follower.quorum.leader_id == 2
    follower.refuse_promise = None
    assert follower.ask(begun).error is ErrorCode.NONE
    assert follower.quorum.leader_id == 3


def test_a_candidate_without_room_asks_for_no_votes_and_campaigns_again():
    member = SingleMember()
    member.wait(OPTIONS.election_timeout_ms)
    member.refuse_promise = FULL
    member.vote_on()
    assert (member.role_name, member.quorum.leader_epoch) == ("Unattached", 0)
    assert not member.has_sent(VoteRequest, 3) or member.take(VoteRequest, 3).request.pre_vote
    member.refuse_promise = None
    member.lead()
    assert member.persisted == ElectionState(leader_epoch=1, leader_id=1, voted_id=1)


def test_who_has_won_without_room_for_it_never_leads_that_epoch():
    """Its vote for itself is on the disk, that it leads is not."""
    member = SingleMember()
    member.campaign()
    member.refuse_promise = FULL
    member.vote_on()
    assert member.role_name == "Voted"
    assert not member.effects(fx.AppendLeaderChange)
    assert member.log.log_end_offset == 0
    member.refuse_promise = None
    member.lead()
    assert member.quorum.leader_epoch == 2


def test_a_leader_that_cannot_note_a_later_epoch_leads_no_more():
    member = SingleMember()
    member.lead()
    member.refuse_promise = FULL
    member.ask(vote(2, 7))
    assert (member.role_name, member.quorum.leader_epoch) == ("Resigned", 1)
    assert member.effects(fx.LeaderChanged)[-1] == fx.LeaderChanged(None, 1)
    assert member.quorum.leader_id is None


def test_the_only_voter_tries_again_now_and_then_and_leads_once_there_is_room():
    member = SingleMember(voters=(1,), full=FULL)
    assert member.role_name == "Unattached"
    assert member.quorum.next_deadline_ms == OPTIONS.election_timeout_ms
    member.wait(OPTIONS.election_timeout_ms * 3)
    assert member.role_name == "Unattached"
    assert len(refusals(member)) == 1
    member.refuse_promise = None
    member.wait(OPTIONS.election_timeout_ms)
    assert member.role_name == "Leader"


def test_it_is_said_once_for_as_long_as_there_is_no_room(follower):
    for epoch in (4, 5, 6):
        follower.ask(vote(3, epoch))
    assert refusals(follower) == [PromiseRefused(leader_epoch=3, error=FULL)]
    follower.refuse_promise = None
    follower.ask(vote(3, 7))
    follower.refuse_promise = FULL
    follower.ask(vote(2, 8))
    assert refusals(follower)[1:] == [PromiseRefused(leader_epoch=7, error=FULL)]


def test_others_are_asked_again_after_a_pause_alone(follower):
    """Goal: no storm. Whoever is asked at once tells of the later epoch at once."""
    sent = follower.take(QuorumFetchRequest, 2)
    follower.answer(sent, QuorumFetchResponse(leader_id=3, leader_epoch=4))
    assert not follower.has_sent(QuorumFetchRequest)
    follower.wait(OPTIONS.retry_backoff_ms)
    assert follower.has_sent(QuorumFetchRequest, 2)


def test_what_was_not_done_is_refused_and_what_is_committed_stays_so(follower):
    quorum = follower.quorum
    follower.refuse_promise = None
    quorum.step(QuorumRequestReceived(request_id=99, request=vote(3, 4)), 0)
    undone = (
        fx.AppendAsLeader(5, 4, ("a",)),
        fx.RefuseProposal(6, 3, 4),
        fx.SetHighWatermark(1),
        fx.TruncateLog(0),
    )
    effects = quorum.step(PromiseFailed(error=FULL, undone=undone), 0)
    assert fx.RefuseProposal(5, 2, 3) in effects
    assert fx.RefuseProposal(6, 2, 3) in effects
    assert fx.SetHighWatermark(1) in effects
    assert not [one for one in effects if isinstance(one, fx.TruncateLog | fx.AppendAsLeader)]


def test_records_that_no_sync_was_asked_for_are_synced_all_the_same():
    """Goal: a voter fetches on. Method: the sync is among what was not done."""
    log = MemoryQuorumLog([3])
    member = SingleMember(state=ElectionState(leader_epoch=3, leader_id=2), log=log)
    log.synced_end_offset = 0
    member.refuse_promise = FULL
    before = len(member.effects(fx.FlushLog))
    member.ask(vote(3, 4))
    assert len(member.effects(fx.FlushLog)) == before + 1
