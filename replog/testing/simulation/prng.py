"""The only source of chance: one stream per subsystem, all derived from one seed.

A new draw in one subsystem does not move what another one draws, and each link of the network has a
stream of its own, so that a schedule from which a fault was left out still resembles itself. Every
draw is made of one primitive, a number of [0, 1): a recorded run is replayed by giving these
numbers back in order, without any generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import TypeVar

Item = TypeVar("Item")


class Stream:
    """One subsystem's draws."""

    __slots__ = ("draw", "name")

    def __init__(self, name: str, draw: Callable[[], float]) -> None:
        """`draw` returns the next number of [0, 1)."""
        self.name = name
        self.draw = draw

    def below(self, bound: int) -> int:
        """An integer of [0, bound)."""
        return int(self.draw() * bound)

    def between(self, low: int, high: int) -> int:
        """An integer of [low, high], both included."""
        return low + int(self.draw() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.draw() < probability

    def choice(self, items: Sequence[Item]) -> Item:
        """One of `items`, which must have an order of its own (never a set)."""
        return items[int(self.draw() * len(items))]

    def exponential(self, mean: float) -> int:
        """A waiting time of this mean, as an integer."""
        return int(-log(1.0 - self.draw()) * mean)

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """`count` different ones of `items`, in drawn order."""
        left = list(items)
        return [left.pop(int(self.draw() * len(left))) for _ in range(min(count, len(left)))]


class Streams:
    """All streams of one seed, made when first asked for."""

    def __init__(
        self,
        seed: int,
        *,
        record: bool = False,
        replay: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """record: keep every draw in `recorded`. replay: give these draws back instead.

        A replayed stream that has run out returns 0.5 for ever: waits have their usual length, and
        nothing improbable happens.
        """
        self.seed = seed
        self.recorded: dict[str, list[float]] = {}
        self._record = record
        self._replay = replay
        self._streams: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        """The stream of this name, the same one each time."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = Stream(name, self._source(name))
        return found

    def _source(self, name: str) -> Callable[[], float]:
        if self._replay is not None:
            left = iter(self._replay.get(name, ()))
            return lambda: next(left, 0.5)
        # Seeded by text: the same numbers in every process, whatever PYTHONHASHSEED says.
        draw = random.Random(f"{self.seed}/{name}").random  # noqa: S311 - repeatable on purpose
        if not self._record:
            return draw
        kept = self.recorded.setdefault(name, [])

        def recording() -> float:
            number = draw()
            kept.append(number)
            return number

        return recording
