"""Limits on what reassignments move: set by their command, or by operators, who keep theirs."""

import pytest

from replog.admin_messages import (
    AlterOptionsRequest,
    ResourceKind,
)
from replog.messages import ErrorCode
from replog.registrations import MetadataDelta
from tests.controller.conversation import Controller
from tests.controller.moves import progress, reassign, six_brokers


@pytest.fixture
def controller():
    return six_brokers()


RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def set_rates(controller, leader, follower, broker=""):
    options = dict(zip(RATES, (leader, follower), strict=True))
    request = AlterOptionsRequest(kind=ResourceKind.BROKER, name=broker, options=options)
    assert controller.ask(request).error is ErrorCode.NONE


def rates(controller, broker=""):
    """Of all brokers, or of one: (leader's, follower's), as brokers were told."""
    told = controller.model.mirror.options.get((int(ResourceKind.BROKER), broker), {})
    assert told.keys() <= set(RATES), "a note is no option"
    return tuple(told.get(option) for option in RATES)


def replaced(controller, *, from_snapshot=False):
    """Another controller, which knows the log of this one, or its snapshot."""
    other = Controller()
    other.now_ms, other.topic_ids, other.epochs = controller.now_ms, 100, controller.epochs
    log = controller.model.log
    if from_snapshot:
        log = list(controller.model.mirror.snapshot_records())
    other.model.take_over(log, now_ms=other.now_ms)
    return other


def test_the_throttle_is_told_to_brokers_and_ends_with_the_last_reassignment(controller):
    version = controller.model.version
    assert reassign(controller, (4,), throttle_bytes_per_s=0).error is ErrorCode.INVALID_REQUEST
    reassign(controller, (4, 5, 6), throttle_bytes_per_s=1000)
    options = controller.model.mirror.take_delta().broker_options
    assert (None, "follower.replication.throttled.rate", "1000") in options
    reassign(controller, (4, 5, 6), throttle_bytes_per_s=2000)
    controller.propose((1, 2, 3, 4, 5, 6))
    delta = controller.model.mirror.take_delta()
    assert isinstance(delta, MetadataDelta)
    assert (None, "leader.replication.throttled.rate", None) in delta.broker_options
    assert delta.version > version


@pytest.mark.parametrize("commanded", [False, True])
def test_a_throttle_that_operators_set_stays_without_a_reassignment_and_after_one(
    controller, commanded
):
    set_rates(controller, None, "500", broker="3")
    set_rates(controller, None, "1000")
    controller.create("another", replicas=(1, 2))
    assert rates(controller) == (None, "1000")
    more = {"throttle_bytes_per_s": 2000} if commanded else {}
    reassign(controller, (4, 5, 6), **more)
    assert rates(controller) == (("2000", "2000") if commanded else (None, "1000"))
    controller.propose((1, 2, 3, 4, 5, 6))
    assert progress(controller) == ()
    assert rates(controller) == (None, "1000")
    assert rates(replaced(controller)) == (None, "1000")
    assert rates(controller, "3") == (None, "500")


# What operators set before, what while a reassignment limits to 2000, what is left of it.
OPERATORS = [
    ((None, None), None, (None, None)),
    (("7", None), None, ("7", None)),
    (("7", "8"), ("9", "8"), ("9", "8")),
    (("7", "8"), (None, "2000"), (None, "8")),
    (("2000", "2000"), None, ("2000", "2000")),
    (("7", "2000"), None, ("7", "2000")),
]


@pytest.mark.parametrize("from_snapshot", [None, False, True])
@pytest.mark.parametrize(("before", "meanwhile", "left"), OPERATORS)
def test_only_what_a_reassignment_has_set_is_taken_back_with_the_last_by_any_controller(
    controller, before, meanwhile, left, from_snapshot
):
    set_rates(controller, *before)
    reassign(controller, (4, 5, 6), throttle_bytes_per_s=1000)
    reassign(controller, (4, 5, 6), throttle_bytes_per_s=2000)
    assert rates(controller) == ("2000", "2000")
    if meanwhile is not None:
        set_rates(controller, *meanwhile)
    if from_snapshot is not None:
        controller = replaced(controller, from_snapshot=from_snapshot)
        assert rates(controller) == (meanwhile or ("2000", "2000"))
    controller.propose((1, 2, 3, 4, 5, 6))
    assert progress(controller) == ()
    assert rates(controller) == left
    assert controller.model.mirror.throttle_mark is None


def test_a_rate_that_operators_changed_is_what_the_next_limit_gives_way_to(controller):
    reassign(controller, (4, 5, 6), throttle_bytes_per_s=1000)
    set_rates(controller, None, "50")
    reassign(controller, (4, 5, 6), throttle_bytes_per_s=2000)
    assert rates(controller) == ("2000", "2000")
    reassign(controller, None)
    assert rates(controller) == (None, "50")
