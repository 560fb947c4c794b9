"""The serving side of fetches: the order of checks, what counts as progress, what is waited for."""

import pytest

from replog.errors import CorruptBatchError, UsageError
from replog.messages import (
    ErrorCode,
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    LogRead,
    OffsetSpec,
)
from replog.replication.effects import Respond
from replog.replication.events import RequesterGone
from replog.replication.incidents import Fenced
from replog.replication.replica import Role
from replog.types import Isolation, TopicPartition
from tests.replication.core_cluster import PARTITION, TOPIC_ID, CoreCluster, three_replicas
from tests.replication.memory_log import MemoryLog

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


def part(offset, topic_partition=PARTITION, **fields) -> FetchPartition:
    return FetchPartition(
        topic_partition=topic_partition, topic_id=TOPIC_ID, fetch_offset=offset, **fields
    )


def offset_at(timestamp, **fields) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        topic_partition=PARTITION, topic_id=TOPIC_ID, timestamp=timestamp, **fields
    )


def leader_with(epochs, *, isr=(1, 2, 3), epoch=10, high_watermark=None) -> CoreCluster:
    """Replica 1 alone; the test asks for the others."""
    log = MemoryLog(epochs, high_watermark=high_watermark)
    cluster = CoreCluster({1: log, 2: MemoryLog(), 3: MemoryLog()}, decides=False)
    cluster.lead(1, epoch, isr)
    cluster.kill(2, tell=False), cluster.kill(3, tell=False)
    cluster.queue.clear()
    return cluster


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        (2, 5, (0, 2)),
        (0, 4, (0, 2)),
        (6, 6, (4, 13)),
        (5, 9, (4, 13)),
        (10, 18, (10, 17)),
        (0, 2, None),
        (7, 14, None),
        (9, 17, None),
        (10, 17, None),
        (11, 5, OUT_OF_RANGE),
    ],
)
def test_claim_is_held_against_the_epochs_of_the_log(last_epoch, offset, diverging):
    """The table of Kafka's testLastFetchedOffsetValidation."""
    cluster = leader_with([0] * 2 + [3] * 6 + [4] * 5 + [7] + [9] * 3)
    answer = cluster.fetch(1, 2, offset, last_fetched_epoch=last_epoch)
    if diverging is OUT_OF_RANGE:
        assert answer.error is OUT_OF_RANGE
    else:
        assert answer.diverging_epoch == diverging
        assert answer.error is ErrorCode.NONE
    proves = diverging is None
    assert cluster.leader(1).followers[2].log_end_offset == (offset if proves else -1)


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [(2, 8, (2, 5)), (0, 5, None), (3, 5, None), (0, 0, OUT_OF_RANGE)],
)
def test_claim_is_held_against_a_log_whose_start_has_moved(last_epoch, offset, diverging):
    cluster = leader_with([0] * 2 + [3] * 6 + [4] * 5 + [7] + [9] * 3, high_watermark=17)
    cluster.log(1).truncate_prefix_to(5)
    answer = cluster.fetch(1, 2, offset, last_fetched_epoch=last_epoch)
    if diverging is OUT_OF_RANGE:
        assert answer.error is OUT_OF_RANGE
    else:
        assert answer.diverging_epoch == diverging


def test_offset_below_the_log_start_is_out_of_range_even_where_the_logs_part():
    cluster = leader_with([0] * 2 + [3] * 6 + [4] * 5, high_watermark=13)
    cluster.log(1).truncate_prefix_to(10)
    for last_epoch in (5, 3):
        assert cluster.fetch(1, 2, 6, last_fetched_epoch=last_epoch).error is OUT_OF_RANGE


def test_diverging_answer_carries_no_records_and_does_not_count():
    """KAFKA-13141."""
    cluster = leader_with([1] * 5)
    answer = cluster.fetch(1, 2, 7, last_fetched_epoch=1)
    assert answer.diverging_epoch == (1, 5)
    assert answer.records is None
    assert cluster.leader(1).followers[2].last_fetch_ms < 0


def test_epochs_are_checked_before_roles_and_roles_before_assignments():
    cluster = three_replicas()
    cluster.lead(1, 5, (1, 2, 3))
    codes = {
        (1, 4, 9): ErrorCode.FENCED_LEADER_EPOCH,
        (1, 6, 9): ErrorCode.UNKNOWN_LEADER_EPOCH,
        (2, 4, 3): ErrorCode.FENCED_LEADER_EPOCH,
        (2, 6, 3): ErrorCode.UNKNOWN_LEADER_EPOCH,
        (2, 5, 3): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (2, -1, 3): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (1, 5, 9): ErrorCode.UNKNOWN_LEADER_EPOCH,
        (1, -1, 9): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (1, 5, 1): ErrorCode.UNKNOWN_LEADER_EPOCH,
        (1, 5, 2): ErrorCode.NONE,
    }
    for (broker, epoch, replica), code in codes.items():
        asked = part(0, current_leader_epoch=epoch)
        request = FetchRequest(partitions=(asked,), replica_id=replica, wait_ms_max=0)
        assert cluster.answer(broker, request).partitions[0].error is code, (broker, epoch, replica)


def test_fenced_request_is_reported_with_both_epochs():
    cluster = leader_with([1])
    cluster.fetch(1, 2, 0, epoch=3)
    (fenced,) = cluster.incidents(Fenced)
    assert (fenced.error, fenced.leader_epoch, fenced.found_epoch, fenced.peer_id) == (
        ErrorCode.FENCED_LEADER_EPOCH,
        10,
        3,
        2,
    )


def test_partition_that_is_unknown_or_elsewhere_or_offline_is_told_apart():
    cluster = CoreCluster({1: {}, 2: MemoryLog()})
    cluster.lead(2, 1, (2,), replicas=(2,))
    assert cluster.consume(1, 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    elsewhere = TopicPartition("nowhere", 0)
    request = FetchRequest(partitions=(part(0, elsewhere),), wait_ms_max=0)
    error = cluster.answer(1, request).partitions[0].error
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.brokers[1].damaged.add(PARTITION)
    cluster.lead(2, 1, (2,), replicas=(1, 2))
    assert cluster.consume(1, 0).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_fails_the_core_is_given_up_and_the_asker_told():
    """Goal: what a log says while the core asks ends that log's service, not the broker's."""

    def fail(*_):
        raise CorruptBatchError("byte 7")

    cluster = leader_with([1, 1], high_watermark=2)
    cluster.log(1).readable_bytes = fail
    assert cluster.consume(1, 0, min_bytes=100).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.brokers[1].host.role_of(PARTITION) is not Role.LEADER
    cluster = leader_with([1, 1], high_watermark=2)
    cluster.log(1).offset_for_timestamp = fail
    request = offset_at(1)
    assert cluster.answer(1, request).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.brokers[1].host.role_of(PARTITION) is not Role.LEADER


def test_a_search_that_no_log_could_make_is_refused_and_the_log_stays():
    def refuse(*_):
        raise UsageError("expected an integer")

    cluster = leader_with([1, 1], high_watermark=2)
    cluster.log(1).offset_for_timestamp = refuse
    request = offset_at(1)
    assert cluster.answer(1, request).error is ErrorCode.INVALID_REQUEST
    assert cluster.brokers[1].host.role_of(PARTITION) is Role.LEADER


@pytest.mark.parametrize("timestamp", [-3, 2**63])
def test_a_time_that_cannot_be_is_refused(timestamp):
    cluster = leader_with([1, 1], high_watermark=2)
    request = offset_at(timestamp)
    assert cluster.answer(1, request).error is ErrorCode.INVALID_REQUEST


def test_claim_that_no_epoch_vouches_for_is_served_but_does_not_count():
    cluster = leader_with([1, 1])
    assert cluster.fetch(1, 2, 2, last_fetched_epoch=-1).error is ErrorCode.NONE
    assert cluster.leader(1).followers[2].log_end_offset == -1
    assert cluster.fetch(1, 2, 1, last_fetched_epoch=-1, log_start_offset=1).records
    assert cluster.leader(1).followers[2].log_end_offset == 1, "an empty log needs no voucher"


def test_consumer_reads_to_the_high_watermark_and_a_follower_to_the_end():
    cluster = leader_with([10] * 5, isr=(1, 2), high_watermark=5)
    cluster.produce(1, "a", "b", acks=1)
    assert [record.offset for record in cluster.consume(1, 3).records] == [3, 4]
    assert [record.offset for record in cluster.fetch(1, 2, 3).records] == [3, 4, 5, 6]
    assert cluster.consume(1, 6).records is None


def test_consumer_cannot_ask_for_more_than_the_high_watermark_by_its_isolation():
    cluster = leader_with([10] * 5, high_watermark=3)
    cluster.fetch(1, 2, 3), cluster.fetch(1, 3, 5)
    cluster.lead(1, 10, (1,))
    answer = cluster.consume(1, 0, isolation=Isolation.LOG_END)
    assert len(answer.records or ()) == answer.high_watermark


def test_read_committed_stops_at_the_last_stable_offset():
    cluster = leader_with([10] * 5, isr=(1,), high_watermark=5)
    cluster.log(1).first_unstable_offset = 3
    assert len(cluster.consume(1, 0, isolation=Isolation.TXN_COMMITTED).records) == 3
    assert len(cluster.consume(1, 0).records) == 5


def test_waiting_read_committed_fetch_is_answered_when_its_records_are_committed():
    cluster = leader_with([], isr=(1, 2))
    cluster.register(3, fenced=True)
    request = FetchRequest(partitions=(part(0),), isolation=Isolation.TXN_COMMITTED)
    request_id = cluster.ask(1, request)
    cluster.produce(1, "a")
    cluster.fetch(1, 2, 1)
    assert cluster.brokers[1].host.next_deadline_ms == cluster.now_ms
    cluster.tick()
    assert len(cluster.answers[request_id].partitions[0].records) == 1


def test_consumer_that_asks_outside_the_log_is_out_of_range():
    cluster = leader_with([10] * 5, isr=(1,), high_watermark=5)
    cluster.log(1).truncate_prefix_to(2)
    for offset in (-1, 1, 6, 10**12):
        assert cluster.consume(1, offset).error is OUT_OF_RANGE


def test_new_leader_asks_consumers_to_come_again_while_its_high_watermark_lags():
    """103 leads with records 0-2 and knows only the first as committed: 1 and 2 may be, too."""
    cluster = leader_with([1] * 3, high_watermark=1)
    assert cluster.consume(1, 0).records
    for offset in (1, 2, 3):
        assert cluster.consume(1, offset).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert cluster.consume(1, 4).error is OUT_OF_RANGE
    listed = cluster.answer(1, latest())
    assert listed.error is ErrorCode.OFFSET_NOT_AVAILABLE
    cluster.fetch(1, 2, 3), cluster.fetch(1, 3, 3)
    assert cluster.consume(1, 2).records
    assert cluster.answer(1, latest()).offset == 3


def latest(**fields) -> ListOffsetsRequest:
    return offset_at(OffsetSpec.LATEST, **fields)


def test_list_offsets_knows_starts_ends_and_times():
    cluster = leader_with([9] * 3 + [10] * 4, high_watermark=5)
    cluster.log(1).truncate_prefix_to(1)
    earliest = offset_at(OffsetSpec.EARLIEST)
    assert cluster.answer(1, earliest).offset == 1
    assert cluster.answer(1, latest(replica_id=2)).offset == 7
    assert cluster.answer(1, latest(replica_id=2)).leader_epoch == 10
    at_time = offset_at(2)
    assert cluster.answer(1, at_time).offset == 2
    assert cluster.answer(1, at_time).leader_epoch == 9
    late = offset_at(6)
    assert cluster.answer(1, late).error is ErrorCode.OFFSET_NOT_AVAILABLE
    cluster.fetch(1, 2, 7), cluster.fetch(1, 3, 7)
    assert cluster.answer(1, late).offset == 6
    never = offset_at(70)
    assert cluster.answer(1, never).offset == -1


def test_list_offsets_checks_epoch_role_and_question():
    cluster = leader_with([10])
    assert cluster.answer(1, latest(current_leader_epoch=9)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert (
        cluster.answer(1, latest(current_leader_epoch=11)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    strange = offset_at(-9)
    assert cluster.answer(1, strange).error is ErrorCode.INVALID_REQUEST
    cluster.lead(2, 11, (1, 2, 3))
    assert cluster.answer(1, latest()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_waits_for_records_and_is_answered_once():
    cluster = leader_with([], isr=(1,))
    request = FetchRequest(partitions=(part(0),))
    request_id = cluster.ask(1, request)
    assert request_id not in cluster.answers
    cluster.produce(1, "a")
    assert len(cluster.answers[request_id].partitions[0].records) == 1
    cluster.run(1000)


def test_waiting_fetch_is_answered_once_for_requests_that_come_together():
    cluster = leader_with([], isr=(1,))
    request = FetchRequest(partitions=(part(0),))
    request_id = cluster.ask(1, request)
    produced = [cluster.produce(1, "a", more=True), cluster.produce(1, "b", more=True)]
    assert request_id not in cluster.answers
    # Only the answer to what waits is put off.
    assert [cluster.produced(one).base_offset for one in produced] == [0, 1]
    cluster.produce(1, "c")
    assert len(cluster.answers[request_id].partitions[0].records) == 3


def test_fetch_that_waits_in_vain_is_answered_when_its_time_is_up():
    cluster = leader_with([], isr=(1,))
    request = FetchRequest(partitions=(part(0),), wait_ms_max=300)
    request_id = cluster.ask(1, request)
    cluster.tick(299)
    assert request_id not in cluster.answers
    cluster.tick(1)
    assert cluster.answers[request_id].partitions[0].records is None


def test_fetch_waits_until_as_many_bytes_as_it_wants_are_there():
    cluster = leader_with([], isr=(1,))
    request = FetchRequest(partitions=(part(0),), min_bytes=3)
    request_id = cluster.ask(1, request)
    for payload in ("a", "b"):
        cluster.produce(1, payload)
        assert request_id not in cluster.answers
    cluster.produce(1, "c")
    assert len(cluster.answers[request_id].partitions[0].records) == 3


def test_bytes_that_a_fetch_waits_for_are_counted_over_its_partitions():
    other = TopicPartition("orders", 1)
    cluster = CoreCluster({1: {PARTITION: MemoryLog(), other: MemoryLog()}})
    cluster.lead(1, 1, (1,))
    cluster.lead(1, 1, (1,), topic_partition=other)
    asked = [part(0, one) for one in (PARTITION, other)]
    request_id = cluster.ask(1, FetchRequest(partitions=tuple(asked), min_bytes=2))
    cluster.produce(1, "a")
    assert request_id not in cluster.answers
    cluster.produce(1, "b", topic_partition=other)
    assert [len(one.records) for one in cluster.answers[request_id].partitions] == [1, 1]


def test_waiting_fetch_hears_at_once_when_its_leader_resigns():
    cluster = leader_with([], isr=(1, 2, 3))
    asked = part(0, current_leader_epoch=10)
    request_id = cluster.ask(1, FetchRequest(partitions=(asked,), replica_id=2, broker_epoch=2))
    assert request_id not in cluster.answers
    cluster.lead(3, 11, (1, 2, 3))
    error = cluster.answers[request_id].partitions[0].error
    assert error is ErrorCode.FENCED_LEADER_EPOCH


def test_waiting_fetch_hears_when_the_partition_is_deleted():
    cluster = leader_with([], isr=(1, 2, 3))
    request = FetchRequest(partitions=(part(0),))
    request_id = cluster.ask(1, request)
    registration = cluster.registrations[PARTITION]
    cluster.publish(removed=((PARTITION, registration.topic_id),))
    error = cluster.answers[request_id].partitions[0].error
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_refused_partition_answers_the_whole_fetch_at_once():
    cluster = leader_with([], isr=(1,))
    asked = (part(0), part(0, TopicPartition("nowhere", 0)))
    assert len(cluster.answer(1, FetchRequest(partitions=asked)).partitions) == 2


def test_fetch_for_nothing_is_answered_at_once():
    cluster = leader_with([], isr=(1,))
    assert cluster.answer(1, FetchRequest(partitions=())).partitions == ()


def test_answer_from_the_waiting_room_does_not_count_as_progress_again():
    cluster = leader_with([], isr=(1, 2, 3))
    asked = part(0, current_leader_epoch=10)
    cluster.ask(1, FetchRequest(partitions=(asked,), replica_id=2, broker_epoch=2))
    before = cluster.leader(1).followers[2].last_fetch_ms
    cluster.now_ms += 100
    cluster.produce(1, "a", acks=1)
    assert cluster.leader(1).followers[2].last_fetch_ms == before


def test_limits_travel_with_the_read():
    cluster = leader_with([10] * 5, isr=(1,), high_watermark=5)
    cluster.effects.clear()
    cluster.consume(1, 0, max_bytes=3)
    (respond,) = [one for _, one in cluster.effects if isinstance(one, Respond)]
    (fetched,) = respond.response.partitions
    assert fetched.records == LogRead(start_offset=0, end_offset=5, max_bytes=3)


def test_fetch_whose_requester_is_gone_is_not_answered():
    cluster = leader_with([], isr=(1,))
    request = FetchRequest(partitions=(part(0),))
    request_id = cluster.ask(1, request)
    broker = cluster.brokers[1]
    broker.handle(RequesterGone(request_id=max(broker.asked)))
    cluster.produce(1, "a")
    cluster.run(1000)
    assert request_id not in cluster.answers


def test_follower_serves_consumers_up_to_its_own_high_watermark():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    assert cluster.consume(2, 0).records is None
    assert cluster.consume(2, 2).error is OUT_OF_RANGE
    asked = part(0)
    request_id = cluster.ask(2, FetchRequest(partitions=(asked,), wait_ms_max=5000))
    cluster.run(600)
    assert len(cluster.answers[request_id].partitions[0].records) == 1
    assert cluster.consume(2, 0).records


def racked(**options) -> CoreCluster:
    cluster = CoreCluster(
        {1: MemoryLog([1] * 4, high_watermark=4), 2: MemoryLog(), 3: MemoryLog()}, **options
    )
    for broker, rack in ((1, "a"), (2, "b"), (3, "b")):
        cluster.register(broker, rack=rack)
    cluster.lead(1, 1, (1, 2, 3))
    cluster.settle()
    return cluster


def test_leader_sends_a_consumer_to_the_replica_in_its_rack():
    cluster = racked(rack_aware_reads=True)
    answer = cluster.consume(1, 0, rack="b")
    assert answer.preferred_read_replica == 3, "both are level: the highest id"
    assert answer.records is None
    assert cluster.consume(1, 0, rack="a").records
    assert cluster.consume(1, 0).records
    assert cluster.consume(1, 0, rack="c").records
    cluster.lead(1, 1, (1, 2))
    assert cluster.consume(1, 0, rack="b").preferred_read_replica == 2


def test_consumer_that_waits_at_a_follower_hears_at_once_what_is_committed():
    """Goal: not only when the follower's next fetch has waited for its time."""
    cluster = racked(rack_aware_reads=True)
    asked = part(4)
    request_id = cluster.ask(2, FetchRequest(partitions=(asked,), wait_ms_max=5000))
    cluster.produce(1, "a")
    cluster.settle()
    assert len(cluster.answers[request_id].partitions[0].records) == 1
    assert not cluster.queue, "nobody goes on telling what is known"


def test_leader_serves_every_rack_itself_unless_asked_to_send_away():
    assert racked().consume(1, 0, rack="b").records


def test_replica_that_does_not_hold_the_offset_is_not_preferred():
    cluster = racked(rack_aware_reads=True)
    cluster.queue.clear()
    cluster.produce(1, "x", acks=1)
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    assert cluster.consume(1, 5, rack="b").preferred_read_replica is None


def test_follower_is_not_kept_waiting_while_it_may_have_new_partitions_to_ask_for():
    """Its fetch waits for the partitions that it knew; what we lead since needs its next one."""
    other = TopicPartition("orders", 1)
    cluster = three_replicas()
    cluster.run(1000)
    assert not cluster.queue
    cluster.lead(1, 1, (1, 2, 3), topic_partition=other)
    request_id = cluster.produce(1, "a", topic_partition=other)
    cluster.settle()
    assert cluster.produced(request_id).error is ErrorCode.NONE, "no time has passed"


def test_follower_that_hears_of_a_new_partition_late_asks_for_it_soon():
    other = TopicPartition("orders", 1)
    cluster = three_replicas()
    cluster.run(1000)
    registration = cluster.lead(1, 1, (1, 2), topic_partition=other, to=(1,))
    request_id = cluster.produce(1, "a", topic_partition=other)
    cluster.settle()
    cluster.publish(partitions=(registration,), to=(2,))
    cluster.run(20)
    assert cluster.produced(request_id).error is ErrorCode.NONE
    cluster.run(1000)
    assert not cluster.brokers[1].host._context.unheard


def test_nobody_is_awaited_by_a_leader_that_resigned():
    cluster = leader_with([])
    assert set(cluster.brokers[1].host._context.unheard) == {2, 3}
    cluster.fetch(1, 2, 0)
    assert set(cluster.brokers[1].host._context.unheard) == {3}
    cluster.lead(1, 10, (1, 2))
    assert not cluster.brokers[1].host._context.unheard
    cluster.lead(1, 11, (1, 2))
    assert set(cluster.brokers[1].host._context.unheard) == {2}
    cluster.lead(2, 12, (1, 2))
    assert not cluster.brokers[1].host._context.unheard
