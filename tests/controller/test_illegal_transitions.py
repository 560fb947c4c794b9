"""A state that must not follow another is never written: who asked is told, and nothing stops.

No command leads to one, so the tables are made narrower here than they are.
"""

import pytest

from replog.admin_messages import (
    ElectionKind,
    ElectLeadersRequest,
    Reassignment,
    ReassignPartitionsRequest,
)
from replog.controller import state_machines
from replog.controller.effects import ReloadState, Resign
from replog.controller.events import LeadershipLost, RequestReceived
from replog.controller.incidents import EventFailed, TransitionRefused
from replog.controller.state_machines import PartitionState, ReplicaState
from replog.errors import InvariantViolation
from replog.messages import CreateTopicRequest, DeleteTopicRequest, ErrorCode
from replog.types import TopicPartition
from tests.controller.conversation import Controller
from tests.controller.one_voter import assert_same_image

T0, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)


@pytest.fixture
def controller():
    controller = Controller()
    controller.start(0, 1, 2, 3)
    controller.create("t")
    controller.create("other", replicas=(1, 2, 0))
    return controller


@pytest.fixture
def forbid(monkeypatch):
    """Forbid a transition; it is legal again at the end of the test."""

    def forbid(before, after):
        table = state_machines._PARTITION
        if isinstance(before, ReplicaState):
            table = state_machines._REPLICA
        monkeypatch.setitem(table, before, table[before] - {after})

    return forbid


def refusals(controller):
    return [one for one in controller.incidents if isinstance(one, TransitionRefused)]


def assert_untouched(controller, version):
    assert controller.model.version == version
    assert_same_image(controller.model.mirror, controller.model.controller._image)
    assert controller.ask(CreateTopicRequest(topic="next")).error is ErrorCode.NONE


def test_a_command_is_refused_with_a_sentence_that_names_both_states(controller, forbid):
    forbid(PartitionState.OFFLINE, PartitionState.NON_EXISTENT)
    version = controller.model.version
    answer = controller.ask(DeleteTopicRequest(topic="t"))
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert "Offline to NonExistent" in answer.message
    (incident,) = refusals(controller)
    assert incident.message == answer.message
    assert_untouched(controller, version)


def test_of_many_partitions_only_that_one_is_refused(controller, forbid):
    forbid(ReplicaState.NON_EXISTENT, ReplicaState.NEW)
    moves = (
        Reassignment(topic_partition=T0, replicas=(0, 1, 3)),
        Reassignment(topic_partition=OTHER, replicas=(2, 1, 0)),
    )
    refused, moved = controller.ask(ReassignPartitionsRequest(partitions=moves)).partitions
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert "NonExistent to New" in refused.message
    assert moved.error is ErrorCode.NONE
    assert controller.partition("t").replicas == (0, 1, 2)
    assert controller.partition("other").replicas == (2, 1, 0)
    assert [one.topic_partition for one in refusals(controller)] == [T0]


def test_so_it_is_with_elections(controller, forbid):
    controller.restart(0, "second", clean=True)
    controller.propose((0, 1, 2))
    forbid(PartitionState.ONLINE, PartitionState.ONLINE)
    version = controller.model.version
    request = ElectLeadersRequest(kind=ElectionKind.PREFERRED, partitions=(T0,))
    (refused,) = controller.ask(request).partitions
    assert "Online to Online" in refused.message
    assert len(refusals(controller)) == 1
    assert_untouched(controller, version)


def test_the_death_of_a_broker_changes_all_other_partitions(controller, forbid):
    """Goal: a partition that cannot change leaves the broker fenced, and the others led."""
    controller.create("alone", replicas=(1,))
    forbid(PartitionState.ONLINE, PartitionState.OFFLINE)
    controller.lose(1)
    assert controller.model.broker(1).fenced
    assert controller.partition("other").leader_id == 2
    assert controller.partition("alone").leader_id == 1
    assert [one.topic_partition.topic for one in refusals(controller)] == ["alone"]


def test_a_controller_takes_office_over_a_partition_that_it_cannot_change(controller, forbid):
    controller.create("alone", replicas=(1,))
    controller.lose(1)
    forbid(PartitionState.OFFLINE, PartitionState.ONLINE)
    controller.heartbeat(1)
    assert not controller.model.broker(1).fenced
    assert [one.topic_partition.topic for one in refusals(controller)] == ["alone"]
    assert controller.model.take_over(controller.model.log, controller.now_ms) == []
    controller.heartbeat(1)
    assert [one.topic_partition.topic for one in refusals(controller)] == ["alone", "alone"]
    assert controller.partition("alone").leader_id is None
    assert controller.ask(CreateTopicRequest(topic="next")).error is ErrorCode.NONE


class TestAStepThatRaises:
    """Is a bug; see `ControllerNode`, which abandons it."""

    def abandon(self, controller, monkeypatch, after_records):
        """A deletion that breaks an invariant when so many of its records are written."""
        topics = controller.model.controller._topics

        def broken(request):
            if after_records:
                topics.remove(topics._image.topics[request.topic])
            raise InvariantViolation("planted")

        monkeypatch.setattr(topics, "delete", broken)
        request = DeleteTopicRequest(topic="t")
        controller.request_id += 1
        event = RequestReceived(request_id=controller.request_id, sender=None, request=request)
        with pytest.raises(InvariantViolation) as raised:
            controller.model.controller.step(event, controller.now_ms)
        return controller.model.controller.abandon(event, raised.value, controller.now_ms)

    def test_before_anything_is_written_fails_alone(self, controller, monkeypatch):
        version = controller.model.version
        answer, report = self.abandon(controller, monkeypatch, after_records=0)
        assert answer.response.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "planted" in answer.response.message
        assert report.incident == EventFailed(
            event="DeleteTopicRequest", message="InvariantViolation: planted", resigned=False
        )
        assert_untouched(controller, version)

    def test_half_way_leaves_nothing_and_gives_up_the_office(self, controller, monkeypatch):
        answer, report, resign = self.abandon(controller, monkeypatch, after_records=1)
        assert answer.response.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert report.incident.resigned
        assert isinstance(resign, Resign)
        *_, reload = controller.model.controller.step(LeadershipLost(), controller.now_ms)
        assert reload == ReloadState()
        controller.model.take_over(controller.model.log, controller.now_ms)
        assert controller.partition("t").leader_id == 0
