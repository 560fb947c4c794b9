"""The four strategies: leader, in-sync set and who is told, each by a table."""

import dataclasses

import pytest

from replog.admin_messages import (
    ElectionKind,
    ElectLeadersRequest,
    Reassignment,
    ReassignPartitionsRequest,
)
from replog.controller.incidents import ElectionCause, LeaderElected
from replog.controller.leader_selection import (
    Candidates,
    LogEnd,
    controlled_shutdown,
    offline_partition,
    preferred_replica,
    reassigned_partition,
    without,
)
from tests.controller.conversation import Controller

BASE = Candidates(replicas=(1, 2, 3), isr=(1, 2, 3), leader_id=1)


def found(selection):
    return selection and (selection.leader_id, selection.isr, selection.told)


def among(*live):
    return lambda replica: replica in live


@pytest.mark.parametrize(
    ("changes", "live", "expected", "cause"),
    [
        ({}, (2, 3), (2, (2, 3), (2, 3)), ElectionCause.IN_SYNC),
        ({"isr": (3,)}, (2, 3), (3, (3,), (2, 3)), ElectionCause.IN_SYNC),
        ({"isr": (1,), "elr": (3,)}, (2, 3), (3, (3,), (2, 3)), ElectionCause.HOLDS_ALL_COMMITTED),
        ({"isr": (1,)}, (2, 3), None, None),
        ({"isr": (1,), "unclean_allowed": True}, (2, 3), (2, (2,), (2, 3)), ElectionCause.UNCLEAN),
        (
            {"isr": (1,), "unclean_allowed": True, "damaged": (2,)},
            (2, 3),
            (3, (3,), (2, 3)),
            ElectionCause.UNCLEAN,
        ),
        ({"isr": (1,), "suspects": (1,)}, (1, 2, 3), None, None),
        (
            {"isr": (1,), "suspects": (1,), "ends": {1: LogEnd(0, 5)}},
            (1, 2, 3),
            (1, (1,), (1, 2, 3)),
            ElectionCause.LONGEST,
        ),
        (
            {
                "isr": (1,),
                "suspects": (1,),
                "ends": {1: LogEnd(0, 5)},
                "floor": 2,
                "unclean_allowed": True,
            },
            (1, 2, 3),
            (1, (1,), (1, 2, 3)),
            ElectionCause.UNCLEAN,
        ),
        (
            {"isr": (1,), "suspects": (1,), "ends": {1: LogEnd(0, 5)}, "floor": 2},
            (1, 2, 3),
            (1, (1,), (1, 2, 3)),
            ElectionCause.LONGEST,
        ),
    ],
)
def test_offline_partition(changes, live, expected, cause):
    selection = offline_partition(dataclasses.replace(BASE, **changes), among(*live))
    assert found(selection) == expected
    assert selection is None or selection.cause is cause


MOVING = Candidates(replicas=(4, 5, 1, 2), isr=(1, 2, 4, 5), leader_id=1, removing=(1, 2), floor=2)


@pytest.mark.parametrize(
    ("changes", "live", "leader_id"),
    [
        ({}, (1, 2, 4, 5), 4),
        ({}, (1, 2, 5), 5),
        ({"isr": (1, 2, 5)}, (1, 2, 4, 5), 5),
        ({"damaged": (4,)}, (1, 2, 4, 5), 5),
        ({"suspects": (4, 5)}, (1, 2, 4, 5), None),
        ({}, (1, 2), None),
    ],
)
def test_reassigned_partition_keeps_the_set_and_tells_the_target(changes, live, leader_id):
    candidates = dataclasses.replace(MOVING, **changes)
    selection = reassigned_partition(candidates, among(*live))
    expected = None if leader_id is None else (leader_id, candidates.isr, (4, 5))
    assert found(selection) == expected


@pytest.mark.parametrize(
    ("changes", "live", "leader_id"),
    [
        ({"leader_id": 2}, (1, 2, 3), 1),
        ({"leader_id": 1}, (1, 2, 3), None),
        ({"leader_id": 2}, (2, 3), None),
        ({"leader_id": 2, "isr": (2, 3)}, (1, 2, 3), None),
        ({"leader_id": 2, "damaged": (1,)}, (1, 2, 3), None),
    ],
)
def test_preferred_replica_keeps_the_set_and_tells_all(changes, live, leader_id):
    candidates = dataclasses.replace(BASE, **changes)
    selection = preferred_replica(candidates, among(*live))
    expected = None if leader_id is None else (leader_id, candidates.isr, (1, 2, 3))
    assert found(selection) == expected


@pytest.mark.parametrize(
    ("changes", "live", "expected"),
    [
        ({}, (1, 2, 3), (2, (2, 3), (2, 3))),
        ({}, (1, 3), (3, (3,), (3,))),
        ({"isr": (1,), "elr": (3,)}, (1, 2, 3), (3, (3,), (2, 3))),
        ({"isr": (1,)}, (1, 2, 3), None),
        ({"isr": (1,), "unclean_allowed": True}, (1, 2, 3), None),
    ],
)
def test_controlled_shutdown_leaves_the_set_and_never_loses_records(changes, live, expected):
    selection = controlled_shutdown(dataclasses.replace(BASE, **changes), among(*live), leaving=1)
    assert found(selection) == expected


@pytest.mark.parametrize("damaged", [(), (1,)])
def test_who_shuts_down_still_counts_as_one_that_holds_what_is_committed(damaged):
    """Nobody leads, as 2 came back unclean with less than 1 has: alone it is not enough of two."""
    candidates = Candidates(
        replicas=(1, 2, 3), isr=(1, 2), suspects=(2,), ends={2: LogEnd(4, 10)}, floor=2,
        damaged=damaged,
    )  # fmt: skip
    chosen = controlled_shutdown(candidates, among(2, 3), leaving=1)
    assert (chosen is None) == (not damaged), (
        "a copy that is damaged is back, and is not the longest"
    )
    alone = dataclasses.replace(candidates, isr=(2,))
    assert controlled_shutdown(alone, among(2, 3), leaving=1) is not None


def test_the_last_member_never_leaves_the_set():
    assert without((1, 2), 1) == (2,)
    assert without((1,), 1) == (1,)
    assert without((2,), 1) == (2,)


def test_operators_hear_with_each_election_who_acts_on_it():
    controller = Controller()
    controller.start(1, 2, 3, 4, 5)
    name = controller.create(replicas=(1, 2, 3))
    controller.lose(3)
    controller.lose(1)
    controller.heartbeat(1)
    controller.propose((1, 2))
    controller.ask(ElectLeadersRequest(kind=ElectionKind.PREFERRED, partitions=(name,)))
    controller.heartbeat(1, want_shut_down=True)
    move = Reassignment(topic_partition=name, replicas=(4, 5))
    controller.ask(ReassignPartitionsRequest(partitions=(move,)))
    controller.propose((2, 4, 5))
    elected = [one for one in controller.incidents if isinstance(one, LeaderElected)]
    assert [(one.cause, one.leader_id, one.told) for one in elected] == [
        (ElectionCause.IN_SYNC, 2, (2,)),
        (ElectionCause.PREFERRED, 1, (1, 2, 3)),
        (ElectionCause.SHUT_DOWN, 2, (2,)),
        (ElectionCause.REASSIGNED, 4, (4, 5)),
    ]
