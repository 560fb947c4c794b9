"""A broker's conversation with the controller: registration, metadata, heartbeats, leaving."""

import uuid

import pytest

from replog.controller.broker_session import (
    LEAVING_HEARTBEAT_INTERVAL_MS,
    BrokerSession,
    SessionState,
)
from replog.controller.effects import (
    ApplyMetadata,
    LeadAgain,
    SendToController,
    SessionEnded,
    SetBrokerEpoch,
    StopLeading,
)
from replog.controller.events import (
    LeadersChanged,
    MetadataFollowed,
    RecordsCut,
    ReplicaDamaged,
    RequestFailed,
    ResponseReceived,
    ShutdownWanted,
    Tick,
)
from replog.messages import (
    DamagedLog,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaderlessLog,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReplicaState,
)
from replog.registrations import BrokerRegistration, MetadataDelta
from replog.types import EpochRange, LostRecords, TopicPartition
from tests.controller.conversation import OPTIONS, SESSION_MS, Conversation

TOPIC_ID = uuid.UUID(int=7)


def sent(effects, kind=object):
    """Requests of a kind, with their ids."""
    return [
        (effect.request_id, effect.request)
        for effect in effects
        if isinstance(effect, SendToController) and isinstance(effect.request, kind)
    ]


@pytest.fixture
def session():
    return BrokerSession(1, "run", "rack-a", OPTIONS)


def registered(session, now_ms=0, epoch=7):
    """A session that has its epoch and has not followed the metadata so far."""
    ((asked, _),) = sent(session.start(-1, (), now_ms))
    answer = RegisterBrokerResponse(broker_epoch=epoch, version=epoch)
    return session.step(ResponseReceived(request_id=asked, response=answer), now_ms)


def delta(version, *, fenced=False, epoch=7):
    broker = BrokerRegistration(broker_id=1, broker_epoch=epoch, fenced=fenced)
    return MetadataDelta(version=version, brokers=(broker,))


def running(session, now_ms=0):
    """A session that is unfenced, before its first heartbeat."""
    registered(session, now_ms)
    session.step(MetadataFollowed(delta(8)), now_ms)


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
    assert request == HeartbeatRequest(broker_id=1, broker_epoch=7, version=7)


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


class TestWhenItsEpochIsOver:
    """The controller has fenced it, or does not know it any more."""

    @pytest.fixture(
        params=[ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED], autouse=True
    )
    def effects(self, session, request):
        running(session)
        return refused(session, request.param)

    def test_it_stops_leading_and_registers_again_in_the_same_run(self, effects):
        assert isinstance(effects[0], StopLeading)
        ((_, request),) = sent(effects)
        assert isinstance(request, RegisterBrokerRequest)
        assert (request.previous_broker_epoch, request.incarnation_id) == (7, "run")

    def test_it_leads_again_when_it_has_obeyed_what_registered_it(self, session, effects):
        ((asked, _),) = sent(effects)
        answer = RegisterBrokerResponse(broker_epoch=20, version=21)
        effects = session.step(ResponseReceived(request_id=asked, response=answer), 2010)
        assert effects[0] == SetBrokerEpoch(20)
        assert LeadAgain() not in effects
        old = MetadataDelta(version=20)
        effects = session.step(MetadataFollowed(old), 2011)
        assert LeadAgain() not in effects
        new = delta(21, fenced=True, epoch=20)
        effects = session.step(MetadataFollowed(new), 2012)
        assert effects[:2] == [ApplyMetadata(new), LeadAgain()]

    def test_metadata_that_comes_before_the_answer_is_enough(self, session, effects):
        ((asked, _),) = sent(effects)
        session.step(MetadataFollowed(delta(21, fenced=True, epoch=20)), 2005)
        answer = RegisterBrokerResponse(broker_epoch=20, version=21)
        effects = session.step(ResponseReceived(request_id=asked, response=answer), 2010)
        assert effects[:2] == [SetBrokerEpoch(20), LeadAgain()]
        ((_, heartbeat),) = sent(effects, HeartbeatRequest)
        assert (heartbeat.broker_epoch, heartbeat.version) == (20, 21)

    def test_a_late_answer_to_an_old_heartbeat_does_not_let_it_lead(self, session, effects):
        late = ResponseReceived(request_id=3, response=HeartbeatResponse(fenced=False))
        assert session.step(late, 2005) == []


def test_a_leaving_broker_whose_epoch_is_over_is_done(session):
    running(session)
    ((asked, _),) = sent(session.step(Tick(), 2000), HeartbeatRequest)
    session.step(ShutdownWanted(), 2000)
    stale = HeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH)
    (ended,) = session.step(ResponseReceived(request_id=asked, response=stale), 2001)
    assert ended == SessionEnded(ErrorCode.NONE, "nothing is led any more")


class TestByItsOwnClock:
    """The controller is silent: it may have replaced this broker as a leader."""

    @pytest.fixture(autouse=True)
    def heard_at_2000(self, session):
        running(session)
        ((asked, _),) = sent(session.step(Tick(), 2000), HeartbeatRequest)
        answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
        session.step(answer, 2500)

    def run_until(self, session, end_ms):
        """All effects up to a time; nothing is answered."""
        effects = []
        now_ms = 0
        while session.next_deadline_ms <= end_ms:
            assert session.next_deadline_ms > now_ms, "what is due is done"
            now_ms = session.next_deadline_ms
            effects += [(now_ms, effect) for effect in session.step(Tick(), now_ms)]
        return effects

    def stops(self, effects):
        return [at_ms for at_ms, effect in effects if isinstance(effect, StopLeading)]

    def test_it_stops_leading_a_session_after_it_asked_and_was_heard(self, session):
        """Not after the answer came: the controller counts from when it heard."""
        assert self.stops(self.run_until(session, 10 * SESSION_MS)) == [2000 + SESSION_MS]

    def test_it_leads_again_as_soon_as_the_controller_answers(self, session):
        effects = self.run_until(session, 2000 + 2 * SESSION_MS)
        asked = [one.request_id for _, one in effects if isinstance(one, SendToController)][-1]
        answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
        assert session.step(answer, 2000 + 2 * SESSION_MS)[0] == LeadAgain()
        assert session.leading.until_ms < 2000 + 3 * SESSION_MS

    @pytest.mark.parametrize("failed", [unanswered, not_by_this_controller])
    def test_where_no_controller_is_it_leads_on(self, session, failed):
        """Refused at once: as long as nobody is there, nobody replaces it."""
        now_ms = 2500
        while now_ms < 10 * SESSION_MS:
            now_ms = session.next_deadline_ms
            effects = session.step(Tick(), now_ms)
            assert not [one for one in effects if isinstance(one, StopLeading)]
            for request_id, _ in sent(effects, HeartbeatRequest):
                session.step(failed(request_id), now_ms)


def test_damage_is_told_at_once_and_until_it_was_heard(session):
    running(session)
    damaged = TopicPartition("t", 3)
    effects = session.step(ReplicaDamaged(topic_partition=damaged, topic_id=TOPIC_ID), 10)
    ((asked, heartbeat),) = sent(effects, HeartbeatRequest)
    assert heartbeat.damaged == (DamagedLog(damaged, TOPIC_ID),)
    other = TopicPartition("t", 4)
    assert session.step(ReplicaDamaged(topic_partition=other, topic_id=TOPIC_ID), 11) == []
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    ((asked, heartbeat),) = sent(session.step(answer, 12), HeartbeatRequest)
    assert heartbeat.damaged == (DamagedLog(other, TOPIC_ID),)
    session.step(RequestFailed(request_id=asked), 13)
    ((_, heartbeat),) = sent(session.step(Tick(), 113), HeartbeatRequest)
    assert heartbeat.damaged == (DamagedLog(other, TOPIC_ID),)


def test_lost_records_are_told_at_once_and_until_the_controller_has_heard(session):
    running(session)
    first, second = (
        LostRecords(
            topic_partition=TopicPartition("t", 0),
            topic_id=None,
            unclean_epoch=3,
            ranges=(EpochRange(2, start, start + 1),),
            committed_end_offset=0,
        )
        for start in (7, 6)
    )
    ((asked, heartbeat),) = sent(session.step(RecordsCut(first), 10), HeartbeatRequest)
    assert heartbeat.lost == (first,)
    session.step(RecordsCut(second), 11)
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    ((asked, heartbeat),) = sent(session.step(answer, 12), HeartbeatRequest)
    assert heartbeat.lost == (second,)
    session.step(RequestFailed(request_id=asked), 13)
    ((asked, heartbeat),) = sent(session.step(Tick(), 113), HeartbeatRequest)
    assert heartbeat.lost == (second,)
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    session.step(answer, 114)
    due_ms = 114 + OPTIONS.broker_heartbeat_interval_ms
    ((_, heartbeat),) = sent(session.step(Tick(), due_ms), HeartbeatRequest)
    assert heartbeat.lost == ()


def test_logs_that_nobody_leads_are_told_at_once_and_with_every_heartbeat_until_they_are_led(
    session,
):
    """A controller that has just been elected knows nothing of what was told to another."""
    running(session)
    logs = [
        LeaderlessLog(
            topic_partition=TopicPartition("t", number),
            topic_id=None,
            leader_epoch=4,
            latest_epoch=3,
            log_end_offset=10,
        )
        for number in range(2)
    ]
    effects = session.step(LeadersChanged(leaderless=tuple(logs)), 10)
    ((asked, heartbeat),) = sent(effects, HeartbeatRequest)
    assert heartbeat.leaderless == tuple(logs)
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    session.step(answer, 11)
    assert session.step(LeadersChanged(led=(TopicPartition("t", 0),)), 12) == []
    due_ms = 11 + OPTIONS.broker_heartbeat_interval_ms
    ((_, heartbeat),) = sent(session.step(Tick(), due_ms), HeartbeatRequest)
    assert heartbeat.leaderless == (logs[1],)


@pytest.mark.parametrize("is_led", [True, False])
def test_damage_that_the_registration_has_told_is_told_again_only_while_nobody_leads(is_led):
    """A later word of it could find the log whole again, and in sync."""
    damaged = TopicPartition("t", 3)
    log = ReplicaState(
        topic_partition=damaged, topic_id=TOPIC_ID, latest_epoch=-1, log_end_offset=0, damaged=True
    )
    session = BrokerSession(1, "run", None, OPTIONS)
    ((asked, _),) = sent(session.start(-1, (log,), 0), RegisterBrokerRequest)
    accepted = RegisterBrokerResponse(broker_epoch=5, version=5)
    session.step(ResponseReceived(request_id=asked, response=accepted), 1)
    found = ReplicaDamaged(topic_partition=damaged, topic_id=TOPIC_ID)
    assert sent(session.step(found, 2), HeartbeatRequest)[0][1].damaged == ()
    now = LeadersChanged(led=(damaged,)) if is_led else LeadersChanged(unopened=(damaged,))
    session.step(now, 2)
    session.step(RequestFailed(request_id=2), 3)
    ((_, heartbeat),) = sent(session.step(Tick(), 1000), HeartbeatRequest)
    assert heartbeat.damaged == (() if is_led else (DamagedLog(damaged, TOPIC_ID),))
    session.step(RequestFailed(request_id=3), 1001)
    if is_led:
        session.step(found, 1002)
        ((_, heartbeat),) = sent(session.step(Tick(), 3000), HeartbeatRequest)
        assert heartbeat.damaged == (DamagedLog(damaged, TOPIC_ID),), "that is news"


def test_damage_to_a_log_that_nobody_leads_is_told_with_every_heartbeat_until_it_is_led(session):
    """A controller elected since must not wait for how long this log is."""
    running(session)
    damaged = TopicPartition("t", 3)
    session.step(LeadersChanged(unopened=(damaged,)), 10)
    ((asked, _),) = sent(
        session.step(ReplicaDamaged(topic_partition=damaged, topic_id=TOPIC_ID), 10)
    )
    now_ms = 10
    for told in ((damaged,), (damaged,), ()):
        answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
        session.step(answer, now_ms)
        if not told:
            session.step(LeadersChanged(led=(damaged,)), now_ms)
        now_ms += OPTIONS.broker_heartbeat_interval_ms
        ((asked, heartbeat),) = sent(session.step(Tick(), now_ms), HeartbeatRequest)
        assert heartbeat.damaged == tuple(DamagedLog(name, TOPIC_ID) for name in told)
        assert heartbeat.leaderless == ()


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
