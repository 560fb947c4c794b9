"""The following side: what each answer of a leader makes of the log, and what it never does."""

import pytest

from replog import errors
from replog.messages import (
    ErrorCode,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    OffsetSpec,
)
from replog.replication import events as ev
from replog.replication.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    SendRequest,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateLog,
    TruncationCause,
)
from replog.replication.follower import FollowerPhase
from replog.replication.incidents import (
    AppendRefused,
    Fenced,
    LogTruncated,
    ReplicaFailed,
)
from replog.types import EpochEndOffset, TopicPartition
from tests.replication.alone import Alone
from tests.replication.core_cluster import PARTITION
from tests.replication.memory_log import MemoryLog, MemoryRecord

BACKOFF_MS = 1000


def records(start, epochs):
    return tuple(MemoryRecord(start + at, epoch, "r") for at, epoch in enumerate(epochs))


def test_first_fetch_carries_our_end_epoch_and_start():
    alone = Alone(MemoryLog([1, 1, 3], start=4))
    request = alone.asked()
    (asked,) = request.partitions
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (7, 3, 4)
    assert asked.current_leader_epoch == 5
    assert (request.replica_id, request.broker_epoch, request.session_epoch) == (2, 2, 0)


def test_records_are_appended_before_the_high_watermark_is_taken():
    alone = Alone(MemoryLog([4]))
    effects = alone.answer(records=records(1, [5, 5]), high_watermark=3)
    assert [type(effect) for effect in effects] == [AppendAsFollower, SetHighWatermark]
    assert alone.log.high_watermark == 3
    assert alone.asked().partitions[0].fetch_offset == 3


def test_high_watermark_of_the_leader_is_taken_as_far_as_our_log_reaches():
    alone = Alone(MemoryLog())
    alone.answer(records=records(0, [5, 5]), high_watermark=10**9)
    assert alone.log.high_watermark == 2


def test_what_is_known_as_committed_stays_so_under_a_leader_that_knows_less():
    alone = Alone(MemoryLog([1, 1], high_watermark=2))
    assert alone.answer(high_watermark=0) == []
    assert alone.log.high_watermark == 2


def test_log_start_of_the_leader_is_taken_up_to_the_high_watermark():
    alone = Alone(MemoryLog([1] * 4))
    effects = alone.answer(high_watermark=2, log_start_offset=3)
    assert effects == [SetHighWatermark(PARTITION, 2), AdvanceLogStart(PARTITION, 2)]
    assert alone.asked().partitions[0].log_start_offset == 2


@pytest.mark.parametrize("high_watermark", [5, 8])
def test_log_start_of_the_leader_is_taken_with_the_first_answer(high_watermark):
    """Goal: a fresh replica has nothing below it, and tells nobody that it has what it has not. The
    leader's log starts at 5, inside its first batch, with which an empty log begins."""
    alone = Alone(MemoryLog())
    alone.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    for offset in (8, 5):  # where the leader's log ends, and where it starts
        alone.answer(offset=offset)
    assert alone.asked().partitions[0].fetch_offset == 5
    effects = alone.answer(
        records=records(3, [5] * 5), high_watermark=high_watermark, log_start_offset=5
    )
    assert AdvanceLogStart(PARTITION, 5) in effects
    assert (alone.log.log_start_offset, alone.log.high_watermark) == (5, high_watermark)
    (asked,) = alone.asked().partitions
    assert (asked.fetch_offset, asked.log_start_offset) == (8, 5)


def test_log_start_of_an_emptied_log_stays_though_its_leader_starts_below_it():
    """Goal: nobody's log start goes back. A deletion was not answered: its leader died before all
    had followed, and the one that had lost all its records, but not where they start."""
    alone = Alone(MemoryLog(start=5))
    effects = alone.answer(records=records(3, [5] * 5))
    assert effects[1:] == [SetHighWatermark(PARTITION, 5), AdvanceLogStart(PARTITION, 5)]
    assert (alone.log.log_start_offset, alone.log.high_watermark) == (5, 5)
    assert alone.asked().partitions[0].log_start_offset == 5


def test_diverging_answer_cuts_before_anything_else_is_believed():
    """KAFKA-14704: neither high watermark nor log start, and no records, of that answer."""
    alone = Alone(MemoryLog([1, 1, 1, 2]))
    effects = alone.answer(
        diverging_epoch=EpochEndOffset(1, 2),
        high_watermark=4,
        log_start_offset=1,
        records=records(4, [5]),
    )
    assert effects == [TruncateLog(PARTITION, 2, TruncationCause.DIVERGING_EPOCH)]
    assert (alone.log.log_end_offset, alone.log.high_watermark) == (2, 0)
    (asked,) = alone.asked().partitions
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 1)
    (incident,) = alone.cluster.incidents(LogTruncated)
    assert (incident.old_end_offset, incident.new_end_offset) == (4, 2)


def test_epoch_without_records_is_cut_even_if_no_bytes_go():
    """KAFKA-10706."""
    log = MemoryLog([1, 1])
    log.assign_epoch(3, 2)
    alone = Alone(log)
    alone.answer(diverging_epoch=EpochEndOffset(1, 2))
    assert alone.log.epoch_entries == [(1, 0)]
    assert alone.phase is FollowerPhase.FETCHING
    assert alone.asked().partitions[0].last_fetched_epoch == 1


def test_divergence_that_changes_nothing_is_not_asked_for_in_a_tight_loop():
    alone = Alone(MemoryLog([1, 1]))
    alone.answer(diverging_epoch=EpochEndOffset(1, 2))
    assert alone.phase is FollowerPhase.BACKING_OFF


def test_follower_never_cuts_below_its_high_watermark():
    """I17: the partition fails, and the offsets are named; the log stays as it is."""
    alone = Alone(MemoryLog([1, 1, 1], high_watermark=2))
    assert alone.answer(diverging_epoch=EpochEndOffset(1, 1)) == []
    assert alone.phase is FollowerPhase.FAILED
    assert alone.log.log_end_offset == 3
    (incident,) = alone.cluster.incidents(ReplicaFailed)
    assert "[1, 3)" in incident.message
    alone.cluster.run(100_000)
    assert alone.phase is FollowerPhase.FAILED


def test_log_without_epochs_is_cut_to_its_high_watermark_first():
    log = MemoryLog([1] * 4, high_watermark=2)
    log.epoch_entries.clear()
    alone = Alone(log)
    assert alone.log.log_end_offset == 2
    assert alone.asked().partitions[0].fetch_offset == 2


@pytest.mark.parametrize(
    "diverging",
    [(6, 2), (1, -7), (-9, 1), (2**31, 2**63)],
)
def test_impossible_divergence_is_not_believed(diverging):
    alone = Alone(MemoryLog([1, 1, 1]))
    assert alone.answer(diverging_epoch=EpochEndOffset(*diverging)) == []
    assert alone.phase is FollowerPhase.BACKING_OFF
    assert alone.log.log_end_offset == 3


def test_out_of_range_above_the_leaders_end_cuts_to_it():
    alone = Alone(MemoryLog([1] * 4, high_watermark=1))
    alone.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert alone.asked().timestamp == OffsetSpec.LATEST
    assert (alone.asked().replica_id, alone.asked().current_leader_epoch) == (2, 5)
    assert alone.answer(offset=2) == [TruncateLog(PARTITION, 2, TruncationCause.OUT_OF_RANGE)]
    assert alone.asked().partitions[0].fetch_offset == 2


def test_out_of_range_above_the_leaders_end_never_cuts_below_our_high_watermark():
    alone = Alone(MemoryLog([1] * 4, high_watermark=4))
    alone.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert alone.answer(offset=0) == []
    assert alone.phase is FollowerPhase.FAILED
    assert alone.log.log_end_offset == 4


def test_out_of_range_below_the_leaders_start_begins_there_anew():
    alone = Alone(MemoryLog([1] * 4, high_watermark=4))
    alone.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    alone.answer(offset=20)
    assert alone.asked().timestamp == OffsetSpec.EARLIEST
    effects = alone.answer(offset=10)
    assert effects == [TruncateFullyAndStartAt(PARTITION, 10, TruncationCause.OUT_OF_RANGE)]
    (asked,) = alone.asked().partitions
    assert (asked.fetch_offset, asked.log_start_offset, asked.last_fetched_epoch) == (10, 10, -1)


class TestALeaderThatHasDeletedAllThatWeHave:
    """Nothing is left to compare: our records may be another leader's, and so may be what they say
    of producers, whose next batches we would take for repeats once we lead."""

    def test_records_that_nobody_called_committed_go(self):
        alone = Alone(MemoryLog([1, 1, 4], high_watermark=2))
        effects = alone.answer(log_start_offset=3, high_watermark=3)
        assert effects == [TruncateFullyAndStartAt(PARTITION, 3, TruncationCause.OUT_OF_RANGE)]
        (asked,) = alone.asked().partitions
        assert (asked.fetch_offset, asked.log_start_offset, asked.last_fetched_epoch) == (3, 3, -1)

    def test_committed_ones_are_known_to_be_the_leaders(self):
        alone = Alone(MemoryLog([1, 1, 4], high_watermark=3))
        assert alone.answer(log_start_offset=3, high_watermark=3) == [AdvanceLogStart(PARTITION, 3)]

    def test_so_are_those_that_were_compared_before_it_deleted_them(self):
        alone = Alone(MemoryLog([1, 1, 4], high_watermark=2))
        assert alone.answer(high_watermark=2) == []
        effects = alone.answer(log_start_offset=3, high_watermark=3)
        assert effects == [SetHighWatermark(PARTITION, 3), AdvanceLogStart(PARTITION, 3)]


def test_out_of_range_that_is_over_keeps_the_log():
    alone = Alone(MemoryLog([1] * 4))
    alone.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    alone.answer(offset=20)
    assert alone.answer(offset=2) == []
    assert alone.phase is FollowerPhase.BACKING_OFF
    assert alone.log.log_end_offset == 4


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
@pytest.mark.parametrize("while_asking", [False, True])
def test_passing_error_backs_off_and_asks_again(error, while_asking):
    alone = Alone(MemoryLog([1]))
    if while_asking:
        alone.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    alone.answer(error=error)
    assert alone.phase is FollowerPhase.BACKING_OFF
    assert not alone.cluster.queue
    alone.cluster.tick(BACKOFF_MS - 1)
    assert not alone.cluster.queue
    alone.cluster.tick(1)
    assert alone.asked().partitions[0].fetch_offset == 1


@pytest.mark.parametrize("while_asking", [False, True])
def test_fenced_follower_waits_for_metadata(while_asking):
    alone = Alone(MemoryLog([1]))
    if while_asking:
        alone.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    alone.answer(error=ErrorCode.FENCED_LEADER_EPOCH)
    assert alone.phase is FollowerPhase.FAILED
    alone.cluster.tick(100_000)
    assert not alone.cluster.queue
    assert alone.cluster.incidents(Fenced)[-1].by_peer
    alone.cluster.lead(1, 6, (1, 2))
    assert alone.asked().partitions[0].current_leader_epoch == 6


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (errors.CorruptBatchError("bits"), FollowerPhase.BACKING_OFF),
        (errors.InvalidRecordError("count"), FollowerPhase.BACKING_OFF),
        (errors.NoSpaceError("full"), FollowerPhase.BACKING_OFF),
        (errors.OutOfOrderOffsetError("gap"), FollowerPhase.FAILED),
        (errors.LogFailedError("io"), FollowerPhase.FAILED),
    ],
)
def test_refused_append_backs_off_or_fails_by_its_cause(error, phase):
    alone = Alone(MemoryLog())
    alone.log.refuse_append = error
    alone.answer(records=records(0, [5]), high_watermark=1)
    assert alone.phase is phase
    assert (alone.log.log_end_offset, alone.log.high_watermark) == (0, 0)


def test_a_leader_that_sends_what_the_log_does_not_take_is_named_once_for_each_cause():
    """Goal: who asks at night why a replica does not catch up finds leader, offset and cause."""
    alone = Alone(MemoryLog([5]))
    for error in (errors.CorruptBatchError("bits"), errors.NoSpaceError("full")):
        for _ in range(3):
            alone.log.refuse_append = error
            alone.answer(records=records(1, [5]))
            alone.cluster.tick(2_000)
    told = alone.cluster.incidents(AppendRefused)
    assert [(one.leader_id, one.leader_epoch, one.log_end_offset) for one in told] == [
        (1, 5, 1)
    ] * 2
    assert [one.message.partition(";")[0] for one in told] == ["bits", "full"]
    alone.answer(records=records(1, [5]))
    alone.log.refuse_append = errors.NoSpaceError("full")
    alone.answer(records=records(2, [5]))
    assert len(alone.cluster.incidents(AppendRefused)) == 3


def test_answer_to_an_earlier_request_is_ignored():
    alone = Alone(MemoryLog())
    late = alone.cluster.queue[-1]
    alone.cluster.lead(1, 6, (1, 2))
    response = FetchResponse(
        partitions=(
            FetchedPartition(topic_partition=PARTITION, records=records(0, [5]), high_watermark=1),
        )
    )
    alone.broker.handle(ev.ResponseReceived(request_id=late.request_id, response=response))
    assert alone.log.log_end_offset == 0


def test_truncation_that_was_told_in_an_earlier_epoch_is_not_made():
    alone = Alone(MemoryLog([1, 1, 1]))
    late = alone.cluster.queue[-1]
    alone.cluster.lead(1, 6, (1, 2))
    fetched = FetchedPartition(topic_partition=PARTITION, diverging_epoch=EpochEndOffset(1, 1))
    response = FetchResponse(partitions=(fetched,))
    alone.broker.handle(ev.ResponseReceived(request_id=late.request_id, response=response))
    assert alone.log.log_end_offset == 3


def test_answer_to_the_former_epoch_is_ignored_while_others_share_its_request():
    """The fetch in flight is the same; only this partition's epoch is another since."""
    alone = Alone(MemoryLog([1, 1, 1]))
    other = TopicPartition("orders", 1)
    alone.cluster.queue.clear()
    alone.cluster.lead(1, 5, (1, 2), replicas=(1, 2), topic_partition=other)
    alone.cluster.tick(30_000), alone.cluster.tick(BACKOFF_MS)
    (late,) = alone.cluster.queue
    assert len(late.body.partitions) == 2
    alone.cluster.lead(1, 6, (1, 2))
    assert list(alone.cluster.queue) == [late]
    fetched = FetchedPartition(topic_partition=PARTITION, diverging_epoch=EpochEndOffset(1, 1))
    response = FetchResponse(partitions=(fetched,), session_id=9)
    alone.broker.handle(ev.ResponseReceived(request_id=late.request_id, response=response))
    assert alone.log.log_end_offset == 3
    (asked,) = alone.asked().partitions
    assert asked.current_leader_epoch == 6


def test_request_that_fails_backs_every_partition_off_and_begins_a_new_session():
    alone = Alone(MemoryLog())
    alone.answer()
    assert alone.asked().session_id == 9
    envelope = alone.cluster.queue.pop()
    alone.broker.handle(ev.RequestFailed(request_id=envelope.request_id))
    assert alone.phase is FollowerPhase.BACKING_OFF
    alone.cluster.tick(BACKOFF_MS)
    assert (alone.asked().session_id, alone.asked().session_epoch) == (0, 0)


def test_request_that_is_never_answered_is_given_up():
    alone = Alone(MemoryLog())
    first = alone.cluster.queue.pop()
    alone.cluster.tick(30_000)
    assert alone.phase is FollowerPhase.BACKING_OFF
    alone.cluster.tick(BACKOFF_MS)
    assert alone.cluster.queue[-1].request_id != first.request_id


@pytest.mark.parametrize("lost", [70, 71])
def test_lost_session_begins_anew_without_delay(lost):
    alone = Alone(MemoryLog())
    alone.answer()
    envelope = alone.cluster.queue.pop()
    response = FetchResponse(error=ErrorCode(lost))
    alone.broker.handle(ev.ResponseReceived(request_id=envelope.request_id, response=response))
    assert alone.asked().session_epoch == 0
    envelope = alone.cluster.queue.pop()
    alone.broker.handle(ev.ResponseReceived(request_id=envelope.request_id, response=response))
    assert alone.phase is FollowerPhase.BACKING_OFF, "a full fetch has no session to lose"


def test_partition_that_was_not_asked_for_is_ignored():
    alone = Alone(MemoryLog())
    envelope = alone.cluster.queue.pop()
    response = FetchResponse(
        partitions=(FetchedPartition(topic_partition=TopicPartition("x", 1), high_watermark=5),)
    )
    alone.broker.handle(ev.ResponseReceived(request_id=envelope.request_id, response=response))
    assert isinstance(alone.asked(), FetchRequest)


def test_one_fetch_is_in_flight_at_a_time():
    alone = Alone(MemoryLog())
    alone.cluster.effects.clear()
    alone.cluster.tick(100)
    alone.broker.handle(ev.LogFlushed(topic_partition=PARTITION))
    assert not [one for _, one in alone.cluster.effects if isinstance(one, SendRequest)]


def test_commit_mode_asks_for_the_next_offset_only_after_the_sync():
    alone = Alone(MemoryLog(), flush_mode="commit")
    alone.answer(records=records(0, [5]))
    assert alone.phase is FollowerPhase.FLUSHING
    assert not alone.cluster.queue
    alone.broker.flush()
    assert alone.asked().partitions[0].fetch_offset == 1


def test_commit_mode_syncs_what_a_crash_left_unsynced_before_it_claims_it():
    log = MemoryLog([1, 1])
    log.synced_end_offset = 1
    alone = Alone(log, flush_mode="commit")
    assert not alone.cluster.queue
    alone.broker.flush()
    assert alone.asked().partitions[0].fetch_offset == 2


def test_same_epoch_keeps_the_fetch_that_is_under_way():
    alone = Alone(MemoryLog())
    follower = alone.follower
    alone.cluster.lead(1, 5, (1,))
    assert alone.follower is follower
    assert len(alone.cluster.queue) == 1


def test_nobody_is_followed_while_the_leader_is_not_alive():
    alone = Alone(MemoryLog())
    from replog.registrations import BrokerRegistration

    dead = BrokerRegistration(broker_id=1, broker_epoch=1, fenced=True)
    alone.cluster.publish(brokers=(dead,))
    assert alone.follower is None
    alone.cluster.publish(brokers=(BrokerRegistration(broker_id=1, broker_epoch=1),))
    assert alone.phase is FollowerPhase.FETCHING


def test_a_log_start_that_found_no_room_is_asked_for_again_with_the_next_answer():
    alone = Alone(MemoryLog([1] * 4))
    alone.log.truncate_prefix_to = lambda _: None
    answer = {"high_watermark": 4, "log_start_offset": 3}
    assert AdvanceLogStart(PARTITION, 3) in alone.answer(**answer)
    alone.broker.handle(ev.LogStartKept(topic_partition=PARTITION))
    assert alone.answer(**answer) == [AdvanceLogStart(PARTITION, 3)]
    alone.broker.handle(ev.LogStartKept(topic_partition=PARTITION))
    assert alone.follower.question().log_start_offset == 0
