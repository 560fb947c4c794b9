"""The two state machines: every pair of states, and the paths that real decisions take."""

import itertools

import pytest

from replog.controller.state_machines import (
    IllegalTransitionError,
    PartitionState,
    ReplicaState,
    move_partition,
    move_replica,
    partition_state,
    replica_state,
)
from replog.types import TopicPartition
from tests.controller.conversation import Controller

LEGAL = {
    ("NonExistent", "New"),
    ("New", "Online"),
    ("New", "Offline"),
    ("Online", "Online"),
    ("Online", "Offline"),
    ("Offline", "Online"),
    ("Offline", "NonExistent"),
}
NAME = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("before", "after"),
    list(itertools.product(PartitionState, repeat=2)),
    ids=lambda state: state.value,
)
def test_every_pair_of_partition_states(before, after):
    if (before.value, after.value) in LEGAL:
        assert move_partition(NAME, before, after) is after
        return
    with pytest.raises(IllegalTransitionError) as caught:
        move_partition(NAME, before, after)
    assert f"{before.value} to {after.value}" in str(caught.value)
    assert "t-0" in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after"),
    list(itertools.product(ReplicaState, repeat=2)),
    ids=lambda state: state.value,
)
def test_every_pair_of_replica_states(before, after):
    if (before.value, after.value) in LEGAL:
        assert move_replica(NAME, 3, before, after) is after
        return
    with pytest.raises(IllegalTransitionError) as caught:
        move_replica(NAME, 3, before, after)
    assert f"{before.value} to {after.value}" in str(caught.value)
    assert "broker 3" in str(caught.value)


def states(controller):
    image = controller.model.controller._image
    partition = image.partition(NAME)
    replicas = [replica_state(image, partition, one).value for one in (0, 1, 2)]
    return partition_state(partition).value, *replicas


def test_states_are_read_off_the_metadata():
    controller = Controller()
    controller.start(0, 1, 2)
    assert states(controller) == ("NonExistent", *["NonExistent"] * 3)
    controller.create(replicas=(0, 1))
    assert states(controller) == ("Online", "Online", "Online", "NonExistent")
    controller.lose(0)
    assert states(controller) == ("Online", "Offline", "Online", "NonExistent")
    controller.lose(1)
    assert states(controller) == ("Offline", "Offline", "Offline", "NonExistent")
    controller.heartbeat(1)
    assert states(controller) == ("Online", "Offline", "Online", "NonExistent")


def test_a_partition_begins_with_the_first_live_replica_and_all_live_ones_in_sync():
    controller = Controller()
    controller.start(0, 1, 2)
    controller.lose(1)
    controller.create(replicas=(1, 2, 0))
    now = controller.partition()
    assert (now.leader_id, now.isr, now.leader_epoch) == (2, (2, 0), 0)
