"""Producers and consumers of a life: random batches to random partitions, and what is read back."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import replog
from replog.errors import ReplogError
from replog.storage.kafka_uuid import format_uuid
from tests.shake.diary import Diary
from tests.shake.pacing import pause
from tests.shake.records import Tag, tag_of, value_of

SENDS_A_LIFE_MAX = 1500
READ_COUNT_MAX = 300
SENDS_PER_LIFE = 10**6


class Names:
    """Which topic ids names have stood for; a new one goes to the diary before it is used."""

    def __init__(self, cluster: replog.LocalCluster, diary: Diary) -> None:
        self._cluster, self._diary = cluster, diary
        self._noted: set[str] = set()

    def topic_id(self, topic: str) -> str | None:
        """None for a name without a topic."""
        try:
            registration = self._cluster.registration(topic)
        except ReplogError:
            return None
        found = format_uuid(registration.topic_id)
        if found not in self._noted:
            self._noted.add(found)
            unclean = registration.config.unclean_leader_election_enable
            self._diary.note("topic", id=found, name=topic, unclean=unclean)
        return found


class Clients:
    """All clients of one life."""

    def __init__(
        self, cluster: replog.LocalCluster, names: Names, diary: Diary, seed: int, life: int
    ) -> None:
        self._cluster, self._names, self._diary = cluster, names, diary
        self._chance = random.Random(f"{seed}/{life}/clients")
        self._seed = seed
        self._sends = itertools.count(life * SENDS_PER_LIFE)
        self._ends: dict[tuple[str, int], int] = {}
        """Where the latest acknowledged record of a partition is, about."""
        self._left = SENDS_A_LIFE_MAX
        self._reads = itertools.count(life * SENDS_PER_LIFE)

    def pick(self) -> tuple[str, int] | None:
        """A partition."""
        topics = self._cluster.topics()
        if not topics:
            return None
        topic = self._chance.choice(topics)
        try:
            count = self._cluster._running().connection.partition_count(topic)
        except ReplogError:
            return None
        return topic, self._chance.randrange(count)

    async def produce(self) -> None:
        """Send for ever; most wait for each answer, some let several be on their way."""
        running: set[asyncio.Task[None]] = set()
        window = self._chance.choice((1, 1, 3, 8))
        while True:
            await pause(self._chance.choice((0, 0, 0.002, 0.01, 0.05)))
            picked = self.pick()
            if picked is None or self._left <= 0:
                await pause(0.05)
                continue
            self._left -= 1
            running.add(asyncio.ensure_future(self._send(*picked)))
            while len(running) >= window:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()

    async def _send(self, topic: str, partition: int) -> None:
        topic_id = self._names.topic_id(topic)
        if topic_id is None:
            return
        send, count = next(self._sends), self._chance.choice((1, 1, 3, 10))
        acks: Any = self._chance.choice(("all", "all", "all", "all", 1))
        values = [value_of(Tag(self._seed, send, place)) for place in range(count)]
        self._diary.note("send", s=send, id=topic_id, p=partition, n=count, a=acks)
        try:
            produced = await self._cluster.produce(topic, values, partition=partition, acks=acks)
        except ReplogError as error:
            self._diary.note("refused", s=send, why=type(error).__name__)
            await pause(0.02)
            return
        self._ends[topic, partition] = produced.last_offset or 0
        self._diary.note(
            "ack", s=send, id=self._names.topic_id(topic), b=produced.base_offset,
            l=produced.last_offset,
        )  # fmt: skip

    async def consume(self) -> None:
        """Read random partitions up to their ends, again and again."""
        while True:
            await pause(self._chance.uniform(0.02, 0.3))
            picked = self.pick()
            if picked is None:
                continue
            start: Any = "earliest"
            if self._chance.random() < 0.6:
                start = max(0, self._ends.get(picked, 0) - self._chance.randrange(200))
            await self.read(*picked, start=start, count_max=READ_COUNT_MAX, timeout_s=2.0)

    async def read(
        self, topic: str, partition: int, *, start: Any, count_max: float, timeout_s: float
    ) -> bool:
        """Read a partition, and note what each offset held. Whether it came to the end."""
        topic_id = self._names.topic_id(topic)
        read = next(self._reads)
        self._diary.note("open", r=read, id=topic_id, p=partition)
        seen: list[tuple[int, int, int]] = []
        strange: list[tuple[int, str]] = []
        whole = False
        try:
            async with asyncio.timeout(timeout_s):
                async for record in self._cluster.consume(
                    topic, partition, start=start, end="latest"
                ):
                    tag = tag_of(record.value)
                    if tag is None or tag.seed != self._seed:
                        strange.append((record.offset, repr(record.value)[:80]))
                    else:
                        seen.append((record.offset, tag.send, tag.place))
                    if len(seen) >= count_max:
                        break
                else:
                    whole = True
        except (ReplogError, TimeoutError) as error:
            self._diary.note("unread", r=read, why=f"{type(error).__name__} {error}"[:200])
        if topic_id is not None and topic_id == self._names.topic_id(topic):
            self._diary.note(
                "read", r=read, id=topic_id, p=partition, seen=seen, strange=strange, whole=whole
            )
        return whole

    def start(self, number: int) -> list[asyncio.Task[None]]:
        """`number` producers, and two consumers."""
        calls: list[Callable[[], Any]] = [self.produce] * number + [self.consume] * 2
        return [asyncio.ensure_future(call()) for call in calls]
