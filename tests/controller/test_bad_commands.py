"""Commands that cannot be: each gets Kafka's error and a sentence, and nothing is written."""

import pytest

from replog.admin_messages import (
    AlterOptionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeLossesRequest,
    ElectionKind,
    ElectLeadersRequest,
    Reassignment,
    ReassignPartitionsRequest,
    ResourceKind,
    StateChangesRequest,
    UnregisterBrokerRequest,
)
from replog.messages import CreateTopicRequest, DeleteTopicRequest, ErrorCode
from replog.types import TopicPartition
from tests.controller.conversation import Controller

TOPIC, BROKER = ResourceKind.TOPIC, ResourceKind.BROKER
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
CONFIG = ErrorCode.INVALID_CONFIG
COUNT = ErrorCode.INVALID_PARTITIONS
REPLICAS = ErrorCode.INVALID_REPLICA_ASSIGNMENT
REQUEST = ErrorCode.INVALID_REQUEST
T0 = TopicPartition("t", 0)


@pytest.fixture
def controller():
    controller = Controller()
    controller.start(0, 1, 2)
    return controller


def set_options(name, kind=TOPIC, **named):
    changes = {option.replace("_", "."): text for option, text in named.items()}
    return AlterOptionsRequest(kind=kind, name=name, options=changes)


BAD = [
    (CreatePartitionsRequest(topic="x", count=2), UNKNOWN, "found no 'x'"),
    (CreatePartitionsRequest(topic="t", count=1), COUNT, "partitions are never removed"),
    (CreatePartitionsRequest(topic="t", count=0), COUNT, "partitions are never removed"),
    (CreatePartitionsRequest(topic="t", count=10_001), COUNT, "at most 10000"),
    (CreatePartitionsRequest(topic="t", count=3, assignment=((0, 1),)), REPLICAS, "2 new"),
    (CreatePartitionsRequest(topic="t", count=2, assignment=((0,),)), REPLICAS, "2 replicas"),
    (CreatePartitionsRequest(topic="t", count=2, assignment=((0, 0),)), REPLICAS, "once"),
    (CreatePartitionsRequest(topic="t", count=2, assignment=((0, 9),)), REPLICAS, "found [9]"),
    (set_options("x", retention_ms="1"), UNKNOWN, "found no 'x'"),
    (set_options("t", retention="1"), CONFIG, "found 'retention'"),
    (set_options("t", retention_ms="soon"), CONFIG, "found 'soon'"),
    (set_options("t", min_insync_replicas="0"), CONFIG, "from 1 to"),
    (set_options("t", min_insync_replicas="-1"), CONFIG, "found '-1'"),
    (set_options("t", unclean_leader_election_enable="maybe"), CONFIG, "true or false"),
    (set_options("t", cleanup_policy="burn"), CONFIG, "delete, compact"),
    (set_options("9", BROKER, follower_replication_throttled_rate="5"), REQUEST, "'9'"),
    (set_options("", BROKER, follower_replication_throttled_rate="0"), CONFIG, "least 1"),
    (set_options("0", BROKER, log_dirs="/"), CONFIG, "found 'log.dirs'"),
    (DeleteTopicRequest(topic="x"), UNKNOWN, "found no 'x'"),
    (UnregisterBrokerRequest(broker_id=9), ErrorCode.BROKER_ID_NOT_REGISTERED, "found 9"),
    (UnregisterBrokerRequest(broker_id=0), REQUEST, "reassign its partitions"),
    (CreateTopicRequest(topic="n", options=(("a.b", "1"),)), CONFIG, "found 'a.b'"),
]
MOVES = [
    (Reassignment(topic_partition=T0, replicas=(0, 9)), REPLICAS, "found [9]"),
    (Reassignment(topic_partition=T0, replicas=(0, 0)), REPLICAS, "each broker once"),
    (Reassignment(topic_partition=T0, replicas=()), REPLICAS, "found none"),
    (Reassignment(topic_partition=T0._replace(partition=7), replicas=(0,)), UNKNOWN, "no t-7"),
    (Reassignment(topic_partition=T0, replicas=None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "t-0"),
]
BAD += [
    # What Python's types would have let pass, or raised at, further on.
    (set_options("t", leader_replication_throttled_replicas="\ud800"), REQUEST, "UTF-8"),
    (set_options("t", leader_replication_throttled_replicas="garbage"), CONFIG, "partition:broker"),
    (
        set_options("t", leader_replication_throttled_replicas="0:1," * 9_000),
        CONFIG,
        "at most 32767",
    ),
    (set_options("t", retention_ms=5), REQUEST, "expected options['retention.ms'] to be a text"),
    (set_options("t", min_insync_replicas="1" * 5_000), CONFIG, "from 1 to"),
    (set_options("\u00b2", BROKER, follower_replication_throttled_rate="5"), REQUEST, "found '"),
    (set_options("01", BROKER, follower_replication_throttled_rate="5"), REQUEST, "'01'"),
    (set_options("9" * 5_000, BROKER, follower_replication_throttled_rate="5"), REQUEST, "'999"),
    (set_options("0", BROKER, follower_replication_throttled_rate="9" * 5_000), CONFIG, "least 1"),
    (set_options("t", 2, retention_ms="1"), REQUEST, "ResourceKind.TOPIC"),
    (ElectLeadersRequest(kind=7), ErrorCode.INVALID_REQUEST, "ElectionKind.PREFERRED"),
    (
        CreateTopicRequest(topic="__cluster_metadata"),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "own log",
    ),
    (CreateTopicRequest(topic="n", options=(("retention.ms", 5),)), REQUEST, "options[0][1]"),
    (CreateTopicRequest(topic="n", options=(("retention.ms",),)), REQUEST, "a tuple of 2"),
    (CreateTopicRequest(topic=None), REQUEST, "expected topic to be a text, found None"),
    (CreateTopicRequest(topic="n", partitions="2"), REQUEST, "partitions to be an integer"),
    (CreateTopicRequest(topic="n", replication_factor=True), REQUEST, "found True of type bool"),
    (CreateTopicRequest(topic="n", assignment=((0, "1"),)), REQUEST, "assignment[0][1]"),
    (CreateTopicRequest(topic="n", config="none"), REQUEST, "a TopicConfig"),
    (CreatePartitionsRequest(topic="t", count=None), REQUEST, "count to be an integer"),
    (DeleteTopicRequest(topic=7), REQUEST, "found 7 of type int"),
    (UnregisterBrokerRequest(broker_id="0"), REQUEST, "broker_id to be an integer"),
    (
        ElectLeadersRequest(kind=ElectionKind.PREFERRED, partitions=("t-0",)),
        REQUEST,
        "partitions[0]",
    ),
    (StateChangesRequest(topic_partition=("t", 0)), REQUEST, "to be a TopicPartition"),
    (DescribeLossesRequest(partitions=T0), REQUEST, "partitions[0] to be a TopicPartition"),
    (ReassignPartitionsRequest(partitions=(T0,)), REQUEST, "partitions[0] to be a Reassignment"),
    (ReassignPartitionsRequest(partitions=(), throttle_bytes_per_s=2**80), REQUEST, "64 bits"),
    (CreateTopicsRequest(topics=(CreateTopicRequest(topic=b"n"),)), REQUEST, "topics[0].topic"),
]
BAD += [(ReassignPartitionsRequest(partitions=(move,)), *rest) for move, *rest in MOVES]


@pytest.mark.parametrize(("request_", "error", "sentence"), BAD, ids=[str(row[0]) for row in BAD])
def test_a_bad_command_gets_its_error_and_a_sentence_and_writes_nothing(
    controller, request_, error, sentence
):
    controller.create(replicas=(0, 1))
    length = len(controller.model.log)
    answer = controller.ask(request_)
    if isinstance(request_, ReassignPartitionsRequest) and answer.error is ErrorCode.NONE:
        (answer,) = answer.partitions
    assert answer.error is error
    assert sentence in answer.message
    assert answer.message.startswith("expected ")
    assert len(controller.model.log) == length


def test_a_topic_named_twice_in_one_command_is_not_created(controller):
    topics = tuple(CreateTopicRequest(topic=name) for name in ("a", "b", "a"))
    first, second, third = controller.ask(CreateTopicsRequest(topics=topics)).topics
    assert first.error is third.error is REQUEST
    assert "found 'a' 2 times" in first.message
    assert second.error is ErrorCode.NONE
    assert list(controller.model.topics()) == ["b"]


@pytest.mark.parametrize("validate_only", [False, True])
def test_one_command_creates_no_more_partitions_than_one_decision_may_hold(
    controller, validate_only
):
    topics = tuple(CreateTopicRequest(topic=name, partitions=6_000) for name in ("a", "b"))
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    length = len(controller.model.log)
    for answer in controller.ask(request).topics:
        assert answer.error is ErrorCode.POLICY_VIOLATION
        assert "found 12000 in 2 topics" in answer.message
    assert len(controller.model.log) == length
