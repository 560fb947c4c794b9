"""Measuring ours against a floor or a peer: by turns, on the same bytes, in the same run.

One figure of one moment says little on a shared machine; the ratio of two that were taken within
the same second says much. A bar's ratio is the median over at least nine such pairs.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

TINY = bool(os.environ.get("REPLOG_BENCH_TINY"))
QUICK = bool(os.environ.get("REPLOG_BENCH_QUICK"))
PAIRS = 1 if TINY else 9

# A side does its work and returns (seconds, checksum of what came out), the latter comparable
# from round to round, so that a faster wrong answer is seen.
Side = Callable[[], tuple[float, Any]]


def sized(full: int, tiny: int, quick: int | None = None) -> int:
    """A workload's size: `tiny` where the benchmarks are only run so that they cannot rot, `quick`
    where every bar is to be looked at within minutes; None: it is quick at full size.
    """
    if TINY:
        return tiny
    return full if quick is None or not QUICK else quick


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that `work` took, and what it returned."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def measure(
    benchmark: Any,
    bar: str,
    must_be: str,
    ours: Side,
    theirs: Side,
    *,
    share: bool,
    scale: float = 1.0,
    pairs: int = PAIRS,
) -> float:
    """Run both sides by turns; put bar, ratio and checksum into the benchmark's extra_info.

    share: the ratio is of rates, ours to theirs (higher is better); else of times (lower is
    better). scale: how many times more work ours does in a round than theirs. must_be: the bar as
    `>= 0.8`; whether it holds is told, not enforced.
    """
    our_times: list[float] = []
    their_times: list[float] = []
    sums: set[Any] = set()

    def catch_up(count: int) -> None:
        while len(their_times) < count:
            their_times.append(theirs()[0])

    def before() -> None:
        # The other side goes first in even rounds and second in odd ones: what one leaves behind,
        # dirty pages above all, is then in the way of both alike.
        if len(our_times) % 2 == 0:
            catch_up(len(our_times) + 1)

    def target() -> None:
        seconds, checksum = ours()
        sums.add(checksum)
        our_times.append(seconds / scale)

    benchmark.pedantic(target, setup=before, rounds=1 if TINY else pairs, iterations=1)
    catch_up(len(our_times))
    rounds = list(zip(our_times, their_times, strict=True))
    ratios = [them / us if share else us / them for us, them in rounds]
    ratio = statistics.median(ratios)
    kind, limit = must_be.split()
    benchmark.extra_info.update(
        bar=bar,
        ratio=round(ratio, 4),
        must_be=must_be,
        holds=ratio >= float(limit) if kind == ">=" else ratio <= float(limit),
        ratio_range=[round(min(ratios), 4), round(max(ratios), 4)],
        ours_s=statistics.median(us for us, _ in rounds),
        theirs_s=statistics.median(them for _, them in rounds),
        checksum=str(next(iter(sums))),
    )
    if len(sums) != 1:
        raise AssertionError(f"expected one result in every round, found {sums!r}")
    return ratio
