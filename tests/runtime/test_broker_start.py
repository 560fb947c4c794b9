"""A broker that starts takes the metadata first, then its replicas, and only then takes part."""

from __future__ import annotations

import uuid

import pytest

from replog.config import ControllerOptions, ReplicationOptions
from replog.errors import CorruptBatchError
from replog.messages import (
    DamagedLog,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReplicaState,
)
from replog.registrations import BrokerRegistration, MetadataDelta, PartitionRegistration
from replog.replication.effects import Report, TruncateLog
from replog.replication.events import LeadingSuspended, TruncationCompleted
from replog.replication.incidents import RecordsLost
from replog.runtime.broker_node import BrokerNode
from replog.runtime.ports import Ports
from replog.types import LostRecords, TopicPartition
from tests.replication.memory_log import MemoryLog

AGAIN, GONE, NEW = TopicPartition("again", 0), TopicPartition("gone", 0), TopicPartition("new", 0)
OLD_ID, GONE_ID, AGAIN_ID, NEW_ID = (uuid.UUID(int=number) for number in (1, 2, 3, 4))
REGISTERED = 20


class World:
    """The store and the network of one broker; `done` is what it does, in order."""

    previous_broker_epoch = -1
    last_broker_epoch = -1
    directory_id = None
    noted = None

    def missing(self, _):
        return ()

    def __init__(self) -> None:
        self.done: list = []
        self.sent: dict[int, object] = {}
        self.logs = {AGAIN: MemoryLog(), GONE: MemoryLog()}
        self.ids = {AGAIN: OLD_ID, GONE: GONE_ID}
        self.damaged: set[TopicPartition] = set()
        self.node = BrokerNode(
            1,
            "run",
            Ports(store=self, network=self, flushes=self),
            replication=ReplicationOptions(),
            controller=ControllerOptions(),
        )

    # the store

    def get(self, name):
        return None if name in self.damaged else self.logs.get(name)

    def topic_id(self, name):
        return self.ids.get(name)

    def note_broker_epoch(self, broker_epoch):
        self.noted = broker_epoch

    def replica_states(self):
        return tuple(
            ReplicaState(
                topic_partition=name,
                topic_id=self.ids[name],
                latest_epoch=-1,
                log_end_offset=0,
            )
            for name in self.logs
        )

    def open(self, registration):
        name = registration.topic_partition
        if name in self.damaged:
            raise CorruptBatchError(f"expected sound batches in {name}", path=None, position=0)
        if self.ids.get(name) != registration.topic_id:
            self.delete(name)
            self.logs[name], self.ids[name] = MemoryLog(), registration.topic_id
            self.done.append(("open", name))
        return self.logs[name]

    def set_aside(self, name):
        self.damaged.remove(name)
        self.logs[name] = MemoryLog()

    def delete(self, name) -> None:
        if self.logs.pop(name, None) is not None:
            self.done.append(("delete", name, self.ids.pop(name)))

    def set_aside_strays(self, held) -> None:
        assert all(map(held, self.logs))

    def __getattr__(self, name):
        return lambda *_, **__: None

    # the network

    def send_to_controller(self, request_id, request) -> None:
        self.sent[request_id] = request
        self.done.append(type(request))

    def send_to_broker(self, *_) -> None:
        self.done.append("fetch")


def registration(name, topic_id, **more):
    known = {"replicas": (1, 2), "isr": (2,), "leader_id": 2, **more}
    return PartitionRegistration(topic_partition=name, topic_id=topic_id, **known)


def news(version, *, registered):
    """What the broker has missed: `again` has another id, `gone` is not there any more."""
    brokers = (BrokerRegistration(broker_id=2, broker_epoch=1),)
    if registered:
        brokers += (BrokerRegistration(broker_id=1, broker_epoch=REGISTERED, fenced=True),)
    return MetadataDelta(
        version=version,
        brokers=brokers,
        partitions=(registration(AGAIN, AGAIN_ID), registration(NEW, NEW_ID)),
        removed_partitions=((AGAIN, OLD_ID), (GONE, GONE_ID)),
    )


@pytest.fixture
def world():
    world = World()
    world.node.start(0)
    ((request_id, request),) = world.sent.items()
    assert isinstance(request, RegisterBrokerRequest)
    answer = RegisterBrokerResponse(broker_epoch=REGISTERED, version=REGISTERED + 1)
    world.node.receive_response(request_id, answer, 1)
    world.done.clear()
    return world


def test_deletions_come_first_then_replicas_and_then_it_says_that_it_is_there(world) -> None:
    """Goal: by the heartbeat that lets it take part its files are what the metadata say, by topic
    id; the name that was created again has a log of its own.
    """
    world.node.follow_metadata(news(REGISTERED + 1, registered=True), 2)
    assert HeartbeatRequest in world.done
    announced = world.done.index(HeartbeatRequest)
    before = world.done[:announced]
    deletions = {("delete", AGAIN, OLD_ID), ("delete", GONE, GONE_ID)}
    assert set(before[:2]) == deletions
    assert {("open", AGAIN), ("open", NEW)} <= set(before[2:])
    heartbeat = next(one for one in world.sent.values() if isinstance(one, HeartbeatRequest))
    assert (heartbeat.version, heartbeat.broker_epoch) == (REGISTERED + 1, REGISTERED)
    assert world.ids == {AGAIN: AGAIN_ID, NEW: NEW_ID}


def test_it_does_not_say_so_before_it_has_what_registered_it(world) -> None:
    world.node.follow_metadata(news(REGISTERED, registered=False), 2)
    told = [one for one in world.sent.values() if isinstance(one, HeartbeatRequest)]
    assert all(one.version < REGISTERED + 1 for one in told)


def told_after(world, version, **known) -> tuple[DamagedLog, ...]:
    """What damage the broker tells of when it has heard this of the partition."""
    known = registration(AGAIN, AGAIN_ID, partition_epoch=version, **known)
    world.node.follow_metadata(MetadataDelta(version=version, partitions=(known,)), version)
    told = ()
    while heartbeats := [
        request_id
        for request_id, request in world.sent.items()
        if isinstance(request, HeartbeatRequest)
    ]:
        # One may be sent when another is answered.
        told = world.sent.pop(heartbeats[0]).damaged
        world.node.receive_response(heartbeats[0], HeartbeatResponse(fenced=True), version)
    return told


def test_a_damaged_log_is_told_with_each_word_on_its_partition_until_it_is_whole(world) -> None:
    """Goal: the controller may take an earlier report for one that came late."""
    world.node.follow_metadata(news(REGISTERED + 1, registered=True), 2)
    assert told_after(world, REGISTERED + 2, isr=(1, 2)) == ()
    world.damaged.add(AGAIN)
    for version in (REGISTERED + 3, REGISTERED + 4):
        (log,) = told_after(world, version, isr=(1, 2))
        assert (log.topic_partition, log.partition_epoch) == (AGAIN, version)
    told_after(world, REGISTERED + 5, leader_epoch=2)
    assert AGAIN not in world.damaged
    assert told_after(world, REGISTERED + 6, leader_epoch=2, isr=(1, 2)) == ()


def test_damage_is_told_also_where_the_log_is_set_aside_at_once(world) -> None:
    """Goal: nobody takes the new log for the one that had all that is committed. A replica that
    left the in-sync set before its damage was heard of may be eligible to lead; one that joined at
    that very time may have been counted in for what the damaged log had.
    """
    world.node.follow_metadata(news(REGISTERED + 1, registered=True), 2)
    assert told_after(world, REGISTERED + 2, isr=(1, 2)) == ()
    world.damaged.add(AGAIN)
    for version, isr in ((REGISTERED + 3, (2,)), (REGISTERED + 4, (2,)), (REGISTERED + 5, (1, 2))):
        (log,) = told_after(world, version, isr=isr)
        assert AGAIN not in world.damaged
        assert (log.topic_partition, log.partition_epoch) == (AGAIN, version)
    assert told_after(world, REGISTERED + 6, leader_epoch=2, isr=(1, 2)) == ()
    assert told_after(world, REGISTERED + 7, leader_epoch=2) == ()


def test_the_end_of_its_leading_time_may_be_found_while_records_are_cut(world) -> None:
    """Goal: a broker that was paused for longer than its session goes on. Method: the first that it
    does then is to tell the controller what it will cut.
    """
    world.node.follow_metadata(news(REGISTERED + 1, registered=True), 2)
    ((request_id, request),) = [
        one for one in world.sent.items() if isinstance(one[1], HeartbeatRequest)
    ]
    assert request.version == REGISTERED + 1
    world.node.receive_response(request_id, HeartbeatResponse(), 3)
    lost = LostRecords(
        topic_partition=AGAIN,
        topic_id=AGAIN_ID,
        unclean_epoch=1,
        ranges=(),
        committed_end_offset=0,
    )
    told: list = []

    def core(event, now_ms, more):
        told.append(event)
        if event is not cut:
            return []
        return [
            TruncateLog(AGAIN, 0, None),
            Report(RecordsLost(topic_partition=AGAIN, lost=lost)),
        ]

    cut = object()
    world.node._executor._core = core
    world.node._executor.step(cut, 2 + ControllerOptions().broker_session_timeout_ms)
    assert told[0] is cut
    assert {type(event) for event in told[1:]} == {TruncationCompleted, LeadingSuspended}
