"""Plays seeds of the simulator: `make sim SEED=n [SEEDS=k]`, or fresh ones for a while.

Prints what each single seed drew and its digest, a summary of many, and for a failure the seed, the
commit, the options and the one command that plays it again; then it makes the failing schedule
small and keeps it. A line per call goes to the ledger, so that runs of many days add up.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import itertools
import logging
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from replog.testing.simulation import shrink
from replog.testing.simulation.run import Outcome, replay, simulate

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).parent / "ledger.txt"
FAILURES = ROOT / "build" / "sim-failures"
SHRINK_S = 60
FAILURES_SHOWN_MAX = 3


@dataclasses.dataclass
class Played:
    """One seed, on its way between processes."""

    seed: int
    cpu_s: float
    outcome: Outcome | None
    error: str | None

    @property
    def failed(self) -> bool:
        return self.error is not None


def play(seed: int) -> Played:
    began = time.process_time()
    try:
        outcome = simulate(seed)
    except Exception:  # whatever the code under test raises is a finding
        return Played(seed, time.process_time() - began, None, traceback.format_exc())
    error = None if outcome.failure is None else str(outcome.failure)
    outcome.failure = None
    outcome.actions = []
    return Played(seed, time.process_time() - began, outcome, error)


@dataclasses.dataclass
class Totals:
    """What many runs add up to."""

    seeds: int = 0
    cpu_s: float = 0.0
    events: int = 0
    simulated_s: float = 0.0
    operations: int = 0
    leader_changes: int = 0
    truncations: int = 0
    faults: int = 0
    marks: dict[str, int] = dataclasses.field(default_factory=dict)
    failed: list[int] = dataclasses.field(default_factory=list)

    def add(self, played: Played) -> None:
        self.seeds += 1
        self.cpu_s += played.cpu_s
        if played.failed:
            self.failed.append(played.seed)
        outcome = played.outcome
        if outcome is None:
            return
        self.events += outcome.events
        self.simulated_s += outcome.simulated_s
        self.operations += outcome.operations
        self.leader_changes += outcome.leader_changes
        self.truncations += outcome.truncations
        self.faults += outcome.faults
        for name, count in outcome.marks.items():
            self.marks[name] = self.marks.get(name, 0) + count

    def ledger_line(self, first_seed: int, last_seed: int) -> str:
        today = dt.datetime.now(tz=dt.UTC).date()
        missed = sorted(name for name, count in self.marks.items() if not count)
        result = "no failure" if not self.failed else f"FAILED {self.failed[:5]}"
        return (
            f"{today} {commit()} seeds {first_seed}-{last_seed} ({self.seeds}) "
            f"sim-hours {self.simulated_s / 3600:.1f} cpu-s {self.cpu_s:.0f} "
            f"events {self.events} ({self.events / max(self.cpu_s, 1e-9):.0f}/cpu-s) "
            f"operations {self.operations} leader-changes {self.leader_changes} "
            f"({self.leader_changes / self.seeds:.1f} a seed) truncations {self.truncations} "
            f"({self.truncations / self.seeds:.1f} a seed) faults {self.faults} "
            f"marks {len(self.marks) - len(missed)}/{len(self.marks)}"
            f"{' without ' + '; '.join(missed) if missed else ''}: {result}"
        )


def git(*arguments: str) -> str:
    found = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def commit() -> str:
    """HEAD, and whether the package differs from it."""
    changed = "-dirty" if git("status", "--porcelain", "--", "replog") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


def fresh_seed(source: str) -> int:
    """Where seeds that nobody has played begin: by the clock, or at a number of the package's own.

    The package's are the same at each run of one state of it, and other ones at the next: CI has
    one verdict on a commit, which can be had before it is published.
    """
    tree = git("rev-parse", "HEAD:replog") if source == "tree" else ""
    return int(tree[:11], 16) if tree else time.time_ns() // 1_000_000


def report_failure(played: Played) -> None:
    """Seed, commit, options, the command; then the small schedule and how to play that."""
    print(f"\nFAILED seed {played.seed} at commit {commit()}")
    if played.outcome is not None:
        print(f"options: {played.outcome.options}")
    print(played.error)
    print(f"play it again: make sim SEED={played.seed}")
    if played.outcome is None:
        return
    ends = time.monotonic() + SHRINK_S
    schedule, outcome = shrink.shrink(shrink.record(played.seed), lambda: time.monotonic() < ends)
    FAILURES.mkdir(parents=True, exist_ok=True)
    path = FAILURES / f"{played.seed}.json"
    path.write_text(shrink.to_json(schedule))
    print(f"{len(schedule.actions)} faults are enough:")
    for action in schedule.actions:
        print(
            f"  {action.at_us / 1000:.3f} ms: {action.verb} {action.targets} {action.duration_ms}"
        )
    print(f"{outcome.failure}\nplay that again: make sim SCHEDULE={path.relative_to(ROOT)}")


def played_seeds(seeds: Iterator[int], jobs: int) -> Iterator[Played]:
    if jobs == 1:
        yield from map(play, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(play, seeds, chunksize=2)


def play_many(seeds: Iterator[int], jobs: int, cpu_s_max: float, first: int) -> tuple[Totals, int]:
    totals, last, shown = Totals(), first, 0
    for played in played_seeds(seeds, jobs):
        totals.add(played)
        last = max(last, played.seed)
        if played.failed:
            shown += 1
            if shown <= FAILURES_SHOWN_MAX:
                report_failure(played)
        if totals.seeds % 200 == 0:
            print(f"{totals.seeds} seeds, {len(totals.failed)} failed", flush=True)
        if totals.cpu_s >= cpu_s_max:
            break
    return totals, last


def play_one(seed: int) -> bool:
    trace_path = os.environ.get("REPLOG_SIM_TRACE")
    if trace_path:
        with open(trace_path, "w") as trace:
            outcome = simulate(seed, trace=lambda line: print(line, file=trace))
    else:
        outcome = simulate(seed)
    print(f"seed: {seed}\noptions: {outcome.options}")
    print(
        f"{outcome.simulated_s:.1f} simulated seconds, {outcome.events} events, "
        f"{outcome.operations} client operations, {outcome.faults} faults, "
        f"{outcome.leader_changes} leader changes, {outcome.truncations} truncations"
    )
    print(f"digest: {outcome.digest:08x}")
    if outcome.failure is not None:
        report_failure(Played(seed, 0.0, outcome, str(outcome.failure)))
    return outcome.failure is None


def play_schedule(path: str) -> bool:
    outcome = replay(shrink.from_json(Path(path).read_text()), trace=print)
    print(f"options: {outcome.options}\ndigest: {outcome.digest:08x}")
    print(outcome.failure or "no failure")
    return outcome.failure is None


def main() -> int:
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
        default=os.environ.get("REPLOG_SIM_LEDGER", str(LEDGER)),
        help="file to add a line to; empty: none",
    )
    parser.add_argument("--schedule", help="a recorded run to play again")
    arguments = parser.parse_args()
    logging.getLogger("replog").setLevel(logging.ERROR)  # full disks are no news here
    if arguments.schedule:
        return 0 if play_schedule(arguments.schedule) else 1
    if arguments.seed is not None and arguments.seeds <= 1:
        return 0 if play_one(arguments.seed) else 1
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
