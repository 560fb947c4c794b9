"""The leading role, event by event."""

from __future__ import annotations

import itertools

import pytest

from replog.errors import InvalidRecordError, InvariantViolation, NotLeaderError
from replog.messages import (
    Acks,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    OffsetSpec,
)
from replog.replication.effects import (
    AppendAsLeader,
    AssignEpoch,
    CompleteProduce,
    Send,
    SendRecords,
    SetHighWatermark,
)
from replog.replication.events import (
    LeaderAppendCompleted,
    LeaderAppendFailed,
    LeadershipChange,
    Produce,
    Tick,
)
from replog.replication.replica import Replica
from replog.types import EpochEndOffset
from tests.replication.core_cluster import PARTITION, CoreCluster, three_replicas
from tests.replication.memory_log import MemoryLog

EPOCH = 5


def leading(log: MemoryLog, isr=(1, 2, 3)) -> Replica:
    replica = Replica(PARTITION, 1, log)
    change = LeadershipChange(leader_id=1, leader_epoch=EPOCH, replicas=(1, 2, 3), isr=isr)
    carry_out(log, replica.step(change, 0))
    return replica


def carry_out(log: MemoryLog, effects) -> None:
    for effect in effects:
        if isinstance(effect, AssignEpoch):
            log.assign_epoch(effect.leader_epoch, effect.start_offset)
        elif isinstance(effect, SetHighWatermark):
            log.high_watermark = effect.high_watermark


def fetch(replica_id, offset, last_epoch=EPOCH, *, wait_ms=500, epoch=EPOCH) -> FetchRequest:
    return FetchRequest(
        topic_partition=PARTITION,
        replica_id=replica_id,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        wait_ms_max=wait_ms,
    )


def append(replica: Replica, log: MemoryLog, *payloads, request_id=1, acks=Acks.ALL) -> list:
    [effect] = replica.step(Produce(request_id=request_id, batches=payloads, acks=acks), 0)
    done = log.append_as_leader(effect.batches, effect.leader_epoch)
    completed = LeaderAppendCompleted(
        request_id=request_id, base_offset=done.base_offset, last_offset=done.last_offset
    )
    effects = replica.step(completed, 0)
    carry_out(log, effects)
    return effects


def test_new_leader_records_its_epoch_at_its_log_end_before_anything_else():
    log = MemoryLog([1, 1, 2])
    replica = Replica(PARTITION, 1, log)
    change = LeadershipChange(leader_id=1, leader_epoch=EPOCH, replicas=(1, 2), isr=(1, 2))
    assert replica.step(change, 0) == [AssignEpoch(EPOCH, 3)]


def test_leader_alone_in_the_isr_commits_its_whole_log_at_once():
    log = MemoryLog([1, 1, 2])
    replica = Replica(PARTITION, 1, log)
    change = LeadershipChange(leader_id=1, leader_epoch=EPOCH, replicas=(1, 2), isr=(1,))
    assert replica.step(change, 0) == [AssignEpoch(EPOCH, 3), SetHighWatermark(3)]


def test_acks_none_is_never_answered():
    cluster = three_replicas()
    request_id = cluster.produce(1, "a", acks=Acks.NONE)
    cluster.settle()
    assert request_id not in cluster.answers
    assert cluster.logs[1].high_watermark == 1


def test_acks_leader_is_answered_by_the_leaders_append():
    log = MemoryLog()
    effects = append(leading(log), log, "a", "b", acks=Acks.LEADER)
    assert effects == [CompleteProduce(1, 0, 1)]


def test_acks_all_is_answered_when_the_last_of_the_isr_asks_for_the_next_offset():
    log = MemoryLog()
    replica = leading(log)
    assert append(replica, log, "a", "b") == []
    assert CompleteProduce(1, 0, 1) not in replica.step(fetch(2, 2), 0)
    effects = replica.step(fetch(3, 2), 0)
    assert effects[:2] == [SetHighWatermark(2), CompleteProduce(1, 0, 1)]


def test_acks_all_waits_for_no_replica_outside_the_isr():
    log = MemoryLog()
    replica = leading(log, isr=(1, 2))
    append(replica, log, "a")
    assert CompleteProduce(1, 0, 0) in replica.step(fetch(2, 1), 0)


def test_half_acknowledged_batches_are_not_answered():
    log = MemoryLog()
    replica = leading(log, isr=(1, 2))
    append(replica, log, "a", "b")
    effects = replica.step(fetch(2, 1), 0)
    assert effects[0] == SetHighWatermark(1)
    assert not any(isinstance(effect, CompleteProduce) for effect in effects)


def test_produces_are_answered_in_the_order_of_their_offsets():
    log = MemoryLog()
    replica = leading(log, isr=(1, 2))
    append(replica, log, "a", request_id=9)
    append(replica, log, "b", request_id=4)
    effects = replica.step(fetch(2, 2), 0)
    answers = [effect for effect in effects if isinstance(effect, CompleteProduce)]
    assert answers == [CompleteProduce(9, 0, 0), CompleteProduce(4, 1, 1)]


def test_a_repeated_batch_that_is_committed_already_is_answered_at_once():
    log = MemoryLog()
    replica = leading(log, isr=(1,))
    append(replica, log, "a")
    assert isinstance(
        replica.step(Produce(request_id=2, batches=("a",), acks=Acks.ALL), 0)[0], AppendAsLeader
    )
    repeated = LeaderAppendCompleted(request_id=2, base_offset=0, last_offset=0)
    assert replica.step(repeated, 0) == [CompleteProduce(2, 0, 0)]


@pytest.mark.parametrize("acks", list(Acks))
def test_a_refused_append_is_answered_with_its_error_whatever_the_acks(acks):
    replica = leading(MemoryLog())
    replica.step(Produce(request_id=1, batches=("a",), acks=acks), 0)
    error = InvalidRecordError("no")
    assert replica.step(LeaderAppendFailed(request_id=1, error=error), 0) == [
        CompleteProduce(1, error=error)
    ]


def test_fetch_below_the_log_end_is_answered_with_records_and_the_newest_high_watermark():
    log = MemoryLog()
    replica = leading(log, isr=(1, 2))
    append(replica, log, "a", "b")
    effects = replica.step(fetch(2, 1), 0)
    [answer] = [effect for effect in effects if isinstance(effect, SendRecords)]
    assert (answer.to, answer.response.fetch_offset) == (2, 1)
    assert answer.response.high_watermark == 1
    assert answer.response.leader_epoch == EPOCH


def test_fetch_at_the_log_end_waits_until_an_append():
    log = MemoryLog()
    replica = leading(log)
    assert len(replica.step(fetch(2, 0), 0)) == 1  # the first one learns the high watermark
    assert replica.step(fetch(2, 0), 0) == []
    assert [effect.to for effect in append(replica, log, "a")] == [2]


def test_fetch_at_the_log_end_is_answered_with_nothing_at_its_deadline():
    replica = leading(MemoryLog())
    replica.step(fetch(2, 0), 0)
    replica.step(fetch(2, 0, wait_ms=500), 100)
    assert replica.step(Tick(), 599) == []
    [answer] = replica.step(Tick(), 600)
    assert isinstance(answer, Send)
    assert answer.message.records is None
    assert replica.step(Tick(), 9999) == []


def test_waiting_fetches_learn_of_a_new_high_watermark():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    assert [cluster.logs[replica_id].high_watermark for replica_id in (1, 2, 3)] == [1, 1, 1]


def test_diverging_fetch_is_answered_with_the_epochs_end_and_is_not_progress():
    """KAFKA-13141: counting it would commit what the follower does not have."""
    log = MemoryLog([1, 1, 1])
    replica = leading(log, isr=(1, 2))
    [answer] = replica.step(fetch(2, 3, last_epoch=2), 0)
    assert answer.message.diverging_epoch == EpochEndOffset(1, 3)
    assert answer.message.records is None
    assert replica.role.followers[2].log_end_offset is None
    assert replica.role.high_watermark == 0


def test_out_of_range_fetch_is_refused_and_is_not_progress():
    log = MemoryLog([1, 1, 1])
    replica = leading(log, isr=(1, 2))
    for offset, last_epoch in ((4, -1), (9, -1), (3, EPOCH + 1)):
        [answer] = replica.step(fetch(2, offset, last_epoch=last_epoch), 0)
        assert answer.message.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert replica.role.followers[2].log_end_offset is None


def test_fetch_of_a_replica_that_is_not_assigned_is_refused():
    replica = leading(MemoryLog([1]))
    [answer] = replica.step(fetch(7, 0, last_epoch=-1), 0)
    assert answer.message.error is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("spec", list(OffsetSpec))
def test_leader_tells_both_ends_of_its_log(spec):
    replica = leading(MemoryLog([1, 1, 1], start=4))
    [answer] = replica.step(
        ListOffsetsRequest(
            topic_partition=PARTITION, replica_id=2, current_leader_epoch=EPOCH, spec=spec
        ),
        0,
    )
    assert answer.message.offset == {OffsetSpec.EARLIEST: 4, OffsetSpec.LATEST: 7}[spec]


def test_new_epoch_of_the_same_leader_fences_waiting_fetches_and_keeps_waiting_produces():
    cluster = three_replicas()
    cluster.kill(3)
    request_id = cluster.produce(1, "a")
    cluster.settle()
    assert request_id not in cluster.answers
    cluster.lead(1, 2, (1, 2))
    cluster.settle()
    fenced = [
        message
        for _, message in cluster.delivered
        if isinstance(message, FetchResponse) and message.error is ErrorCode.FENCED_LEADER_EPOCH
    ]
    assert fenced
    assert cluster.answers[request_id] == CompleteProduce(request_id, 0, 0)


def test_new_epoch_of_the_same_leader_counts_no_follower_before_it_has_fetched_again():
    cluster = three_replicas()
    cluster.lead(1, 2, (1, 2, 3), to=[1])
    cluster.produce(1, "a")
    assert [p.log_end_offset for p in cluster.replica(1).role.followers.values()] == [None, None]
    assert cluster.logs[1].high_watermark == 0


def test_leader_that_is_replaced_tells_every_waiting_producer():
    cluster = three_replicas()
    cluster.kill(2)
    cluster.kill(3)
    waiting = [cluster.produce(1, "a"), cluster.produce(1, "b")]
    cluster.settle()
    cluster.lead(2, 2, (1, 2))
    for request_id in waiting:
        assert isinstance(cluster.answers[request_id].error, NotLeaderError)


def test_a_completion_beyond_the_log_end_is_a_bug():
    replica = leading(MemoryLog())
    replica.step(Produce(request_id=1, batches=("a",), acks=Acks.ALL), 0)
    with pytest.raises(InvariantViolation):
        replica.step(LeaderAppendCompleted(request_id=1, base_offset=0, last_offset=0), 0)


def test_high_watermark_is_the_smallest_claim_of_the_isr_for_every_isr_and_every_two_claims():
    """The whole leader, against the rule's plainest wording."""
    for isr_followers in ((), (2,), (3,), (2, 3)):
        for claims in itertools.product(range(4), repeat=2):
            log = MemoryLog([EPOCH] * 3)
            replica = leading(log, isr=(1, *isr_followers))
            claim_of = dict(zip((2, 3), claims, strict=True))
            for replica_id, claim in claim_of.items():
                last_epoch = EPOCH if claim else -1
                carry_out(log, replica.step(fetch(replica_id, claim, last_epoch), 0))
            expected = min([3, *(claim_of[replica_id] for replica_id in isr_followers)])
            assert log.high_watermark == expected, (isr_followers, claims)


def test_a_late_duplicate_of_a_fetch_never_takes_the_high_watermark_back():
    log = MemoryLog([EPOCH] * 3)
    replica = leading(log, isr=(1, 2))
    carry_out(log, replica.step(fetch(2, 3), 0))
    carry_out(log, replica.step(fetch(2, 1), 0))
    assert log.high_watermark == 3


def test_every_record_reaches_every_replica_in_order():
    cluster = CoreCluster({1: MemoryLog(), 2: MemoryLog(), 3: MemoryLog()})
    cluster.lead(1, 1, (1, 2, 3))
    produced = []
    for number in range(20):
        produced.append(f"record {number}")
        cluster.produce(1, produced[-1])
        if number % 3 == 0:
            cluster.deliver_one()
    cluster.settle()
    for replica_id in (1, 2, 3):
        assert cluster.payloads(replica_id) == produced
    assert [answer.error for answer in cluster.answers.values()] == [None] * 20
