"""The controller crashes at every step of every operation: it is done or was never begun.

Method: an operation is played without a crash, which tells how many batches of records it takes;
then once more for each of them, and for each place where that batch may be when the controller that
wrote it dies. Nobody asks again. Afterwards the operation is whole or absent, whoever was told that
it is done was told the truth, every invariant has held, and the cluster converges (L1).
"""

from __future__ import annotations

import pytest

from replog.messages import ErrorCode
from tests.sim.operations import OPERATIONS, Crash, Moment, Operation, Stage


def play(operation: Operation, crash: Crash) -> bool:
    """Whether the operation was completed."""
    stage = Stage(crash)
    known = operation.prepare(stage)
    crash.armed = True
    answers = operation.begin(stage)
    stage.run(20)
    crash.armed = False
    completed = operation.holds(stage, known)
    if answers and answers[0] is not None and answers[0].error is ErrorCode.NONE:
        assert completed, "it was said to be done"
    stage.end()
    return completed


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_it_is_whole_or_absent_wherever_the_controller_crashes(operation: Operation) -> None:
    unbroken = Crash()
    assert play(operation, unbroken)
    assert unbroken.batches >= 1
    outcomes = set()
    for moment in Moment:
        for batch in range(1, unbroken.batches + 1):
            crash = Crash()
            crash.at, crash.moment = batch, moment
            outcomes.add(play(operation, crash))
            assert crash.victim is not None, (moment, batch)
    assert True in outcomes
