"""A controller on its quorum's log: in office after a commit of its own epoch, and no longer than
its appends succeed.
"""

from __future__ import annotations

import uuid

import pytest

from replog.config import ControllerOptions, ReplicationOptions
from replog.controller.controller import Controller
from replog.controller.incidents import EventFailed
from replog.controller.refusals import refused
from replog.errors import InvariantViolation, RecordBatchTooLargeError
from replog.messages import (
    DeleteTopicRequest,
    DeleteTopicResponse,
    ErrorCode,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from replog.runtime.broker_node import BrokerNode
from replog.runtime.controller_node import ControllerNode
from replog.runtime.journal import Journal
from replog.runtime.ports import Ports
from replog.runtime.quorum_log import QuorumReplicaLog
from replog.runtime.quorum_node import QuorumPorts
from replog.wire.metadata_records import TopicRecord

WALL_MS = 1_700_000_000_000


class Alone:
    """The only controller, whose syncs wait for `sync`."""

    def __init__(self, directory: str) -> None:
        self.log = QuorumReplicaLog.open_in(directory, lambda: WALL_MS)
        self.targets: list = []
        self.answers: list = []
        self.now_ms = 1000
        ports = QuorumPorts(self.log, self, self._flush, lambda: WALL_MS)
        controller = Controller(ControllerOptions(), lambda: uuid.UUID(int=7))
        self.node = ControllerNode(1, (1,), controller, ports, self, Journal(), lambda _: 0)
        self.node.start(self.now_ms)

    def respond(self, request_id, response) -> None:
        self.answers.append((request_id, response))

    def _flush(self, log) -> None:
        self.targets.append(log.sync_target())

    def sync(self) -> None:
        while self.targets:
            target = self.targets.pop(0)
            self.log.sync(target)
            self.log.note_synced(target)
            self.node.quorum.flush_completed(None, self.now_ms)

    def register(self, broker_id: int) -> None:
        request = RegisterBrokerRequest(broker_id=broker_id, incarnation_id=str(broker_id))
        self.node.receive_request(broker_id, broker_id, request, self.now_ms)


def test_a_leader_is_in_office_once_a_record_of_its_epoch_is_committed(tmp_path) -> None:
    alone = Alone(str(tmp_path))
    alone.register(1)
    alone.register(2)
    assert not alone.node.is_active
    assert alone.answers == [], "held, not refused"
    alone.sync()
    assert alone.node.is_active
    assert [(asked, found.error) for asked, found in alone.answers] == [
        (1, ErrorCode.NONE),
        (2, ErrorCode.NONE),
    ]
    assert alone.log.log_end_offset == alone.log.high_watermark > 2


def test_nothing_is_answered_as_done_before_it_is_synced(tmp_path) -> None:
    alone = Alone(str(tmp_path))
    alone.sync()
    alone.register(1)
    assert alone.node.controller.broker(1) is not None
    assert alone.answers == []
    alone.sync()
    assert [found.error for _, found in alone.answers] == [ErrorCode.NONE]


def test_a_failed_append_ends_the_office_and_what_was_decided_is_forgotten(tmp_path) -> None:
    alone = Alone(str(tmp_path))
    alone.sync()
    epoch = alone.node.quorum.quorum.leader_epoch
    log = alone.log

    class Full:
        def __getattr__(self, name):
            return getattr(log, name)

        def append_as_leader(self, *_, **__):
            raise RecordBatchTooLargeError("expected a batch that fits, found one that does not")

    alone.node.quorum.log = Full()
    alone.register(1)
    assert [found.error for _, found in alone.answers] == [ErrorCode.NOT_CONTROLLER]
    assert not alone.node.is_active
    assert alone.node.controller.broker(1) is None
    assert alone.node.quorum.quorum.leader_id is None
    alone.node.quorum.log = log
    alone.now_ms += 5000
    alone.node.tick(alone.now_ms)
    alone.sync()
    assert alone.node.is_active
    assert alone.node.quorum.quorum.leader_epoch > epoch
    alone.register(1)
    alone.sync()
    assert alone.answers[-1][1].error is ErrorCode.NONE


@pytest.mark.parametrize("begun", [False, True])
def test_a_bug_fails_its_event_alone_and_leaves_nothing_half_written(
    tmp_path, monkeypatch, begun
) -> None:
    alone = Alone(str(tmp_path))
    alone.sync()
    alone.register(1)
    alone.sync()
    topics = alone.node.controller._topics
    planted = InvariantViolation("planted")

    def broken(_):
        if begun:
            topics._decision.write(TopicRecord(name="half", topic_id=bytes(16)))
        raise planted

    monkeypatch.setattr(topics, "delete", broken)
    end_offset = alone.log.log_end_offset
    alone.node.receive_request(2, None, DeleteTopicRequest(topic="t"), alone.now_ms)
    (asked, answer) = alone.answers[-1]
    assert (asked, answer.error) == (2, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert alone.log.log_end_offset == end_offset
    (failed,) = [
        entry.incident for entry in alone.node.journal if isinstance(entry.incident, EventFailed)
    ]
    assert (failed.event, failed.resigned) == ("DeleteTopicRequest", begun)
    if begun:
        alone.now_ms += 5000
        alone.node.tick(alone.now_ms)
        alone.sync()
    assert alone.node.is_active
    assert alone.node.controller.topics() == ()
    assert alone.node.controller.broker(1) is not None
    alone.register(2)
    alone.sync()
    assert alone.answers[-1][1].error is ErrorCode.NONE


def test_a_decision_that_is_no_record_ends_the_office_and_not_the_node(
    tmp_path, monkeypatch
) -> None:
    """Goal: what a check has let pass stops nobody. Method: a topic's name that is no UTF-8."""
    alone = Alone(str(tmp_path))
    alone.sync()
    topics = alone.node.controller._topics

    def broken(_):
        topics._decision.write(TopicRecord(name="\ud800", topic_id=bytes(16)))
        return DeleteTopicResponse()

    with monkeypatch.context() as planted:
        planted.setattr(topics, "delete", broken)
        end_offset = alone.log.log_end_offset
        alone.node.receive_request(2, None, DeleteTopicRequest(topic="t"), alone.now_ms)
    assert alone.answers == [(2, refused(DeleteTopicRequest))]
    assert alone.log.log_end_offset == end_offset
    (failed,) = [
        entry.incident for entry in alone.node.journal if isinstance(entry.incident, EventFailed)
    ]
    assert (failed.event, failed.resigned) == ("AppendRecords", True)
    alone.now_ms += 5000
    alone.node.tick(alone.now_ms)
    alone.sync()
    assert alone.node.is_active
    assert alone.node.controller.topics() == ()
    alone.register(2)
    alone.sync()
    assert alone.answers[-1][1].error is ErrorCode.NONE


def test_synced_is_what_the_loop_has_heard_of_and_no_cut_has_undone(tmp_path) -> None:
    alone = Alone(str(tmp_path))
    log = alone.log
    assert (log.log_end_offset, log.synced_end_offset) == (1, 0)
    target = log.sync_target()
    log.sync(target)
    log.truncate_to(0)
    assert not log.note_synced(target)
    assert log.synced_end_offset == 0


class Store:
    """Of a broker without logs; notes what is set aside."""

    previous_broker_epoch = -1
    last_broker_epoch = -1
    directory_id = None
    noted = None
    aside = 0

    def missing(self, _):
        return ()

    def get(self, _):
        return None

    def note_broker_epoch(self, broker_epoch):
        self.noted = broker_epoch

    def replica_states(self):
        return ()

    def set_aside_strays(self, _) -> None:
        self.aside += 1


class Network:
    def __init__(self) -> None:
        self.sent: list = []

    def send_to_controller(self, request_id, request) -> None:
        self.sent.append((request_id, request))


def test_a_refused_registration_makes_no_strays_of_what_metadata_does_not_name_yet() -> None:
    store, network = Store(), Network()
    node = BrokerNode(
        1,
        "run",
        Ports(store=store, network=network, flushes=None),
        replication=ReplicationOptions(),
        controller=ControllerOptions(),
    )
    node.start(0)
    duplicate = RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    node.receive_response(network.sent[0][0], duplicate, 0)
    assert store.aside == 0
    node.tick(200)
    accepted = RegisterBrokerResponse(broker_epoch=0, version=0)
    node.receive_response(network.sent[1][0], accepted, 200)
    assert store.aside == 1
