"""The following role, event by event."""

from __future__ import annotations

import pytest

from replog.errors import CorruptBatchError, LogFailedError, NoSpaceError
from replog.messages import (
    ErrorCode,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetSpec,
)
from replog.replication.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    Send,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateLog,
    TruncationCause,
)
from replog.replication.events import (
    FollowerAppendCompleted,
    FollowerAppendFailed,
    LeadershipChange,
    Tick,
    TruncationCompleted,
)
from replog.replication.follower import FETCH_BACKOFF_MS, FETCH_TIMEOUT_MS, FollowerPhase
from replog.replication.replica import Replica
from replog.types import EpochEndOffset
from tests.replication.core_cluster import PARTITION, CoreCluster
from tests.replication.memory_log import MemoryLog, MemoryRecord

EPOCH = 5


def following(log: MemoryLog) -> tuple[Replica, list]:
    replica = Replica(PARTITION, 2, log)
    change = LeadershipChange(leader_id=1, leader_epoch=EPOCH, replicas=(1, 2), isr=(1, 2))
    return replica, replica.step(change, 0)


def answer(log: MemoryLog, **fields) -> FetchResponse:
    fields = {"fetch_offset": log.log_end_offset, "leader_epoch": EPOCH, **fields}
    return FetchResponse(topic_partition=PARTITION, **fields)


def offsets(spec: OffsetSpec, offset: int, error=ErrorCode.NONE) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topic_partition=PARTITION, leader_epoch=EPOCH, spec=spec, offset=offset, error=error
    )


def asks(effects, spec: OffsetSpec) -> bool:
    [send] = effects
    return isinstance(send.message, ListOffsetsRequest) and send.message.spec is spec


def fetches_at(effects, offset: int) -> bool:
    send = effects[-1]
    return isinstance(send.message, FetchRequest) and send.message.fetch_offset == offset


def test_follower_starts_by_claiming_its_log_end_and_its_latest_epoch():
    log = MemoryLog([1, 1, 3])
    _, [send] = following(log)
    assert send == Send(
        1,
        FetchRequest(
            topic_partition=PARTITION,
            replica_id=2,
            current_leader_epoch=EPOCH,
            fetch_offset=3,
            last_fetched_epoch=3,
            log_start_offset=0,
        ),
    )


def test_follower_without_any_epoch_truncates_to_its_high_watermark_first():
    log = MemoryLog([1, 1, 1])
    log.high_watermark = 2
    log.epoch_entries.clear()
    replica, effects = following(log)
    assert effects == [TruncateLog(2, TruncationCause.NO_EPOCHS)]
    log.truncate_to(2)
    assert fetches_at(replica.step(TruncationCompleted(), 0), 2)


def test_follower_appends_and_only_then_takes_the_leaders_high_watermark():
    log = MemoryLog([1])
    replica, _ = following(log)
    records = (MemoryRecord(1, EPOCH, "b"), MemoryRecord(2, EPOCH, "c"))
    effects = replica.step(answer(log, records=records, high_watermark=2), 0)
    assert effects == [AppendAsFollower(records)]
    log.append_as_follower(records)
    effects = replica.step(FollowerAppendCompleted(), 0)
    assert effects[0] == SetHighWatermark(2)
    assert fetches_at(effects, 3)
    assert effects[-1].message.last_fetched_epoch == EPOCH


def test_followers_high_watermark_stays_within_its_own_log():
    log = MemoryLog([1, 1], start=3)
    replica, _ = following(log)
    effects = replica.step(answer(log, high_watermark=99, log_start_offset=0), 0)
    assert effects[0] == SetHighWatermark(5)


def test_followers_high_watermark_may_go_down_to_a_new_leaders():
    log = MemoryLog([1, 1, 1])
    log.high_watermark = 3
    replica, _ = following(log)
    assert replica.step(answer(log, high_watermark=1), 0)[0] == SetHighWatermark(1)


def test_follower_takes_the_leaders_log_start_after_its_high_watermark():
    log = MemoryLog([1, 1, 1])
    replica, _ = following(log)
    effects = replica.step(answer(log, high_watermark=2, log_start_offset=2), 0)
    assert effects[:2] == [SetHighWatermark(2), AdvanceLogStart(2)]
    log = MemoryLog([1, 1, 1])
    replica, _ = following(log)
    effects = replica.step(answer(log, high_watermark=1, log_start_offset=3), 0)
    assert effects[:2] == [SetHighWatermark(1), AdvanceLogStart(1)]


def test_diverging_answer_moves_neither_high_watermark_nor_log_start():
    """KAFKA-14704: truncate before taking the leader's high watermark."""
    log = MemoryLog([1, 1, 2])
    replica, _ = following(log)
    diverging = answer(
        log, diverging_epoch=EpochEndOffset(1, 2), high_watermark=3, log_start_offset=1
    )
    assert replica.step(diverging, 0) == [TruncateLog(2, TruncationCause.DIVERGING_EPOCH)]
    log.truncate_to(2)
    effects = replica.step(TruncationCompleted(), 0)
    assert len(effects) == 1
    assert fetches_at(effects, 2)
    assert effects[0].message.last_fetched_epoch == 1


def test_follower_truncates_to_diverging_epoch_not_high_watermark():
    """KIP-101: the high watermark lags; what lies above it may be committed."""
    log = MemoryLog([1, 1, 1, 2])
    log.high_watermark = 1
    replica, _ = following(log)
    diverging = answer(log, diverging_epoch=EpochEndOffset(1, 3))
    assert replica.step(diverging, 0) == [TruncateLog(3, TruncationCause.DIVERGING_EPOCH)]


def test_an_epoch_that_the_follower_led_in_vain_is_cut_though_no_bytes_go():
    """KAFKA-10706: the follower led epoch 2 and appended nothing."""
    leader, follower = MemoryLog([1, 1]), MemoryLog([1, 1])
    follower.assign_epoch(2, 2)
    cluster = CoreCluster({1: leader, 2: follower})
    cluster.lead(1, 3, (1, 2))
    cluster.settle()
    assert [cut.new_end_offset for cut in cluster.truncations] == [2]
    assert follower.epoch_entries == [(1, 0)]


@pytest.mark.parametrize(
    "stale",
    [{"fetch_offset": 0}, {"leader_epoch": EPOCH - 1}, {"leader_epoch": EPOCH + 1}],
)
def test_answers_to_questions_of_another_time_are_dropped(stale):
    log = MemoryLog([1])
    replica, _ = following(log)
    assert replica.step(answer(log, high_watermark=1, **stale), 0) == []
    assert log.high_watermark == 0


def test_a_second_copy_of_an_answer_is_dropped():
    log = MemoryLog([1])
    replica, _ = following(log)
    first = answer(log, records=(MemoryRecord(1, EPOCH, "b"),), high_watermark=1)
    replica.step(first, 0)
    assert replica.step(first, 0) == []
    log.append_as_follower(first.records)
    replica.step(FollowerAppendCompleted(), 0)
    assert replica.step(first, 0) == []


def test_fenced_follower_waits_for_a_new_epoch():
    log = MemoryLog([1])
    replica, _ = following(log)
    assert replica.step(answer(log, error=ErrorCode.FENCED_LEADER_EPOCH), 0) == []
    assert replica.role.phase is FollowerPhase.FAILED
    assert replica.step(Tick(), 10**9) == []
    change = LeadershipChange(leader_id=1, leader_epoch=EPOCH + 1, replicas=(1, 2), isr=(1, 2))
    assert fetches_at(replica.step(change, 0), 1)


@pytest.mark.parametrize(
    "error", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
def test_other_errors_back_off_and_fetch_again(error):
    log = MemoryLog([1])
    replica, _ = following(log)
    assert replica.step(answer(log, error=error), 100) == []
    assert replica.step(Tick(), 100 + FETCH_BACKOFF_MS - 1) == []
    assert fetches_at(replica.step(Tick(), 100 + FETCH_BACKOFF_MS), 1)


def test_fetch_without_an_answer_is_sent_again():
    log = MemoryLog([1])
    replica, _ = following(log)
    assert replica.step(Tick(), FETCH_TIMEOUT_MS - 1) == []
    assert fetches_at(replica.step(Tick(), FETCH_TIMEOUT_MS), 1)


@pytest.mark.parametrize("error", [CorruptBatchError("bad"), NoSpaceError("full")])
def test_records_that_cannot_be_appended_now_are_fetched_again_later(error):
    log = MemoryLog([1])
    replica, _ = following(log)
    replica.step(answer(log, records=(MemoryRecord(1, EPOCH, "b"),), high_watermark=9), 0)
    assert replica.step(FollowerAppendFailed(error), 0) == []
    assert log.high_watermark == 0
    assert fetches_at(replica.step(Tick(), FETCH_BACKOFF_MS), 1)


def test_a_failed_log_fails_the_follower():
    log = MemoryLog([1])
    replica, _ = following(log)
    replica.step(answer(log, records=(MemoryRecord(1, EPOCH, "b"),)), 0)
    error = LogFailedError("dead")
    assert replica.step(FollowerAppendFailed(error), 0) == []
    assert (replica.role.phase, replica.role.failure) == (FollowerPhase.FAILED, error)


def test_an_answer_without_one_whole_batch_is_not_asked_for_again_at_once():
    log = MemoryLog([1])
    replica, _ = following(log)
    replica.step(answer(log, records=()), 0)
    assert replica.step(FollowerAppendCompleted(), 0) == []
    assert replica.role.phase is FollowerPhase.BACKING_OFF


def out_of_range(log: MemoryLog) -> Replica:
    replica, _ = following(log)
    effects = replica.step(answer(log, error=ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    assert asks(effects, OffsetSpec.LATEST)
    return replica


def test_out_of_range_above_the_leaders_end_truncates_to_it():
    log = MemoryLog([1, 1, 1])
    replica = out_of_range(log)
    effects = replica.step(offsets(OffsetSpec.LATEST, 1), 0)
    assert effects == [TruncateLog(1, TruncationCause.OUT_OF_RANGE)]
    log.truncate_to(1)
    assert fetches_at(replica.step(TruncationCompleted(), 0), 1)


def test_out_of_range_below_the_leaders_start_starts_over_there():
    log = MemoryLog([1, 1, 1])
    replica = out_of_range(log)
    assert asks(replica.step(offsets(OffsetSpec.LATEST, 9), 0), OffsetSpec.EARLIEST)
    effects = replica.step(offsets(OffsetSpec.EARLIEST, 7), 0)
    assert effects == [TruncateFullyAndStartAt(7, TruncationCause.OUT_OF_RANGE)]
    log.truncate_fully_and_start_at(7)
    assert fetches_at(replica.step(TruncationCompleted(), 0), 7)


def test_out_of_range_that_is_over_by_now_keeps_the_log():
    log = MemoryLog([1, 1, 1])
    replica = out_of_range(log)
    replica.step(offsets(OffsetSpec.LATEST, 3), 0)
    assert replica.step(offsets(OffsetSpec.EARLIEST, 3), 0) == []
    assert fetches_at(replica.step(Tick(), FETCH_BACKOFF_MS), 3)


@pytest.mark.parametrize("spec", list(OffsetSpec))
def test_a_leader_that_will_not_tell_its_offsets_is_asked_again_later(spec):
    log = MemoryLog([1, 1, 1])
    replica = out_of_range(log)
    if spec is OffsetSpec.EARLIEST:
        replica.step(offsets(OffsetSpec.LATEST, 3), 0)
    refused = offsets(spec, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert replica.step(refused, 0) == []
    assert fetches_at(replica.step(Tick(), FETCH_BACKOFF_MS), 3)


def test_a_follower_far_behind_retention_starts_over_and_catches_up():
    """The leader has deleted what the follower would need next."""
    leader, follower = MemoryLog([1] * 4, start=10), MemoryLog([1] * 3)
    cluster = CoreCluster({1: leader, 2: follower})
    cluster.lead(1, 2, (1,))
    cluster.settle()
    assert follower.log_start_offset == 10
    assert follower.records == leader.records
