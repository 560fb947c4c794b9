"""Shows that the simulator finds bugs: `make mutants` plants each of `mutants/*.patch`, and hunts.

Each patch takes one guard out of a copy of the package; its first paragraph says which. Fresh seeds
are played on the copy until a general invariant breaks that holds without the bug. What the code
under test itself refuses (an invariant of its own, an error) does not count: the hunt goes on. What
became of each mutant at its latest hunt is kept in `mutants/caught.txt`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent / "mutants"
TABLE = PATCHES / "caught.txt"
CPU_S_MAX = float(os.environ.get("REPLOG_MUTANT_CPU_S", "300"))


@dataclasses.dataclass(frozen=True)
class Hunt:
    """What became of one mutant; `invariant` None: it survived."""

    name: str
    invariant: str | None
    cpu_s: float
    seeds: int
    message: str

    def table_line(self, commit: str, today: dt.date) -> str:
        caught = self.invariant or "SURVIVED"
        return f"{self.name} {caught} {self.cpu_s} cpu-s {self.seeds} seeds {today} {commit}"


def patches() -> list[Path]:
    return sorted(PATCHES.glob("*.patch"))


def apply(patch: Path, directory: Path) -> None:
    """Apply it to the package, or what is needed of it, in `directory`."""
    applied = subprocess.run(
        ["patch", "-p1", "--forward", "--fuzz=3", "-d", str(directory), "-i", str(patch)],
        check=False,
        capture_output=True,
        text=True,
    )
    if applied.returncode:
        raise RuntimeError(f"{patch.name} does not apply any more:\n{applied.stdout}")


def copy_interpreted(directory: Path) -> None:
    """Copy the package into `directory`, without what is compiled from Python."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        kinds = ["__pycache__", "*.pyx", "*.c"]
        if Path(folder) == ROOT / "replog" / "replication":
            kinds.append("*.so")
        return shutil.ignore_patterns(*kinds)(folder, names)

    shutil.copytree(ROOT / "replog", directory / "replog", ignore=left_out)


def plant(patch: Path, directory: Path) -> None:
    """Copy the package into `directory`, and apply the patch there."""
    copy_interpreted(directory)
    apply(patch, directory)


OWN_REFUSALS = {"A", "a decision"}
"""What the simulator calls a node, or a controller, that was stopped by an invariant of its own."""


def hunt(patch: Path, first_seed: int) -> Hunt:
    """Play seeds on a planted copy, in a process of its own."""
    cpu_s, seeds = 0.0, 0
    with tempfile.TemporaryDirectory() as place:
        plant(patch, Path(place))
        while True:
            found = json.loads(run_on(place, "--hunt", first_seed + seeds, CPU_S_MAX - cpu_s))
            cpu_s += found["cpu_s"]
            seeds += found["seeds"]
            message = found["message"]
            if found["invariant"] is None or run_on(ROOT, "--passes", first_seed + seeds) == "yes":
                return Hunt(patch.stem, found["invariant"], round(cpu_s, 1), seeds, message)
            print(f"seed {first_seed + seeds} fails without {patch.stem}, too: {message}")


def run_on(package: str | Path, what: str, seed: int, cpu_s_max: float = 0.0) -> str:
    """What this script prints where it imports the package of that directory."""
    ran = subprocess.run(
        [sys.executable, __file__, what, str(seed), "--cpu-s-max", str(cpu_s_max)],
        env={**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{what} {seed} broke:\n{ran.stderr}")
    return ran.stdout.strip()


def hunt_here(first_seed: int, cpu_s_max: float) -> dict[str, object]:
    """In the process that imports the planted copy; the last seed is first_seed + seeds."""
    from replog.errors import ReplogError
    from replog.testing.simulation.run import simulate

    seeds = 0
    while time.process_time() < cpu_s_max:
        seeds += 1
        try:
            failure = simulate(first_seed + seeds).failure
        except (ReplogError, KeyError, AssertionError, AttributeError):
            continue
        if failure is not None and failure.invariant not in OWN_REFUSALS:
            return _found(failure.invariant, seeds, str(failure))
    return _found(None, seeds, "no invariant broke")


def passes_here(seed: int) -> bool:
    """Whether the package as it is gets through this seed."""
    from replog.testing.simulation.run import simulate

    return simulate(seed).failure is None


def _found(invariant: str | None, seeds: int, message: str) -> dict[str, object]:
    cpu_s = round(time.process_time(), 1)
    return {"invariant": invariant, "cpu_s": cpu_s, "seeds": seeds, "message": message}


def hunts(chosen: list[Path], jobs: int) -> Iterator[Hunt]:
    first_seed = time.time_ns() // 1_000_000
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda patch: hunt(patch, first_seed), chosen)


def note(found: Hunt) -> None:
    """Put the outcome in the place of the mutant's last one; lines of mutants that are gone go."""
    from tests.sim.runs import commit

    known = TABLE.read_text().splitlines() if TABLE.exists() else []
    lines = {line.split()[0]: line for line in known}
    lines[found.name] = found.table_line(commit(), dt.datetime.now(tz=dt.UTC).date())
    names = {patch.stem for patch in patches()}
    TABLE.write_text("".join(f"{lines[name]}\n" for name in sorted(lines) if name in names))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hunt", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--passes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cpu-s-max", type=float, default=CPU_S_MAX, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*", help="of patches; all without any")
    arguments = parser.parse_args()
    if arguments.hunt is not None:
        print(json.dumps(hunt_here(arguments.hunt, arguments.cpu_s_max)))
        return 0
    if arguments.passes is not None:
        print("yes" if passes_here(arguments.passes) else "no")
        return 0
    chosen = [one for one in patches() if not arguments.names or one.stem in arguments.names]
    survived = 0
    for found in hunts(chosen, arguments.jobs):
        note(found)
        survived += found.invariant is None
        caught = f"caught by {found.invariant}" if found.invariant else "SURVIVED"
        print(f"{found.name}: {caught} after {found.cpu_s} CPU-s, {found.seeds} seeds", flush=True)
        print(f"    {found.message[:160]}")
    print(f"{len(chosen) - survived} of {len(chosen)} mutants caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
