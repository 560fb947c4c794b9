"""Threads in one blocking cluster: producers, consumers, operators and faults at the same time."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import replog
from replog import errors
from replog.admin_messages import DescribePartitionsRequest, ElectionKind, ElectLeadersRequest
from replog.config import ControllerOptions, ReplicationOptions
from tests.shake.records import Tag, tag_of, value_of
from tests.threads.workers import Act, Round, Worker, expect

TOLERATED = (
    errors.UsageError,
    errors.ReplicationError,
    errors.FencingError,
    errors.OffsetError,
)
BROKERS = 3
PARTITIONS = 2


class ClusterWork:
    """One cluster a round: acknowledged records are read before it is closed."""

    def __init__(self, seed: int, directory: Path) -> None:
        self._chance = random.Random(seed)
        self._seed = seed
        self._directory = directory / "cluster"
        self._sends = itertools.count()
        self._acknowledged: dict[int, dict[int, Tag]] = {}
        self.calls = 0
        self.refusals: dict[str, int] = {}

    def round(self, seconds: float) -> None:
        cluster = replog.LocalCluster(
            BROKERS,
            directory=self._directory,
            replication=ReplicationOptions(
                replica_lag_time_max_ms=1500, replica_fetch_wait_max_ms=100, request_timeout_ms=3000
            ),
            controller=ControllerOptions(
                broker_session_timeout_ms=1500, broker_heartbeat_interval_ms=200
            ),
        )
        with cluster as self._cluster:
            if "topic" not in self._cluster.topics():
                self._cluster.create_topic("topic", PARTITIONS, min_insync_replicas=2)
            played = Round(self._chance, TOLERATED)
            for role in (*[self.produce] * 3, *[self.consume] * 2, *[self.look] * 2, self.operate):
                played.add(role)
            played.add(self.fault)
            acts = played.play(seconds)
            self.calls += len(acts)
            for name, count in played.refusals.items():
                self.refusals[name] = self.refusals.get(name, 0) + count
            self._check(acts)

    def end(self) -> None:
        """Nothing is open."""

    def _check(self, acts: list[Act]) -> None:
        self._cluster.heal()
        for broker in range(1, BROKERS + 1):
            for verb in (self._cluster.resume, self._cluster.restart):
                try:
                    verb(broker)
                except errors.UsageError:
                    continue
        for act in (act for act in acts if act.kind == "produce"):
            produced, partition, send, count = act.facts
            expect(produced.last_offset - produced.base_offset + 1 == count, str(produced))
            held = self._acknowledged.setdefault(partition, {})
            for place in range(count):
                offset, tag = produced.base_offset + place, Tag(self._seed, send, place)
                expect(held.setdefault(offset, tag) == tag, f"{offset} was answered twice")
        for partition, held in self._acknowledged.items():
            self._cluster.in_sync("topic", partition)
            records = self._cluster.consume("topic", partition, end="latest")
            found = {record.offset: tag_of(record.value) for record in records}
            wrong = {offset: tag for offset, tag in held.items() if found.get(offset) != tag}
            expect(not wrong, f"{len(wrong)} acknowledged records are not there: {wrong}"[:300])
            tags = list(found.values())
            expect(len(set(tags)) == len(tags), "a record is there twice")

    def produce(self, worker: Worker) -> None:
        partition = worker.chance.randrange(PARTITIONS)
        send, count = next(self._sends), worker.chance.choice((1, 1, 5))
        values = [value_of(Tag(self._seed, send, place)) for place in range(count)]
        worker.act(
            "produce",
            lambda: self._cluster.produce("topic", values, partition=partition),
            partition,
            send,
            count,
        )

    def consume(self, worker: Worker) -> None:
        partition = worker.chance.randrange(PARTITIONS)
        consumer = self._cluster.consume("topic", partition, end="latest")
        latest = -1
        for record in itertools.islice(consumer, 300):
            expect(tag_of(record.value) is not None, f"no record of ours: {record}")
            expect(record.offset > latest, f"{record.offset} was read behind {latest}")
            latest = record.offset
        worker.act("consume", lambda: consumer.position)

    def look(self, worker: Worker) -> None:
        cluster, partition = self._cluster, worker.chance.randrange(PARTITIONS)
        broker = worker.chance.randrange(BROKERS) + 1
        verb = worker.chance.choice(
            (
                cluster.topics,
                lambda: cluster.registration("topic", partition),
                lambda: cluster.leader("topic", partition),
                lambda: cluster.isr("topic", partition),
                lambda: cluster.replica(broker, "topic", partition),
                lambda: cluster.partition_directory(broker, "topic", partition),
                lambda: cluster.why_uncommitted("topic", 0, partition),
                lambda: cluster.incidents("topic", partition),
                lambda: (cluster.failovers, cluster.active_controller, cluster.broker_ids),
                lambda: cluster.admin(DescribePartitionsRequest()),
            )
        )
        worker.act("look", verb)

    def operate(self, worker: Worker) -> None:
        cluster = self._cluster
        name = f"other-{worker.chance.randrange(3)}"
        verb = worker.chance.choice(
            (
                lambda: cluster.create_topic(name),
                lambda: cluster.delete_topic(name),
                lambda: cluster.admin(ElectLeadersRequest(kind=ElectionKind.PREFERRED)),
            )
        )
        worker.act("operate", verb)

    def fault(self, worker: Worker) -> None:
        """One broker at a time is killed, paused or cut off, and comes back."""
        cluster, broker = self._cluster, worker.chance.randrange(BROKERS) + 1
        kind = worker.chance.randrange(4)
        if kind == 0:
            worker.act("kill", lambda: cluster.kill(broker))
            worker.act("restart", lambda: cluster.restart(broker))
        elif kind == 1:
            worker.act("stop", lambda: cluster.stop(broker))
            worker.act("restart", lambda: cluster.restart(broker))
        elif kind == 2:
            worker.act("pause", lambda: cluster.pause(broker))
            worker.act("resume", lambda: cluster.resume(broker))
        else:
            worker.act("isolate", lambda: cluster.isolate(broker))
            worker.act("heal", cluster.heal)
