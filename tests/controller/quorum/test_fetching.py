"""How records, cuts, snapshots and the high watermark travel from the leader to the others."""

from __future__ import annotations

import pytest

from replog.controller.quorum import effects as fx
from replog.controller.quorum.election_state import ElectionState
from replog.controller.quorum.events import ResignWanted
from replog.controller.quorum.incidents import (
    FetchFailed,
    MetadataLogTruncated,
    OlderMetadataRefused,
)
from replog.controller.quorum.messages import (
    BeginQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumFetchRequest,
    QuorumFetchResponse,
    SnapshotId,
    SnapshotRead,
)
from replog.errors import InvalidRecordError
from replog.messages import ErrorCode, LogRead
from replog.types import EpochEndOffset
from tests.controller.quorum.memory_quorum_log import Entry, MemoryQuorumLog
from tests.controller.quorum.single_member import OPTIONS, SingleMember


def leader(**given):
    member = SingleMember(**given)
    member.lead()
    return member


def follower(epoch=1, **given):
    return SingleMember(state=ElectionState(leader_epoch=epoch, leader_id=2), **given)


# -- the leader's side


def test_a_fetch_is_answered_with_records_up_to_the_log_end_committed_or_not():
    member = leader()
    member.propose("a", "b")
    answer = member.fetch_as(offset=0)
    assert answer.records == LogRead(start_offset=0, end_offset=3, max_bytes=8 * 1024 * 1024)
    assert (answer.leader_id, answer.leader_epoch, answer.high_watermark) == (1, 1, -1)


def test_a_voters_fetch_at_the_end_waits_for_records():
    member = leader()
    assert member.fetch_as(2, high_watermark=1) is None
    member.propose("a")
    answer = member.answers[member.last_request_id]
    assert (answer.records.start_offset, answer.records.end_offset) == (1, 2)
    assert answer.high_watermark == 1


def test_an_observers_fetch_waits_for_the_commit_of_records_and_gets_both_at_once():
    member = leader()
    assert member.fetch_as(2, high_watermark=1) is None
    assert member.fetch_as(9, high_watermark=1) is None
    observer_request = member.last_request_id
    member.propose("a")
    member.flush()
    assert observer_request not in member.answers
    member.fetch_as(2, offset=2, high_watermark=1)
    answer = member.answers[observer_request]
    assert (answer.records.start_offset, answer.records.end_offset) == (1, 2)
    assert answer.high_watermark == 2


def test_an_observer_that_is_behind_what_is_committed_is_answered_at_once():
    member = leader()
    member.propose("a")
    member.flush()
    member.fetch_as(2, offset=2)
    answer = member.fetch_as(9, offset=1, high_watermark=1)
    assert (answer.records.start_offset, answer.records.end_offset) == (1, 2)


def test_a_fetch_that_waited_long_enough_is_answered_with_nothing():
    member = leader()
    assert member.fetch_as(high_watermark=1) is None
    member.wait(499)
    assert member.last_request_id not in member.answers
    member.wait(1)
    assert member.answers[member.last_request_id].records is None


def test_a_fetch_whose_records_were_cut_while_it_waited_is_told_of_the_snapshot():
    """Goal: a new leader commits nothing at first, but may take a snapshot of what it knows."""
    member = leader(log=MemoryQuorumLog([1, 1, 1]))
    member.log.high_watermark = 3
    assert member.fetch_as(9, offset=1, high_watermark=1) is None
    request = member.last_request_id
    member.log.take_snapshot()
    member.wait(OPTIONS.fetch_wait_max_ms)
    answer = member.answers[request]
    assert (answer.error, answer.snapshot_id, answer.records) == (0, SnapshotId(3, 1), None)


def test_a_fetch_that_does_not_want_to_wait_is_answered_at_once():
    assert leader().fetch_as(wait_ms_max=0).records is None


def test_a_waiting_fetch_hears_of_a_higher_high_watermark_at_once():
    """KIP-1166: otherwise followers would learn of commits only with the next records."""
    member = leader()
    assert member.fetch_as(9) is None
    observer_request = member.last_request_id
    member.fetch_as(2)
    assert member.quorum.high_watermark == 1
    assert member.answers[observer_request].high_watermark == 1


def test_a_second_fetch_of_a_member_takes_the_place_of_its_first():
    member = leader()
    assert member.fetch_as(9, high_watermark=1) is None
    first = member.last_request_id
    assert member.fetch_as(9, high_watermark=1) is None
    assert member.answers[first].records is None


def test_waiting_fetches_hear_that_the_leader_has_resigned():
    member = leader()
    assert member.fetch_as(9) is None
    member.step(ResignWanted(leader_epoch=1))
    answer = member.answers[member.last_request_id]
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


def test_nobody_waits_for_the_answer_to_a_member_that_is_gone():
    member = leader()
    assert member.fetch_as(9) is None
    member.lose(9)
    member.propose("a")
    assert member.last_request_id not in member.answers


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"offset": -1, "last_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": 2}, ErrorCode.INVALID_REQUEST),
        ({"replica_id": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_fetch_that_may_not_be_served_is_refused_and_counts_for_nothing(fields, error):
    member = leader()
    contact_ms = member.role.progress[2].contact_ms
    member.now_ms += 10
    answer = member.fetch_as(**{"last_epoch": 0 if "epoch" in fields else None, **fields})
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (error, 1, 1)
    assert member.role.progress[2].end_offset == -1
    if error != ErrorCode.INVALID_REQUEST:
        assert member.role.progress[2].contact_ms == contact_ms


def test_only_the_leader_is_fetched_from_and_others_tell_who_that_is():
    answer = follower(epoch=3).fetch_as(3)
    assert answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.leader_id, answer.leader_epoch) == (2, 3)


def test_a_log_that_parted_from_the_leaders_hears_where():
    member = leader(log=MemoryQuorumLog([1, 1, 3]))
    answer = member.fetch_as(offset=3, last_epoch=2)
    assert answer.diverging_epoch == EpochEndOffset(1, 2)
    assert answer.records is None
    assert member.role.progress[2].end_offset == -1


def test_offsets_are_committed_by_a_majority_that_has_synced_them():
    member = leader()
    member.propose("a")
    member.fetch_as(2, offset=2)
    assert member.quorum.high_watermark == 1, "the leader itself has synced only its first record"
    member.flush()
    assert member.quorum.high_watermark == 2
    assert member.log.high_watermark == 2


def test_observers_do_not_make_a_majority():
    member = leader()
    member.fetch_as(9)
    member.fetch_as(8)
    assert member.quorum.high_watermark == 0


def test_records_of_earlier_epochs_wait_for_one_of_the_leaders_own():
    member = leader(log=MemoryQuorumLog([1, 1]))
    member.fetch_as(2, offset=2)
    assert member.role.high_watermark is None
    member.fetch_as(2, offset=3)
    assert member.quorum.high_watermark == 3


def test_a_follower_that_steps_back_does_not_lower_the_high_watermark():
    member = leader()
    member.propose("a")
    member.flush()
    member.fetch_as(2, offset=2)
    member.fetch_as(2, offset=0)
    assert member.role.progress[2].end_offset == 0
    assert member.quorum.high_watermark == 2
    member.fetch_as(3, offset=1)
    assert member.role.high_watermark == 2


def test_a_proposal_is_refused_by_whoever_does_not_lead_that_epoch():
    member = leader()
    assert member.effects(fx.RefuseProposal, member.propose("a", epoch=0))
    other = follower(epoch=4)
    assert other.effects(fx.RefuseProposal, other.propose("a")) == [fx.RefuseProposal(7, 2, 4)]
    assert other.log.log_end_offset == 0


# -- snapshots, at the leader


def leader_with_snapshot():
    member = leader(log=MemoryQuorumLog([1, 1, 2]))
    member.fetch_as(2)
    member.log.take_snapshot()
    member.propose("behind it")
    return member, member.log.latest_snapshot


def test_whoever_is_too_far_behind_is_told_to_fetch_the_snapshot():
    member, snapshot_id = leader_with_snapshot()
    assert snapshot_id == SnapshotId(4, 3)
    assert member.fetch_as(3, offset=0).snapshot_id == snapshot_id
    assert member.fetch_as(3, offset=2, last_epoch=1).snapshot_id == snapshot_id
    assert member.fetch_as(3, offset=4, last_epoch=2).snapshot_id == snapshot_id
    assert member.fetch_as(3, offset=4, last_epoch=3).records is not None


@pytest.mark.parametrize(
    ("snapshot_id", "position", "epoch", "error"),
    [
        (SnapshotId(4, 3), 0, 3, ErrorCode.NONE),
        (SnapshotId(4, 3), 4, 3, ErrorCode.POSITION_OUT_OF_RANGE),
        (SnapshotId(4, 3), -1, 3, ErrorCode.POSITION_OUT_OF_RANGE),
        (SnapshotId(3, 3), 0, 3, ErrorCode.SNAPSHOT_NOT_FOUND),
        (SnapshotId(4, 3), 0, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (SnapshotId(4, 3), 0, 4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_snapshot_is_handed_out_in_pieces(snapshot_id, position, epoch, error):
    member, _ = leader_with_snapshot()
    answer = member.ask(
        FetchSnapshotRequest(
            replica_id=3,
            current_leader_epoch=epoch,
            snapshot_id=snapshot_id,
            position=position,
            max_bytes=2,
        )
    )
    assert (answer.error, answer.leader_epoch) == (error, 3)
    if error == ErrorCode.NONE:
        assert answer.size == 4
        assert answer.chunk == SnapshotRead(snapshot_id=snapshot_id, position=0, max_bytes=2)


def test_loading_a_snapshot_is_no_silence():
    member, snapshot_id = leader_with_snapshot()
    for _ in range(5):
        member.wait(1000)
        request = FetchSnapshotRequest(
            replica_id=3, current_leader_epoch=3, snapshot_id=snapshot_id, position=0
        )
        member.ask(request)
    assert member.role_name == "Leader"


# -- the follower's side


def test_a_follower_syncs_before_it_vouches_by_asking_for_more():
    member = follower()
    effects = member.fetched([Entry(1, "x"), Entry(1, "y")], high_watermark=1)
    assert fx.FlushLog() in effects
    assert not member.has_sent(QuorumFetchRequest)
    member.flush()
    asked = member.take(QuorumFetchRequest).request
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.high_watermark) == (2, 1, 1)


def test_an_observer_need_not_sync():
    member = follower(me=9)
    member.fetched([Entry(1, "x")], high_watermark=1)
    assert not member.effects(fx.FlushLog)
    assert member.take(QuorumFetchRequest).request.fetch_offset == 1
    assert member.quorum.high_watermark == 1


def test_a_voter_syncs_what_recovery_left_before_it_vouches_for_it():
    member = follower(log=MemoryQuorumLog([1, 1], synced=0))
    assert fx.FlushLog() in member.seen
    assert not member.has_sent(QuorumFetchRequest)
    member.flush()
    assert member.take(QuorumFetchRequest).request.fetch_offset == 2


def test_the_high_watermark_follows_the_leaders_within_the_log_and_never_falls():
    member = follower()
    member.fetched([Entry(1, "x")], high_watermark=5)
    assert member.quorum.high_watermark == 1
    member.flush()
    member.fetched([Entry(1, "y")], high_watermark=-1)
    member.flush()
    member.fetched(high_watermark=0)
    assert member.quorum.high_watermark == 1
    member.fetched(high_watermark=2)
    assert member.effects(fx.SetHighWatermark) == [fx.SetHighWatermark(1), fx.SetHighWatermark(2)]


def test_a_follower_cuts_where_its_log_parts_from_the_leaders():
    member = follower(epoch=5, log=MemoryQuorumLog([1, 1, 3, 3]))
    member.fetched(diverging_epoch=EpochEndOffset(2, 3))
    assert fx.TruncateLog(2) in member.seen
    (report,) = [
        effect.incident
        for effect in member.effects(fx.ReportQuorum)
        if isinstance(effect.incident, MetadataLogTruncated)
    ]
    assert (report.from_offset, report.to_offset) == (4, 2)
    asked = member.take(QuorumFetchRequest).request
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 1)


def test_a_follower_never_cuts_what_is_committed():
    member = follower(epoch=5, log=MemoryQuorumLog([1, 1, 3]))
    member.fetched(high_watermark=3)
    for _ in range(2):
        member.fetched(diverging_epoch=EpochEndOffset(1, 2))
        assert member.log.log_end_offset == 3
        member.wait(OPTIONS.request_timeout_ms)
    refused = [one.incident for one in member.seen if isinstance(one, fx.ReportQuorum)]
    (told,) = [one for one in refused if isinstance(one, OlderMetadataRefused)]
    assert "nothing of it from 2 on" in told.message


def test_answers_to_what_was_asked_in_an_earlier_role_are_ignored():
    member = follower()
    late = member.take(QuorumFetchRequest)
    member.wait(OPTIONS.fetch_timeout_ms)
    assert member.role_name == "Prospective"
    member.fetched([Entry(1, "x")], sent=late)
    assert member.log.log_end_offset == 0


def test_answers_of_an_earlier_leader_are_ignored():
    member = follower()
    late = member.take(QuorumFetchRequest)
    member.ask(BeginQuorumEpochRequest(leader_id=3, leader_epoch=2))
    response = QuorumFetchResponse(leader_id=2, leader_epoch=1, records=(Entry(1, "x"),))
    member.answer(late, response)
    assert member.log.log_end_offset == 0
    assert member.take(QuorumFetchRequest).member_id == 3


def test_an_answer_with_a_later_epoch_is_heeded_and_its_records_are_not():
    member = follower()
    response = QuorumFetchResponse(leader_id=3, leader_epoch=4, records=(Entry(4, "x"),))
    member.answer(member.take(QuorumFetchRequest), response)
    assert (member.quorum.leader_id, member.quorum.leader_epoch) == (3, 4)
    assert member.log.log_end_offset == 0
    assert member.persisted == ElectionState(leader_epoch=4, leader_id=3)


def test_a_voter_asks_the_others_who_leads_while_it_does_not_know():
    member = SingleMember()
    first = member.take(QuorumFetchRequest)
    assert first.request.wait_ms_max == 0
    response = QuorumFetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=0)
    member.answer(first, response)
    second = member.take(QuorumFetchRequest)
    assert {first.member_id, second.member_id} == {2, 3}
    found = QuorumFetchResponse(
        error=ErrorCode.UNKNOWN_LEADER_EPOCH, leader_id=first.member_id, leader_epoch=7
    )
    member.answer(second, found)
    assert member.quorum.leader_id == first.member_id
    assert member.take(QuorumFetchRequest).member_id == first.member_id


def test_an_observer_whose_leader_is_gone_asks_all_the_voters_in_turn():
    member = follower(me=9)
    member.fail(member.take(QuorumFetchRequest, 2))
    asked = []
    for _ in range(4):
        sent = member.take(QuorumFetchRequest)
        asked.append(sent.member_id)
        member.fail(sent)
        member.wait(OPTIONS.retry_backoff_ms)
    assert set(asked) == {1, 2, 3}


def test_an_observer_does_not_wait_for_ever_for_an_answer():
    member = follower(me=9)
    member.take(QuorumFetchRequest, 2)
    member.wait(OPTIONS.request_timeout_ms)
    assert member.has_sent(QuorumFetchRequest, 1)


def test_a_follower_that_hears_that_its_leader_does_not_lead_asks_for_pre_votes_soon():
    member = follower(epoch=4)
    response = QuorumFetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=4)
    member.answer(member.take(QuorumFetchRequest), response)
    member.wait(OPTIONS.retry_backoff_ms)
    assert member.role_name == "Prospective"


def test_records_that_cannot_be_appended_are_fetched_again_after_a_pause():
    member = follower()
    member.refuse_append = InvalidRecordError("torn")
    member.fetched([Entry(1, "x")])
    assert isinstance(member.effects(fx.ReportQuorum)[-1].incident, FetchFailed)
    assert not member.has_sent(QuorumFetchRequest)
    member.wait(OPTIONS.retry_backoff_ms)
    member.fetched([Entry(1, "x")])
    assert member.log.log_end_offset == 1


# -- snapshots, at the follower

SNAPSHOT = (Entry(1, "a"), Entry(1, "b"), Entry(2, "c"))
SNAPSHOT_ID = SnapshotId(3, 2)


def piece(position, chunk, **fields):
    return FetchSnapshotResponse(
        leader_id=2,
        leader_epoch=2,
        snapshot_id=fields.pop("snapshot_id", SNAPSHOT_ID),
        size=3,
        position=position,
        chunk=chunk,
        **fields,
    )


def loading():
    member = follower(epoch=2, log=MemoryQuorumLog([1]))
    member.fetched(snapshot_id=SNAPSHOT_ID)
    return member


def test_a_snapshot_is_loaded_piece_by_piece_and_the_log_goes_on_behind_it():
    member = loading()
    for position, chunk in ((0, SNAPSHOT[:2]), (2, SNAPSHOT[2:])):
        sent = member.take(FetchSnapshotRequest)
        assert (sent.member_id, sent.request.position) == (2, position)
        member.answer(sent, piece(position, chunk))
    assert fx.InstallSnapshot(SNAPSHOT_ID) in member.seen
    asked = member.take(QuorumFetchRequest).request
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (3, 2)
    assert member.quorum.high_watermark == 3


@pytest.mark.parametrize(
    "answer",
    [
        piece(0, (), error=ErrorCode.SNAPSHOT_NOT_FOUND),
        piece(1, SNAPSHOT[1:]),
        piece(0, SNAPSHOT, snapshot_id=SnapshotId(9, 2)),
        piece(0, ()),
    ],
)
def test_a_snapshot_that_cannot_be_loaded_is_begun_anew_by_a_fetch(answer):
    member = loading()
    member.answer(member.take(FetchSnapshotRequest), answer)
    assert not member.effects(fx.InstallSnapshot)
    member.wait(OPTIONS.retry_backoff_ms)
    assert member.has_sent(QuorumFetchRequest)
    assert not member.has_sent(FetchSnapshotRequest)


def test_a_leader_that_is_lost_takes_its_half_loaded_snapshot_with_it():
    member = loading()
    member.answer(member.take(FetchSnapshotRequest), piece(0, SNAPSHOT[:2]))
    member.ask(BeginQuorumEpochRequest(leader_id=3, leader_epoch=3))
    asked = member.take(QuorumFetchRequest)
    assert (asked.member_id, asked.request.fetch_offset) == (3, 1)


def test_a_snapshot_of_what_is_known_already_is_not_loaded():
    member = follower(epoch=2, log=MemoryQuorumLog([1, 1, 2]))
    member.fetched(high_watermark=3)
    member.fetched(snapshot_id=SNAPSHOT_ID)
    assert not member.has_sent(FetchSnapshotRequest)
