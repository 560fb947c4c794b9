"""Processor time of the JVM that a Spark session runs in, and of Python's workers below it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class ProcessorTime(NamedTuple):
    """Seconds of the JVM and of all Python below it."""

    jvm: float
    python: float


class Clock:
    """What processes have spent since it was made: master local[n], so driver and executors in one.

    Python's workers are counted one by one. One that was idle for a minute ends, and takes what it
    has spent with it: what all had spent before must not be held against those that are left.
    """

    def __init__(self) -> None:
        self._jvm, self._workers = _spent()

    def spent(self) -> ProcessorTime:
        """Seconds since the clock was made."""
        jvm, workers = _spent()
        python = sum(ticks - self._workers.get(pid, 0) for pid, ticks in workers.items())
        return ProcessorTime((jvm - self._jvm) / TICKS, python / TICKS)


def _spent() -> tuple[int, dict[int, int]]:
    """Ticks of the JVM, and of each Python process below it with the children it has reaped."""
    processes = dict(_processes())
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    jvm = next(pid for pid in _below(os.getpid(), children) if _name(pid) == "java")
    workers = {pid: processes[pid][1] + processes[pid][2] for pid in _below(jvm, children)}
    return processes[jvm][1], workers


def _below(pid: int, children: dict[int, list[int]]):
    for child in children.get(pid, []):
        yield child
        yield from _below(child, children)


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _processes():
    """pid to (parent, own ticks, ticks of reaped children)."""
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue  # it has ended meanwhile
        fields = stat[stat.rindex(")") + 2 :].split()
        ticks = [int(field) for field in fields[11:15]]
        yield int(entry), (int(fields[1]), ticks[0] + ticks[1], ticks[2] + ticks[3])
