"""A calm simulated cluster with a real controller, behind the commands of `scenarios/*.txt`.

It has one topic, orders, of one partition on all brokers, and a controller of its own. Between two
commands time stands still; a command that makes something happen lets a moment pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from replog.messages import Acks, FetchPartition, FetchRequest, ProduceRequest
from replog.testing.simulation.batches import ClientBatch
from replog.testing.simulation.client import Client
from replog.testing.simulation.options import RunOptions
from replog.testing.simulation.prng import Stream, Streams
from replog.testing.simulation.sim_broker import CLIENTS_FROM
from replog.testing.simulation.world import TOPIC, World
from replog.types import TopicPartition

NAME = TopicPartition(TOPIC, 0)
MOMENT_MS = 2000
EVERYTHING = 0.3
"""Drawn from a disk that has lost its power: nothing is left of what was not synced."""


class WholeCluster:
    """See the module; runs commands as `stage.Stage` does."""

    def __init__(self) -> None:
        self._world: World | None = None

    def run(self, line: str) -> Iterator[str]:
        words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        command: Callable[..., Iterator[str]] = getattr(self, words[0].replace("-", "_"))
        yield from command(*[word for word in words[1:] if "=" not in word], **options)

    @property
    def world(self) -> World:
        assert self._world is not None, "begin with `whole`"
        return self._world

    def whole(self, brokers: str, min_isr: str = "1") -> Iterator[str]:
        """So many brokers and one controller; the topic is created, and all are in sync."""
        count = int(brokers)
        options = RunOptions(
            brokers=count,
            replication_factor=count,
            min_insync_replicas=int(min_isr),
            controllers=1,
            producers=0,
            consumers=0,
            shuffle=False,
            faults=(),
        )
        self._world = World(options, Streams(1))
        self._client = Client(
            CLIENTS_FROM + 900,
            self._world.scheduler,
            self._world.network,
            self._world.streams.stream("operator"),
        )
        while NAME not in self.world.truth.partitions:
            self._pass(100)
        self.world.admin.stopped = True
        self._pass(MOMENT_MS)
        yield from self._registered()

    def produce(self, *values: str, acks: str = "all") -> Iterator[str]:
        """To whoever leads."""
        registration = self.world.truth.partitions[NAME].registration
        leader = registration.leader_id
        if leader is None:
            yield "nobody leads"
            return
        wanted = Acks.ALL if acks == "all" else Acks.LEADER
        self.world.order.sent.add(values)
        request = ProduceRequest(
            partitions=((NAME, registration.topic_id, ClientBatch(values)),), acks=wanted
        )
        answer = self._answer(leader, request)
        if answer is None:
            yield f"{leader} does not answer"
            return
        (produced,) = answer.partitions
        if produced.error.value:
            yield f"{leader} answers {produced.error.name}"
        else:
            yield f"{leader} acknowledges [{produced.base_offset}, {produced.last_offset + 1})"

    def consume(self) -> Iterator[str]:
        """All that whoever leads gives away."""
        registration = self.world.truth.partitions[NAME].registration
        leader = registration.leader_id
        assert leader is not None
        fetch = FetchPartition(topic_partition=NAME, topic_id=registration.topic_id, fetch_offset=0)
        answer = self._answer(leader, FetchRequest(partitions=(fetch,), wait_ms_max=0))
        (fetched,) = answer.partitions
        batches = () if fetched.records is None else fetched.records
        values = [value for batch in batches for value in batch.content.values]
        yield f"{leader} gives {' '.join(values) or fetched.error.name}"

    def kill(self, broker: str) -> Iterator[str]:
        """Its process dies; all that it has written is there when it comes back."""
        self.world.brokers[int(broker)].kill()
        self._pass(MOMENT_MS)
        yield from self._registered()

    def power(self, broker: str) -> Iterator[str]:
        """Its machine loses power, and everything that was not synced; nobody is told."""
        self.world.brokers[int(broker)].kill(Stream("power", lambda: EVERYTHING))
        self._pass(3 * MOMENT_MS)
        yield from self._registered()

    def start(self, broker: str) -> Iterator[str]:
        """A new process on the disk as it is."""
        found = self.world.brokers[int(broker)]
        found.start()
        log = found.disk.logs.get(NAME)
        end = 0 if log is None else log.log_end_offset
        yield f"{broker} comes back with offsets [0, {end})"
        self._pass(2 * MOMENT_MS)
        yield from self._registered()

    def _registered(self) -> Iterator[str]:
        partition = self.world.quorum.truth.image.partition(NAME)
        assert partition is not None
        leader = "nobody" if partition.leader_id is None else partition.leader_id
        told = f"{leader} leads epoch {partition.leader_epoch}, in sync {_ids(partition.isr)}"
        if partition.elr:
            told += f", eligible {_ids(partition.elr)}"
        if partition.last_known_elr:
            told += f", perhaps incomplete {_ids(partition.last_known_elr)}"
        yield told

    def _answer(self, server: int, request: Any) -> Any:
        answers: list[Any] = []
        self._client.ask(server, request, MOMENT_MS * 1000, answers.append)
        self._pass(MOMENT_MS)
        return answers[0] if answers else None

    def _pass(self, duration_ms: int) -> None:
        scheduler = self.world.scheduler
        scheduler.run_until(scheduler.now_us + duration_ms * 1000)


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
