"""The planted bugs can still be planted; `make faults-mutants` shows that each is caught."""

from __future__ import annotations

import pytest

from tests.faults.mutants import ROOT, planted
from tests.faults.planted import BUGS

NEEDED = 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_bug_can_be_planted(bug) -> None:
    assert planted(bug) != (ROOT / bug.file).read_text()


def test_there_are_enough_of_them_and_no_two_of_one_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= NEEDED
