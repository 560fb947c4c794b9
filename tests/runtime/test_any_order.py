"""Kills, returns, elections and lost messages in any order, over memory logs.

Checked after every action, with a model that only remembers what was acknowledged:
I1 and I3 what was acknowledged with acks=all stands in the log of every in-sync replica;
I4 two logs agree below the smaller of their high watermarks, and wherever offset and epoch agree;
I7 and I9 a leader's high watermark never falls, and never passes its log end.
At the end all return, and all logs must be equal.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from replog.errors import IneligibleReplicaError
from replog.messages import Acks
from replog.runtime.clock import ManualClock
from replog.runtime.replica_group import ReplicaGroup
from replog.types import TopicPartition
from tests.replication.memory_log import MemoryLog

REPLICAS = (1, 2, 3)


class KeptLog(MemoryLog):
    def close(self) -> None:
        pass


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.logs = {replica_id: KeptLog() for replica_id in REPLICAS}
        self.clock = ManualClock()
        self.group = ReplicaGroup(
            TopicPartition("orders", 0), REPLICAS, self.logs.__getitem__, self.clock
        )
        self.group.elect(1)
        self.sent = []
        self.leader_marks = {}

    @precondition(lambda self: self.group.leader_id is not None)
    @rule(count=st.integers(1, 3), acks=st.sampled_from(list(Acks)))
    def produce(self, count, acks):
        payloads = [f"{len(self.sent)}.{number}" for number in range(count)]
        self.sent.append((self.group.produce(payloads, acks), acks, payloads))

    @rule(count=st.integers(1, 12))
    def deliver(self, count):
        for _ in range(count):
            self.group.deliver_one()

    @precondition(lambda self: len(self.group.transport))
    @rule()
    def lose_a_message(self):
        self.group.transport.next()

    @rule(by_ms=st.sampled_from([1, 500, 1000, 30_000]))
    def pass_time(self, by_ms):
        self.clock.advance(by_ms)
        self.group.tick()

    @precondition(lambda self: self.group.living)
    @rule(choice=st.integers(0, 2), forgets=st.booleans())
    def kill(self, choice, forgets):
        replica_id = self.group.living[choice % len(self.group.living)]
        note(f"replica {replica_id}")
        self.group.kill(replica_id)
        if forgets:
            # Without a checkpoint a replica knows nothing as committed when it comes back.
            self.logs[replica_id].high_watermark = 0

    @precondition(lambda self: len(self.group.living) < len(REPLICAS))
    @rule(choice=st.integers(0, 2))
    def restart(self, choice):
        dead = [i for i in REPLICAS if i not in self.group.living]
        self.group.restart(dead[choice % len(dead)])

    @rule(choice=st.integers(0, 2))
    def elect(self, choice):
        eligible = [i for i in self.group.isr if i in self.group.living]
        if eligible:
            self.group.elect(eligible[choice % len(eligible)])

    @precondition(lambda self: self.group.leader_id is not None and self.group.living)
    @rule(choice=st.integers(0, 2))
    def readmit(self, choice):
        try:
            self.group.readmit(self.group.living[choice % len(self.group.living)])
        except IneligibleReplicaError:
            assert len(self.group.isr) < len(REPLICAS)

    @invariant()
    def what_was_acknowledged_is_on_every_in_sync_replica(self):
        for replica_id in self.group.isr:
            records = {record.offset: record.payload for record in self.logs[replica_id].records}
            for ticket, acks, payloads in self.sent:
                if acks is Acks.ALL and ticket.acknowledged:
                    base_offset, last_offset = ticket.offsets()
                    found = [records.get(i) for i in range(base_offset, last_offset + 1)]
                    assert found == payloads, (replica_id, base_offset)

    @invariant()
    def logs_match(self):
        for one, other in itertools.combinations(self.logs.values(), 2):
            committed = min(one.high_watermark, other.high_watermark)
            assert one.records[:committed] == other.records[:committed]
            pairs = list(zip(one.records, other.records, strict=False))
            same_epoch = [a.epoch == b.epoch for a, b in pairs]
            assert same_epoch == sorted(same_epoch, reverse=True)
            assert all(a == b for a, b in pairs if a.epoch == b.epoch)

    @invariant()
    def high_watermarks_stay_within_the_log_and_never_fall_on_a_leader(self):
        for log in self.logs.values():
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        if self.group.leader_id is not None:
            key = (self.group.leader_epoch, self.group.leader_id)
            mark = self.logs[self.group.leader_id].high_watermark
            assert mark >= self.leader_marks.get(key, 0)
            self.leader_marks[key] = mark

    def teardown(self):
        for replica_id in REPLICAS:
            if replica_id not in self.group.living:
                self.group.restart(replica_id)
        self.group.elect(self.group.isr[0])
        last = None
        for _ in range(3):
            # Lost messages are asked for again when their time is up.
            self.clock.advance(30_000)
            self.group.tick()
            self.group.settle()
            last = last or self.group.produce(("last",))
        for replica_id in REPLICAS:
            self.group.readmit(replica_id)
            self.group.settle()
        assert last.acknowledged
        self.what_was_acknowledged_is_on_every_in_sync_replica()
        logs = list(self.logs.values())
        assert logs[0].records == logs[1].records == logs[2].records
        assert {log.high_watermark for log in logs} == {logs[0].log_end_offset}


AnyOrder.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnyOrder = AnyOrder.TestCase
pytestmark = pytest.mark.slow
