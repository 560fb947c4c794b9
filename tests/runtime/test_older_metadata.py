"""A broker that comes back goes through metadata older than what it had obeyed when it stopped."""

from __future__ import annotations

import dataclasses
import uuid

import pytest

from replog.config import ControllerOptions, ReplicationOptions
from replog.messages import RegisterBrokerResponse, ReplicaState
from replog.registrations import NO_BROKER_EPOCH, MetadataDelta, PartitionRegistration, TopicConfig
from replog.replication.replica import Role
from replog.runtime.broker_node import BrokerNode, ObeyedEpoch
from replog.runtime.ports import Ports
from replog.types import TopicPartition
from tests.replication.memory_log import MemoryLog

NAME = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=7)
KNOWN = PartitionRegistration(
    topic_partition=NAME,
    topic_id=TOPIC_ID,
    replicas=(1, 2),
    isr=(1, 2),
    leader_id=2,
    leader_epoch=5,
    partition_epoch=9,
    config=TopicConfig(),
)


class World:
    """Broker 1 with a log of epochs up to 5, its store and its network."""

    previous_broker_epoch = 3
    last_broker_epoch = -1
    directory_id = None
    noted = None

    def missing(self, _):
        return ()

    def __init__(self) -> None:
        self.log = MemoryLog([4, 5])
        self.deleted: list[TopicPartition] = []
        self.sent: list = []
        ports = Ports(store=self, network=self, flushes=None)
        self.node = BrokerNode(
            1,
            "second",
            ports,
            replication=ReplicationOptions(),
            controller=ControllerOptions(),
        )

    def note_broker_epoch(self, broker_epoch):
        self.noted = broker_epoch

    def replica_states(self):
        return (
            ReplicaState(topic_partition=NAME, topic_id=TOPIC_ID, latest_epoch=5, log_end_offset=2),
        )

    def get(self, name):
        return None if name in self.deleted else self.log

    def open(self, registration):
        return self.log

    def delete(self, name) -> None:
        self.deleted.append(name)

    def set_aside_strays(self, held) -> None:
        pass

    def send_to_controller(self, request_id, request) -> None:
        self.sent.append((request_id, request))

    def send_to_broker(self, request_id, to, request) -> None:
        pass

    def follow(self, version: int, **changes) -> None:
        registration = dataclasses.replace(KNOWN, **changes)
        delta = MetadataDelta(version=version, partitions=(registration,))
        self.node.follow_metadata(delta, 0)

    def register(self, version: int) -> None:
        answer = RegisterBrokerResponse(broker_epoch=version, version=version)
        self.node.receive_response(self.sent[0][0], answer, 0)


def following(world: World) -> int | None:
    """The leader epoch that its replicas have been told of."""
    registration = world.node.host.registration(NAME)
    return None if registration is None else registration.leader_epoch


def test_a_leader_older_than_one_that_it_has_obeyed_is_not_followed() -> None:
    world = World()
    world.node.obeyed[NAME] = ObeyedEpoch(TOPIC_ID, 6)
    world.node.start(0)
    world.follow(10, leader_epoch=5)
    assert following(world) is None
    world.follow(11, leader_epoch=6)
    assert following(world) == 6


def test_a_leader_older_than_the_last_record_is_not_followed() -> None:
    world = World()
    world.node.start(0)
    world.follow(10, leader_epoch=4)
    assert following(world) is None
    world.follow(11)
    assert following(world) == 5


def test_after_an_unclean_stop_nobody_is_followed_before_it_is_registered() -> None:
    """Goal: it may have obeyed a newer leader, and its copy of that have gone with its power."""
    world = World()
    world.previous_broker_epoch = NO_BROKER_EPOCH
    world.node.start(0)
    world.follow(10, leader_epoch=6)
    assert world.node.host.role_of(NAME) is Role.IDLE
    world.register(12)
    world.follow(11, leader_epoch=7)
    assert world.node.host.role_of(NAME) is Role.IDLE
    world.follow(12, leader_epoch=8)
    assert following(world) == 8


@pytest.mark.parametrize("changes", [{"replicas": (2, 3)}, {"topic_id": uuid.UUID(int=1)}])
def test_no_log_is_deleted_before_the_metadata_has_the_registration(changes) -> None:
    world = World()
    world.node.start(0)
    world.follow(10)
    world.follow(11, partition_epoch=10, **changes)
    assert world.deleted == []
    world.register(12)
    world.follow(12, partition_epoch=11)
    assert world.deleted == []
    assert following(world) == 5


def test_what_the_metadata_says_at_the_registration_is_obeyed() -> None:
    world = World()
    world.node.start(0)
    world.follow(10)
    world.follow(11, partition_epoch=10, replicas=(2, 3))
    world.register(11)
    assert world.deleted == [NAME]
