"""Runs with faults pass, are the same whenever they are played, and find what is planted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from replog.storage.partition_log import PartitionLog
from tests.faults.runs import play
from tests.faults.script import Script, draw
from tests.faults.shrink import shrink

FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))


@pytest.fixture
def folder() -> Iterator[str]:
    place = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    yield f"{place}/d"
    shutil.rmtree(place)


def without_faults(script: Script) -> Script:
    return Script(script.options, tuple(step._replace(faults=()) for step in script.steps))


def test_runs_pass_and_most_of_them_meet_faults(folder: str) -> None:
    played = [play(draw(seed), folder, seed) for seed in range(1, 301)]
    failed = [f"seed {p.seed}: {p.message}" for p in played if p.kind]
    assert not failed, failed[0]
    assert sum(one.struck > 0 for one in played) > 150


def test_a_seed_is_the_same_run_whenever_it_is_played(folder: str) -> None:
    for seed in range(301, 331):
        script = draw(seed)
        first, second = (play(script, folder) for _ in range(2))
        assert (first.steps, first.struck, first.kind) == (second.steps, second.struck, second.kind)
        assert Script.from_json(script.to_json()) == script


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_once_is_mended(path: Path, folder: str) -> None:
    """Small scripts of runs that failed; each was seen to fail before its mend."""
    played = play(Script.from_json(path.read_text()), folder)
    assert played.kind is None, f"make faults SCRIPT={path}: {played.message}"


def test_a_flush_that_syncs_nothing_is_found_and_made_small(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartitionLog, "flush", lambda log: log.log_end_offset)
    monkeypatch.setattr(PartitionLog, "checkpoint", lambda _: None)
    scripts = (without_faults(draw(seed)) for seed in range(1, 200))
    script = next(one for one in scripts if play(one, folder).kind == "lost")
    tries = iter(range(300))
    small = shrink(
        script, lambda one: next(tries, None) is not None and play(one, folder).kind == "lost"
    )
    verbs = [step.verb for step in small.steps]
    assert len(verbs) < min(len(script.steps), 12), verbs
    assert {"power"} < set(verbs)


def test_an_append_that_answers_and_is_not_there_is_found(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PartitionLog.append

    def forgetful(self, values, *rest, **options):
        answer = whole(self, values, *rest, **options)
        if self.log_end_offset % 7 == 0:
            self.truncate_to(answer.base_offset)
        return answer

    monkeypatch.setattr(PartitionLog, "append", forgetful)
    kinds = {play(without_faults(draw(seed)), folder).kind for seed in range(1, 20)}
    assert "ends" in kinds
