"""Each transcript of `scenarios/` happens as written; `make scenarios REWRITE=1` renews them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.transcripts import replayed, scenarios

WANTED = {
    "high_watermark_timeline",
    "leader_failure",
    "slow_follower",
    "last_replica_standing",
    "kip_101",
    "kip_279",
    "fluss_3698",
    *(f"kafka_{number}" for number in (1211, 7128, 7415, 9835, 10706, 12460, 13091)),
    *(f"kafka_{number}" for number in (13141, 14704, 19996)),
}


@pytest.mark.parametrize("path", scenarios(), ids=lambda path: path.stem)
def test_it_happens_as_written(path: Path) -> None:
    text = path.read_text()
    assert replayed(text) == text


def test_none_is_missing() -> None:
    assert {path.stem for path in scenarios()} >= WANTED
