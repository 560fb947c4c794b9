"""Every check of AlterPartition, in its order, and that a refused proposal changes nothing."""

import uuid

import pytest

from replog.messages import AlterPartitionRequest, ErrorCode, IsrProposal
from replog.types import TopicPartition
from tests.controller.conversation import Controller


@pytest.fixture
def controller():
    """Brokers 0-3; a partition on 0 1 2, led by 0 in epoch 1, whose in-sync set 2 has left."""
    controller = Controller()
    controller.start(2, 0, 1, 3)
    controller.create(replicas=(2, 0, 1))
    controller.lose(2)
    controller.start(2, incarnation="second")
    assert controller.partition().leader_id == 0
    assert controller.partition().leader_epoch == 1
    assert controller.partition().isr == (0, 1)
    return controller


REFUSALS = [
    ("broker epoch of an older run", {"broker_epoch": 0}, ErrorCode.STALE_BROKER_EPOCH),
    ("unregistered sender", {"sender": 9}, ErrorCode.STALE_BROKER_EPOCH),
    ("unknown topic id", {"topic_id": uuid.UUID(int=99)}, ErrorCode.UNKNOWN_TOPIC_ID),
    (
        "unknown partition",
        {"topic_partition": TopicPartition("t", 7)},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    ("leader epoch of the future", {"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
    ("partition epoch of the future", {"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
    ("leader epoch of the past", {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
    (
        "leader epoch of the past, from another",
        {"leader_epoch": 0, "sender": 1},
        ErrorCode.FENCED_LEADER_EPOCH,
    ),
    ("sender does not lead", {"sender": 1}, ErrorCode.INVALID_REQUEST),
    ("partition epoch of the past", {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
    ("a member twice", {"isr": (0, 1, 1)}, ErrorCode.INVALID_REQUEST),
    ("without the leader", {"isr": (1,)}, ErrorCode.INVALID_REQUEST),
    ("nobody", {"isr": ()}, ErrorCode.INVALID_REQUEST),
    ("a member that is no replica", {"isr": (0, 1, 3)}, ErrorCode.INVALID_REQUEST),
    (
        "recovering again after having recovered",
        {"isr": (0,), "recovering": True},
        ErrorCode.INVALID_REQUEST,
    ),
    ("a member of an older run", {"isr": (0, 1, (2, 1))}, ErrorCode.INELIGIBLE_REPLICA),
    ("a member of a future run", {"isr": (0, 1, (2, 99))}, ErrorCode.INELIGIBLE_REPLICA),
]


@pytest.mark.parametrize(
    ("changes", "error"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_a_wrong_proposal_is_refused_and_changes_nothing(controller, changes, error):
    before, version = controller.partition(), controller.model.version
    asked = {"isr": (0, 1)} | changes
    isr = asked.pop("isr")
    assert controller.propose(isr, **asked) is error
    assert controller.partition() is before
    assert controller.model.version == version


def test_a_fenced_member_is_refused(controller):
    controller.lose(2)
    assert controller.propose((0, 1, 2)) is ErrorCode.INELIGIBLE_REPLICA


def test_a_member_that_is_shutting_down_is_refused(controller):
    controller.heartbeat(2, want_shut_down=True)
    assert not controller.model.broker(2).fenced
    assert controller.propose((0, 1, 2)) is ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize("epoch_known", [True, False])
def test_a_good_proposal_raises_the_partition_epoch_alone(controller, epoch_known):
    before = controller.partition()
    joining = (2, controller.epochs[2]) if epoch_known else 2
    assert controller.propose((0, joining, 1)) is ErrorCode.NONE
    after = controller.partition()
    assert after.isr == (2, 0, 1)
    assert after.partition_epoch == before.partition_epoch + 1
    assert after.leader_epoch == before.leader_epoch
    assert after.leader_id == 0


def test_proposing_what_is_registered_already_changes_nothing(controller):
    before, version = controller.partition(), controller.model.version
    assert controller.propose((1, 0)) is ErrorCode.NONE
    assert controller.partition() is before
    assert controller.model.version == version


def test_decisions_come_in_the_order_of_the_proposals(controller):
    now = controller.partition()
    good = IsrProposal(
        topic_partition=now.topic_partition,
        topic_id=now.topic_id,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        isr=((0, -1),),
    )
    bad = IsrProposal(
        topic_partition=TopicPartition("x", 0),
        topic_id=uuid.UUID(int=99),
        leader_epoch=0,
        partition_epoch=0,
        isr=((0, -1),),
    )
    response = controller.ask(
        AlterPartitionRequest(
            broker_id=0, broker_epoch=controller.epochs[0], proposals=(bad, good, good)
        )
    )
    assert [decision.error for decision in response.decisions] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert response.decisions[1].isr == (0,)
    assert response.decisions[1].partition_epoch == now.partition_epoch + 1


def test_a_request_under_another_brokers_name_is_refused(controller):
    request = AlterPartitionRequest(broker_id=0, broker_epoch=controller.epochs[0], proposals=())
    assert controller.ask(request, sender=1).error is ErrorCode.INVALID_REQUEST
    assert controller.ask(request, sender=0).error is ErrorCode.NONE


def test_a_proposal_made_before_damage_was_found_comes_too_late(controller):
    """KIP-966's promise rests on copies that are there: a damaged one must not slip back in."""
    before = controller.partition()
    controller.heartbeat(2, damaged=(before.topic_partition,))
    error = controller.propose((0, 1, 2), partition_epoch=before.partition_epoch)
    assert error is ErrorCode.INVALID_UPDATE_VERSION
    assert controller.partition().isr == (0, 1)


@pytest.fixture
def unclean():
    """Brokers 0 and 1; a partition that 1 leads by an unclean election, alone in sync."""
    controller = Controller()
    controller.start(0, 1)
    controller.create(replicas=(0, 1), unclean=True)
    controller.lose(1)
    controller.lose(0)
    controller.start(1, incarnation="second")
    controller.start(0, incarnation="second")
    assert (controller.partition().leader_id, controller.partition().isr) == (1, (1,))
    assert controller.partition().unclean
    return controller


class TestALeaderFromAnUncleanElection:
    """Kafka's leader recovery state (KIP-704)."""

    def test_has_recovered_by_its_first_proposal(self, unclean):
        before = unclean.partition()
        assert unclean.propose((1, 0)) is ErrorCode.NONE
        after = unclean.partition()
        assert (after.unclean, set(after.isr)) == (False, {0, 1})
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch == after.unclean_epoch == before.leader_epoch
        assert unclean.model.log[-1].leader_recovery_state == 0

    def test_has_recovered_also_where_nobody_joins(self, unclean):
        before = unclean.partition()
        assert unclean.propose((1,)) is ErrorCode.NONE
        after = unclean.partition()
        assert (after.unclean, after.isr) == (False, (1,))
        assert after.partition_epoch == before.partition_epoch + 1

    def test_may_say_that_it_still_recovers(self, unclean):
        before, version = unclean.partition(), unclean.model.version
        response = unclean.propose_later((1,), recovering=True)
        assert [one.recovering for one in response.decisions] == [True]
        assert unclean.partition() is before
        assert unclean.model.version == version

    def test_is_joined_by_nobody_while_it_recovers(self, unclean):
        before = unclean.partition()
        assert unclean.propose((1, 0), recovering=True) is ErrorCode.INVALID_REQUEST
        assert unclean.partition() is before

    def test_does_not_go_back_to_recovering(self, unclean):
        assert unclean.propose((1, 0)) is ErrorCode.NONE
        before = unclean.partition()
        assert unclean.propose((1,), recovering=True) is ErrorCode.INVALID_REQUEST
        assert unclean.partition() is before

    def test_is_told_what_is_registered(self, unclean):
        response = unclean.propose_later((1, 0))
        assert [one.recovering for one in response.decisions] == [False]


def test_recovery_is_checked_before_who_may_join(unclean):
    """Goal: Kafka's order of the checks. A member of an older run is found after that."""
    error = unclean.propose((1, (0, 0)), recovering=True)
    assert error is ErrorCode.INVALID_REQUEST
