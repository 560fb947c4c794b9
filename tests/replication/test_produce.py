"""Produce requests: what is refused, what is waited for, and what an answer vouches for."""

import gc

import pytest

from replog import errors
from replog.messages import Acks, Durability, ErrorCode, ProduceRequest
from replog.replication.effects import AppendAsLeader
from replog.replication.error_codes import error_code_of
from replog.replication.incidents import ProduceRefused
from replog.replication.produce_waits import ProduceWait
from replog.types import TopicPartition
from tests.replication.core_cluster import PARTITION, TOPIC_ID, CoreCluster, three_replicas
from tests.replication.memory_log import MemoryLog

OTHER = TopicPartition("orders", 1)


def two_partitions() -> CoreCluster:
    cluster = CoreCluster({one: {PARTITION: MemoryLog(), OTHER: MemoryLog()} for one in (1, 2)})
    cluster.lead(1, 1, (1, 2))
    cluster.lead(1, 1, (1, 2), topic_partition=OTHER)
    cluster.run(600)
    return cluster


@pytest.mark.parametrize(("acks", "durability"), [(0, None), (1, Durability.LEADER)])
def test_acks_0_and_1_are_answered_after_the_append(acks, durability):
    cluster = three_replicas()
    produced = cluster.produced(cluster.produce(1, "a", "b", acks=acks))
    assert (produced.error, produced.base_offset, produced.last_offset) == (ErrorCode.NONE, 0, 1)
    assert produced.durability is durability
    assert (produced.leader_epoch, produced.log_start_offset) == (1, 0)


def test_acks_all_is_answered_in_the_order_of_offsets():
    cluster = three_replicas()
    request_ids = [cluster.produce(1, "a"), cluster.produce(1, "b"), cluster.produce(1, "c")]
    cluster.settle()
    assert [one for one in cluster.answers if one in request_ids] == request_ids


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_acks_that_mean_nothing_are_refused_for_every_partition(acks):
    cluster = two_partitions()
    request = ProduceRequest(
        partitions=((PARTITION, TOPIC_ID, ("a",)), (OTHER, TOPIC_ID, ("b",))), acks=acks
    )
    answer = cluster.answer(1, request)
    assert [one.error for one in answer.partitions] == [ErrorCode.INVALID_REQUIRED_ACKS] * 2
    assert cluster.log(1).log_end_offset == 0


def test_acks_all_is_refused_before_the_append_below_the_minimum_of_in_sync_replicas():
    cluster = three_replicas(min_insync_replicas=2)
    cluster.lead(1, 1, (1,))
    produced = cluster.produced(cluster.produce(1, "a"))
    assert produced.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.log(1).log_end_offset == 0
    (refused,) = cluster.incidents(ProduceRefused)
    assert (refused.isr, refused.min_insync_replicas) == ((1,), 2)
    for acks in (0, 1):
        assert cluster.produced(cluster.produce(1, "a", acks=acks)).error is ErrorCode.NONE


def test_minimum_of_in_sync_replicas_is_never_above_the_replica_count():
    cluster = CoreCluster({1: MemoryLog()})
    cluster.lead(1, 1, (1,), min_insync_replicas=3)
    assert cluster.produced(cluster.produce(1, "a")).durability is Durability.REPLICATED


def test_pending_expansion_does_not_count_towards_the_minimum():
    cluster = three_replicas(min_insync_replicas=2, decides=False)
    cluster.kill(2), cluster.kill(3)
    cluster.lead(1, 1, (1,))
    cluster.fetch(1, 2, 0)
    assert cluster.leader(1).isr.maximal == (1, 2)
    assert cluster.produced(cluster.produce(1, "a")).error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_committed_record_that_too_few_are_left_to_vouch_for_is_told_as_such():
    """The high watermark stands still below the minimum, so this takes one that passed before."""
    cluster = three_replicas(min_insync_replicas=2)
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    request_id = cluster.produce(1, "a")
    cluster.lead(1, 1, (1,))
    leader = cluster.leader(1)
    leader.high_watermark = 1
    leader.acknowledge_reached()
    cluster.tick()
    produced = cluster.produced(request_id)
    assert produced.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert (produced.base_offset, produced.durability) == (0, None)


def test_repeated_batch_is_refused_below_the_minimum_like_any_other():
    cluster = three_replicas(min_insync_replicas=2)
    cluster.produce(1, ("p", 1))
    cluster.settle()
    cluster.lead(1, 1, (1,))
    repeated = cluster.produce(1, ("p", 1), acks=Acks.ALL)
    assert cluster.produced(repeated).error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_set_that_shrinks_while_producers_wait_leaves_them_to_time_out():
    cluster = three_replicas(min_insync_replicas=2)
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    request_id = cluster.produce(1, "a", timeout_ms=1000)
    cluster.lead(1, 1, (1,))
    assert cluster.produced(request_id) is None
    cluster.tick(999)
    assert cluster.produced(request_id) is None
    cluster.tick(1)
    produced = cluster.produced(request_id)
    assert produced.error is ErrorCode.REQUEST_TIMED_OUT
    assert produced.durability is None
    assert cluster.log(1).log_end_offset == 1, "it may still be committed"


def test_produces_that_wait_side_by_side_time_out_each_at_its_own_time():
    cluster = three_replicas()
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    request_ids = [cluster.produce(1, "a", timeout_ms=ms) for ms in (3000, 1000, 2000, 1000)]
    told = []
    for step_ms in (999, 1, 999, 1, 999, 1):
        cluster.tick(step_ms)
        told.append([cluster.produced(one) is not None for one in request_ids])
    assert told == [
        [False, False, False, False],
        [False, True, False, True],
        [False, True, False, True],
        [False, True, True, True],
        [False, True, True, True],
        [True, True, True, True],
    ]


def test_produce_behind_an_answered_one_has_the_whole_of_its_own_time():
    cluster = three_replicas()
    cluster.produce(1, "a", timeout_ms=1000)
    cluster.settle()
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    cluster.tick(900)
    request_id = cluster.produce(1, "b", timeout_ms=1000)
    cluster.tick(999)
    assert cluster.produced(request_id) is None
    cluster.tick(1)
    assert cluster.produced(request_id).error is ErrorCode.REQUEST_TIMED_OUT


def test_answered_produce_needs_no_search_for_garbage():
    cluster = three_replicas()
    gc.collect()
    gc.disable()
    try:
        assert cluster.produced(cluster.produce(1, "a")) is None
        assert any(isinstance(one, ProduceWait) for one in gc.get_objects())
        cluster.settle()
        assert not any(isinstance(one, ProduceWait) for one in gc.get_objects())
    finally:
        gc.enable()


def test_timeout_names_the_replicas_that_hold_it_back():
    cluster = three_replicas()
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    cluster.produce(1, "a", timeout_ms=1000)
    cluster.fetch(1, 2, 1)
    cluster.tick(1000)
    (refused,) = cluster.incidents(ProduceRefused)
    assert (refused.error, refused.required_offset) == (ErrorCode.REQUEST_TIMED_OUT, 1)
    (lag,) = refused.held_back_by
    assert (lag.replica_id, lag.lag_offsets, lag.in_isr) == (3, 1, True)


def test_each_partition_of_a_request_gets_its_own_answer():
    cluster = two_partitions()
    unknown = TopicPartition("nowhere", 0)
    request = ProduceRequest(
        partitions=(
            (PARTITION, TOPIC_ID, ("a",)),
            (unknown, TOPIC_ID, ("b",)),
            (OTHER, TOPIC_ID, ("c",)),
        )
    )
    request_id = cluster.ask(1, request)
    assert request_id not in cluster.answers
    cluster.settle()
    answers = cluster.answers[request_id].partitions
    assert [one.topic_partition for one in answers] == [PARTITION, unknown, OTHER]
    assert [one.error for one in answers] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]


def test_request_without_partitions_is_answered():
    cluster = two_partitions()
    assert cluster.answer(1, ProduceRequest(partitions=())).partitions == ()


def test_follower_refuses_to_append():
    cluster = three_replicas()
    produced = cluster.produced(cluster.produce(2, "a"))
    assert produced.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.log(2).log_end_offset == 0


def test_records_of_one_request_wake_a_waiting_fetch_once():
    cluster = two_partitions()
    cluster.delivered.clear()
    cluster.ask(
        1, ProduceRequest(partitions=((PARTITION, TOPIC_ID, ("a",)), (OTHER, TOPIC_ID, ("b",))))
    )
    (response,) = cluster.queue
    assert {one.topic_partition for one in response.body.partitions} == {PARTITION, OTHER}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OutOfOrderSequenceError("gap"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (errors.InvalidProducerEpochError("old"), ErrorCode.INVALID_PRODUCER_EPOCH),
        (errors.CorruptBatchError("bad"), ErrorCode.CORRUPT_MESSAGE),
        (errors.InvalidTimestampError("late"), ErrorCode.INVALID_TIMESTAMP),
        (errors.NoSpaceError("full"), ErrorCode.KAFKA_STORAGE_ERROR),
        (errors.RecordBatchTooLargeError("big"), ErrorCode.MESSAGE_TOO_LARGE),
        (errors.ReplogError("else"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_refused_append_tells_the_producer_why(error, code, acks):
    cluster = three_replicas()
    cluster.log(1).refuse_append = error
    produced = cluster.produced(cluster.produce(1, "a", acks=acks))
    assert (produced.error, produced.message) == (code, str(error))


def test_every_error_has_a_code():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    leaves = [
        kind for kind in kinds if issubclass(kind, errors.ReplogError) and not kind.__subclasses__()
    ]
    unmapped = [
        kind.__name__
        for kind in leaves
        if error_code_of(kind("why")) is ErrorCode.UNKNOWN_SERVER_ERROR
    ]
    assert unmapped == ["SegmentFullError"], "which never leaves the engine"


def test_repeated_batch_is_answered_with_its_first_offsets_once_it_is_committed():
    cluster = three_replicas()
    cluster.queue.clear()
    first = cluster.produce(1, ("p", 1))
    repeated = cluster.produce(1, ("p", 1))
    assert cluster.produced(repeated) is None, "the first is not committed yet"
    cluster.kill(2, tell=False), cluster.kill(3, tell=False)
    cluster.fetch(1, 2, 1), cluster.fetch(1, 3, 1)
    assert cluster.produced(repeated).base_offset == cluster.produced(first).base_offset == 0
    again = cluster.produced(cluster.produce(1, ("p", 1)))
    assert (again.error, again.base_offset, again.last_offset) == (ErrorCode.NONE, 0, 0)
    assert cluster.log(1).log_end_offset == 1


def test_repeated_batch_is_known_to_the_next_leader():
    cluster = three_replicas()
    cluster.produce(1, ("p", 1))
    cluster.settle()
    cluster.kill(1)
    cluster.lead(2, 2, (2, 3))
    cluster.settle()
    request_id = cluster.produce(2, ("p", 1))
    cluster.settle()
    assert cluster.produced(request_id).base_offset == 0
    assert cluster.log(2).log_end_offset == 1


def test_producers_that_wait_hear_when_their_leader_resigns():
    cluster = three_replicas()
    cluster.queue.clear()
    request_id = cluster.produce(1, "a")
    cluster.lead(2, 2, (1, 2, 3))
    assert cluster.produced(request_id).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_producers_that_wait_go_on_waiting_when_their_leader_is_elected_again():
    cluster = three_replicas()
    cluster.queue.clear()
    request_id = cluster.produce(1, "a")
    cluster.lead(1, 2, (1, 2, 3))
    assert cluster.produced(request_id) is None
    cluster.settle()
    assert cluster.produced(request_id).error is ErrorCode.NONE


def test_requester_that_is_gone_gets_no_answer():
    cluster = three_replicas()
    broker = cluster.brokers[1]
    cluster.queue.clear()
    request_id = cluster.produce(1, "a", timeout_ms=1000)
    (received,) = [mine for mine, (_, theirs) in broker.asked.items() if theirs == request_id]
    from replog.replication.events import RequesterGone

    broker.handle(RequesterGone(request_id=received))
    cluster.run(2000)
    assert cluster.produced(request_id) is None
    assert cluster.log(1).high_watermark == 1


def test_commit_mode_counts_what_is_on_disk_only():
    cluster = three_replicas(flush_mode="commit")
    one = cluster.produce(1, "a", acks=1)
    all_of = cluster.produce(1, "b")
    cluster.settle()
    assert cluster.produced(one) is None
    cluster.brokers[1].flush()
    assert cluster.produced(one).durability is Durability.LEADER
    assert cluster.log(1).high_watermark == 0, "the followers have not synced"
    cluster.brokers[2].flush()
    cluster.settle()
    assert cluster.log(1).high_watermark == 0
    for _ in range(2):
        cluster.brokers[2].flush(), cluster.brokers[3].flush()
        cluster.settle()
    assert cluster.log(1).high_watermark == 2
    assert cluster.produced(all_of).durability is Durability.PERSISTED


def test_commit_mode_answers_a_repeat_of_what_is_on_disk_at_once():
    """Goal: no sync tells of it any more; the producer would repeat it for ever."""
    cluster = three_replicas(flush_mode="commit")
    first = cluster.produce(1, ("p", 1), acks=1)
    cluster.brokers[1].flush()
    again = cluster.produce(1, ("p", 1), acks=1)
    for request_id in (first, again):
        answer = cluster.produced(request_id)
        assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 0)
        assert answer.durability is Durability.LEADER


def test_commit_mode_leader_that_syncs_last_holds_the_high_watermark():
    cluster = three_replicas(flush_mode="commit")
    request_id = cluster.produce(1, "a")
    cluster.settle()
    for follower in (2, 3):
        cluster.brokers[follower].flush()
    cluster.settle()
    assert cluster.log(1).high_watermark == 0
    why = cluster.brokers[1].host.why_uncommitted(PARTITION, 0)
    assert [lag.replica_id for lag in why.held_back_by] == [1]
    cluster.brokers[1].flush()
    assert cluster.produced(request_id).durability is Durability.PERSISTED


def test_leader_stamps_the_epoch_that_it_leads_in():
    cluster = three_replicas()
    cluster.lead(1, 7, (1, 2, 3))
    cluster.produce(1, "a", acks=1)
    appends = [one for _, one in cluster.effects if isinstance(one, AppendAsLeader)]
    assert [one.leader_epoch for one in appends] == [7]


def test_why_uncommitted_names_the_replicas_that_hold_an_offset_back():
    cluster = three_replicas(min_insync_replicas=2)
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    cluster.produce(1, "a", "b", acks=1)
    cluster.fetch(1, 2, 2), cluster.fetch(1, 3, 1)
    host = cluster.brokers[1].host
    assert host.why_uncommitted(PARTITION, 0) is None, "committed"
    assert host.why_uncommitted(PARTITION, 2) is None, "not there"
    assert host.why_uncommitted(OTHER, 0) is None
    why = host.why_uncommitted(PARTITION, 1)
    assert (why.high_watermark, why.log_end_offset, why.isr) == (1, 2, (1, 2, 3))
    assert [(lag.replica_id, lag.log_end_offset) for lag in why.held_back_by] == [(3, 1)]
    assert not why.under_min_isr
    cluster.register(3, fenced=True), cluster.register(2, fenced=True)
    cluster.lead(1, 1, (1,))
    assert host.why_uncommitted(PARTITION, 1).under_min_isr
