"""The last replica standing (KIP-966): power goes where only one replica was left in sync.

Three replicas, a floor of two. The first two leave one after the other; nothing is committed by the
last alone. It loses power with its tail. Kafka without KIP-966 lets it lead again, and what the
others had seen committed is gone.
"""

import pytest

from replog.controller.incidents import ElectionCause, LeaderElected
from tests.controller.conversation import Controller, log_of


@pytest.fixture
def controller():
    """Replica 2 alone is in sync; 1 left below the floor and holds all that is committed."""
    controller = Controller()
    controller.start(0, 1, 2)
    controller.create(min_insync_replicas=2)
    controller.lose(0)
    controller.lose(1)
    image = controller.model.controller._image
    partition = image.partition(controller.partition().topic_partition)
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((2,), (1,), ())
    return controller


def vouchers(controller):
    image = controller.model.controller._image
    partition = image.partition(controller.partition().topic_partition)
    return partition.isr, partition.elr, partition.last_known_elr


def test_who_left_first_while_enough_were_in_sync_is_not_eligible(controller):
    assert 0 not in vouchers(controller)[1]


def test_the_last_one_back_from_a_power_failure_does_not_lead_again_alone(controller):
    controller.lose(2)
    logs = (log_of(controller.partition(), 0, 3),)
    controller.restart(2, "second", clean=False, logs=logs)
    assert controller.partition().leader_id is None
    assert vouchers(controller) == ((2,), (1,), (2,))


def test_the_eligible_one_leads_as_soon_as_it_is_back(controller):
    controller.lose(2)
    partition = controller.partition()
    controller.restart(2, "second", clean=False, logs=(log_of(partition, 0, 3),))
    controller.restart(1, "second", clean=True, logs=(log_of(partition, 0, 9),))
    assert controller.partition().leader_id == 1
    elected = [one for one in controller.incidents if isinstance(one, LeaderElected)][-1]
    assert elected.cause is ElectionCause.HOLDS_ALL_COMMITTED
    assert vouchers(controller) == ((1,), (), (2,))
    controller.propose((1, 2))
    assert vouchers(controller) == ((1, 2), (), ())


def test_when_both_lost_power_the_longer_log_leads(controller):
    controller.lose(2)
    partition = controller.partition()
    controller.restart(2, "second", clean=False, logs=(log_of(partition, 0, 3),))
    assert controller.partition().leader_id is None
    controller.restart(1, "second", clean=False, logs=(log_of(partition, 0, 9),))
    assert controller.partition().leader_id == 1


def test_eligible_replicas_outlive_the_controller(controller):
    controller.lose(2)
    other = Controller()
    other.model.take_over(controller.model.log)
    other.epochs = dict(controller.epochs)
    partition = other.partition()
    other.restart(2, "second", clean=False, logs=(log_of(partition, 0, 3),))
    assert other.partition().leader_id is None
    again = Controller()
    again.model.take_over(other.model.log)
    again.epochs = dict(other.epochs)
    assert vouchers(again) == ((2,), (1,), (2,))
    again.restart(1, "second", clean=True, logs=(log_of(partition, 0, 9),))
    assert again.partition().leader_id == 1
