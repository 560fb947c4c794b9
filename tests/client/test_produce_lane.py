"""The lane of one partition against a scripted leader: order, repeats, and what is given up."""

from __future__ import annotations

import struct
import uuid

import pytest

from replog._native.record_encoder import encode
from replog.client.produce_lane import ProduceLane
from replog.client.produce_window import IN_FLIGHT_MAX
from replog.client.produced import PendingBatches, split
from replog.errors import (
    NoLeaderError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    RecordBatchTooLargeError,
    ReplicationError,
    RequestTimedOutError,
    UnknownTopicIdError,
)
from replog.messages import Acks, Durability, ErrorCode, ProducedPartition, ProduceResponse
from replog.registrations import PartitionRegistration
from replog.types import TopicPartition

PARTITION = TopicPartition("orders", 0)
TOPIC_ID, NEW_TOPIC_ID = uuid.UUID(int=1), uuid.UUID(int=2)


class Future:
    """An asyncio future without a loop."""

    def __init__(self):
        self.result = self.error = None

    def done(self):
        return self.result is not None or self.error is not None

    def set_result(self, result):
        self.result = result

    def set_exception(self, error):
        self.error = error


class Timer:
    def __init__(self, timers, call):
        self.timers = timers
        self.call = call
        timers.append(self)

    def cancel(self):
        if self in self.timers:
            self.timers.remove(self)


class Connection:
    """A cluster that answers what the test says, when it says so."""

    def __init__(self):
        self.topic_id = TOPIC_ID
        self.leader_id = 1
        self.leader_epoch = 3
        self.unreachable = set()
        self.asked = []
        self.told = []
        self.given_up = []
        self.timers = []
        self.now = 0.0
        self.loop = self
        self.ids = 0

    def time(self):
        return self.now

    def call_later(self, _, call):
        return Timer(self.timers, call)

    def fire(self):
        for timer in list(self.timers):
            timer.cancel()
            timer.call()

    def partition(self, _):
        return PartitionRegistration(
            topic_partition=PARTITION,
            topic_id=self.topic_id,
            replicas=(1, 2),
            isr=(1, 2),
            leader_id=self.leader_id,
            leader_epoch=self.leader_epoch,
        )

    def reaches(self, broker_id):
        return broker_id not in self.unreachable

    def ask(self, broker_id, request, answered):
        self.asked.append((broker_id, request.partitions[0][2], answered))
        return len(self.asked)

    def give_up(self, request_id):
        self.given_up.append(request_id)

    def tell(self, broker_id, request):
        self.told.append(request.partitions[0][2])

    def new_producer_id(self):
        self.ids += 1
        return self.ids

    def answer(self, place, error=ErrorCode.NONE, base_offset=-1):
        if error is ErrorCode.NONE and base_offset < 0:
            base_offset = place
        self.asked[place][2](
            ProduceResponse(
                partitions=(
                    ProducedPartition(
                        topic_partition=PARTITION,
                        error=error,
                        base_offset=base_offset,
                        last_offset=base_offset,
                        leader_epoch=3,
                        durability=Durability.REPLICATED,
                    ),
                )
            )
        )

    def sent(self, first=0):
        """Producer id and sequence of each batch asked, from the first one on."""
        found = []
        for _, batch, _ in self.asked[first:]:
            producer_id, _, sequence = struct.unpack_from(">qhi", batch, 43)
            found.append((producer_id, sequence))
        return found


@pytest.fixture
def connection():
    return Connection()


def lane_of(connection, *, idempotent=True, acks=Acks.ALL):
    return ProduceLane(connection, PARTITION, TOPIC_ID, acks, 1000, idempotent=idempotent)


def send(lane, count=1, deadline_ms=1000.0):
    futures = []
    for _ in range(count):
        batch = encode(
            [b"value"],
            now_ms=1,
            producer_id=lane.producer_id,
            producer_epoch=0 if lane.producer_id >= 0 else -1,
            base_sequence=lane.next_sequence,
        )
        future = Future()
        lane.add(PendingBatches(batch, 1, lane.next_sequence, deadline_ms, future))
        futures.append(future)
    return futures


def known_lane(connection):
    """A lane whose first batch, sequence 0, is acknowledged by the leader."""
    lane = lane_of(connection)
    send(lane)
    connection.answer(0)
    connection.asked.clear()
    return lane


def test_no_more_are_in_flight_than_a_leader_remembers(connection):
    lane = known_lane(connection)
    futures = send(lane, 8)
    assert connection.sent() == [(1, 1 + number) for number in range(IN_FLIGHT_MAX)]
    connection.answer(0)
    assert len(connection.asked) == 6
    assert (futures[0].result.base_offset, futures[0].result.leader_epoch) == (0, 3)
    for place in range(1, 8):
        connection.answer(place)
    assert lane.is_idle
    assert all(future.result for future in futures)


def test_what_failed_for_a_passing_reason_is_sent_again_in_order_under_its_sequence(connection):
    lane = known_lane(connection)
    futures = send(lane, 4)
    connection.answer(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    connection.answer(1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    connection.answer(2)
    assert len(connection.asked) == 4, "nothing is sent while answers are awaited"
    connection.asked[3][2](None)
    connection.fire()
    connection.answer(4)
    assert connection.sent(4) == [(1, 1), (1, 2), (1, 4)]
    for place in (5, 6):
        connection.answer(place)
    assert all(future.result for future in futures)
    assert lane.is_idle


def test_a_change_of_leader_resends_at_once_and_to_the_new_one(connection):
    lane = known_lane(connection)
    send(lane, 2)
    connection.leader_id = 2
    lane.metadata_changed()
    assert connection.given_up == [1, 2]
    connection.answer(2)
    assert [broker_id for broker_id, _, _ in connection.asked] == [1, 1, 2, 2]


def test_a_batch_that_fails_for_good_leaves_no_hole_behind_it(connection):
    lane = known_lane(connection)
    first, second, third = send(lane, 3)
    connection.answer(0, ErrorCode.MESSAGE_TOO_LARGE)
    connection.answer(1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    connection.answer(2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(first.error, RecordBatchTooLargeError)
    connection.fire()
    connection.answer(3)
    assert connection.sent(3) == [(2, 0), (2, 1)]
    connection.answer(4)
    assert second.result
    assert third.result
    assert lane.next_sequence == 2


class TestBehindABatchThatWasGivenUp:
    """The sequence has a hole there: a leader could not tell a repeat from anything new."""

    def test_what_may_be_in_a_log_fails_and_what_is_in_none_goes_on_under_new_numbers(
        self, connection
    ):
        lane = known_lane(connection)
        [first] = send(lane, 1, 10.0)
        second, third, fourth = send(lane, 3, 1000.0)
        connection.now = 0.02
        lane.expire(20.0)
        assert isinstance(first.error, RequestTimedOutError)
        connection.asked[1][2](None)
        connection.answer(2, ErrorCode.NOT_ENOUGH_REPLICAS)
        connection.answer(3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert isinstance(second.error, RequestTimedOutError), "nobody knows what became of it"
        assert not third.done()
        connection.fire()
        assert connection.sent(4) == [(2, 0)]
        connection.answer(4)
        connection.answer(5)
        assert connection.sent(4) == [(2, 0), (2, 1)]
        assert third.result
        assert fourth.result

    def test_a_later_refusal_does_not_prove_that_an_earlier_try_was_not_appended(self, connection):
        lane = known_lane(connection)
        [first] = send(lane, 1, 500.0)
        [second] = send(lane, 1, 1000.0)
        connection.asked[0][2](None)
        connection.asked[1][2](None)
        connection.fire()
        connection.answer(2, ErrorCode.NOT_ENOUGH_REPLICAS)
        connection.now = 0.6
        lane.expire(600.0)
        assert isinstance(first.error, RequestTimedOutError)
        assert "an earlier try" in str(first.error)
        assert isinstance(second.error, RequestTimedOutError)
        assert lane.is_idle
        assert connection.sent(3) == []

    def test_one_that_waits_again_and_expires_takes_its_successors_along(self, connection):
        lane = known_lane(connection)
        futures = [*send(lane, 1, 10.0), *send(lane, 1, 1000.0)]
        for place in (0, 1):
            connection.asked[place][2](None)
        connection.now = 0.02
        lane.expire(20.0)
        assert all(isinstance(future.error, RequestTimedOutError) for future in futures)
        assert lane.is_idle


def test_a_batch_fails_when_its_time_is_up_though_a_later_one_is_in_flight(connection):
    lane = known_lane(connection)
    [first] = send(lane, 1, 10.0)
    [second] = send(lane, 1, 1000.0)
    connection.now = 0.02
    lane.expire(20.0)
    assert isinstance(first.error, RequestTimedOutError)
    assert not second.done()
    connection.answer(1)
    assert second.result


class TestALeaderThatMayNotKnowTheProducer:
    """It takes any sequence: were the first of several refused, the next would take its place."""

    def test_the_first_batch_of_a_producer_goes_ahead_alone(self, connection):
        lane = lane_of(connection)
        send(lane, 3)
        assert connection.sent() == [(1, 0)]
        connection.answer(0)
        assert connection.sent(1) == [(1, 1), (1, 2)]

    def test_so_does_the_first_after_a_failure(self, connection):
        lane = known_lane(connection)
        send(lane, 3)
        connection.answer(0, ErrorCode.NOT_ENOUGH_REPLICAS)
        connection.answer(1, ErrorCode.NOT_ENOUGH_REPLICAS)
        connection.answer(2, ErrorCode.NOT_ENOUGH_REPLICAS)
        connection.fire()
        assert connection.sent(3) == [(1, 1)]
        connection.answer(3, ErrorCode.NOT_ENOUGH_REPLICAS)
        connection.fire()
        assert connection.sent(3) == [(1, 1), (1, 1)], "refused again: still alone"
        connection.answer(4)
        assert connection.sent(5) == [(1, 2), (1, 3)]

    def test_a_later_batch_that_was_acknowledged_beside_a_failure_opens_nothing(self, connection):
        lane = known_lane(connection)
        send(lane, 4)
        connection.answer(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for place in (1, 2):
            connection.answer(place)
        connection.asked[3][2](None)
        connection.fire()
        assert connection.sent(4) == [(1, 1)]

    @pytest.mark.parametrize(("leader_id", "leader_epoch"), [(2, 4), (1, 4)])
    def test_so_does_the_first_to_a_new_leader_though_nothing_failed(
        self, connection, leader_id, leader_epoch
    ):
        """The same broker elected again may have come back empty."""
        lane = known_lane(connection)
        connection.leader_id, connection.leader_epoch = leader_id, leader_epoch
        send(lane, 3)
        assert connection.sent() == [(1, 1)]
        connection.answer(0)
        assert connection.sent(1) == [(1, 2), (1, 3)]

    def test_so_does_the_first_of_a_new_producer_id(self, connection):
        lane = known_lane(connection)
        send(lane, 3)
        for place in range(3):
            connection.answer(place, ErrorCode.MESSAGE_TOO_LARGE)
        send(lane, 2)
        assert connection.sent(3) == [(2, 0)]

    def test_plain_batches_need_not_wait_for_each_other(self, connection):
        send(lane_of(connection, idempotent=False), 3)
        assert len(connection.asked) == 3


def test_a_sequence_gap_that_nothing_explains_is_told(connection):
    [future] = send(lane_of(connection))
    connection.answer(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(future.error, OutOfOrderSequenceError)


def test_batches_wait_for_a_leader_until_their_time_is_up(connection):
    lane = lane_of(connection)
    connection.leader_id = None
    early, late = [*send(lane, 1, 10.0), *send(lane, 1, 50.0)]
    connection.now = 0.02
    lane.expire(20.0)
    assert isinstance(early.error, NoLeaderError)
    connection.leader_id = 1
    connection.fire()
    assert connection.sent() == [(2, 0)], "the lost batch leaves no hole in the sequence"
    connection.answer(0)
    assert late.result


def test_an_answer_that_does_not_come_is_a_timeout_that_says_nobody_knows(connection):
    lane = lane_of(connection)
    [future] = send(lane, 1, 10.0)
    connection.now = 0.02
    lane.expire(20.0)
    assert connection.given_up == [1]
    assert isinstance(future.error, RequestTimedOutError)
    assert "none before the delivery timeout: `why_uncommitted` names" in str(future.error)
    assert lane.is_idle


def test_the_last_reason_is_told_when_the_time_is_up(connection):
    lane = lane_of(connection)
    [future] = send(lane, 1, 10.0)
    connection.answer(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    connection.now = 0.02
    lane.expire(20.0)
    assert isinstance(future.error, NotEnoughReplicasError)


def test_a_plain_lane_sends_again_only_what_is_in_no_log(connection):
    lane = lane_of(connection, idempotent=False)
    futures = send(lane, 3)
    connection.answer(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    connection.answer(1, ErrorCode.REQUEST_TIMED_OUT, base_offset=7)
    connection.asked[2][2](None)
    assert futures[0].done() is False
    assert isinstance(futures[1].error, RequestTimedOutError)
    assert isinstance(futures[2].error, RequestTimedOutError)
    connection.fire()
    connection.answer(3)
    assert futures[0].result


def test_a_plain_lane_does_not_put_a_batch_behind_its_successor(connection):
    lane = lane_of(connection, idempotent=False)
    first, second = send(lane, 2)
    connection.answer(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    connection.answer(1)
    assert second.result
    assert isinstance(first.error, NotEnoughReplicasError)
    assert lane.is_idle


def test_acks_0_are_told_and_known_of_no_more(connection):
    lane = lane_of(connection, idempotent=False, acks=Acks.NONE)
    futures = send(lane, 2)
    assert len(connection.told) == 2
    assert futures[0].result.base_offset is None
    assert lane.is_idle


def test_closing_fails_all_that_is_on_its_way(connection):
    lane = known_lane(connection)
    futures = send(lane, 7)
    lane.close(ReplicationError("closed"))
    assert all(str(future.error) == "closed" for future in futures)
    assert len(connection.given_up) == IN_FLIGHT_MAX


def test_a_set_is_split_into_sets_of_one_batch_each():
    batches = encode([b"x" * 50] * 20, now_ms=1, batch_bytes_max=300)
    parts = [(bytes(batch), count) for batch, count in split(batches)]
    assert sum(count for _, count in parts) == 20
    assert len(parts) > 3
    for batch, _ in parts:
        assert batch[:8] == bytes(8)
        assert len(batch) == 12 + int.from_bytes(batch[8:12], "big")


def test_a_lane_ends_with_its_topic(connection):
    """Goal: what is in flight, and what waits, is not sent to another topic of that name."""
    lane = known_lane(connection)
    futures = send(lane, IN_FLIGHT_MAX + 2)
    connection.topic_id = NEW_TOPIC_ID
    lane.metadata_changed()
    assert all(type(future.error) is UnknownTopicIdError for future in futures)
    assert connection.given_up == [number + 1 for number in range(IN_FLIGHT_MAX)]
    assert lane.is_idle
    assert len(connection.asked) == IN_FLIGHT_MAX


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID])
def test_a_leader_that_has_not_heard_of_the_topic_is_asked_again(connection, code):
    lane = known_lane(connection)
    (future,) = send(lane)
    connection.answer(0, code)
    assert not future.done()
    connection.fire()
    connection.answer(1)
    assert future.result
