"""Plays stories of whole clusters: `make shake` for a while, `make shake SEED=n [SEEDS=k]`.

For a failure it prints the seed, the commit, the plan, what was broken, the last lines of the diary
and the command that plays it again. Lives are processes that end at a moment of their own: a seed
draws the same troubles again, not the same instants, so a rare failure may take several tries.
A line per call goes to the ledger.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.shake import story
from tests.shake.plan import KNOWN_FINDINGS, TROUBLES, draw
from tests.sim.runs import commit, fresh_seed

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).parent / "ledger.txt"
STORIES = ROOT / "build" / "shake"
DIARY_LINES_SHOWN = 40
FAILURES_SHOWN_MAX = 5


@dataclasses.dataclass(frozen=True)
class Job:
    seed: int
    known: str


def play(job: Job) -> story.Told:
    return story.play(draw(job.seed, job.known), STORIES / str(job.seed))


def report(told: story.Told, known: str) -> None:
    directory = STORIES / str(told.plan.seed)
    print(f"\nFAILED seed {told.plan.seed} at commit {commit()}\nplan: {told.plan}")
    print("\n".join(f"tampered: {done}" for done in told.tampered))
    for line in (directory / "diary.jsonl").read_text().splitlines()[-2000:]:
        if '"k": "do"' in line or '"k": "wipe"' in line or '"k": "tampered"' in line:
            print(f"  {line}")
    for violation in told.violations[:FAILURES_SHOWN_MAX]:
        print(f"{violation}"[:6000])
    print(f"files: {directory.relative_to(ROOT)}")
    print(f"play it again: make shake SEED={told.plan.seed}{f' KNOWN={known}' if known else ''}")


class Totals:
    """What many stories add up to."""

    def __init__(self) -> None:
        self.stories: list[story.Told] = []

    @property
    def failed(self) -> list[story.Told]:
        return [told for told in self.stories if told.violations]

    def rules(self) -> str:
        """Which rules were broken, and in how many stories."""
        broken = [rule for told in self.failed for rule in {each.rule for each in told.violations}]
        return ", ".join(f"{rule} {broken.count(rule)}" for rule in sorted(set(broken)))

    def line(self, first: int, known: str) -> str:
        today = dt.datetime.now(tz=dt.UTC).date()
        result = f"FAILED {len(self.failed)} ({self.rules()})" if self.failed else "no failure"
        left = [] if known == "all" else [name for name in KNOWN_FINDINGS if name not in known]
        left_out = f" without {', '.join(left)}" if left else ""
        return (
            f"{today} {commit()} seeds from {first} ({len(self.stories)}) "
            f"minutes {sum(told.seconds for told in self.stories) / 60:.1f} "
            f"lives {sum(told.lives for told in self.stories)} "
            f"acknowledged {sum(told.acknowledged for told in self.stories)} "
            f"troubles {sum(told.troubles for told in self.stories)} "
            f"tampered {sum(len(told.tampered) for told in self.stories)} "
            f"waiting {sum(told.waiting for told in self.stories)}{left_out}: {result}"
        )


def play_all(jobs: Iterator[Job], processes: int, ends_at: float) -> Totals:
    totals = Totals()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running: dict[Future[story.Told], Job] = {}
        while True:
            while len(running) < processes and time.monotonic() < ends_at:
                job = next(jobs, None)
                if job is None:
                    break
                running[pool.submit(play, job)] = job
            if not running:
                return totals
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                job, told = running.pop(done), done.result()
                totals.stories.append(told)
                if told.violations and len(totals.failed) <= FAILURES_SHOWN_MAX:
                    report(told, job.known)
                sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; fresh ones without it")
    parser.add_argument("--seeds", type=int, default=0, help="how many")
    parser.add_argument("--minutes", type=float, default=2.0, help="of fresh seeds")
    parser.add_argument("--known", default="", help=f"all, or some of {', '.join(TROUBLES)}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--fresh",
        choices=("clock", "tree"),
        default=os.environ.get("REPLOG_SIM_FRESH", "clock"),
        help="fresh seeds: other ones at each run, or at each state of the sources",
    )
    parser.add_argument(
        "--ledger",
        default=os.environ.get("REPLOG_SIM_LEDGER", str(LEDGER)),
        help="file to add a line to; empty: none",
    )
    arguments = parser.parse_args()
    first = fresh_seed(arguments.fresh) if arguments.seed is None else arguments.seed
    count = arguments.seeds or (0 if arguments.seed is None else 1)
    seeds = itertools.islice(itertools.count(first), count) if count else itertools.count(first)
    ends_at = float("inf") if count else time.monotonic() + 60 * arguments.minutes
    print(f"seeds from {first} on", flush=True)
    jobs = (Job(seed, arguments.known) for seed in seeds)
    totals = play_all(jobs, arguments.jobs, ends_at)
    line = totals.line(first, arguments.known)
    print(line)
    if arguments.ledger and arguments.seed is None:
        with open(arguments.ledger, "a") as ledger:
            ledger.write(line + "\n")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
