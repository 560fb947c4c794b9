"""Commands asked twice, because the answer to the first try was lost: what the second one means."""

import dataclasses

import pytest

from replog.admin_messages import (
    AlterOptionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    ElectionKind,
    ElectLeadersRequest,
    Reassignment,
    ReassignPartitionsRequest,
    ResourceKind,
    UnregisterBrokerRequest,
)
from replog.messages import (
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    ErrorCode,
)
from replog.registrations import TopicConfig
from replog.runtime.command_outcome import CommandOutcome
from replog.types import TopicPartition
from tests.controller.conversation import Controller

NAME = TopicPartition("t", 0)
UNKNOWN = ErrorCode.REQUEST_TIMED_OUT


@pytest.fixture
def controller():
    controller = Controller()
    controller.start(1, 2, 3, 4)
    controller.create(replicas=(1, 2))
    return controller


def topic(name="new", **more):
    return CreateTopicRequest(topic=name, **{"replication_factor": 3} | more)


def placed(*assignment):
    return CreateTopicRequest(topic="new", assignment=assignment)


def several(*topics):
    return CreateTopicsRequest(topics=topics)


def partitions(count, assignment=None, **more):
    return CreatePartitionsRequest(topic="t", count=count, assignment=assignment, **more)


def reassign(replicas):
    moved = Reassignment(topic_partition=NAME, replicas=replicas)
    return ReassignPartitionsRequest(partitions=(moved,))


def elect(kind=ElectionKind.PREFERRED):
    return ElectLeadersRequest(kind=kind, partitions=(NAME,))


def options(**named):
    texts = {name.replace("_", "."): text for name, text in named.items()}
    return AlterOptionsRequest(kind=ResourceKind.TOPIC, name="new", options=texts)


DELETE = DeleteTopicRequest(topic="t")
CANCEL = reassign(None)
FORGET = UnregisterBrokerRequest(broker_id=4)


class Lose:
    """A broker dies, or comes back after an unclean stop."""

    def __init__(self, broker_id, *, returns=False):
        self.broker_id = broker_id
        self.returns = returns

    def play(self, controller):
        if self.returns:
            controller.start(self.broker_id, incarnation="second")
        else:
            controller.lose(self.broker_id)


class Propose:
    """The leader finds these in sync."""

    def __init__(self, *isr):
        self.isr = isr

    def play(self, controller):
        assert controller.propose(self.isr) is ErrorCode.NONE


def play(controller, *steps):
    for step in steps:
        if hasattr(step, "play"):
            step.play(controller)
            continue
        answer = controller.ask(step)
        assert set(errors_of(answer)) == {ErrorCode.NONE}, answer


def errors_of(answer):
    parts = getattr(answer, "topics", None) or getattr(answer, "partitions", None)
    return [part.error for part in parts] if parts else [answer.error]


def again(controller, outcome, request):
    """What the second try is answered, and what its sender is told."""
    answer = controller.ask(request)
    settled = outcome.settle(answer)
    return answer, settled


SWAPPED = (reassign((2, 1)),)
LEADERLESS = (Lose(2), Lose(1))

# What went before, the command; what its second try is answered if the first was carried out.
DONE = [
    ((), topic(), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), placed((1, 2), (2, 3), (3, 1)), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), topic(options=(("retention.ms", "7"),)), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), topic(config=TopicConfig(min_insync_replicas=2)), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), topic(partitions=-1, replication_factor=-1), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), several(topic(), topic("more", partitions=5)), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), DELETE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ((), partitions(5), ErrorCode.INVALID_PARTITIONS),
    ((), partitions(3, ((1, 2), (3, 4))), ErrorCode.INVALID_PARTITIONS),
    ((reassign((1, 3)),), CANCEL, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    (SWAPPED, elect(), ErrorCode.ELECTION_NOT_NEEDED),
    (LEADERLESS, elect(ElectionKind.UNCLEAN), ErrorCode.ELECTION_NOT_NEEDED),
    ((Lose(4),), FORGET, ErrorCode.BROKER_ID_NOT_REGISTERED),
]


def prepared(controller, before):
    if before is LEADERLESS:
        controller.lose(2)
        controller.lose(1)
        controller.register(2, "second")
        controller.heartbeat(2, leaderless=tuple(controller.leaderless(2, ())))
        assert controller.partition().leader_id is None
    else:
        play(controller, *before)


@pytest.mark.parametrize(("before", "request_", "refusal"), DONE)
def test_what_the_first_try_has_done_is_success_for_the_second(
    controller, before, request_, refusal
):
    prepared(controller, before)
    outcome = CommandOutcome(request_, controller.model.mirror)
    play(controller, request_)
    version = controller.model.version
    answer, settled = again(controller, outcome, request_)
    assert set(errors_of(answer)) == {refusal}
    assert set(errors_of(settled)) == {ErrorCode.NONE}
    for part in (settled, *getattr(settled, "topics", ())):
        assert getattr(part, "message", None) is None
        assert getattr(part, "version", version) == version
    assert controller.model.version == version


@pytest.mark.parametrize(("before", "request_", "refusal"), DONE)
def test_what_was_so_before_the_first_try_is_refused_as_ever(controller, before, request_, refusal):
    prepared(controller, before)
    play(controller, request_)
    outcome = CommandOutcome(request_, controller.model.mirror)
    answer, settled = again(controller, outcome, request_)
    assert set(errors_of(answer)) == {refusal}
    assert settled == answer


# What went before, the command, what others did meanwhile, what its second try is answered.
OTHERS = [
    ((), topic(), (topic(partitions=2),), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), topic(), (topic(replication_factor=2),), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), topic(), (topic(), options(retention_ms="9")), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), placed((1, 2)), (placed((2, 1)),), ErrorCode.TOPIC_ALREADY_EXISTS),
    ((), partitions(2, ((1, 2),)), (partitions(2, ((3, 4),)),), ErrorCode.INVALID_PARTITIONS),
    (
        (),
        partitions(3),
        (partitions(3), DELETE, topic("t", partitions=4)),
        ErrorCode.INVALID_PARTITIONS,
    ),
    (
        (reassign((1, 3)),),
        CANCEL,
        (CANCEL, reassign((1, 4)), Propose(1, 2, 4)),
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ),
    (SWAPPED, elect(), (elect(), Lose(2)), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ((Lose(4),), FORGET, (FORGET, Lose(4, returns=True)), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("before", "request_", "others", "refusal"), OTHERS)
def test_what_nobody_can_tell_is_worth_another_try(controller, before, request_, others, refusal):
    play(controller, *before)
    outcome = CommandOutcome(request_, controller.model.mirror)
    play(controller, *others)
    answer, settled = again(controller, outcome, request_)
    assert errors_of(answer) == [refusal]
    assert errors_of(settled) == [UNKNOWN]
    part = (*getattr(settled, "partitions", ()), settled)[0]
    assert refusal.name in part.message
    assert "ask again" in part.message


def test_each_topic_of_a_command_is_judged_by_itself(controller):
    request = several(topic("t", replication_factor=2), topic(), topic("a b"))
    outcome = CommandOutcome(request, controller.model.mirror)
    first = controller.ask(request)
    assert first.topics[1].error is ErrorCode.NONE
    _, settled = again(controller, outcome, request)
    assert settled.topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert settled.topics[1] == dataclasses.replace(
        first.topics[1], version=controller.model.version
    )
    assert settled.topics[2].error is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    "request_",
    [partitions(3, validate_only=True), CreateTopicsRequest(topics=(topic(),), validate_only=True)],
)
def test_a_command_that_only_asks_whether_it_may_is_never_done(controller, request_):
    outcome = CommandOutcome(request_, controller.model.mirror)
    play(controller, partitions(3), topic())
    answer, settled = again(controller, outcome, request_)
    assert set(errors_of(answer)) != {ErrorCode.NONE}
    assert settled is answer


def test_what_may_be_done_twice_is_answered_as_the_second_try_is(controller):
    request = reassign((3, 4))
    outcome = CommandOutcome(request, controller.model.mirror)
    play(controller, request, Propose(1, 2, 3, 4))
    answer, settled = again(controller, outcome, request)
    assert settled == answer
    assert errors_of(settled) == [ErrorCode.NONE]


def test_an_error_that_is_no_refusal_of_what_is_done_does_not_say_so(controller):
    outcome = CommandOutcome(DELETE, controller.model.mirror)
    play(controller, DELETE)
    bug = DeleteTopicResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR, message="a bug")
    assert outcome.settle(bug).error is UNKNOWN


def test_what_is_worth_another_try_already_keeps_its_sentence(controller):
    request = several(topic())
    outcome = CommandOutcome(request, controller.model.mirror)
    play(controller, request)
    late = CreateTopicResponse(error=UNKNOWN, message="expected every replica to have started")
    answer = CreateTopicsResponse(topics=(late,))
    assert outcome.settle(answer) == answer
