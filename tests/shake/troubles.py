"""What is done to a cluster while clients use it: faults, and operators' commands.

Each verb is a coroutine that draws its victims, notes what it does before it does it, and takes a
refusal for an answer. At most `STANDING_MAX` nodes are down, paused or cut off for long.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import replog
from replog.admin_messages import (
    CreatePartitionsRequest,
    ElectionKind,
    ElectLeadersRequest,
    Reassignment,
    ReassignPartitionsRequest,
)
from replog.client.connection import answer_to
from replog.config import LogConfig
from replog.errors import ReplogError
from replog.messages import DeleteRecordsRequest, ErrorCode
from replog.storage.kafka_uuid import parse_uuid
from replog.types import TopicPartition
from tests.shake.clients import Names
from tests.shake.diary import Diary
from tests.shake.pacing import pause
from tests.shake.plan import Plan

TOPICS = ("a", "b", "c")
PARTITIONS_MAX = 6
CALL_S_MAX = 8.0


class Troubles:
    """All verbs over one cluster."""

    def __init__(
        self,
        cluster: replog.LocalCluster,
        names: Names,
        diary: Diary,
        plan: Plan,
        life: int,
        *,
        may_wipe: bool,
    ) -> None:
        """may_wipe: no copy is short of anything yet."""
        self._cluster, self._names, self._diary, self._plan = cluster, names, diary, plan
        self._chance = random.Random(f"{plan.seed}/{life}/troubles")
        self._down: set[int] = set()
        self._paused: set[int] = set()
        self._nodes = sorted({*cluster.broker_ids, *cluster.controller_ids})
        self._wiped = not may_wipe

    def verbs(self) -> list[tuple[Callable[[], Awaitable[Any]], int]]:
        """Each with how often it is drawn."""
        plan = self._plan
        return [
            (self.kill, 6),
            (self.start, 10),
            (self.stop, 2),
            (self.pause, 3),
            (self.resume, 6),
            (self.cut, 4),
            (self.heal, 5),
            (self.move, 4),
            (self.more_partitions, 1),
            (self.elect, 1),
            (self.create, 2),
            (self.recreate, 5 * plan.recreates),
            (self.delete_records, 4 * plan.deletes),
            (self.wipe, 2 * plan.tampers),
        ]

    async def go_on(self) -> None:
        """One verb after the other, for ever; some are not waited for."""
        verbs, weights = zip(*self.verbs(), strict=True)
        for _ in range(self._chance.randrange(1, 4)):
            await self._try(self.create)
        behind: set[asyncio.Task[None]] = set()
        while True:
            await pause(self._chance.choice((0, 0.01, 0.05, 0.1, 0.3)))
            [verb] = self._chance.choices(verbs, weights)
            task = asyncio.ensure_future(self._try(verb))
            if self._chance.random() < 0.7:
                await task
            else:
                behind.add(task)
            for ended in [other for other in behind if other.done()]:
                behind.discard(ended)
                ended.result()

    async def _try(self, verb: Callable[[], Awaitable[Any]]) -> None:
        try:
            async with asyncio.timeout(CALL_S_MAX):
                await verb()
        except (ReplogError, TimeoutError) as error:
            self._note("refused", f"{verb.__name__}: {type(error).__name__} {error}"[:300])

    def _note(self, what: str, text: str = "") -> None:
        self._diary.note("do", what=what, text=text)

    def _pick_topic(self) -> str | None:
        topics = self._cluster.topics()
        return self._chance.choice(topics) if topics else None

    # Nodes.

    async def kill(self) -> None:
        node = self._chance.choice(self._nodes)
        if node in self._down or len(self._down) >= max(1, len(self._nodes) - 1):
            return
        self._note("kill", str(node))
        self._cluster.kill(node)
        self._down.add(node)
        self._paused.discard(node)

    async def start(self) -> None:
        if self._down:
            node = self._chance.choice(sorted(self._down))
            self._down.discard(node)
            await self._restart(node)

    async def _restart(self, node: int) -> None:
        self._note("restart", str(node))
        try:
            await self._cluster.restart(node)
        except TimeoutError:
            raise  # it runs, and is ready later
        except asyncio.CancelledError:
            raise
        except ReplogError:
            self._note("restart failed", str(node))
            raise

    async def stop(self) -> None:
        node = self._chance.choice(self._nodes)
        if node in self._down or node in self._paused or self._down:
            return
        self._note("stop", str(node))
        self._down.add(node)
        try:
            await self._cluster.stop(node)
        except BaseException:
            self._down.discard(node)
            raise

    async def pause(self) -> None:
        node = self._chance.choice(self._nodes)
        if node in self._down or node in self._paused or len(self._paused) > 1:
            return
        self._note("pause", str(node))
        self._cluster.pause(node)
        self._paused.add(node)

    async def resume(self) -> None:
        for node in sorted(self._paused):
            self._note("resume", str(node))
            self._paused.discard(node)
            self._cluster.resume(node)

    async def cut(self) -> None:
        one = self._chance.choice(self._nodes)
        other = self._chance.choice(self._nodes)
        kind = self._chance.randrange(4)
        if kind > 1 and one == other:
            return
        self._note("cut", f"{one} {('controller', 'isolate', other, other)[kind]}")
        if kind == 0:
            self._cluster.partition(one, "controller")
        elif kind == 1:
            self._cluster.isolate(one)
        else:
            self._cluster.partition(one, other)

    async def heal(self) -> None:
        self._note("heal")
        self._cluster.heal()

    async def wipe(self) -> None:
        """A broker dies, loses a partition or all, and comes back; the others hold everything."""
        broker = self._chance.choice(self._cluster.broker_ids)
        if self._wiped or self._down or self._paused or broker in self._cluster.controller_ids:
            return
        held = [
            (topic, number)
            for topic in self._cluster.topics()
            for number in range(self._cluster._running().connection.partition_count(topic))
            if broker in self._cluster.registration(topic, number).replicas
        ]
        if not held or any(self._cluster.isr(*each) == (broker,) for each in held):
            return
        self._wiped = True
        lost = held if self._chance.random() < 0.5 else [self._chance.choice(held)]
        directories = [Path(self._cluster.partition_directory(broker, *each)) for each in lost]
        names = sorted(directory.name for directory in directories)
        self._diary.note("wipe", b=broker, names=names)
        self._cluster.kill(broker)
        for directory in directories:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        if len(lost) > 1 and self._chance.random() < 0.5:
            await asyncio.to_thread(shutil.rmtree, directories[0].parent, ignore_errors=True)
        await self._restart(broker)

    # Topics.

    async def create(self) -> None:
        await self._create(self._chance.choice(TOPICS))

    async def _create(self, topic: str) -> None:
        if topic in self._cluster.topics():
            return
        factor = min(len(self._cluster.broker_ids), self._chance.choice((1, 2, 3, 3, 3, 3)))
        least = self._chance.randrange(1, max(2, factor))
        unclean = self._plan.unclean and self._chance.random() < 0.5
        mode = "commit" if self._plan.flush_commit else "os"
        self._note("create", f"{topic} of {factor}, {least} in sync, unclean {unclean}")
        await self._cluster.create_topic(
            topic,
            self._chance.randrange(1, 4),
            factor,
            min_insync_replicas=least,
            unclean_leader_election=unclean,
            config=LogConfig(
                segment_bytes=self._chance.choice((6000, 20_000, 1 << 20)),
                index_interval_bytes=200,
                flush_mode=mode,
            ),
        )
        self._names.topic_id(topic)

    async def recreate(self) -> None:
        """Delete a topic, and create another one of its name; its leader may not hear of it."""
        topic = self._pick_topic()
        if topic is None:
            return
        leader = self._cluster.leader(topic)
        if leader is not None and self._chance.random() < 0.6:
            self._note("cut", f"{leader} controller")
            self._cluster.partition(leader, "controller")
        self._diary.note("gone", id=self._names.topic_id(topic), name=topic)
        await self._cluster.delete_topic(topic)
        await self._create(topic)

    async def more_partitions(self) -> None:
        topic = self._pick_topic()
        if topic is None:
            return
        count = self._cluster._running().connection.partition_count(topic) + 1
        if count <= PARTITIONS_MAX:
            self._note("partitions", f"{topic} {count}")
            await self._cluster.admin(CreatePartitionsRequest(topic=topic, count=count))

    async def move(self) -> None:
        """Reassign one partition; a later one replaces it or calls it off."""
        topic = self._pick_topic()
        if topic is None:
            return
        count = self._cluster._running().connection.partition_count(topic)
        name = TopicPartition(topic, self._chance.randrange(count))
        brokers = list(self._cluster.broker_ids)
        factor = min(len(brokers), len(self._cluster.registration(*name).replicas))
        replicas = tuple(self._chance.sample(brokers, max(1, factor)))
        to = None if self._chance.random() < 0.15 else replicas
        self._note("move", f"{name} to {to}")
        move = Reassignment(topic_partition=name, replicas=to)
        await self._cluster.admin(ReassignPartitionsRequest(partitions=(move,)))

    async def elect(self) -> None:
        self._note("elect")
        await self._cluster.admin(ElectLeadersRequest(kind=ElectionKind.PREFERRED))

    async def delete_records(self) -> None:
        """Drop the front of a partition; what its leader answers holds for ever."""
        topic = self._pick_topic()
        topic_id = None if topic is None else self._names.topic_id(topic)
        if topic is None or topic_id is None:
            return
        connection = self._cluster._running().connection
        name = TopicPartition(topic, self._chance.randrange(connection.partition_count(topic)))
        leader = self._cluster.leader(*name)
        held = None if leader is None else self._cluster.replica(leader, *name)
        if leader is None or held is None or held.high_watermark <= held.log_start_offset:
            return
        offset = self._chance.randint(held.log_start_offset, held.high_watermark)
        self._diary.note("cut", id=topic_id, p=name.partition, o=offset)
        request = DeleteRecordsRequest(
            partitions=((name, parse_uuid(topic_id), offset),), timeout_ms=3000
        )
        response = await answer_to(connection, leader, request)
        if response is None or response.partitions[0].error is not ErrorCode.NONE:
            return
        if topic_id == self._names.topic_id(topic):
            low = response.partitions[0].low_watermark
            self._diary.note("low", id=topic_id, p=name.partition, o=low)
