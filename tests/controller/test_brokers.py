"""Every transition of a broker's life as the controller sees it, and that its epochs only grow."""

import pytest

from replog.controller.incidents import BrokerFenced, BrokerRegistered, FenceCause
from replog.controller.metadata_image import MetadataImage
from replog.messages import ErrorCode, HeartbeatRequest, RegisterBrokerRequest
from tests.controller.conversation import SESSION_MS, Controller


@pytest.fixture
def controller():
    controller = Controller()
    controller.start(0, 1, 2)
    return controller


def last_fence(controller):
    return [found for found in controller.incidents if isinstance(found, BrokerFenced)][-1]


def test_a_new_broker_is_fenced_until_it_has_caught_up_with_its_registration():
    controller = Controller()
    response = controller.register(0)
    assert response.broker_epoch == response.version - 1 == controller.model.version - 1
    assert controller.model.broker(0).fenced
    assert controller.heartbeat(0, version=response.version - 1).fenced
    assert not controller.heartbeat(0, version=response.version).fenced
    assert not controller.model.broker(0).fenced


def test_the_same_incarnation_registers_again_under_its_epoch(controller):
    version = controller.model.version
    before = controller.model.broker(1)
    assert controller.register(1).broker_epoch == before.broker_epoch
    assert controller.model.broker(1) is before
    assert controller.model.version == version


@pytest.mark.parametrize("fenced", [False, True])
def test_another_incarnation_is_refused_while_a_session_lasts(controller, fenced):
    if fenced:
        controller.register(3)
    silent_id = 3 if fenced else 1
    refused = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert controller.register(silent_id, "second").error is refused
    controller.now_ms += SESSION_MS - 1
    assert controller.register(silent_id, "second").error is refused
    controller.now_ms += 1
    assert controller.register(silent_id, "second").error is ErrorCode.NONE
    assert controller.model.broker(silent_id).fenced


def test_a_reset_connection_ends_the_session_and_fences_at_once(controller):
    controller.lose(1)
    assert controller.model.broker(1).fenced
    assert last_fence(controller).cause is FenceCause.CONNECTION_LOST
    assert controller.register(1, "second").error is ErrorCode.NONE


@pytest.mark.parametrize("how", ["its session ran out", "its connections were reset"])
class TestABrokerThatWasFencedAndLives:
    """Its epoch is over: it registers again, in the same run, before it takes part."""

    @pytest.fixture
    def fenced(self, controller, how):
        controller.create(replicas=(1, 0, 2))
        if how == "its connections were reset":
            controller.lose(1)
        else:
            controller.now_ms += SESSION_MS
            controller.heartbeat(0)
            controller.heartbeat(2)
            controller.tick(0)
        assert controller.partition().leader_id == 0
        return controller

    def test_is_refused_under_the_epoch_that_is_over(self, fenced):
        stale = ErrorCode.STALE_BROKER_EPOCH
        for _ in range(2):
            assert fenced.heartbeat_once(1).error is stale
        assert fenced.model.broker(1).fenced

    def test_gets_a_new_epoch_and_is_unfenced_when_it_has_heard_of_it(self, fenced):
        before = fenced.epochs[1]
        version = fenced.register(1, previous=before).version
        assert fenced.epochs[1] == version - 1 > before
        assert fenced.heartbeat(1, version=version - 1).fenced
        assert not fenced.heartbeat(1, version=version).fenced

    def test_returns_to_the_set_only_by_fetches_of_the_new_epoch(self, fenced):
        before = fenced.epochs[1]
        fenced.register(1, previous=before)
        fenced.heartbeat(1)
        assert fenced.partition().isr == (0, 2)
        assert fenced.propose(((1, before), 0, 2)) is ErrorCode.INELIGIBLE_REPLICA
        assert fenced.propose(((1, fenced.epochs[1]), 0, 2)) is ErrorCode.NONE

    def test_has_its_logs_as_they_were_whatever_it_says_of_its_last_stop(self, fenced):
        """The answer to an earlier registration may have been lost on its way."""
        fenced.register(1, previous=-1)
        registered = [one for one in fenced.incidents if isinstance(one, BrokerRegistered)][-1]
        assert not registered.unclean

    def test_a_lost_answer_is_given_again_and_makes_no_second_epoch(self, fenced):
        first = fenced.register(1).broker_epoch
        assert fenced.register(1).broker_epoch == first

    def test_another_controller_refuses_it_too(self, fenced):
        fenced.model.take_over(fenced.model.log, fenced.now_ms)
        assert fenced.heartbeat_once(1).error is ErrorCode.STALE_BROKER_EPOCH

    def test_so_does_one_that_knows_it_from_a_snapshot(self, fenced):
        image = MetadataImage()
        image.load(fenced.model.controller.known_records(), fenced.model.version)
        assert image.brokers[1].is_over
        assert image.brokers[1].registration == fenced.model.broker(1)
        assert not image.brokers[0].is_over

    def test_may_stop_at_once(self, fenced):
        assert fenced.heartbeat(1, want_shut_down=True).should_shut_down

    def test_the_last_in_sync_replica_leads_again(self, controller, how):
        controller.create("alone", replicas=(2,))
        controller.lose(2)
        assert controller.partition("alone").leader_id is None
        controller.register(2, previous=controller.epochs[2])
        controller.heartbeat(2)
        now = controller.partition("alone")
        assert (now.leader_id, now.leader_epoch) == (2, 2)


def test_a_silent_broker_is_fenced_by_the_tick_at_its_deadline(controller):
    controller.now_ms += 5000
    controller.heartbeat(0)
    controller.heartbeat(2)
    assert controller.model.next_deadline_ms == controller.now_ms + SESSION_MS - 5000
    controller.tick(SESSION_MS - 5001)
    assert not controller.model.broker(1).fenced
    controller.tick(1)
    assert controller.model.broker(1).fenced
    assert not controller.model.broker(0).fenced
    incident = last_fence(controller)
    assert (incident.cause, incident.silent_ms) == (FenceCause.SESSION_EXPIRED, SESSION_MS)


def test_broker_epochs_only_grow(controller):
    epochs = [controller.epochs[broker_id] for broker_id in (0, 1, 2)]
    for number in range(5):
        controller.restart(number % 3, f"run {number}", clean=bool(number % 2))
        epochs.append(controller.epochs[number % 3])
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize(
    ("broker_id", "off_by", "error"),
    [
        (1, 0, ErrorCode.NONE),
        (1, -1, ErrorCode.STALE_BROKER_EPOCH),
        (1, 1, ErrorCode.STALE_BROKER_EPOCH),
        (9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_heartbeats_are_heard_under_the_latest_epoch_only(controller, broker_id, off_by, error):
    epoch = controller.epochs.get(broker_id, 0) + off_by
    request = HeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, first_broker_epoch=epoch, version=99
    )
    assert controller.ask(request).error is error


@pytest.mark.parametrize(
    "request_of_zero",
    [
        HeartbeatRequest(broker_id=0, broker_epoch=1, first_broker_epoch=1, version=0),
        RegisterBrokerRequest(broker_id=0, incarnation_id="x"),
    ],
)
def test_one_broker_cannot_speak_for_another(controller, request_of_zero):
    assert controller.ask(request_of_zero, sender=1).error is ErrorCode.INVALID_REQUEST


def test_leaderships_move_before_a_broker_may_stop(controller):
    controller.create(replicas=(1, 0, 2))
    stay = controller.heartbeat(1, want_shut_down=True)
    assert not stay.should_shut_down
    assert not stay.fenced
    assert controller.partition().leader_id == 0
    assert controller.partition().isr == (0, 2)
    assert controller.model.broker(1).in_controlled_shutdown
    controller.heartbeat(0)
    assert not controller.heartbeat(1, want_shut_down=True).should_shut_down
    controller.heartbeat(2)
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down
    assert controller.model.broker(1).fenced
    assert not controller.model.broker(1).in_controlled_shutdown


def test_asking_to_stop_again_is_answered_again(controller):
    for broker_id in (1, 0, 2):
        controller.heartbeat(broker_id, want_shut_down=broker_id == 1)
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_stopped_broker_may_register_again_at_once(controller):
    for broker_id in (1, 0, 2):
        controller.heartbeat(broker_id, want_shut_down=broker_id == 1)
    controller.heartbeat(1, want_shut_down=True)
    assert controller.register(1, "second").error is ErrorCode.NONE


def test_the_last_member_of_an_in_sync_set_stops_and_leaves_no_leader(controller):
    controller.create(replicas=(1,))
    controller.heartbeat(1, want_shut_down=True)
    assert controller.partition().leader_id is None
    assert controller.partition().isr == (1,)
    previous = controller.epochs[1]
    controller.lose(1)
    controller.start(1, incarnation="second", previous=previous)


def test_a_dead_broker_does_not_hold_up_a_shutdown(controller):
    controller.heartbeat(1, want_shut_down=True)
    controller.heartbeat(0)
    controller.lose(2)
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down


def test_fencing_ends_a_controlled_shutdown(controller):
    controller.heartbeat(1, want_shut_down=True)
    controller.lose(1)
    controller.register(1)
    assert not controller.heartbeat(1).fenced
    assert not controller.model.broker(1).in_controlled_shutdown
