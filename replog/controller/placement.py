"""Where the replicas of a new topic go: striped over racks, and over the brokers inside a rack.

The rules of Kafka's StripedReplicaPlacer, with `start` in place of its chance: the caller
counts it up, so that topics of few partitions do not all begin at the same broker. For brokers A0
A1 A2 (rack A) and likewise B and C the stripes are A0 B0 C0, B1 C1 A1, C2 A2 B2, ...
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may get replicas: registered, and not shutting down."""

    broker_id: int
    rack: str | None
    fenced: bool
    """It may hold replicas, but not lead now."""


class _Ring:
    """Brokers in a circle; each lap begins one place further than the one before."""

    __slots__ = ("_lap", "_taken", "broker_ids", "offset")

    def __init__(self, broker_ids: list[int], start: int) -> None:
        self.broker_ids = broker_ids
        self.offset = start
        self._taken = 0
        self._lap = 0

    def next(self, lap: int) -> int | None:
        """The next broker not yet taken in this lap."""
        if self._lap != lap:
            self._lap = lap
            self._taken = 0
            self.offset += 1
        if self._taken >= len(self.broker_ids):
            return None
        self._taken += 1
        return self.broker_ids[(self.offset + self._taken - 1) % len(self.broker_ids)]


class _Rack:
    """Live brokers come before fenced ones."""

    __slots__ = ("fenced", "live")

    def __init__(self, brokers: list[UsableBroker], start: int, order: int) -> None:
        live = [broker.broker_id for broker in brokers if not broker.fenced]
        fenced = [broker.broker_id for broker in brokers if broker.fenced]
        self.live = _Ring(_reordered(live, order), start)
        self.fenced = _Ring(_reordered(fenced, order), start)

    def next(self, lap: int) -> int | None:
        live = self.live.next(lap)
        return self.fenced.next(lap) if live is None else live


def _reordered(broker_ids: list[int], order: int) -> list[int]:
    """The same brokers with other neighbours: in strides that reach each of them once."""
    count = len(broker_ids)
    strides = [stride for stride in range(1, count) if math.gcd(stride, count) == 1] or [1]
    stride = strides[order % len(strides)]
    return [broker_ids[place * stride % count] for place in range(count)]


def place(
    brokers: Sequence[UsableBroker], partitions: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, a live broker first, no broker twice in one partition.

    The caller has checked that a live broker is there and that 0 < replication_factor <= brokers.
    """
    by_rack: dict[str, list[UsableBroker]] = {}
    for broker in sorted(brokers, key=lambda found: found.broker_id):
        by_rack.setdefault(broker.rack or "", []).append(broker)
    names = sorted(by_rack)
    racks = [_Rack(by_rack[name], start, 0) for name in names]
    live_count = sum(not broker.fenced for broker in brokers)
    placed: list[tuple[int, ...]] = []
    offset = start
    lap = 0
    order = 0
    for _ in range(partitions):
        # After as many partitions as there are live brokers every one of them has led once; then
        # other neighbours meet, so that one broker's followers are not always the same.
        if lap == live_count and live_count > 1:
            order += 1
            names = [*names[1:], names[0]]
            racks = [_Rack(by_rack[name], start, order) for name in names]
            lap = 0
        placed.append(_place_one(racks, offset % len(racks), lap, replication_factor))
        offset += 1
        lap += 1
    return placed


def _place_one(racks: list[_Rack], offset: int, lap: int, count: int) -> tuple[int, ...]:
    chosen: list[int] = []
    first_rack = offset
    while not chosen:
        leader = racks[first_rack].live.next(lap)
        if leader is None:
            first_rack = (first_rack + 1) % len(racks)
        else:
            chosen.append(leader)
    rack = offset
    skip: int | None = first_rack
    while len(chosen) < count:
        if rack == skip:
            skip = None
        else:
            found = racks[rack].next(lap)
            if found is not None:
                chosen.append(found)
        rack = (rack + 1) % len(racks)
    return tuple(chosen)
