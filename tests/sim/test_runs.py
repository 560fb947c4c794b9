"""Seeds pass, and a seed is the same run wherever it is played."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from replog.replication import leader
from replog.testing.simulation import shrink
from replog.testing.simulation.checkers.logs import TruncationsAreSafe
from replog.testing.simulation.options import draw_options
from replog.testing.simulation.prng import Streams
from replog.testing.simulation.run import replay, simulate
from replog.testing.simulation.violation import Violation
from tests.sim.mutants import copy_interpreted

ROOT = Path(__file__).parents[2]
SEEDS = range(1, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_passes_and_is_worth_its_time(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.failure is None, f"make sim SEED={seed}: {outcome.failure}"
    assert outcome.simulated_s >= 60
    assert outcome.operations >= 200


def test_seeds_with_unclean_elections_pass_and_lose_only_what_is_told() -> None:
    elected = 0
    for seed in range(1, 7):
        drawn = draw_options(Streams(seed).stream("options"))
        outcome = simulate(seed, dataclasses.replace(drawn, unclean=True))
        assert outcome.failure is None, f"seed {seed} with unclean elections: {outcome.failure}"
        elected += outcome.marks["elected a replica that nobody vouches for"]
    assert elected


def digest_in_another_process(seed: int, hash_seed: str, package: Path = ROOT) -> str:
    ran = subprocess.run(
        [sys.executable, "tests/sim/runs.py", "--seed", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{package}:{ROOT}", "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"^digest: ([0-9a-f]{8})$", ran.stdout, re.MULTILINE)
    assert found is not None, ran.stdout
    return found.group(1)


def test_one_seed_has_one_digest_whatever_the_hash_seed() -> None:
    """Method: a run here, and two in processes that order their sets differently."""
    digests = {f"{simulate(11).digest:08x}"}
    digests |= {digest_in_another_process(11, hash_seed) for hash_seed in ("1", "2")}
    assert len(digests) == 1, digests


def test_the_compiled_core_plays_as_the_interpreted_one(tmp_path: Path) -> None:
    """Goal: what the compiler makes of the core is what its text says. Method: as above."""
    assert leader.__file__.endswith(sysconfig.get_config_var("EXT_SUFFIX"))
    copy_interpreted(tmp_path)
    assert not list((tmp_path / "replog" / "replication").glob("*.so"))
    for seed in range(13, 16):
        assert digest_in_another_process(seed, "1", tmp_path) == f"{simulate(seed).digest:08x}"


def test_different_seeds_are_different_runs() -> None:
    assert len({simulate(seed).digest for seed in range(21, 24)}) == 3


def test_a_recorded_run_is_played_again_without_chance() -> None:
    schedule = shrink.record(12)
    again = replay(shrink.from_json(shrink.to_json(schedule)))
    assert again.digest == simulate(12).digest


def test_a_failing_run_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: a checker that takes every cut for a fault; few of the run's faults are needed."""

    def refuse(self, log, truth, old_end, watermark) -> None:
        if log.log_end_offset < old_end:
            raise Violation("I17", "a cut, any cut")

    monkeypatch.setattr(TruncationsAreSafe, "truncated", refuse)
    seed = next(seed for seed in range(1, 60) if simulate(seed).failure is not None)
    schedule = shrink.record(seed)
    tries = iter(range(30))
    smaller, outcome = shrink.shrink(schedule, lambda: next(tries, None) is not None)
    assert outcome.failure is not None
    assert outcome.failure.invariant == "I17"
    assert len(smaller.actions) < max(len(schedule.actions), 2)
    assert len(smaller.actions) <= max(len(schedule.actions) // 3, 6)
