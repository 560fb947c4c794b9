"""Threads that call at random for a while, and what they have seen.

Each keeps its own list of what it did, so that nothing but the code under test orders them.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from replog.errors import ReplogError

HANGS_S = 60.0
SWITCH_S = 1e-4
"""How often the interpreter lets another thread go on: fifty times its own rate."""


@dataclasses.dataclass
class Act:
    """One call: when it began and ended, by a clock that all threads share, and what came of it."""

    kind: str
    began: int
    ended: int
    facts: tuple[Any, ...]


class BrokenError(Exception):
    """The oracle was contradicted."""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise BrokenError(what)


class Round:
    """Workers that start together, and stop together after `seconds`."""

    def __init__(self, chance: random.Random, tolerated: tuple[type[ReplogError], ...]) -> None:
        """tolerated: errors that a call may answer with."""
        self._chance = chance
        self._tolerated = tolerated
        self._ticks = itertools.count()
        self._workers: list[tuple[Callable[[Any], Any], random.Random, list[Act]]] = []
        self._raised: list[str] = []
        self._over = threading.Event()
        self.refusals: dict[str, int] = {}

    def add(self, work: Callable[[Worker], None]) -> None:
        """A thread that does `work` again and again."""
        self._workers.append((work, random.Random(self._chance.random()), []))

    def tick(self) -> int:
        return next(self._ticks)

    def play(self, seconds: float) -> list[Act]:
        """Everything that was done. BrokenError for what no caller should see, and for a hang."""
        started = threading.Barrier(len(self._workers))
        threads = [
            threading.Thread(target=self._run, args=(*worker, started), daemon=True)
            for worker in self._workers
        ]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            for thread in threads:
                thread.start()
            self._over.wait(seconds)
            self._over.set()
            ends_at = time.monotonic() + HANGS_S
            for thread in threads:
                thread.join(max(0.0, ends_at - time.monotonic()))
        finally:
            sys.setswitchinterval(interval)
        hanging = [thread.ident for thread in threads if thread.is_alive()]
        if hanging:
            frames = sys._current_frames()
            stacks = ["".join(traceback.format_stack(frames[ident])) for ident in hanging]
            raise BrokenError(f"{len(hanging)} threads hang:\n" + "\n".join(stacks))
        if self._raised:
            raise BrokenError("\n".join(self._raised[:3]))
        return [act for _, _, acts in self._workers for act in acts]

    def _run(
        self,
        work: Callable[[Worker], None],
        chance: random.Random,
        acts: list[Act],
        started: threading.Barrier,
    ) -> None:
        worker = Worker(self, chance, acts)
        started.wait()
        while not self._over.is_set():
            try:
                work(worker)
            except self._tolerated as error:
                name = type(error).__name__
                self.refusals[name] = self.refusals.get(name, 0) + 1
            except BaseException:
                self._raised.append(traceback.format_exc())
                self._over.set()


class Worker:
    """What a thread's work is given."""

    def __init__(self, of: Round, chance: random.Random, acts: list[Act]) -> None:
        self.chance = chance
        self._round, self._acts = of, acts

    def act(self, kind: str, call: Callable[[], Any], *facts: Any) -> Any:
        """Call, and note it, its answer in front; a call that raises is noted with the error."""
        began = self._round.tick()
        try:
            answer = call()
        except ReplogError as error:
            self._acts.append(Act(f"failed {kind}", began, self._round.tick(), (error, *facts)))
            raise
        self._acts.append(Act(kind, began, self._round.tick(), (answer, *facts)))
        return answer
