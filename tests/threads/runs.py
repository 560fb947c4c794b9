"""Plays seeds of threads that overlap: `make threads` for a while, `make threads SEED=n [SEEDS=k]`.

Each seed is a process of its own, so a crash is a finding like any other. Threads run as the
machine lets them: a seed draws the same calls again, not the same overlaps. A line per call goes to
the ledger. Under ThreadSanitizer (`make tsan`) whatever it reports is a failure.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from tests.sim.runs import commit, fresh_seed
from tests.threads.workout import KINDS

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).parent / "ledger.txt"
TREE = Path(os.environ.get("REPLOG_TREE", ROOT))
"""Whose package the threads run: under a sanitizer another build's."""
WORKOUT = TREE / "tests" / "threads" / "workout.py"
PLACES = ROOT / "build" / "threads"
SECONDS_EACH = 5.0
HANGS_S = 150
FAILURES_SHOWN_MAX = 3
TEXT_SHOWN = 12_000
# The log is where native code overlaps; the others are Python above it.
TURNS = ("log", "log", "log", "directory", "log", "cluster")
PRELOAD = os.environ.get("REPLOG_PRELOAD", os.environ.get("LD_PRELOAD", ""))
"""The sanitizer's library, under it."""
SANITIZED = "REPLOG_SANITIZED" in os.environ


@dataclasses.dataclass
class Played:
    kind: str
    seed: int
    problem: str | None
    rounds: int = 0
    calls: int = 0
    seconds: float = 0.0


def play(kind: str, seed: int, seconds: float) -> Played:
    place = PLACES / f"{kind}-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    began = time.monotonic()
    command = [sys.executable, str(WORKOUT), kind, str(seed), str(seconds), str(place)]
    child = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(TREE), "LD_PRELOAD": PRELOAD},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=TREE,
        text=True,
        errors="replace",
    )
    try:
        told, _ = child.communicate(timeout=seconds + HANGS_S)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)  # with every thread's stack
        told, _ = child.communicate()
        return Played(kind, seed, f"hangs: {told[-TEXT_SHOWN:]}")
    if child.returncode:
        shown = (
            told if len(told) <= TEXT_SHOWN else told[: TEXT_SHOWN // 2] + told[-TEXT_SHOWN // 2 :]
        )
        return Played(kind, seed, f"ended with {child.returncode}: {shown}")
    shutil.rmtree(place, ignore_errors=True)
    totals = json.loads(told.splitlines()[-1])
    return Played(kind, seed, None, totals["rounds"], totals["calls"], time.monotonic() - began)


def report(played: Played) -> None:
    target = "tsan" if SANITIZED else "threads"
    print(f"\nFAILED {played.kind} of seed {played.seed} at commit {commit()}\n{played.problem}")
    print(f"play it again: make {target} SEED={played.seed} KIND={played.kind}", flush=True)


def line(found: list[Played], first: int) -> str:
    today = dt.datetime.now(tz=dt.UTC).date()
    failed = [f"{played.kind} {played.seed}" for played in found if played.problem]
    result = f"FAILED {failed[:5]}" if failed else "no failure"
    return (
        f"{today} {commit()}{' under ThreadSanitizer' if SANITIZED else ''} "
        f"seeds from {first} ({len(found)}) "
        f"minutes {sum(played.seconds for played in found) / 60:.1f} "
        f"rounds {sum(played.rounds for played in found)} "
        f"calls {sum(played.calls for played in found)}: {result}"
    )


def play_all(
    turns: Iterator[tuple[str, int]], jobs: int, seconds_each: float, ends_at: float
) -> list[Played]:
    found: list[Played] = []
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[Played]] = set()
        while True:
            while len(running) < jobs and time.monotonic() < ends_at:
                turn = next(turns, None)
                if turn is None:
                    break
                running.add(pool.submit(play, *turn, seconds_each))
            if not running:
                return found
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                played = future.result()
                found.append(played)
                failures = sum(1 for each in found if each.problem)
                if played.problem and failures <= FAILURES_SHOWN_MAX:
                    report(played)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; fresh ones without it")
    parser.add_argument("--seeds", type=int, default=0, help="how many")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only one kind")
    parser.add_argument("--minutes", type=float, default=1.0, help="of fresh seeds")
    parser.add_argument("--seconds-each", type=float, default=SECONDS_EACH)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--ledger",
        default=os.environ.get("REPLOG_SIM_LEDGER", str(LEDGER)),
        help="file to add a line to; empty: none",
    )
    arguments = parser.parse_args()
    first = fresh_seed("clock") if arguments.seed is None else arguments.seed
    count = arguments.seeds or (0 if arguments.seed is None else 1)
    seeds = itertools.islice(itertools.count(first), count) if count else itertools.count(first)
    ends_at = float("inf") if count else time.monotonic() + 60 * arguments.minutes
    kinds = itertools.cycle(TURNS if arguments.kind is None else (arguments.kind,))
    if arguments.kind is None and count:  # a seed is a seed of each kind
        turns = iter([(kind, seed) for seed in seeds for kind in sorted(KINDS)])
    else:
        turns = zip(kinds, seeds, strict=False)
    print(f"seeds from {first} on", flush=True)
    found = play_all(turns, arguments.jobs, arguments.seconds_each, ends_at)
    told = line(found, first)
    print(told)
    if arguments.ledger and arguments.seed is None:
        with open(arguments.ledger, "a") as ledger:
            ledger.write(told + "\n")
    return 1 if any(played.problem for played in found) else 0


if __name__ == "__main__":
    sys.exit(main())
