"""What can be done to a log: what is called, what must come of it, what it may leave if it fails.

Each verb looks at the model alone, draws from a step's numbers, and gives a Plan.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

from replog._native import record_encoder
from replog.errors import ReplogError
from tests.crash.workload import Batch, batches_in
from tests.faults.model import PartitionModel, Version

PLAIN_PRODUCER = 3
TRANSACTIONAL_PRODUCERS = (5, 6)
JITTER_MS = 200


@dataclasses.dataclass
class Partition:
    """A partition as the run sees it."""

    log: Any
    model: PartitionModel
    last_sent: tuple[bytes, int, int] | None = None


@dataclasses.dataclass
class World:
    """What the verbs of all partitions share."""

    now_ms: int
    serial: int = 0
    views: list[tuple[memoryview, bytes]] = dataclasses.field(default_factory=list)
    commits: bool = False
    syncs: bool = False
    compacted: bool = False
    segment_bytes: int = 0


@dataclasses.dataclass
class Plan:
    """act: the call. done: what its answer means, and whether it may be so.

    leaves: what a stop may find if it fails half-way and fails the log. may_move: it may raise and
    have moved the log start all the same, at most to here.
    """

    act: Callable[[], Any]
    done: Callable[[Any], None]
    leaves: tuple[Version, ...] = ()
    refusals: tuple[type[ReplogError], ...] = ()
    writes: bool = True
    may_move: int | None = None


Verb = Callable[[Partition, World, tuple[int, ...]], Plan]


def values_of(world: World, number: int, count: int) -> list[bytes]:
    """Never the same bytes twice."""
    values = []
    for _ in range(count):
        world.serial += 1
        values.append(b"%d." % world.serial + b"x" * (number % 37))
    return values


def timestamp_of(world: World, number: int) -> int:
    world.now_ms += 10
    return world.now_ms + number % (2 * JITTER_MS) - JITTER_MS


def stamped(encoded: bytes, base_offset: int, epoch: int) -> list[Batch]:
    """The batches as a log keeps them that gives them offsets from `base_offset` on."""
    stored = b""
    for batch in batches_in(encoded):
        content = batch.content
        stored += struct.pack(">q", base_offset) + content[8:12] + struct.pack(">i", epoch)
        stored += content[16:]
        base_offset += batch.last_offset - batch.base_offset + 1
    return batches_in(stored)


def encoded_of(world: World, number: int, count: int, **options: Any) -> bytes:
    values = values_of(world, number, count)
    keys = [b"k%d" % (number % 5)] * count
    stamp = timestamp_of(world, number)
    return bytes(record_encoder.encode(values, keys, stamp, now_ms=world.now_ms, **options))
