"""Random schedules over three hosts, against a truth that the test keeps for itself.

A seed draws what happens next: a message on one of the links (each link keeps its order, the links
do not), metadata that reaches one broker, a produce, time, a death, a return. The controller is
the dumbest that is safe: it grants proposals of the present epochs, and elects the first live
replica of the in-sync set. A death keeps the log (the kernel has it). After every step:

- below each leader's high watermark all is as the truth has it, and every in-sync replica has it;
- what was acknowledged with acks=all is part of the truth;
- what a log knows as committed is the truth, whoever it follows.
"""

import collections
import dataclasses
import random

import pytest

from replog.messages import Acks, ErrorCode
from replog.registrations import MetadataDelta
from replog.replication import events as ev
from replog.replication.effects import TruncateFullyAndStartAt, TruncateLog
from tests.replication.core_cluster import CONTROLLER, PARTITION, CoreCluster
from tests.replication.memory_log import MemoryLog

SEEDS = 40
STEPS = 400
REPLICAS = (1, 2, 3)


class Schedule(CoreCluster):
    """A cluster in which metadata, too, takes its time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.inbox: dict[int, collections.deque] = {one: collections.deque() for one in REPLICAS}
        self.dead: dict[int, MemoryLog] = {}
        self.truth: list = []
        self.acknowledged: dict[int, object] = {}
        self.delays = False
        self.cuts = 0
        super().__init__(
            {one: MemoryLog() for one in REPLICAS}, replica_lag_time_max_ms=2000, decides=False
        )
        self.lead(1, 1, REPLICAS, min_insync_replicas=self.random.choice([1, 2]))
        self.delays = True
        self._payload = 0

    def publish(self, *, brokers=(), partitions=(), removed=(), to=None):
        if not self.delays:
            super().publish(brokers=brokers, partitions=partitions, removed=removed, to=to)
            return
        for registration in partitions:
            self.registrations[registration.topic_partition] = registration
        for one in self.brokers:
            self.inbox[one].append((tuple(brokers), tuple(partitions)))

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.55:
            self._deliver()
        elif choice < 0.75:
            self._deliver_metadata()
        elif choice < 0.88:
            self._produce()
        elif choice < 0.95:
            self.tick(self.random.choice([1, 50, 500, 1000]))
        elif choice < 0.975:
            self._die()
        else:
            self._return()
        self.check()

    def _deliver(self) -> None:
        firsts = {}
        for place, envelope in enumerate(self.queue):
            firsts.setdefault((envelope.sender, envelope.to), place)
        if not firsts:
            return
        place = self.random.choice(list(firsts.values()))
        self.queue.rotate(-place)
        envelope = self.queue[0]
        super().deliver_one()
        self.queue.rotate(place if place <= len(self.queue) else 0)
        if envelope.to == CONTROLLER:
            self._judge(envelope)

    def _judge(self, envelope) -> None:
        """A proposal with a dead or outdated member is refused."""
        bad = any(
            replica in self.dead or epoch not in {-1, self.registered[replica].broker_epoch}
            for proposal in envelope.body.proposals
            for replica, epoch in proposal.isr
        )
        self.decide(envelope, ErrorCode.INELIGIBLE_REPLICA if bad else ErrorCode.NONE)

    def _deliver_metadata(self) -> None:
        waiting = [one for one in self.brokers if self.inbox[one]]
        if waiting:
            one = self.random.choice(waiting)
            brokers, partitions = self.inbox[one].popleft()
            delta = MetadataDelta(version=0, brokers=brokers, partitions=partitions)
            self.brokers[one].handle(ev.MetadataChanged(delta=delta))

    def _produce(self) -> None:
        leaders = [one for one in self.brokers if self.leader(one) is not None]
        if leaders:
            self._payload += 1
            leader = self.random.choice(leaders)
            acks = self.random.choice([Acks.ALL, Acks.ALL, Acks.LEADER])
            request_id = self.produce(leader, self._payload, acks=acks, timeout_ms=5000)
            if acks is Acks.ALL:
                self.acknowledged[request_id] = self._payload

    def _die(self) -> None:
        if len(self.brokers) < 2:
            return
        one = self.random.choice(list(self.brokers))
        self.dead[one] = self.kill(one).logs
        self.inbox[one].clear()
        self.registered[one] = dataclasses.replace(self.registered[one], fenced=True)
        before = self.registrations[PARTITION]
        isr = tuple(member for member in before.isr if member != one) or before.isr
        self._elect(isr, leaves=one)

    def _elect(self, isr, *, leaves=None) -> None:
        before = self.registrations[PARTITION]
        alive = [member for member in isr if member in self.brokers]
        leader_id, leader_epoch = before.leader_id, before.leader_epoch
        if leader_id not in alive:
            leader_id = alive[0] if alive else None
        if leader_id != before.leader_id:
            leader_epoch += 1
        after = dataclasses.replace(
            before,
            isr=tuple(isr),
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            partition_epoch=before.partition_epoch + 1,
        )
        self.publish(brokers=tuple(self.registered.values()), partitions=(after,))

    def _return(self) -> None:
        if not self.dead:
            return
        one = self.random.choice(list(self.dead))
        logs = self.dead.pop(one)
        log = logs[PARTITION]
        log.high_watermark = self.random.randint(log.log_start_offset, log.high_watermark)
        self.start(one, logs)
        self._elect(self.registrations[PARTITION].isr)
        self.inbox[one].clear()
        self.inbox[one].append((tuple(self.registered.values()), (self.registrations[PARTITION],)))

    def check(self) -> None:
        for one in self.brokers:
            log, leader = self.log(one), self.leader(one)
            if leader is not None and leader.high_watermark > len(self.truth):
                assert leader.leader_epoch == max(
                    self.leader(other).leader_epoch
                    for other in self.brokers
                    if self.leader(other) is not None
                ), "an outdated leader committed"
                self.truth += log.records[len(self.truth) : leader.high_watermark]
            known = log.high_watermark
            assert log.records[:known] == self.truth[:known], "two truths"
        registration = self.registrations[PARTITION]
        for member in registration.isr:
            log = self.log(member) if member in self.brokers else self.dead[member][PARTITION]
            assert log.records[: len(self.truth)] == self.truth, "committed, and not in sync"
        truth = {record.payload for record in self.truth}
        for request_id, payload in list(self.acknowledged.items()):
            answer = self.produced(request_id)
            if answer is not None:
                assert answer.error is not ErrorCode.NONE or payload in truth, "acknowledged, lost"
                del self.acknowledged[request_id]
        cuts = (TruncateLog, TruncateFullyAndStartAt)
        self.cuts += sum(isinstance(effect, cuts) for _, effect in self.effects)
        self.effects.clear()

    def heal(self) -> None:
        while self.dead:
            self._return()
        for _ in range(200):
            while any(self.inbox.values()):
                self._deliver_metadata()
            while self.queue:
                self._deliver()
                self.check()
            self.tick(500)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_schedule_loses_what_was_committed_and_every_one_heals(seed):
    schedule = Schedule(seed)
    for _ in range(STEPS):
        schedule.step()
    schedule.heal()
    registration = schedule.registrations[PARTITION]
    leader_id = registration.leader_id
    assert leader_id is not None
    assert set(registration.isr) == set(REPLICAS)
    records = schedule.log(leader_id).records
    assert schedule.truth == records
    assert all(schedule.log(one).records == records for one in REPLICAS)
    assert not schedule.acknowledged or all(
        schedule.produced(one) is None for one in schedule.acknowledged
    )


def test_the_schedules_are_worth_their_name():
    """Leaders change, logs are cut, sets shrink and grow, and records are committed meanwhile."""
    totals = collections.Counter()
    for seed in range(10):
        schedule = Schedule(seed)
        for _ in range(STEPS):
            schedule.step()
        totals["committed"] += len(schedule.truth)
        totals["leader epochs"] += schedule.registrations[PARTITION].leader_epoch
        totals["proposals"] += len(schedule.proposals)
        totals["cuts"] += schedule.cuts
    assert totals["committed"] > 100
    assert totals["leader epochs"] > 20
    assert totals["proposals"] > 20
    assert totals["cuts"] > 2
