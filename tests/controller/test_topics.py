"""Creating and deleting topics: what becomes of good requests, and the error of each bad one."""

import pytest

from replog.messages import CreateTopicRequest, DeleteTopicRequest, ErrorCode
from replog.registrations import TopicConfig
from replog.types import TopicPartition
from tests.controller.conversation import Controller


@pytest.fixture
def controller():
    """Brokers 0, 1 and 2 live, 3 is fenced; topics `taken` and `a.b` exist."""
    controller = Controller()
    controller.start(0, 1, 2)
    controller.register(3)
    controller.create("taken")
    controller.create("a.b")
    return controller


NAME = ErrorCode.INVALID_TOPIC_EXCEPTION
COUNT = ErrorCode.INVALID_PARTITIONS
FACTOR = ErrorCode.INVALID_REPLICATION_FACTOR
REPLICAS = ErrorCode.INVALID_REPLICA_ASSIGNMENT
BAD = [
    ({"topic": ""}, NAME, "expected a topic name, found ''"),
    ({"topic": "."}, NAME, "choose another"),
    ({"topic": ".."}, NAME, "choose another"),
    ({"topic": "x" * 250}, NAME, "at most 249 characters, found 250"),
    ({"topic": "a/b"}, NAME, "of a-z A-Z 0-9 . _ -, found 'a/b'"),
    ({"topic": "new\n"}, NAME, "found 'new\\n'"),
    ({"topic": "ä"}, NAME, "found 'ä'"),
    ({"topic": "a_b"}, NAME, "'a_b' collides with 'a.b'"),
    ({"topic": "taken"}, ErrorCode.TOPIC_ALREADY_EXISTS, "'taken' exists"),
    ({"partitions": 0}, COUNT, "found 0"),
    ({"partitions": -2}, COUNT, "found -2"),
    ({"partitions": 10_001}, COUNT, "create fewer at a time"),
    ({"replication_factor": 0}, FACTOR, "found 0"),
    ({"replication_factor": -2}, FACTOR, "found -2"),
    ({"replication_factor": 5}, FACTOR, "at most 4, the number of registered brokers, found 5"),
    ({"assignment": ()}, REPLICAS, "at least one partition"),
    ({"assignment": ((),)}, REPLICAS, "for partition 0, found none"),
    ({"assignment": ((0, 1), (1, 1))}, REPLICAS, "each broker once in partition 1"),
    ({"assignment": ((0, 1), (2,))}, REPLICAS, "2 replicas for partition 1"),
    ({"assignment": ((0, 9),)}, REPLICAS, "found [9]; known are [0, 1, 2, 3]"),
    ({"assignment": ((3,),)}, REPLICAS, "all fenced or shutting down"),
    ({"assignment": ((0,),), "partitions": 2}, ErrorCode.INVALID_REQUEST, "give one of the two"),
    (
        {"assignment": ((0,),), "replication_factor": 2},
        ErrorCode.INVALID_REQUEST,
        "give one of the two",
    ),
    (
        {"config": TopicConfig(min_insync_replicas=0)},
        ErrorCode.INVALID_CONFIG,
        "expected min.insync.replicas to be an integer from 1",
    ),
]


@pytest.mark.parametrize(("fields", "error", "sentence"), BAD, ids=[str(row[0]) for row in BAD])
def test_a_bad_request_gets_its_error_and_a_sentence_and_changes_nothing(
    controller, fields, error, sentence
):
    version = controller.model.version
    response = controller.ask(CreateTopicRequest(**{"topic": "new"} | fields))
    assert response.error is error
    assert sentence in response.message
    assert response.topic_id is None
    assert controller.model.version == version
    assert controller.model.topics() == ("a.b", "taken")


def test_without_a_live_broker_nothing_is_placed():
    controller = Controller()
    controller.register(0)
    assert controller.ask(CreateTopicRequest(topic="t")).error is FACTOR


def test_a_new_topic_has_its_live_replicas_in_sync_and_the_first_leads(controller):
    assignment = ((3, 1, 0), (2, 3, 1))
    response = controller.ask(CreateTopicRequest(topic="new", assignment=assignment))
    assert response.error is ErrorCode.NONE
    assert response.version == controller.model.version
    first, second = (controller.model.partition(TopicPartition("new", n)) for n in (0, 1))
    assert (first.replicas, first.isr, first.leader_id) == ((3, 1, 0), (1, 0), 1)
    assert (second.replicas, second.isr, second.leader_id) == ((2, 3, 1), (2, 1), 2)
    assert first.topic_id == second.topic_id == response.topic_id
    assert (first.leader_epoch, first.partition_epoch) == (0, 0)


def test_placement_spreads_topics_and_leaves_out_who_is_leaving(controller):
    controller.heartbeat(2, want_shut_down=True)
    leaders = []
    for number in range(4):
        topic = f"new{number}"
        request = CreateTopicRequest(topic=topic, partitions=2, replication_factor=2)
        assert controller.ask(request).error is ErrorCode.NONE
        leaders.append(controller.partition(topic).leader_id)
        for partition in (0, 1):
            replicas = controller.model.partition(TopicPartition(topic, partition)).replicas
            assert 2 not in replicas
    assert set(leaders) == {0, 1}


def test_minus_one_asks_for_the_defaults(controller):
    request = CreateTopicRequest(topic="new", partitions=-1, replication_factor=-1)
    assert controller.ask(request).error is ErrorCode.NONE
    assert len(controller.partition("new").replicas) == 1
    assert controller.model.partition(TopicPartition("new", 1)) is None


def test_a_deleted_topic_is_gone_and_its_name_gets_another_id(controller):
    before = controller.partition("taken")
    response = controller.ask(DeleteTopicRequest(topic="taken"))
    assert response.error is ErrorCode.NONE
    assert response.version == controller.model.version
    assert controller.partition("taken") is None
    controller.create("taken")
    assert controller.partition("taken").topic_id != before.topic_id


def test_deleting_what_is_not_there_is_an_error_with_a_sentence(controller):
    version = controller.model.version
    response = controller.ask(DeleteTopicRequest(topic="nothing"))
    assert response.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "found no 'nothing'" in response.message
    assert controller.model.version == version


def test_deaths_after_a_deletion_do_not_look_for_its_partitions(controller):
    for broker_id in (0, 1, 2):
        controller.lose(broker_id)
    controller.ask(DeleteTopicRequest(topic="taken"))
    for broker_id in (0, 1, 2):
        controller.restart(broker_id, "second", clean=False)
    assert controller.partition("a.b").leader_id is not None
