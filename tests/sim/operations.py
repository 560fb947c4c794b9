"""Operations of an administrator on a calm simulated cluster, with one crash of the controller.

All of it is production code under every checker; nothing fails but the active controller, once, at
a record of the operation that the test chooses.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

from replog.admin_messages import (
    BalanceLeadersRequest,
    ElectionKind,
    ElectLeadersRequest,
    Reassignment,
    ReassignPartitionsRequest,
)
from replog.messages import CreateTopicRequest, DeleteTopicRequest
from replog.registrations import PartitionRegistration
from replog.testing.simulation.client import Client
from replog.testing.simulation.liveness import demand_liveness
from replog.testing.simulation.options import RunOptions
from replog.testing.simulation.prng import Streams
from replog.testing.simulation.sim_broker import CLIENTS_FROM, CONTROLLERS_FROM
from replog.testing.simulation.world import TOPIC, World
from replog.types import TopicPartition

OPTIONS = RunOptions(
    brokers=4,
    partitions=2,
    producers=1,
    consumers=1,
    controllers=3,
    shuffle=False,
    faults=(),
)
OTHER = "invoices"
SECOND_US = 1_000_000


class Moment(enum.Enum):
    """How far the chosen record has come when the controller that wrote it dies."""

    APPENDED = "in its log alone"
    COPIED = "in another voter's log, and nobody knows"
    COMMITTED = "committed, as it knows and nobody else"


class Crash:
    """Listens to the quorum, and kills the controller at the n-th batch from `armed` on."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.moment = Moment.APPENDED
        self.at: int | None = None
        """Which batch; None: none."""
        self.batches = 0
        """Of metadata, appended since it was armed."""
        self.armed = False
        self.victim: int | None = None
        self._offset: int | None = None

    def metadata_appended(self, log: Any, batches: tuple[Any, ...], leader: Any) -> None:
        if not self.armed:
            return
        if leader is not None and batches[0].content.messages:
            self.batches += 1
            if self.batches == self.at:
                self.victim = log.broker_id
                self._offset = batches[0].base_offset
                if self.moment is Moment.APPENDED:
                    self._kill()
        elif self.moment is Moment.COPIED and log.broker_id > CONTROLLERS_FROM:
            self._kill_if_among(batches)

    def metadata_committed(self, log: Any, fresh: list[Any]) -> None:
        if self.moment is Moment.COMMITTED:
            self._kill_if_among(fresh)

    def _kill_if_among(self, batches: Sequence[Any]) -> None:
        if any(batch.base_offset == self._offset for batch in batches):
            self._kill()

    def _kill(self) -> None:
        assert self.world is not None
        self._offset = None
        victim = self.world.quorum.controllers[self.victim]
        self.world.scheduler.plan(0, lambda _: victim.kill())
        self.world.scheduler.after(2 * SECOND_US, lambda _: victim.start())


class Stage:
    """One calm cluster, with the topic of `world` led and written to."""

    def __init__(self, crash: Crash, seed: int = 1) -> None:
        self.world = World(OPTIONS, Streams(seed), listeners=(crash,))
        crash.world = self.world
        scheduler = self.world.scheduler
        self._client = Client(
            CLIENTS_FROM + 900,
            scheduler,
            self.world.network,
            self.world.streams.stream("operator"),
        )
        while not self.world.ready:
            scheduler.run_until(scheduler.now_us + SECOND_US // 10)
        self.world.admin.stopped = True
        self.run(3)
        assert all(len(self.partition(name).isr) == 3 for name in self.world.partitions)

    def run(self, seconds: float) -> None:
        scheduler = self.world.scheduler
        scheduler.run_until(scheduler.now_us + int(seconds * SECOND_US))

    def ask(self, request: Any) -> list[Any]:
        """Ask the active controller, once; the list gets its answer, or None if none came."""
        answers: list[Any] = []
        at = self.world.quorum.truth.leader_id
        self._client.ask(at, request, 20 * SECOND_US, answers.append)
        return answers

    def partition(self, name: TopicPartition) -> PartitionRegistration:
        return self.world.truth.partitions[name].registration

    def partitions_of(self, topic: str) -> dict[int, PartitionRegistration]:
        return {
            name.partition: truth.registration
            for name, truth in self.world.truth.partitions.items()
            if name.topic == topic
        }

    def logs_of(self, topic: str) -> list[tuple[int, TopicPartition]]:
        """Whose disk has a log of it."""
        return [
            (broker_id, name)
            for broker_id, broker in self.world.brokers.items()
            for name in broker.disk.logs
            if name.topic == topic
        ]

    def end(self) -> None:
        """All must converge, with every invariant (L1)."""
        demand_liveness(self.world)


@dataclasses.dataclass(frozen=True)
class Operation:
    """`prepare` comes before the crash is armed; `holds` says what may have become of it."""

    name: str
    prepare: Callable[[Stage], Any]
    begin: Callable[[Stage], list[Any]]
    holds: Callable[[Stage, Any], bool]
    """Given what `prepare` returned, whether it is completed; asserts: wholly, or not at all."""


def _nothing(stage: Stage) -> None:
    """There is nothing to prepare."""


def _create(stage: Stage) -> list[Any]:
    return stage.ask(
        CreateTopicRequest(topic=OTHER, partitions=3, replication_factor=3, config=OPTIONS.topic)
    )


def _created(stage: Stage, _: Any) -> bool:
    found = stage.partitions_of(OTHER)
    assert sorted(found) in ([], [0, 1, 2])
    assert all(one.leader_id is not None for one in found.values())
    assert len(stage.logs_of(OTHER)) == 3 * len(found)
    return bool(found)


def _created_before(stage: Stage) -> None:
    _create(stage)
    stage.run(3)
    assert _created(stage, None)


def _delete(stage: Stage) -> list[Any]:
    return stage.ask(DeleteTopicRequest(topic=OTHER))


def _deleted(stage: Stage, _: Any) -> bool:
    return not _created(stage, None)


def _moved_leaders(stage: Stage) -> dict[TopicPartition, int]:
    """Lead by others than the preferred: the first replica's broker stops and comes back."""
    preferred = {name: stage.partition(name).replicas[0] for name in stage.world.partitions}
    for broker_id in sorted(set(preferred.values())):
        broker = stage.world.brokers[broker_id]
        broker.shut_down()
        stage.run(3)
        assert not broker.running
        broker.start()
        stage.run(6)
    assert any(stage.partition(name).leader_id != first for name, first in preferred.items())
    return preferred


def _elect(stage: Stage) -> list[Any]:
    return stage.ask(ElectLeadersRequest(kind=ElectionKind.PREFERRED, partitions=None))


def _balance(stage: Stage) -> list[Any]:
    return stage.ask(BalanceLeadersRequest(threshold_percent=0))


def _balanced(stage: Stage, preferred: dict[TopicPartition, int]) -> bool:
    return all(stage.partition(name).leader_id == first for name, first in preferred.items())


def _target(stage: Stage) -> tuple[int, ...]:
    """Other replicas, also for the leader's."""
    before = stage.partition(TopicPartition(TOPIC, 0)).replicas
    (new,) = set(stage.world.brokers) - set(before)
    return (new, *before[1:])


def _reassign(stage: Stage) -> list[Any]:
    moved = Reassignment(topic_partition=TopicPartition(TOPIC, 0), replicas=_target(stage))
    return stage.ask(ReassignPartitionsRequest(partitions=(moved,)))


def _before_and_target(stage: Stage) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return stage.partition(TopicPartition(TOPIC, 0)).replicas, _target(stage)


def _reassigned(stage: Stage, replicas: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    before, target = replicas
    now = stage.partition(TopicPartition(TOPIC, 0))
    assert now.replicas in (before, target)
    assert set(now.isr) == set(now.replicas)
    holders = {broker_id for broker_id, name in stage.logs_of(TOPIC) if name.partition == 0}
    assert holders == set(now.replicas)
    return now.replicas == target


def _leader_of_first(stage: Stage) -> int:
    leader = stage.partition(TopicPartition(TOPIC, 0)).leader_id
    assert leader is not None
    return leader


def _shut_down(stage: Stage) -> list[Any]:
    stage.world.brokers[_leader_of_first(stage)].shut_down()
    return []


def _stopped(stage: Stage, leader: int) -> bool:
    broker = stage.world.brokers[leader]
    assert not broker.running, "the controller lets it go, sooner or later"
    assert all(
        one.leader_id not in {None, leader} and leader not in one.isr
        for one in stage.partitions_of(TOPIC).values()
    )
    broker.start()
    return True


OPERATIONS = (
    Operation("create", _nothing, _create, _created),
    Operation("delete", _created_before, _delete, _deleted),
    Operation("elect", _moved_leaders, _elect, _balanced),
    Operation("reassign", _before_and_target, _reassign, _reassigned),
    Operation("balance", _moved_leaders, _balance, _balanced),
    Operation("shutdown", _leader_of_first, _shut_down, _stopped),
)
