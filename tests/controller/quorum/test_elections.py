"""How a member votes, campaigns, wins, loses and resigns; and what it remembers over a crash."""

from __future__ import annotations

import pytest

from replog.controller.quorum import effects as fx
from replog.controller.quorum.election_state import ElectionState
from replog.controller.quorum.events import ResignWanted
from replog.controller.quorum.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    QuorumFetchRequest,
    VoteRequest,
    VoteResponse,
)
from replog.errors import InvalidRecordError, InvariantViolation, NoSpaceError, UsageError
from replog.messages import ErrorCode
from tests.controller.quorum.memory_quorum_log import MemoryQuorumLog
from tests.controller.quorum.single_member import OPTIONS, SingleMember


def vote(candidate=2, epoch=1, last_epoch=-1, end=0, *, pre_vote=False):
    return VoteRequest(
        candidate_id=candidate,
        candidate_epoch=epoch,
        last_epoch=last_epoch,
        log_end_offset=end,
        pre_vote=pre_vote,
    )


def state(epoch, *, leader=None, voted=None):
    return ElectionState(leader_epoch=epoch, leader_id=leader, voted_id=voted)


def follower(epoch=1, leader=2, **given):
    return SingleMember(state=state(epoch, leader=leader), **given)


def test_an_only_voter_elects_itself_at_once_and_commits_alone():
    member = SingleMember(voters=(1,))
    kinds = [type(effect) for effect in member.seen]
    assert kinds[0] is fx.PersistQuorumState
    assert member.persisted == state(1, leader=1, voted=1)
    assert member.effects(fx.AppendLeaderChange) == [fx.AppendLeaderChange(1, 1, (1,), (1,))]
    member.propose("a")
    member.flush()
    assert member.quorum.high_watermark == 2
    assert member.quorum.next_deadline_ms is None
    assert not member.sent


def test_an_only_voter_leads_again_after_a_crash_in_the_next_epoch():
    member = SingleMember(voters=(1,), state=state(4, leader=1, voted=1), log=MemoryQuorumLog([4]))
    assert (member.role_name, member.quorum.leader_epoch) == ("Leader", 5)


def test_a_voter_campaigns_when_no_leader_makes_itself_known():
    member = SingleMember(drawn=300)
    assert member.role_name == "Unattached"
    member.wait(OPTIONS.election_timeout_ms + 299)
    assert member.role_name == "Unattached"
    member.wait(1)
    assert member.role_name == "Prospective"
    asked = member.take(VoteRequest, 2).request
    assert asked == VoteRequest(
        candidate_id=1, candidate_epoch=0, last_epoch=-1, log_end_offset=0, pre_vote=True
    )
    assert member.persisted is None


def test_a_pre_vote_won_raises_the_epoch_and_asks_for_real_votes():
    member = SingleMember(log=MemoryQuorumLog([1, 2]))
    member.campaign()
    assert member.persisted == state(3, voted=1)
    asked = member.take(VoteRequest, 3).request
    assert (asked.candidate_epoch, asked.last_epoch, asked.log_end_offset) == (3, 2, 2)
    assert not asked.pre_vote


def test_the_vote_is_persisted_before_anybody_is_asked_or_answered():
    member = SingleMember()
    member.campaign()
    kinds = [type(effect) for effect in member.seen]
    last_vote = len(kinds) - 1 - kinds[::-1].index(fx.SendToMember)
    assert kinds.index(fx.PersistQuorumState) < last_vote
    voter = SingleMember()
    effects_before = len(voter.seen)
    voter.ask(vote())
    new = [type(effect) for effect in voter.seen[effects_before:]]
    assert new.index(fx.PersistQuorumState) < new.index(fx.RespondToMember)


def test_a_leader_begins_its_epoch_with_a_record_and_tells_the_voters():
    member = SingleMember(log=MemoryQuorumLog([1]))
    role = member.lead()
    assert role.epoch_start_offset == 1
    assert [entry.epoch for entry in member.log.entries] == [1, 2]
    assert member.effects(fx.AppendLeaderChange) == [fx.AppendLeaderChange(2, 1, (1, 2, 3), (1, 2))]
    for voter in (2, 3):
        begin = member.take(BeginQuorumEpochRequest, voter).request
        assert begin == BeginQuorumEpochRequest(leader_id=1, leader_epoch=2)
    assert member.effects(fx.LeaderChanged)[-1] == fx.LeaderChanged(1, 2, 1)


def test_a_grant_of_a_pre_vote_is_no_vote():
    """A grant that comes after the campaign has gone on does not elect anybody."""
    member = SingleMember()
    member.wait(member.role.deadline_ms)
    late = member.take(VoteRequest, 3)
    member.vote_on(2)
    member.answer(late, VoteResponse(leader_epoch=0, vote_granted=True))
    member.answer(late, VoteResponse(leader_epoch=1, vote_granted=True))
    assert member.role_name == "Candidate"


def test_votes_that_come_after_a_leader_is_known_are_ignored():
    member = SingleMember()
    member.campaign()
    late = member.take(VoteRequest, 3)
    member.ask(BeginQuorumEpochRequest(leader_id=2, leader_epoch=1))
    assert member.role_name == "Follower"
    member.answer(late, VoteResponse(leader_epoch=1, vote_granted=True))
    assert member.role_name == "Follower"
    assert member.persisted == state(1, leader=2, voted=1)


def test_a_candidate_that_is_rejected_campaigns_again_after_a_short_wait():
    member = SingleMember(drawn=3)
    member.campaign()
    member.vote_on(2, granted=False)
    member.vote_on(3, granted=False)
    assert member.role_name == "Candidate"
    member.wait(4)
    assert (member.role_name, member.quorum.leader_epoch) == ("Prospective", 1)
    assert member.persisted == state(1, voted=1)


def test_a_candidate_without_answers_asks_again_after_its_election_timeout():
    member = SingleMember()
    member.campaign()
    member.wait(OPTIONS.election_timeout_ms)
    assert member.role_name == "Prospective"


def test_a_pre_vote_that_is_lost_leaves_everything_as_it_was():
    for before in (None, state(3, voted=2), state(3, leader=2)):
        member = SingleMember(state=before)
        epoch, name = member.quorum.leader_epoch, member.role_name
        member.wait(member.role.deadline_ms)
        assert member.role_name == "Prospective"
        member.vote_on(2, granted=False)
        member.vote_on(3, granted=False)
        assert (member.quorum.leader_epoch, member.role_name) == (epoch, name)
        assert member.persisted == before


def test_whoever_is_asked_for_a_pre_vote_asks_again_the_voter_that_rejected_it():
    """It has lost the leader, too, since it told that it had one."""
    member = follower(leader=3)
    member.wait(member.role.deadline_ms)
    member.vote_on(2, granted=False, leader_id=3)
    assert not member.has_sent(VoteRequest, 2)
    member.ask(vote(2, epoch=1, pre_vote=True))
    assert member.role_name == "Prospective"
    assert member.take(VoteRequest, 2).request.pre_vote


def test_of_two_that_would_elect_each_other_the_later_in_line_stands_back():
    first, second = SingleMember(me=1), SingleMember(me=2)
    for member in (first, second):
        member.wait(member.role.deadline_ms)
    assert first.ask(vote(2, epoch=0, pre_vote=True)).vote_granted
    assert second.ask(vote(1, epoch=0, pre_vote=True)).vote_granted
    assert (first.role_name, second.role_name) == ("Prospective", "Unattached")


def test_a_pre_vote_promises_nothing():
    member = SingleMember(state=state(3))
    for candidate in (2, 3, 2):
        assert member.ask(vote(candidate, epoch=3, pre_vote=True)).vote_granted
    assert member.role_name == "Unattached"
    assert member.ask(vote(3, epoch=3)).vote_granted


def test_a_pre_vote_of_a_later_epoch_is_news_of_that_epoch():
    member = follower(epoch=3)
    assert member.ask(vote(3, epoch=5, pre_vote=True)).vote_granted
    assert (member.role_name, member.quorum.leader_epoch) == ("Unattached", 5)


def test_one_vote_an_epoch_and_again_only_to_the_same_candidate():
    member = SingleMember()
    assert member.ask(vote(2, epoch=4)).vote_granted
    assert not member.ask(vote(3, epoch=4)).vote_granted
    assert member.ask(vote(2, epoch=4)).vote_granted
    assert member.persisted == state(4, voted=2)
    assert member.ask(vote(3, epoch=5)).vote_granted


def test_a_crash_does_not_give_the_vote_back():
    member = SingleMember(state=state(4, voted=2))
    assert not member.ask(vote(3, epoch=4)).vote_granted
    assert member.ask(vote(2, epoch=4)).vote_granted


def test_a_candidate_comes_back_from_a_crash_with_its_vote_given():
    """What it lost with the crash it may have been granted votes for."""
    member = SingleMember(state=state(4, voted=1))
    assert member.role_name == "Voted"
    assert not member.ask(vote(2, epoch=4)).vote_granted
    member.campaign()
    assert member.quorum.leader_epoch == 5


def test_a_leader_comes_back_from_a_crash_resigned_and_never_leads_that_epoch_again():
    """KAFKA-10527: records that it lost would get their offsets and epoch a second time."""
    member = SingleMember(state=state(4, leader=1, voted=1), log=MemoryQuorumLog([4]))
    assert member.role_name == "Resigned"
    assert not member.ask(vote(2, epoch=4, last_epoch=3, end=9)).vote_granted
    assert member.has_sent(EndQuorumEpochRequest, 2)
    assert member.ask(vote(2, epoch=5, last_epoch=4, end=1)).vote_granted


def test_a_quorum_state_older_than_the_log_counts_for_nothing():
    member = SingleMember(state=state(2, voted=3), log=MemoryQuorumLog([2, 6]))
    assert (member.role_name, member.quorum.leader_epoch) == ("Unattached", 6)
    assert member.persisted == state(6)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(2, epoch=3), ErrorCode.FENCED_LEADER_EPOCH),
        (vote(9, epoch=6), ErrorCode.INCONSISTENT_VOTER_SET),
        (vote(1, epoch=6), ErrorCode.INCONSISTENT_VOTER_SET),
        (vote(2, epoch=6, last_epoch=6, end=1), ErrorCode.INVALID_REQUEST),
        (vote(2, epoch=6, last_epoch=7, end=1, pre_vote=True), ErrorCode.INVALID_REQUEST),
        (vote(2, epoch=6, end=-1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_vote_that_may_not_be_asked_for_is_refused_and_changes_nothing(request_, error):
    member = follower(epoch=5, leader=3)
    answer = member.ask(request_)
    assert (answer.error, answer.vote_granted) == (error, False)
    assert (answer.leader_id, answer.leader_epoch) == (3, 5)
    assert member.role_name == "Follower"


def test_an_observer_votes_for_nobody():
    member = SingleMember(me=9)
    assert member.ask(vote(2)).error == ErrorCode.INCONSISTENT_VOTER_SET
    member.wait(60_000)
    assert member.role_name == "Unattached"


def test_a_log_that_lacks_something_of_ours_gets_no_vote_but_its_epoch_is_heeded():
    member = SingleMember(log=MemoryQuorumLog([1, 1, 2]))
    assert not member.ask(vote(2, epoch=5, last_epoch=2, end=2)).vote_granted
    assert (member.role_name, member.quorum.leader_epoch) == ("Unattached", 5)
    assert member.ask(vote(3, epoch=5, last_epoch=2, end=3)).vote_granted


def test_an_election_deadline_that_ran_runs_on_when_the_epoch_is_raised():
    """Members that campaign with shorter logs cannot keep the one with the longest waiting."""
    member = SingleMember(log=MemoryQuorumLog([1, 1]))
    deadline_ms = member.role.deadline_ms
    member.wait(500)
    member.ask(vote(2, epoch=7, last_epoch=1, end=1))
    assert member.role.deadline_ms == deadline_ms


def test_a_leader_gives_way_to_a_later_epoch_and_refuses_votes_of_its_own():
    member = SingleMember()
    member.lead()
    assert not member.ask(vote(3, epoch=1)).vote_granted
    assert member.role_name == "Leader"
    assert member.ask(vote(3, epoch=2, last_epoch=1, end=9)).vote_granted
    assert member.role_name == "Voted"


def test_a_follower_asks_for_pre_votes_when_the_leader_is_silent():
    member = follower()
    member.wait(OPTIONS.fetch_timeout_ms)
    assert member.role_name == "Prospective"
    assert member.quorum.leader_id == 2


def test_a_follower_whose_leaders_connections_are_reset_does_not_wait_for_the_timeout():
    member = follower(drawn=5)
    member.fetched()
    assert not member.ask(vote(3, epoch=1, pre_vote=True)).vote_granted
    member.lose(2)
    assert member.ask(vote(3, epoch=1, pre_vote=True)).vote_granted
    member.wait(5)
    assert member.role_name == "Prospective"


def test_a_leader_that_answers_again_is_followed_on():
    member = follower(drawn=19)
    member.lose(2)
    member.wait(0)
    member.now_ms += 10
    member.step(ResignWanted(leader_epoch=99))
    member.wait(10)
    member.vote_on(3, granted=False, leader_id=2)
    member.vote_on(2, granted=False, leader_id=2)
    assert member.role_name == "Follower"
    member.fetched()
    assert member.role.in_touch


@pytest.mark.parametrize("known", [state(4, leader=2), state(4), state(4, voted=3), state(3)])
def test_the_first_successor_campaigns_as_soon_as_the_leader_resigns(known):
    member = SingleMember(state=known)
    end = EndQuorumEpochRequest(leader_id=2, leader_epoch=4, preferred_successors=(1, 3))
    assert member.ask(end).error == ErrorCode.NONE
    assert member.role_name == "Prospective"
    assert member.quorum.leader_epoch == 4


def test_later_successors_wait_for_the_first():
    member = follower(epoch=4)
    member.ask(EndQuorumEpochRequest(leader_id=2, leader_epoch=4, preferred_successors=(3, 1)))
    assert member.role_name == "Follower"
    member.wait(2 * OPTIONS.retry_backoff_ms)
    assert member.role_name == "Prospective"


def test_the_end_of_an_older_epoch_is_no_news():
    member = follower(epoch=5, leader=3)
    answer = member.ask(EndQuorumEpochRequest(leader_id=2, leader_epoch=4))
    assert answer.error == ErrorCode.FENCED_LEADER_EPOCH
    assert (answer.leader_id, answer.leader_epoch) == (3, 5)
    assert not member.role.leader_gone


def test_a_leader_that_resigns_names_the_longest_log_first_and_tells_until_all_have_heard():
    member = SingleMember()
    member.lead()
    member.propose("a")
    member.fetch_as(3, offset=1)
    member.fetch_as(2, offset=0)
    member.step(ResignWanted(leader_epoch=1))
    assert member.role_name == "Resigned"
    assert member.quorum.leader_id is None
    heard, lost = member.take(EndQuorumEpochRequest, 2), member.take(EndQuorumEpochRequest, 3)
    assert heard.request.preferred_successors == (3, 2)
    member.answer(heard, EndQuorumEpochResponse(leader_epoch=1))
    member.fail(lost)
    member.wait(OPTIONS.retry_backoff_ms)
    assert member.has_sent(EndQuorumEpochRequest, 3)
    assert not member.has_sent(EndQuorumEpochRequest, 2)


def test_a_resigned_leader_campaigns_again_in_a_later_epoch():
    member = SingleMember()
    member.lead()
    member.step(ResignWanted(leader_epoch=1))
    member.wait(OPTIONS.election_timeout_ms)
    assert (member.role_name, member.quorum.leader_epoch) == ("Unattached", 2)
    member.campaign()
    assert member.quorum.leader_epoch == 3


def test_a_wish_to_resign_an_older_epoch_is_ignored():
    member = SingleMember()
    member.lead()
    member.step(ResignWanted(leader_epoch=0))
    assert member.role_name == "Leader"


def test_a_leader_that_no_majority_fetches_from_resigns():
    member = SingleMember(voters=(1, 2, 3, 4, 5))
    member.wait(member.role.deadline_ms)
    member.vote_on(2)
    member.vote_on(3)
    member.vote_on(2)
    member.vote_on(3)
    limit_ms = OPTIONS.fetch_timeout_ms * 3 // 2
    member.wait(1000)
    member.fetch_as(2)
    member.fetch_as(3)
    member.wait(limit_ms - 1)
    assert member.role_name == "Leader"
    member.fetch_as(2)
    member.wait(1)
    assert member.role_name == "Resigned"


def test_a_voter_that_does_not_fetch_is_told_of_the_epoch_again():
    member = SingleMember()
    member.lead()
    begun = member.take(BeginQuorumEpochRequest, 3)
    member.take(BeginQuorumEpochRequest, 2)
    member.fail(begun)
    member.wait(900)
    member.fetch_as(2)
    member.wait(200)
    assert member.has_sent(BeginQuorumEpochRequest, 3)
    assert not member.has_sent(BeginQuorumEpochRequest, 2)


def test_a_leader_whose_disk_is_full_resigns_but_a_bad_proposal_is_not_its_fault():
    member = SingleMember()
    member.lead()
    member.refuse_append = InvalidRecordError("a bad batch")
    member.propose("bad")
    assert member.role_name == "Leader"
    member.refuse_append = NoSpaceError("full")
    member.propose("good")
    assert member.role_name == "Resigned"


def test_a_candidate_that_cannot_write_its_first_record_does_not_lead():
    member = SingleMember()
    member.campaign()
    member.refuse_append = InvalidRecordError("whatever")
    member.vote_on()
    assert member.role_name == "Resigned"


def test_two_leaders_of_one_epoch_are_a_bug_that_stops_the_member():
    member = follower(epoch=4, leader=2)
    with pytest.raises(InvariantViolation, match="one leader an epoch"):
        member.ask(BeginQuorumEpochRequest(leader_id=3, leader_epoch=4))


def test_somebody_who_is_no_voter_cannot_claim_to_lead():
    member = follower(epoch=4)
    answer = member.ask(BeginQuorumEpochRequest(leader_id=9, leader_epoch=8))
    assert answer.error == ErrorCode.INCONSISTENT_VOTER_SET
    assert member.quorum.leader_epoch == 4


def test_a_tick_that_comes_early_does_nothing():
    member = SingleMember()
    member.take(QuorumFetchRequest)
    assert not member.wait(100)


@pytest.mark.parametrize("voters", [(), (1, 1)])
def test_a_quorum_needs_voters_each_once(voters):
    with pytest.raises(UsageError, match="at least one voter"):
        SingleMember(voters=voters)
