"""Random schedules over three hosts, against a truth that the test keeps for itself.

A seed draws what happens next: a message on one of the links (each link keeps its order, the links
do not), metadata that reaches one broker, a produce, time, a death, a return. The controller is
the dumbest that is safe: it grants proposals of the present epochs, and elects the first live
replica of the in-sync set. A death keeps the log (the kernel has it), or in flush mode `commit`
what was synced. Three partitions share the fetches. After every step, for each of them:

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
from replog.types import TopicPartition
from tests.replication.core_cluster import CONTROLLER, CoreCluster
from tests.replication.memory_log import MemoryLog

SEEDS = 40
STEPS = 400
REPLICAS = (1, 2, 3)
PARTITIONS = tuple(TopicPartition("orders", number) for number in range(3))


class Schedule(CoreCluster):
    """A cluster in which metadata, too, takes its time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.inbox: dict[int, collections.deque] = {one: collections.deque() for one in REPLICAS}
        self.dead: dict[int, dict[TopicPartition, MemoryLog]] = {}
        self.truths: dict[TopicPartition, list] = {one: [] for one in PARTITIONS}
        self.awaited: dict[int, tuple[TopicPartition, int]] = {}
        """Payloads of the requests that ask for acks=all."""
        self.delays = False
        self.cuts = 0
        self.commits = seed % 3 == 0
        super().__init__(
            {one: {each: MemoryLog() for each in PARTITIONS} for one in REPLICAS},
            replica_lag_time_max_ms=2000,
            decides=False,
        )
        for leader_id, each in zip(REPLICAS, PARTITIONS, strict=True):
            self.lead(
                leader_id,
                1,
                REPLICAS,
                topic_partition=each,
                min_insync_replicas=self.random.choice([1, 2]),
                flush_mode="commit" if self.commits else "os",
            )
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
        elif choice < 0.70:
            self._deliver_metadata()
        elif choice < 0.77:
            self._sync()
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
        firsts: dict[tuple[int, int], int] = {}
        for place, envelope in enumerate(self.queue):
            firsts.setdefault((envelope.sender, envelope.to), place)
        if not firsts:
            return
        place = self.random.choice(list(firsts.values()))
        self.queue.rotate(-place)
        envelope = self.queue[0]
        # What is posted meanwhile goes behind all: the order on each link stays.
        behind = len(self.queue)
        self.deliver_one()
        posted = [self.queue.pop() for _ in range(len(self.queue) - behind + 1)]
        self.queue.rotate(place)
        self.queue.extend(reversed(posted))
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

    def _sync(self) -> None:
        self.brokers[self.random.choice(list(self.brokers))].flush()

    def _produce(self) -> None:
        each = self.random.choice(PARTITIONS)
        leaders = [one for one in self.brokers if self.leader(one, each) is not None]
        if leaders:
            self._payload += 1
            leader = self.random.choice(leaders)
            acks = self.random.choice([Acks.ALL, Acks.ALL, Acks.LEADER])
            request_id = self.produce(
                leader, self._payload, acks=acks, timeout_ms=5000, topic_partition=each
            )
            if acks is Acks.ALL:
                self.awaited[request_id] = (each, self._payload)

    def _die(self) -> None:
        if len(self.brokers) < 2:
            return
        one = self.random.choice(list(self.brokers))
        self.dead[one] = self.kill(one).logs
        if self.commits:
            for log in self.dead[one].values():
                log.truncate_to(log.synced_end_offset)
        self.inbox[one].clear()
        self.registered[one] = dataclasses.replace(self.registered[one], fenced=True)
        self._elect(leaves=one)

    def _elect(self, *, leaves: int | None = None) -> None:
        registrations = []
        for before in self.registrations.values():
            isr = tuple(member for member in before.isr if member != leaves) or before.isr
            alive = [member for member in isr if member in self.brokers]
            leader_id, leader_epoch = before.leader_id, before.leader_epoch
            if leader_id not in alive:
                leader_id = alive[0] if alive else None
            if leader_id != before.leader_id:
                leader_epoch += 1
            after = dataclasses.replace(
                before,
                isr=isr,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                partition_epoch=before.partition_epoch + 1,
            )
            registrations.append(after)
        self.publish(brokers=tuple(self.registered.values()), partitions=registrations)

    def _return(self) -> None:
        if not self.dead:
            return
        one = self.random.choice(list(self.dead))
        logs = self.dead.pop(one)
        for log in logs.values():
            log.high_watermark = self.random.randint(log.log_start_offset, log.high_watermark)
        self.start(one, logs)
        self._elect()
        self.inbox[one].clear()
        everything = tuple(self.registered.values()), tuple(self.registrations.values())
        self.inbox[one].append(everything)

    def check(self) -> None:
        for each, truth in self.truths.items():
            self._check_truth(each, truth)
        for request_id, (each, payload) in list(self.awaited.items()):
            answer = self.produced(request_id)
            if answer is not None:
                is_true = any(record.payload == payload for record in self.truths[each])
                assert is_true or answer.error is not ErrorCode.NONE, "acknowledged, not committed"
                del self.awaited[request_id]
        cuts = (TruncateLog, TruncateFullyAndStartAt)
        self.cuts += sum(isinstance(effect, cuts) for _, effect in self.effects)
        self.effects.clear()

    def _check_truth(self, each: TopicPartition, truth: list) -> None:
        for one in self.brokers:
            log, leader = self.log(one, each), self.leader(one, each)
            if leader is not None and leader.high_watermark > len(truth):
                leaders = [self.leader(other, each) for other in self.brokers]
                newest = max(other.leader_epoch for other in leaders if other is not None)
                assert leader.leader_epoch == newest, "an outdated leader committed"
                truth += log.records[len(truth) : leader.high_watermark]
            known = log.high_watermark
            assert log.records[:known] == truth[:known], "two truths"
        for member in self.registrations[each].isr:
            logs = self.brokers[member].logs if member in self.brokers else self.dead[member]
            assert logs[each].records[: len(truth)] == truth, "committed, and not in sync"

    def heal(self) -> None:
        while self.dead:
            self._return()
        for _ in range(120):
            while any(self.inbox.values()):
                self._deliver_metadata()
            while self.queue or any(broker.unflushed for broker in self.brokers.values()):
                self._deliver()
                for broker in self.brokers.values():
                    broker.flush()
                self.check()
            self.tick(500)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_schedule_loses_what_was_committed_and_every_one_heals(seed):
    schedule = Schedule(seed)
    for _ in range(STEPS):
        schedule.step()
    schedule.heal()
    for each, registration in schedule.registrations.items():
        assert registration.leader_id is not None
        assert set(registration.isr) == set(REPLICAS)
        records = schedule.log(registration.leader_id, each).records
        assert schedule.truths[each] == records
        assert all(schedule.log(one, each).records == records for one in REPLICAS)
    # Who died took the answers it owed along; all else is answered.
    assert all(schedule.produced(one) is None for one in schedule.awaited)


def test_the_schedules_are_worth_their_name():
    """Leaders change, logs are cut, sets shrink and grow, and records are committed meanwhile."""
    totals: collections.Counter[str] = collections.Counter()
    for seed in range(10):
        schedule = Schedule(seed)
        for _ in range(STEPS):
            schedule.step()
        totals["committed"] += sum(map(len, schedule.truths.values()))
        totals["epochs"] += sum(one.leader_epoch for one in schedule.registrations.values())
        totals["proposals"] += len(schedule.proposals)
        totals["cuts"] += schedule.cuts
    assert totals["committed"] > 100
    assert totals["epochs"] > 60
    assert totals["proposals"] > 20
    assert totals["cuts"] > 2
