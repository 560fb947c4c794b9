"""A broker's conversation with the controller: registration, metadata, heartbeats, leaving."""

import pytest

from replog.controller.broker_session import (
    LEAVING_HEARTBEAT_INTERVAL_MS,
    SessionState,
)
from replog.controller.effects import (
    ApplyMetadata,
    SessionEnded,
    SetBrokerEpoch,
)
from replog.controller.events import (
    MetadataFollowed,
    RequestFailed,
    ResponseReceived,
    ShutdownWanted,
    Tick,
)
from replog.messages import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from replog.registrations import MetadataDelta
from tests.controller.conversation import SESSION_MS, Conversation
from tests.controller.session_steps import delta, registered, running, sent


def test_it_registers_with_what_the_last_run_left(session):
    ((_, request),) = sent(session.start(5, (), 0))
    assert request == RegisterBrokerRequest(
        broker_id=1, incarnation_id="run", previous_broker_epoch=5, rack="rack-a"
    )


def test_its_epoch_is_set_before_it_asks_for_anything(session):
    ((asked, _),) = sent(session.start(-1, (), 0))
    session.step(MetadataFollowed(delta(7, fenced=True)), 0)
    answer = RegisterBrokerResponse(broker_epoch=7, version=7)
    effects = session.step(ResponseReceived(request_id=asked, response=answer), 0)
    assert effects[0] == SetBrokerEpoch(7)
    ((_, request),) = sent(effects[1:])
    assert request == HeartbeatRequest(broker_id=1, broker_epoch=7, first_broker_epoch=7, version=7)


def test_it_says_at_once_that_it_has_caught_up(session):
    registered(session)
    effects = session.step(MetadataFollowed(delta(7, fenced=True)), 0)
    assert effects[0] == ApplyMetadata(delta(7, fenced=True))
    ((_, heartbeat),) = sent(effects, HeartbeatRequest)
    assert heartbeat.version == 7


@pytest.mark.parametrize("awaited", [True, False])
def test_it_says_at_once_that_it_has_obeyed_what_somebody_waits_for(session, awaited):
    running(session)
    effects = session.step(MetadataFollowed(MetadataDelta(version=9, is_awaited=awaited)), 0)
    told = [heartbeat.version for _, heartbeat in sent(effects, HeartbeatRequest)]
    assert told == ([9] if awaited else [])


def test_deltas_it_has_are_not_applied_again(session):
    running(session)
    effects = [
        effect
        for found in (delta(7), delta(8), delta(9))
        for effect in session.step(MetadataFollowed(found), 0)
    ]
    assert [effect for effect in effects if isinstance(effect, ApplyMetadata)] == [
        ApplyMetadata(delta(9))
    ]
    assert session.version == 9


def test_an_answer_to_an_older_request_is_dropped(session):
    running(session)
    ((asked, _),) = sent(session.step(Tick(), session.next_deadline_ms), HeartbeatRequest)
    due_ms = session.next_deadline_ms
    answer = HeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH)
    late = ResponseReceived(request_id=asked - 1, response=answer)
    assert session.step(late, due_ms - 1) == []
    assert session.state is SessionState.RUNNING


def unanswered(request_id):
    return RequestFailed(request_id=request_id)


def not_by_this_controller(request_id):
    """Whoever it is, it decides nothing: that is no answer either."""
    answer = HeartbeatResponse(error=ErrorCode.NOT_CONTROLLER)
    return ResponseReceived(request_id=request_id, response=answer)


@pytest.mark.parametrize("failed", [unanswered, not_by_this_controller])
def test_a_lost_registration_is_made_again_with_growing_pauses(session, failed):
    now_ms = 0
    ((asked, first),) = sent(session.start(-1, (), now_ms))
    pauses = []
    for _ in range(9):
        assert session.step(failed(asked), now_ms) == []
        pauses.append(session.next_deadline_ms - now_ms)
        now_ms = session.next_deadline_ms
        ((asked, again),) = sent(session.step(Tick(), now_ms))
        assert again == first
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, SESSION_MS, SESSION_MS]


def test_a_request_without_any_answer_fails_after_half_a_session(session):
    session.start(-1, (), 0)
    assert session.next_deadline_ms == SESSION_MS // 2
    assert session.step(Tick(), SESSION_MS // 2) == []
    ((_, again),) = sent(session.step(Tick(), session.next_deadline_ms))
    assert isinstance(again, RegisterBrokerRequest)


def test_it_keeps_asking_while_an_older_run_has_a_session(session):
    ((asked, _),) = sent(session.start(-1, (), 0))
    refusal = RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert session.step(ResponseReceived(request_id=asked, response=refusal), 0) == []
    assert sent(session.step(Tick(), 100), RegisterBrokerRequest)


def refused(session, error=ErrorCode.STALE_BROKER_EPOCH, now_ms=2000):
    """The effects of a heartbeat that the controller refuses."""
    ((asked, _),) = sent(session.step(Tick(), now_ms), HeartbeatRequest)
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(error=error))
    return session.step(answer, now_ms)


def test_a_run_that_registers_again_says_since_when_it_runs(session):
    """Goal: the controller knows which run was counted in."""
    running(session)
    ((asked, _),) = sent(refused(session), RegisterBrokerRequest)
    answer = RegisterBrokerResponse(broker_epoch=12, version=9)
    session.step(ResponseReceived(request_id=asked, response=answer), 2100)
    effects = session.step(MetadataFollowed(delta(13, fenced=True, epoch=12)), 2100)
    ((_, heartbeat),) = sent(effects, HeartbeatRequest)
    assert (heartbeat.broker_epoch, heartbeat.first_broker_epoch) == (12, 7)


def test_it_ends_when_another_incarnation_has_registered_and_lives(session):
    """One that does not renew its session is gone after as long as that lasts."""
    running(session)
    ((asked, _),) = sent(refused(session), RegisterBrokerRequest)
    taken = RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert session.step(ResponseReceived(request_id=asked, response=taken), 2100) == []
    late_ms = 2000 + 2 * SESSION_MS
    ((asked, _),) = sent(session.step(Tick(), late_ms), RegisterBrokerRequest)
    (ended,) = session.step(ResponseReceived(request_id=asked, response=taken), late_ms)
    assert isinstance(ended, SessionEnded)
    assert ended.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert session.next_deadline_ms is None
    assert session.step(Tick(), 10**9) == []


def test_a_leaving_broker_whose_epoch_is_over_is_done(session):
    running(session)
    ((asked, _),) = sent(session.step(Tick(), 2000), HeartbeatRequest)
    session.step(ShutdownWanted(), 2000)
    stale = HeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH)
    (ended,) = session.step(ResponseReceived(request_id=asked, response=stale), 2001)
    assert ended == SessionEnded(ErrorCode.NONE, "nothing is led any more")


def test_leaving_asks_often_until_it_may_stop(session):
    running(session)
    ((asked, heartbeat),) = sent(session.step(ShutdownWanted(), 10), HeartbeatRequest)
    assert heartbeat.want_shut_down
    not_yet = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    assert session.step(not_yet, 11) == []
    due_ms = 11 + LEAVING_HEARTBEAT_INTERVAL_MS
    ((asked, _),) = sent(session.step(Tick(), due_ms), HeartbeatRequest)
    go = HeartbeatResponse(should_shut_down=True)
    (ended,) = session.step(ResponseReceived(request_id=asked, response=go), due_ms)
    assert isinstance(ended, SessionEnded)
    assert ended.error is ErrorCode.NONE
    assert session.state is SessionState.ENDED


def test_leaving_before_it_is_registered_ends_at_once(session):
    session.start(-1, (), 0)
    (ended,) = session.step(ShutdownWanted(), 0)
    assert isinstance(ended, SessionEnded)


def test_three_brokers_are_unfenced_without_waiting_for_any_timer():
    talk = Conversation()
    for broker_id in (0, 1, 2):
        talk.start(broker_id)
    talk.run(0)
    assert [talk.controller.model.broker(broker_id).fenced for broker_id in (0, 1, 2)] == [
        False
    ] * 3
    assert [session.fenced for session in talk.sessions.values()] == [False] * 3


def test_sessions_last_as_long_as_brokers_live():
    talk = Conversation()
    for broker_id in (0, 1, 2):
        talk.start(broker_id)
    talk.run(10 * SESSION_MS)
    before = talk.controller.model.version
    del talk.sessions[1]
    talk.run(2 * SESSION_MS)
    assert talk.controller.model.version == before + 1
    assert talk.controller.model.broker(1).fenced
    assert not talk.controller.model.broker(0).fenced


def test_a_killed_broker_comes_back_with_a_new_epoch_at_once():
    talk = Conversation()
    for broker_id in (0, 1, 2):
        talk.start(broker_id)
    first = talk.sessions[1].broker_epoch
    talk.kill(1)
    talk.start(1, incarnation="second")
    talk.run(0)
    assert talk.sessions[1].broker_epoch > first
    assert not talk.controller.model.broker(1).fenced


def test_a_shutdown_ends_as_soon_as_the_others_have_heard_of_it():
    talk = Conversation()
    for broker_id in (0, 1, 2):
        talk.start(broker_id)
    talk.step(1, ShutdownWanted())
    talk.run(2 * LEAVING_HEARTBEAT_INTERVAL_MS)
    assert isinstance(talk.others[1][-1], SessionEnded)
    assert talk.controller.model.broker(1).fenced


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_controller_that_fails_is_asked_again(session, error):
    running(session)
    ((asked, _),) = sent(session.step(Tick(), session.next_deadline_ms), HeartbeatRequest)
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(error=error))
    assert session.step(answer, session.next_deadline_ms) == []
    again = session.step(Tick(), session.next_deadline_ms)
    assert len(sent(again, HeartbeatRequest)) == 1
    assert session.state is SessionState.RUNNING
