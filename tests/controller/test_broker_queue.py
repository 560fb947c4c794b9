"""What a broker has been asked and not completed; and when that is too much."""

import random
import uuid

import pytest

from replog.controller.broker_queue import (
    BrokerQueue,
    BrokerQueueFullError,
    ChangeKind,
    ChangeState,
    StateChange,
)
from replog.types import TopicPartition

START, DELETE = ChangeKind.FOLLOW, ChangeKind.DELETE


def change(kind=START, epoch=0, version=1, partition=0, topic=1, of=StateChange):
    return of(TopicPartition("t", partition), uuid.UUID(int=topic), 3, kind, epoch, version, 5)


def test_what_is_received_and_completed_piece_by_piece_is_told_in_order():
    queue = BrokerQueue(3)
    asked = [change(version=version) for version in (1, 2, 3, 4)]
    for one in asked:
        queue.put(one)
    queue.received(2, 10)
    queue.received(1, 11)
    queue.completed(1, 12)
    queue.received(3, 13)
    assert [one.version for one in queue] == [2, 3, 4]
    assert [one.state for one in queue] == [ChangeState.RECEIVED] * 2 + [ChangeState.REQUESTED]
    assert [one.received_ms for one in asked] == [10, 10, 13, None]
    queue.completed(4, 14)
    assert len(queue) == 0
    assert [one.completed_ms for one in asked] == [12, 14, 14, 14]


class TestAFullQueue:
    def test_keeps_the_latest_deletion_of_each_partition_and_drops_starts(self):
        queue = BrokerQueue(3, 4)
        asked = [
            change(START),
            change(DELETE, epoch=1, version=2),
            change(DELETE, epoch=2, version=3),
            change(DELETE, epoch=1, version=4, partition=1),
        ]
        for one in asked:
            queue.put(one)
        queue.put(change(START, version=5))
        assert [(one.kind, one.leader_epoch, one.version) for one in queue] == [
            (DELETE, 2, 3),
            (DELETE, 1, 4),
            (START, 0, 5),
        ]
        dropped = [one.state is ChangeState.DROPPED for one in asked]
        assert dropped == [True, True, False, False]

    def test_of_nothing_but_deletions_is_an_error_that_names_the_broker(self):
        queue = BrokerQueue(3, 2)
        for partition in range(2):
            queue.put(change(DELETE, partition=partition))
        with pytest.raises(BrokerQueueFullError, match="broker 3") as caught:
            queue.put(change(DELETE, partition=2))
        assert caught.value.broker_id == 3
        assert len(queue) == 2

    def test_of_two_topics_of_one_name_keeps_the_deletions_of_both(self):
        queue = BrokerQueue(3, 3)
        for topic in (1, 2):
            queue.put(change(DELETE, topic=topic, version=topic))
        queue.put(change(START, version=3))
        queue.put(change(START, version=4))
        assert [one.topic_id.int for one in queue if one.kind is DELETE] == [1, 2]

    def full_of_deletions(self):
        queue = BrokerQueue(3, 4)
        for partition in range(4):
            queue.put(change(DELETE, epoch=5, version=partition, partition=partition))
        return queue

    def test_of_nothing_but_deletions_takes_a_later_one_of_the_same_partition(self):
        queue = self.full_of_deletions()
        older = next(iter(queue))
        queue.put(change(DELETE, epoch=6, version=9))
        assert [(one.topic_partition.partition, one.leader_epoch) for one in queue] == [
            (1, 5),
            (2, 5),
            (3, 5),
            (0, 6),
        ]
        assert older.state is ChangeState.DROPPED
        queue.completed(9, 14)
        assert len(queue) == 0
        assert (older.state, older.completed_ms) == (ChangeState.DROPPED, None)

    def test_of_nothing_but_deletions_drops_an_older_one_of_the_same_partition(self):
        queue = self.full_of_deletions()
        late = change(DELETE, epoch=4, version=9)
        queue.put(late)
        assert late.state is ChangeState.DROPPED
        assert [one.leader_epoch for one in queue] == [5] * 4

    def test_has_recovered_when_it_is_half_empty(self):
        queue = self.full_of_deletions()
        with pytest.raises(BrokerQueueFullError):
            queue.put(change(START, version=4))
        queue.completed(0, 14)
        assert queue.overflowing
        queue.completed(1, 14)
        assert not queue.overflowing
        for version in (5, 6):
            queue.put(change(DELETE, epoch=version, version=version, partition=3))
        assert [one.version for one in queue] == [2, 3, 5, 6], "room for all of them"


class Watched(StateChange):
    """Counts how often any of them is looked at."""

    __slots__ = ()
    looks = 0

    def __getattribute__(self, name):
        Watched.looks += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("length", [50, 800])
@pytest.mark.parametrize("room", [0, 1])
@pytest.mark.parametrize("kind", [START, DELETE])
def test_what_a_change_costs_at_a_full_queue_does_not_grow_with_it(kind, room, length):
    """Goal: a dead broker with a full queue holds nobody up when another one dies."""
    queue = BrokerQueue(3, length)
    for partition in range(length - room):
        queue.put(change(DELETE, partition=partition, of=Watched))
    for version in (1, 2):  # sorts out the deletions, once
        put_anyway(queue, change(START, version=version, of=Watched))
    before, changes = Watched.looks, 400
    for number in range(changes):
        asked = change(kind, number, 2 + number, partition=number % (length - 1), of=Watched)
        put_anyway(queue, asked)
    assert (Watched.looks - before) / changes < 20
    assert len(queue) >= length - 1
    assert len(queue._deletions) <= 2 * length, "those dropped are forgotten"


def put_anyway(queue, asked):
    try:
        queue.put(asked)
    except BrokerQueueFullError:
        return False
    return True


class PlainQueue:
    """The rules, without regard to cost."""

    def __init__(self, length_max):
        self.waiting = []
        self.length_max = length_max
        self.was_full = False

    def put(self, asked):
        if len(self.waiting) >= self.length_max:
            self.was_full = True
            self.waiting = [one for one in self.waiting if one.kind is DELETE]
        self.waiting.append(asked)
        if self.was_full:
            self.waiting = [one for one in self.waiting if not self._is_replaced(one)]
        if len(self.waiting) > self.length_max:
            self.waiting.remove(asked)
            return False
        return True

    def _is_replaced(self, one):
        place = self.waiting.index(one)
        return one.kind is DELETE and any(
            other.kind is DELETE
            and other.topic_partition == one.topic_partition
            and (other.leader_epoch, self.waiting.index(other)) > (one.leader_epoch, place)
            for other in self.waiting
        )

    def completed(self, version):
        self.waiting = [one for one in self.waiting if one.version > version]
        if len(self.waiting) <= self.length_max // 2:
            self.was_full = False


@pytest.mark.parametrize("seed", range(40))
def test_a_queue_holds_what_the_rules_say(seed):
    chance = random.Random(seed)
    queue, plain = BrokerQueue(3, 6), PlainQueue(6)
    asked = []
    for version in range(400):
        kind, epoch = chance.choice([START, DELETE, DELETE]), chance.randrange(3)
        one = change(kind, epoch, version, partition=chance.randrange(9))
        asked.append(one)
        assert put_anyway(queue, one) == plain.put(one)
        if chance.random() < 0.08:
            done = version - chance.randrange(6)
            queue.received(version - chance.randrange(3), 10)
            queue.completed(done, 11)
            plain.completed(done)
        assert list(queue) == plain.waiting
        assert len(queue) == len(plain.waiting)
        waits = {ChangeState.REQUESTED, ChangeState.RECEIVED}
        assert [one for one in asked if one.state in waits] == plain.waiting
