"""The planted bugs can still be planted; `make mutants` shows that each is caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.mutants import ROOT, apply, patches

NEEDED = 20


@pytest.mark.parametrize("patch", patches(), ids=lambda patch: patch.stem)
def test_the_patch_applies(patch: Path, tmp_path: Path) -> None:
    text = patch.read_text()
    changed = [line.split()[1] for line in text.splitlines() if line.startswith("+++ ")]
    files = [name.removeprefix("b/") for name in changed]
    for file in files:
        copy = tmp_path / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((ROOT / file).read_text())
    apply(patch, tmp_path)
    assert files
    for file in files:
        assert (tmp_path / file).read_text() != (ROOT / file).read_text()


def test_there_are_enough_of_them_and_each_says_what_it_breaks() -> None:
    assert len(patches()) >= NEEDED
    for patch in patches():
        assert len(patch.read_text().split("\n\n")[0]) > 20, patch
