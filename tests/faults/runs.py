"""Plays runs with faults: `make faults SEED=n [SEEDS=k]`, or fresh seeds for a while.

Prints for a failure the seed, what it found, the small script that shows it, too, and the command
that plays that again. A line per call goes to the ledger, so that runs of many days add up. A run
is played in a process of its own kind, so that one that dies or hangs is a finding as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import itertools
import logging
import multiprocessing
import multiprocessing.connection
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.finding import Finding
from tests.faults.script import Script, draw
from tests.faults.shrink import shrink
from tests.faults.stage import Stage
from tests.sim.runs import commit, fresh_seed

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).parent / "ledger.txt"
FAILURES = ROOT / "build" / "faults-failures"
SEED_S_MAX = 60
SHRINK_S = 30
FAILURES_SHOWN_MAX = 3
SEEDS_AT_ONCE = 20
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


@dataclasses.dataclass
class Played:
    """One run. kind: of its finding; `died` where it took its process with it."""

    seed: int
    steps: int = 0
    struck: int = 0
    kind: str | None = None
    message: str = ""
    cpu_s: float = 0.0


def play(script: Script, folder: str, seed: int = 0) -> Played:
    stage = Stage(script, folder)
    began = time.process_time()
    kind, message = None, ""
    try:
        stage.play(script)
    except Finding as finding:
        kind, message = finding.kind, f"{stage.at}: {finding}"
    except Exception:  # a fault of the stage, which says so
        kind, message = "broke", f"{stage.at}: {traceback.format_exc()}"
    return Played(seed, stage.steps, stage.struck, kind, message, time.process_time() - began)


def work(seeds: list[int], folder: str, pipe: Any) -> None:
    logging.getLogger("replog").setLevel(logging.CRITICAL)
    for seed in seeds:
        pipe.send(seed)
        pipe.send(play(draw(seed), os.path.join(folder, "d"), seed))
    pipe.close()


class Worker:
    """A process that plays some seeds; what it says last tells which of them took it away."""

    def __init__(self, seeds: list[int]) -> None:
        self.left = list(seeds)
        self.folder = tempfile.mkdtemp(prefix="replog-faults-", dir=MEMORY)
        self.pipe, other = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=work, args=(seeds, self.folder, other), daemon=True)
        self.process.start()
        other.close()
        self.at = seeds[0]
        self.heard_at = time.monotonic()

    def hear(self) -> Played | None:
        """A run that has ended, if it has; None for other news."""
        try:
            told = self.pipe.recv()
        except EOFError:
            self.process.join()
            return self.lost(f"the process ended with {self.process.exitcode}")
        self.heard_at = time.monotonic()
        if isinstance(told, int):
            self.at = told
            return None
        self.left.remove(told.seed)
        return told

    def lost(self, why: str) -> Played | None:
        self.end()
        if not self.left:
            return None
        self.left = [seed for seed in self.left if seed > self.at]
        return Played(self.at, kind="died", message=why)

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def overdue(self) -> bool:
        return time.monotonic() - self.heard_at > SEED_S_MAX


def played_seeds(seeds: Iterator[int], jobs: int) -> Iterator[Played]:
    """Each run, in whatever order; ends when the seeds do, or when it is closed."""
    workers: list[Worker] = []
    try:
        while True:
            while len(workers) < jobs and (taken := list(itertools.islice(seeds, SEEDS_AT_ONCE))):
                workers.append(Worker(taken))
            if not workers:
                return
            pipes = {worker.pipe: worker for worker in workers}
            for pipe in multiprocessing.connection.wait(list(pipes), timeout=1.0):
                worker = pipes[pipe]  # type: ignore[index]
                told = worker.hear()
                if told is not None:
                    yield told
            for worker in list(workers):
                if worker.overdue:
                    told = worker.lost(f"no step for {SEED_S_MAX} s")
                    if told is not None:
                        yield told
                if worker.pipe.closed:
                    workers.remove(worker)
                    if worker.left:
                        workers.append(Worker(worker.left))
    finally:
        for worker in workers:
            worker.end()


@dataclasses.dataclass
class Totals:
    """What many runs add up to."""

    seeds: int = 0
    steps: int = 0
    struck: int = 0
    cpu_s: float = 0.0
    failed: list[int] = dataclasses.field(default_factory=list)

    def add(self, played: Played) -> None:
        self.seeds += 1
        self.steps += played.steps
        self.struck += played.struck
        self.cpu_s += played.cpu_s
        if played.kind is not None:
            self.failed.append(played.seed)

    def ledger_line(self, first_seed: int, last_seed: int) -> str:
        today = dt.datetime.now(tz=dt.UTC).date()
        result = "no failure" if not self.failed else f"FAILED {self.failed[:5]}"
        return (
            f"{today} {commit()} seeds {first_seed}-{last_seed} ({self.seeds}) cpu-s "
            f"{self.cpu_s:.0f} operations {self.steps} with-faults {self.struck} "
            f"({self.struck / max(self.cpu_s, 1e-9):.0f}/cpu-s): {result}"
        )


def report(played: Played) -> None:
    """What was found, and the small script that shows it."""
    print(f"\nFAILED seed {played.seed} at commit {commit()}\n{played.message}")
    print(f"play it again: make faults SEED={played.seed}")
    if played.kind == "died":
        print(draw(played.seed))
        return
    script, small = smaller(draw(played.seed), played.kind)
    FAILURES.mkdir(parents=True, exist_ok=True)
    path = FAILURES / f"{played.seed}.json"
    path.write_text(script.to_json())
    print(f"{len(script.steps)} steps are enough:\n{script}\n{small.message}")
    print(f"play that again: make faults SCRIPT={path.relative_to(ROOT)}", flush=True)


def smaller(script: Script, kind: str | None) -> tuple[Script, Played]:
    ends = time.monotonic() + SHRINK_S
    with tempfile.TemporaryDirectory(prefix="replog-faults-", dir=MEMORY) as folder:
        place = os.path.join(folder, "d")

        def fails(one: Script) -> bool:
            return time.monotonic() < ends and play(one, place).kind == kind

        small = shrink(script, fails)
        return small, play(small, place)


def play_many(seeds: Iterator[int], jobs: int, cpu_s_max: float, first: int) -> tuple[Totals, int]:
    totals, last, shown = Totals(), first, 0
    for played in played_seeds(seeds, jobs):
        totals.add(played)
        last = max(last, played.seed)
        if played.kind is not None:
            shown += 1
            if shown <= FAILURES_SHOWN_MAX:
                report(played)
            else:
                print(f"FAILED seed {played.seed}: {played.message[:300]}", flush=True)
        if totals.seeds % 5000 == 0:
            print(f"{totals.seeds} seeds, {len(totals.failed)} failed", flush=True)
        if totals.cpu_s >= cpu_s_max:
            break
    return totals, last


def play_one(script: Script, seed: int | None) -> bool:
    with tempfile.TemporaryDirectory(prefix="replog-faults-", dir=MEMORY) as folder:
        played = play(script, os.path.join(folder, "d"))
    print(script)
    print(f"{played.steps} steps, {played.struck} with a fault: {played.message or 'no failure'}")
    if played.kind is not None and seed is not None:
        report(dataclasses.replace(played, seed=seed))
    return played.kind is None


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; fresh ones without it")
    parser.add_argument("--seeds", type=int, default=0, help="how many")
    parser.add_argument(
        "--fresh",
        choices=("clock", "tree"),
        default=os.environ.get("REPLOG_SIM_FRESH", "clock"),
        help="fresh seeds: other ones at each run, or at each state of the sources",
    )
    parser.add_argument("--cpu-minutes", type=float, default=8.0, help="of fresh seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--ledger",
        default=os.environ.get("REPLOG_FAULTS_LEDGER", str(LEDGER)),
        help="file to add a line to; empty: none",
    )
    parser.add_argument("--script", help="a kept script to play again")
    return parser.parse_args()


def main() -> int:
    arguments = arguments_of()
    logging.getLogger("replog").setLevel(logging.CRITICAL)  # full disks are no news here
    if arguments.script:
        return 0 if play_one(Script.from_json(Path(arguments.script).read_text()), None) else 1
    if arguments.seed is not None and arguments.seeds <= 1:
        return 0 if play_one(draw(arguments.seed), arguments.seed) else 1
    fresh = arguments.seed is None
    first = fresh_seed(arguments.fresh) if fresh else arguments.seed
    endless = fresh and not arguments.seeds
    seeds = itertools.count(first) if endless else iter(range(first, first + arguments.seeds))
    cpu_s_max = arguments.cpu_minutes * 60 if endless else float("inf")
    print(f"seeds from {first} on", flush=True)
    totals, last = play_many(seeds, arguments.jobs, cpu_s_max, first)
    line = totals.ledger_line(first, last)
    print(line)
    if arguments.ledger:
        with open(arguments.ledger, "a") as ledger:
            ledger.write(line + "\n")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
