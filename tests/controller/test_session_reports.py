"""What a broker's session tells the controller of the logs: damage, ends, lost records."""

import dataclasses

from replog.controller.broker_session import (
    BrokerSession,
)
from replog.controller.effects import CutLosses
from replog.controller.events import (
    LeadersChanged,
    RecordsToCut,
    ReplicaDamaged,
    RequestFailed,
    ResponseReceived,
    Tick,
)
from replog.messages import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaderlessLog,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReplicaState,
)
from replog.types import EpochRange, LostRecords, TopicPartition
from tests.controller.conversation import OPTIONS
from tests.controller.session_steps import TOPIC_ID, damaged_log, running, sent


def test_damage_is_told_at_once_and_until_it_was_heard(session):
    running(session)
    damaged = TopicPartition("t", 3)
    effects = session.step(ReplicaDamaged(damaged_log(damaged)), 10)
    ((asked, heartbeat),) = sent(effects, HeartbeatRequest)
    assert heartbeat.damaged == (damaged_log(damaged),)
    other = TopicPartition("t", 4)
    assert session.step(ReplicaDamaged(damaged_log(other)), 11) == []
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    ((asked, heartbeat),) = sent(session.step(answer, 12), HeartbeatRequest)
    assert heartbeat.damaged == (damaged_log(other),)
    session.step(RequestFailed(request_id=asked), 13)
    ((_, heartbeat),) = sent(session.step(Tick(), 113), HeartbeatRequest)
    assert heartbeat.damaged == (damaged_log(other),)


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
    ((asked, heartbeat),) = sent(session.step(RecordsToCut(first), 10), HeartbeatRequest)
    assert heartbeat.lost == (first,)
    session.step(RecordsToCut(second), 11)
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    effects = session.step(answer, 12)
    assert CutLosses(heard=(first,)) in effects
    ((asked, heartbeat),) = sent(effects, HeartbeatRequest)
    assert heartbeat.lost == (second,)
    assert CutLosses(heard=(second,)) not in session.step(RequestFailed(request_id=asked), 13)
    ((asked, heartbeat),) = sent(session.step(Tick(), 113), HeartbeatRequest)
    assert heartbeat.lost == (second,)
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    assert CutLosses(heard=(second,)) in session.step(answer, 114)
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


def test_damage_is_told_anew_with_what_is_known_of_the_partition(session):
    """The controller has changed the partition meanwhile, and asks whether that is known."""
    running(session)
    name = TopicPartition("t", 3)
    effects = session.step(ReplicaDamaged(damaged_log(name, 4)), 10)
    ((asked, _),) = sent(effects, HeartbeatRequest)
    assert session.step(LeadersChanged(led=(name,), damaged=(damaged_log(name, 5),)), 11) == []
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    ((asked, heartbeat),) = sent(session.step(answer, 12), HeartbeatRequest)
    assert heartbeat.damaged == (damaged_log(name, 5),)
    answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
    session.step(answer, 13)
    due_ms = 13 + OPTIONS.broker_heartbeat_interval_ms
    ((_, heartbeat),) = sent(session.step(Tick(), due_ms), HeartbeatRequest)
    assert heartbeat.damaged == ()


def test_a_log_that_is_whole_again_is_not_told_to_be_damaged(session):
    running(session)
    name = TopicPartition("t", 3)
    ((asked, _),) = sent(session.step(ReplicaDamaged(damaged_log(name)), 10), HeartbeatRequest)
    session.step(LeadersChanged(led=(name,)), 11)
    session.step(RequestFailed(request_id=asked), 12)
    ((_, heartbeat),) = sent(session.step(Tick(), 1000), HeartbeatRequest)
    assert heartbeat.damaged == ()


def test_registering_again_does_not_repeat_what_was_found_at_the_start():
    """It may be whole again, and in sync; what is damaged still is told by heartbeats."""
    name = TopicPartition("t", 3)
    log = ReplicaState(
        topic_partition=name, topic_id=TOPIC_ID, latest_epoch=-1, log_end_offset=0, damaged=True
    )
    session = BrokerSession(1, "run", None, OPTIONS)
    ((asked, register),) = sent(session.start(-1, (log,), 0), RegisterBrokerRequest)
    assert register.replicas == (log,)
    accepted = RegisterBrokerResponse(broker_epoch=5, version=0)
    effects = session.step(ResponseReceived(request_id=asked, response=accepted), 1)
    ((asked, _),) = sent(effects, HeartbeatRequest)
    stale = HeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH)
    effects = session.step(ResponseReceived(request_id=asked, response=stale), 2)
    ((_, register),) = sent(effects, RegisterBrokerRequest)
    assert register.replicas == (dataclasses.replace(log, damaged=False),)


def test_damage_to_a_log_that_nobody_leads_is_told_with_every_heartbeat_until_it_is_led(session):
    """A controller elected since must not wait for how long this log is."""
    running(session)
    name = TopicPartition("t", 3)
    changed = LeadersChanged(unopened=(name,), damaged=(damaged_log(name),))
    ((asked, _),) = sent(session.step(changed, 10), HeartbeatRequest)
    now_ms = 10
    for told in ((name,), (name,), ()):
        answer = ResponseReceived(request_id=asked, response=HeartbeatResponse(fenced=False))
        session.step(answer, now_ms)
        if not told:
            session.step(LeadersChanged(led=(name,)), now_ms)
        now_ms += OPTIONS.broker_heartbeat_interval_ms
        ((asked, heartbeat),) = sent(session.step(Tick(), now_ms), HeartbeatRequest)
        assert heartbeat.damaged == tuple(map(damaged_log, told))
        assert heartbeat.leaderless == ()
