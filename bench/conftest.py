"""Directories for the benchmarks, the compiled floors, and the table of bars at the end."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import replog
from bench import workload
from bench.floors_build import TARGET, load_floors
from bench.pairs import sized
from replog.storage.partition_log import PartitionLog

RECORDS = 1000
RECORD_BYTES = 100


@pytest.fixture(scope="session")
def floors() -> ModuleType:
    return load_floors()


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """One directory on one file system for whatever is compared; gone afterwards."""
    path = TARGET / "files"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fresh(folder: Path) -> Iterator[Callable[[], Path]]:
    """A new partition directory's path at each call; the last one's files go before the next."""
    numbers = itertools.count()
    made: list[Path] = []

    def make() -> Path:
        while made:
            shutil.rmtree(made.pop(), ignore_errors=True)
        made.append(folder / f"fresh-{next(numbers)}")
        return made[-1]

    yield make
    while made:
        shutil.rmtree(made.pop(), ignore_errors=True)


@pytest.fixture(scope="session")
def gibibyte(folder: Path) -> Path:
    """A log of 1 GiB in one segment: idempotent producers, batches of 1000 x 100 B, flushed."""
    path = folder / "gibibyte-0"
    config = replog.LogConfig(segment_bytes=2**31 - 1)
    with PartitionLog.open(path, config) as log:
        fill(log, 0, sized(2**30, 2**21))
    return path


def fill(log: Any, first: int, size_bytes: int, producers: int = 10) -> int:
    """Append batches of `producers` idempotent producers, by turns; how many there are then."""
    written = 0
    number = first
    while written < size_bytes:
        batch = workload.produced(
            RECORDS, RECORD_BYTES, number % producers, number // producers * RECORDS
        )
        log.append_as_leader(batch, 0)
        written += len(batch)
        number += 1
    return number


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    found = [bench.extra_info for bench in getattr(session, "benchmarks", [])]
    found = [facts for facts in found if "bar" in facts]
    if not found:
        return
    terminalreporter.section("bars")
    for facts in found:
        terminalreporter.line(
            f"{'holds ' if facts['holds'] else 'MISSED'} {facts['bar']:28} {facts['ratio']:9.3f} "
            f"{facts['must_be']:>8}   range {facts['ratio_range']}   ours "
            f"{facts['ours_s'] * 1e3:.3f} ms, theirs {facts['theirs_s'] * 1e3:.3f} ms"
        )
