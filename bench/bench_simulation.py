"""The simulator: events a second of processor time, all checkers on."""

from __future__ import annotations

import time

from bench.pairs import measure, sized
from replog.testing.simulation.run import simulate

SEEDS = sized(24, 1)


def test_sim_events_per_cpu_s(benchmark):
    """Events are delivered messages, I/O completions and timers that change state.

    The same seeds in each round, against one second; every seed passes, or this is no figure.
    """

    def ours():
        began = time.process_time()
        outcomes = [simulate(seed) for seed in range(1, SEEDS + 1)]
        spent = time.process_time() - began
        assert not [one.failure for one in outcomes if one.failure is not None]
        return spent / sum(one.events for one in outcomes), tuple(one.digest for one in outcomes)

    measure(
        benchmark, "sim_events_per_cpu_s", ">= 20000", ours, lambda: (1.0, None), share=True,
        pairs=3,
    )  # fmt: skip
