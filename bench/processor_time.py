"""Processor time of the JVM that a Spark session runs in, and of Python's workers below it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class ProcessorTime(NamedTuple):
    """Seconds since the processes began, of the JVM and of all Python below it."""

    jvm: float
    python: float

    def since(self, before: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(self.jvm - before.jvm, self.python - before.python)


def processor_time() -> ProcessorTime:
    """Of this process's Spark, driver and executors in one JVM (master local[n])."""
    processes = dict(_processes())
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    jvm = next(pid for pid in _below(os.getpid(), children) if _name(pid) == "java")
    workers = list(_below(jvm, children))
    # What has ended is in its parent's account of reaped children.
    python = sum(processes[pid][1] + processes[pid][2] for pid in workers)
    return ProcessorTime(processes[jvm][1] / TICKS, python / TICKS)


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
