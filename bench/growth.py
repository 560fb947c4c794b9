"""Measuring how cost grows with size: processor time at sizes ten times apart, and the exponent.

A cost that grows as size ** e has the local exponent e: how much its logarithm rises over that of
the size. The bar is on the last one, between the two largest sizes, where what is constant weighs
least.
"""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bench.pairs import TINY

# What is less cannot be told from the clock's own steps.
SECONDS_MIN = 1e-9


class Cost(NamedTuple):
    """What one piece of work at one size took: processor time and the clock, in seconds."""

    size: int
    cpu_s: float
    clock_s: float


def sizes(*full: int) -> tuple[int, ...]:
    """The sizes to measure; small ones where benchmarks are only run so that they cannot rot."""
    return (2, 4, 8) if TINY else full


def spent(work: Callable[[], Any]) -> tuple[float, float]:
    """Processor time of the process, all threads, and the clock's, that `work` took."""
    gc.collect()
    began, began_cpu = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - began_cpu, time.perf_counter() - began


def cost_of(size: int, work: Callable[[], Any], times: int = 1) -> Cost:
    """The cost of `work`, which does the same `times` over, for one of them."""
    cpu_s, clock_s = spent(work)
    return Cost(size, cpu_s / times, clock_s / times)


def publish_growth(benchmark: Any, bar: str, must_be: str, costs: Iterable[Cost], note="") -> None:
    """Measure the costs, smallest size first, and publish the last local exponent."""
    curve: list[Cost] = []
    benchmark.pedantic(lambda: curve.extend(costs), rounds=1, iterations=1)
    exponents = [
        math.log(max(after.cpu_s, SECONDS_MIN) / max(before.cpu_s, SECONDS_MIN))
        / math.log(after.size / before.size)
        for before, after in itertools.pairwise(curve)
    ]
    publish(
        benchmark, bar, must_be, exponents[-1], exponents=exponents, ours_s=curve[-1].cpu_s,
        theirs_s=curve[0].cpu_s, curve=[cost._asdict() for cost in curve], note=note,
    )  # fmt: skip


def publish_figure(
    benchmark: Any, bar: str, must_be: str, figure: Callable[[], Any], note=""
) -> None:
    """Measure a figure that is no ratio (it is compared with 1), and publish it."""
    found: list[float] = []
    cpu_s, clock_s = 0.0, 0.0

    def target() -> None:
        nonlocal cpu_s, clock_s
        cpu_s, clock_s = spent(lambda: found.append(figure()))

    benchmark.pedantic(target, rounds=1, iterations=1)
    publish(
        benchmark, bar, must_be, found[0], exponents=[found[0]], ours_s=clock_s, theirs_s=1.0,
        cpu_s=cpu_s, note=note,
    )  # fmt: skip


def publish(benchmark, bar, must_be, ratio, *, exponents, **facts) -> None:
    kind, limit = must_be.split()
    benchmark.extra_info.update(
        bar=bar,
        ratio=round(ratio, 4),
        must_be=must_be,
        holds=bool(ratio >= float(limit) if kind == ">=" else ratio <= float(limit)),
        ratio_range=[round(min(exponents), 4), round(max(exponents), 4)],
        **facts,
    )
