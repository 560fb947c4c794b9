"""The group's own rules, over memory logs; the bytes of real logs are in test_failover_bytes."""

from __future__ import annotations

import pytest

from replog.errors import (
    CorruptBatchError,
    IneligibleReplicaError,
    LogFailedError,
    ReplicationError,
    RequestTimedOutError,
    UsageError,
)
from replog.messages import Acks
from replog.runtime.clock import ManualClock
from replog.runtime.replica_group import ReplicaGroup
from replog.types import TopicPartition
from tests.replication.memory_log import MemoryLog

PARTITION = TopicPartition("orders", 0)


class KeptLog(MemoryLog):
    """A memory log that a restart finds again."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def logs():
    return {1: KeptLog(), 2: KeptLog(), 3: KeptLog()}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def group(logs, clock):
    with ReplicaGroup(PARTITION, logs, logs.__getitem__, clock) as group:
        group.elect(1)
        group.settle()
        yield group


def payloads(log: MemoryLog) -> list[str]:
    return [record.payload for record in log.records]


def test_acks_all_is_acknowledged_once_all_in_sync_replicas_have_the_record(group, logs):
    ticket = group.produce(("a", "b"))
    assert not ticket.acknowledged
    with pytest.raises(RequestTimedOutError):
        ticket.offsets()
    group.settle()
    assert ticket.offsets() == (0, 1)
    assert [payloads(log) for log in logs.values()] == [["a", "b"]] * 3


def test_acks_leader_is_acknowledged_at_once_and_acks_none_never(group):
    assert group.produce(("a",), Acks.LEADER).offsets() == (0, 0)
    ticket = group.produce(("b",), Acks.NONE)
    group.settle()
    assert ticket.answer is None


def test_a_refused_append_raises_its_error_for_the_producer(group, logs):
    logs[1].refuse_append = CorruptBatchError("bad")
    with pytest.raises(CorruptBatchError):
        group.produce(("a",)).offsets()


def test_failover_loses_nothing_acknowledged_and_cuts_what_was_not(group, logs):
    kept = group.produce(("a",))
    group.settle()
    lost = group.produce(("never seen by others",))
    group.kill(1)
    with pytest.raises(RequestTimedOutError):
        lost.offsets()
    assert group.elect(2) == 1
    assert group.isr == (2, 3)
    after = group.produce(("b",))
    group.settle()
    group.restart(1)
    group.settle()
    assert (kept.offsets(), after.offsets()) == ((0, 0), (1, 1))
    assert [payloads(log) for log in logs.values()] == [["a", "b"]] * 3
    [cut] = group.truncations
    assert (cut.replica_id, cut.old_end_offset, cut.new_end_offset) == (1, 2, 1)


def test_a_replica_that_returned_is_readmitted_only_once_it_has_caught_up(group, logs):
    group.kill(3)
    group.elect(1)
    group.produce(("a",))
    group.settle()
    group.restart(3)
    with pytest.raises(IneligibleReplicaError):
        group.readmit(3)
    with pytest.raises(IneligibleReplicaError):
        group.elect(3)
    group.settle()
    epoch = group.readmit(3)
    assert (epoch, group.isr) == (2, (1, 2, 3))
    assert group.readmit(3) == epoch
    group.settle()
    assert group.elect(3) == 3


def test_a_dead_in_sync_replica_holds_back_acks_all_until_an_election_drops_it(group):
    group.kill(3)
    ticket = group.produce(("a",))
    group.settle()
    assert not ticket.acknowledged
    group.elect(1)
    group.settle()
    assert ticket.acknowledged


def test_without_a_leader_nothing_is_produced_or_readmitted(group):
    group.kill(1)
    for refused in (lambda: group.produce(("a",)), lambda: group.readmit(2)):
        with pytest.raises(ReplicationError):
            refused()


def test_the_dead_neither_lead_nor_die_again_and_the_living_do_not_restart(group):
    group.kill(1)
    for refused in (group.elect, group.kill, group.log):
        with pytest.raises(UsageError):
            refused(1)
    with pytest.raises(UsageError):
        group.restart(2)
    with pytest.raises(UsageError):
        group.restart(9)


def test_the_last_in_sync_replica_leads_again_after_its_return(group, logs):
    group.produce(("a",))
    group.settle()
    for replica_id in (2, 3, 1):
        group.kill(replica_id)
        if replica_id != 1:
            group.elect(1)
    for replica_id in (2, 3):
        group.restart(replica_id)
        with pytest.raises(IneligibleReplicaError):
            group.elect(replica_id)
    group.restart(1)
    group.elect(1)
    ticket = group.produce(("b",))
    group.settle()
    assert ticket.offsets() == (1, 1)
    assert [payloads(log) for log in logs.values()] == [["a", "b"]] * 3


def test_waiting_fetches_and_back_offs_end_by_ticks(group, logs, clock):
    logs[2].refuse_append = CorruptBatchError("hurt on the way")
    ticket = group.produce(("a",))
    group.settle()
    assert not ticket.acknowledged
    clock.advance(1000)
    group.tick()
    group.settle()
    assert ticket.acknowledged


def test_a_failed_follower_stays_out_until_the_next_epoch(group, logs, clock):
    logs[2].refuse_append = LogFailedError("dead disk")
    ticket = group.produce(("a",))
    group.settle()
    clock.advance(10**6)
    group.tick()
    group.settle()
    assert not ticket.acknowledged
    group.elect(1)
    group.settle()
    assert ticket.acknowledged


def test_leaving_the_group_closes_the_living_and_not_the_dead(logs):
    with ReplicaGroup(PARTITION, logs, logs.__getitem__) as group:
        group.kill(2)
    assert [log.closed for log in logs.values()] == [1, 0, 1]


def test_a_log_that_does_not_open_closes_those_that_did(logs):
    del logs[3]
    with pytest.raises(KeyError):
        ReplicaGroup(PARTITION, (1, 2, 3), logs.__getitem__)
    assert [log.closed for log in logs.values()] == [1, 1]
