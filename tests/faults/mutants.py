"""Shows that runs with faults find bugs: plants each of BUGS in a copy of the package, and hunts.

    python tests/faults/mutants.py [NAME ...]

A bug is a text of one module and what stands in its place. A native module is compiled anew in the
copy, without optimisation. Seeds are played there until one finds something that the package
as it is does not. What became of each bug at its latest hunt is kept in `caught.txt`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from tests.faults.planted import BUGS, Bug
from tests.sim.runs import commit

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).parent / "caught.txt"
HUNT_S_MAX = float(os.environ.get("REPLOG_MUTANT_S", "60"))
SEEDS_AT_ONCE = 50


def plant(bug: Bug, place: Path) -> None:
    """A copy of the package with the bug in it."""
    shutil.copytree(ROOT / "replog", place / "replog", ignore=shutil.ignore_patterns("__pycache__"))
    file = place / bug.file
    file.write_text(planted(bug))
    if file.suffix == ".pyx":
        compile_module(file)


def planted(bug: Bug) -> str:
    text = (ROOT / bug.file).read_text()
    if text.count(bug.text) != 1:
        raise RuntimeError(
            f"{bug.name}: its text stands {text.count(bug.text)} times in {bug.file}"
        )
    return text.replace(bug.text, bug.instead)


def compile_module(file: Path) -> None:
    """One module that needs no C file of its own."""
    place = file.parents[2]
    c_file = file.with_suffix(".c")
    extension = sysconfig.get_config_var("EXT_SUFFIX")
    shared = file.with_suffix(extension)
    name = f"replog._native.{file.stem}"
    cython = [sys.executable, "-m", "cython", "-3", "--module-name", name, "-I", ".", str(file)]
    subprocess.run(cython, cwd=place, check=True, capture_output=True)
    include = [f"-I{sysconfig.get_paths()['include']}", f"-I{file.parent}"]
    shared.unlink()
    gcc = ["gcc", "-shared", "-fPIC", "-O0", "-w", *include, str(c_file), "-o", str(shared)]
    subprocess.run(gcc, cwd=place, check=True, capture_output=True)


def hunt(bug: Bug) -> str:
    """The bug's line in the table."""
    first = time.time_ns() // 1_000_000
    seeds, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        plant(bug, Path(place))
        while time.monotonic() - began < HUNT_S_MAX:
            found = play(place, first + seeds)
            seeds += SEEDS_AT_ONCE
            if found and not play(str(ROOT), first + seeds - SEEDS_AT_ONCE):
                spent = time.monotonic() - began
                today = dt.datetime.now(tz=dt.UTC).date()
                return f"{bug.name} {found} {spent:.1f} s {seeds} seeds {today} {commit()}"
    return f"{bug.name} SURVIVED {seeds} seeds {dt.datetime.now(tz=dt.UTC).date()} {commit()}"


def play(package: str, seed: int) -> str:
    """What some seeds from this one on find with the package of that directory; empty: nothing."""
    ran = subprocess.run(
        [sys.executable, __file__, "--play", str(seed)],
        env={**os.environ, "PYTHONPATH": f"{package}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "died" if ran.returncode < 0 else ran.stdout.strip()


def play_here(first: int) -> str:
    from tests.faults.runs import MEMORY
    from tests.faults.runs import play as play_script
    from tests.faults.script import draw

    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        for seed in range(first, first + SEEDS_AT_ONCE):
            kind = play_script(draw(seed), os.path.join(folder, "d")).kind
            if kind is not None:
                return kind
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--play", type=int, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="of bugs; all without any")
    arguments = parser.parse_args()
    if arguments.play is not None:
        print(play_here(arguments.play))
        return 0
    survived = 0
    for bug in BUGS:
        if arguments.names and bug.name not in arguments.names:
            continue
        line = hunt(bug)
        survived += " SURVIVED " in line
        print(line, flush=True)
        known = TABLE.read_text().splitlines() if TABLE.exists() else []
        lines = {old.split()[0]: old for old in known} | {bug.name: line}
        names = sorted(one.name for one in BUGS if one.name in lines)
        TABLE.write_text("".join(f"{lines[name]}\n" for name in names))
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
