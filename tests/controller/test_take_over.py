"""Resignation and take-over: a command is answered once, a new controller goes on from the log."""

import uuid

import pytest

from replog.admin_messages import (
    AlterOptionsRequest,
    BalanceLeadersRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeLossesRequest,
    DescribePartitionsRequest,
    ElectionKind,
    ElectLeadersRequest,
    ListReassignmentsRequest,
    ReassignPartitionsRequest,
    ResourceKind,
    StateChangesRequest,
    UnregisterBrokerRequest,
)
from replog.config import ControllerOptions
from replog.controller.controller import Controller
from replog.controller.effects import AppendRecords, ReloadState, Report, Resign, Respond
from replog.controller.events import (
    Committed,
    ConnectionLost,
    LeadershipGained,
    LeadershipLost,
    RecordsAppended,
    RequestReceived,
    Tick,
)
from replog.messages import (
    AlterPartitionRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    ErrorCode,
    HeartbeatRequest,
    RegisterBrokerRequest,
)
from tests.controller import conversation
from tests.controller.conversation import log_of
from tests.controller.one_voter import assert_same_image

REQUESTS = [
    AlterPartitionRequest(broker_id=0, broker_epoch=0, proposals=()),
    RegisterBrokerRequest(broker_id=0, incarnation_id="x"),
    HeartbeatRequest(broker_id=0, broker_epoch=0, first_broker_epoch=0, version=0),
    CreateTopicRequest(topic="x"),
    DeleteTopicRequest(topic="x"),
    CreateTopicsRequest(topics=()),
    CreatePartitionsRequest(topic="x", count=1),
    AlterOptionsRequest(kind=ResourceKind.TOPIC, name="x", options={}),
    ElectLeadersRequest(kind=ElectionKind.PREFERRED),
    ReassignPartitionsRequest(partitions=()),
    ListReassignmentsRequest(),
    BalanceLeadersRequest(),
    DescribePartitionsRequest(),
    DescribeLossesRequest(),
    StateChangesRequest(),
    UnregisterBrokerRequest(broker_id=0),
]


def new_controller():
    return Controller(ControllerOptions(), lambda: uuid.UUID(int=7), cluster_id="this")


def leading():
    controller = new_controller()
    assert controller.step(LeadershipGained(controller_epoch=3, end_offset=1), 0) == []
    return controller


def ask(controller, request, request_id=1):
    event = RequestReceived(request_id=request_id, sender=None, request=request)
    return controller.step(event, 0)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_controller_that_follows_answers_every_request_with_not_controller(request_):
    (effect,) = ask(new_controller(), request_)
    assert isinstance(effect, Respond)
    assert effect.response.error is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    "event", [ConnectionLost(broker_id=1), Tick(), LeadershipLost(), Committed(3)]
)
def test_a_controller_that_follows_decides_nothing(event):
    controller = new_controller()
    assert controller.step(event, 0) == []
    assert controller.next_deadline_ms is None


def test_an_answer_waits_until_its_records_are_committed():
    controller = leading()
    (append,) = ask(controller, RegisterBrokerRequest(broker_id=0, incarnation_id="x"))
    assert isinstance(append, AppendRecords)
    assert (append.controller_epoch, append.base_offset) == (3, 1)
    assert controller.step(RecordsAppended(1), 0) == []
    assert controller.version == 1
    answer, report = sorted(controller.step(Committed(2), 0), key=lambda one: type(one).__name__)[
        ::-1
    ]
    assert answer.response.broker_epoch == 1
    assert isinstance(report, Report)
    assert controller.version == 2


def test_an_answer_without_records_waits_for_what_it_may_tell_of():
    controller = leading()
    ask(controller, RegisterBrokerRequest(broker_id=0, incarnation_id="x"))
    again = ask(controller, RegisterBrokerRequest(broker_id=0, incarnation_id="x"), request_id=2)
    assert again == []
    answers = [one for one in controller.step(Committed(2), 0) if isinstance(one, Respond)]
    assert [answer.request_id for answer in answers] == [1, 2]
    assert [answer.response.broker_epoch for answer in answers] == [1, 1]


def test_one_that_resigns_answers_all_that_is_open_once_and_forgets_what_may_be_lost():
    controller = leading()
    ask(controller, RegisterBrokerRequest(broker_id=0, incarnation_id="x"), request_id=5)
    heartbeat = HeartbeatRequest(broker_id=0, broker_epoch=1, first_broker_epoch=1, version=1)
    ask(controller, heartbeat, request_id=6)
    effects = controller.step(LeadershipLost(), 0)
    assert [effect.request_id for effect in effects[:-1]] == [5, 6]
    assert {effect.response.error for effect in effects[:-1]} == {ErrorCode.NOT_CONTROLLER}
    assert isinstance(effects[-1], ReloadState)
    assert controller.broker(0) is None
    assert (controller.version, controller.uncommitted_end_offset) == (0, 0)
    assert controller.step(Committed(2), 0) == []


def test_one_that_resigns_with_nothing_in_flight_goes_on_from_where_it_is():
    controller = leading()
    (append,) = ask(controller, RegisterBrokerRequest(broker_id=0, incarnation_id="x"))
    controller.step(Committed(2), 0)
    assert controller.step(LeadershipLost(), 0) == []
    assert controller.broker(0).broker_epoch == 1
    for record in append.records:
        controller.apply(record, 2)
    assert controller.version == 3
    gained = controller.step(LeadershipGained(controller_epoch=4, end_offset=4), 0)
    assert not [effect for effect in gained if isinstance(effect, Respond)]


def test_records_that_land_elsewhere_make_it_resign():
    controller = leading()
    ask(controller, RegisterBrokerRequest(broker_id=0, incarnation_id="x"))
    (effect,) = controller.step(RecordsAppended(2), 0)
    assert isinstance(effect, Resign)
    assert "offset 1" in effect.message


def test_a_directory_of_another_cluster_is_refused():
    controller = leading()
    for cluster_id, error in [("other", ErrorCode.INCONSISTENT_CLUSTER_ID), ("this", 0), (None, 0)]:
        request = RegisterBrokerRequest(broker_id=0, incarnation_id="x", cluster_id=cluster_id)
        effects = ask(controller, request)
        effects += controller.step(Committed(controller.uncommitted_end_offset), 0)
        answers = [one.response for one in effects if isinstance(one, Respond)]
        assert answers[0].error == error


@pytest.fixture
def controller():
    controller = conversation.Controller()
    controller.start(0, 1, 2)
    controller.create()
    return controller


def test_take_over_after_every_record_gives_the_image_that_the_log_says(controller):
    controller.create("u", min_insync_replicas=2, unclean=True)
    controller.lose(0)
    controller.lose(1)
    controller.restart(1, "second", clean=False, logs=(log_of(controller.partition("u"), 0, 3),))
    controller.lose(2)
    controller.ask(DeleteTopicRequest(topic="t"))
    log = controller.model.log
    for cut in range(len(log) + 1):
        other = conversation.Controller()
        other.model.take_over(log[:cut])
        assert_same_image(other.model.mirror, other.model.controller._image)


def test_a_new_controller_elects_for_partitions_that_nobody_leads(controller):
    """Method: the old one died between a return and the election; here the record is cut off."""
    for broker_id in (0, 1, 2):
        controller.lose(broker_id)
    logs = (log_of(controller.partition(), 0, 3),)
    controller.start(2, incarnation="second", previous=controller.epochs[2], logs=logs)
    log = controller.model.log[:-1]
    assert controller.partition().leader_id == 2
    other = conversation.Controller()
    other.model.take_over(log)
    assert other.partition().leader_id is None  # 2 may be gone as well, for all that it knows
    other.epochs[2] = controller.epochs[2]
    other.heartbeat(2)
    assert other.partition().leader_id == 2


def test_sessions_begin_anew_with_a_new_controller(controller):
    other = conversation.Controller()
    other.now_ms = 50_000
    other.model.take_over(controller.model.log, now_ms=50_000)
    session_ms = other.model.options.broker_session_timeout_ms
    assert other.model.next_deadline_ms == 50_000 + session_ms
    other.epochs = controller.epochs
    assert not other.heartbeat(1).fenced
    other.tick(session_ms)
    assert [other.model.broker(one).fenced for one in (0, 1, 2)] == [True, True, True]


def test_ends_of_logs_are_told_to_the_new_controller_again(controller):
    """Goal: liveness. What heartbeats had told the old one died with it."""
    controller.create("u", min_insync_replicas=2)
    partition = controller.partition("u")
    for broker_id in (0, 1, 2):
        controller.lose(broker_id)
    controller.restart(2, "second", clean=False, logs=(log_of(partition, 0, 5),))
    assert controller.partition("u").leader_id is None
    other = conversation.Controller()
    other.topic_ids = controller.topic_ids
    other.model.take_over(controller.model.log)
    other.epochs = controller.epochs
    other.restart(1, "second", clean=False, logs=(log_of(partition, 0, 7),))
    assert other.partition("u").leader_id is None
    now = other.partition("u")
    other.heartbeat(2, leaderless=(conversation.leaderless_log(now, 0, 5),))
    assert other.partition("u").leader_id == 1


def test_a_broker_that_was_leaving_leaves_under_the_new_controller(controller):
    assert not controller.heartbeat(0, want_shut_down=True).should_shut_down
    other = conversation.Controller()
    other.model.take_over(controller.model.log)
    other.epochs = controller.epochs
    assert not other.heartbeat(0, want_shut_down=True).should_shut_down
    for broker_id in (1, 2):
        other.heartbeat(broker_id)
    assert other.heartbeat(0, want_shut_down=True).should_shut_down
