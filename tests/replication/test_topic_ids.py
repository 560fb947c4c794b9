"""A topic that was deleted and created again: the name is the same, the records are not."""

from __future__ import annotations

import dataclasses
import uuid

import pytest

from replog.messages import (
    DeleteRecordsRequest,
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    OffsetSpec,
    ProduceRequest,
)
from replog.replication.fetch_session import ServedSession
from tests.replication.core_cluster import PARTITION, TOPIC_ID, CoreCluster
from tests.replication.memory_log import MemoryLog

NEW_TOPIC_ID = uuid.UUID(int=2)


def recreated(cluster: CoreCluster, *, to: tuple[int, ...]) -> None:
    """Tell some brokers of the new topic of that name, in its first epoch, led by 1."""
    before = cluster.registrations[PARTITION]
    registration = dataclasses.replace(
        before, topic_id=NEW_TOPIC_ID, leader_epoch=0, partition_epoch=0
    )
    for broker_id in to:
        cluster.brokers[broker_id].logs[PARTITION] = MemoryLog()
    cluster.publish(partitions=(registration,), removed=((PARTITION, TOPIC_ID),), to=to)


def test_a_leader_serves_nothing_of_a_topic_to_a_follower_of_another_one():
    """What the leader of the deleted topic has must not get into the new one's log."""
    cluster = CoreCluster({1: MemoryLog([0, 0, 0]), 2: MemoryLog()})
    cluster.lead(1, 0, (1, 2))
    asked = FetchPartition(
        topic_partition=PARTITION, topic_id=NEW_TOPIC_ID, fetch_offset=0, current_leader_epoch=0
    )
    request = FetchRequest(partitions=(asked,), replica_id=2, broker_epoch=2, wait_ms_max=0)
    (answer,) = cluster.answer(1, request).partitions
    assert answer.error is ErrorCode.INCONSISTENT_TOPIC_ID
    assert answer.records is None
    assert cluster.leader(1).followers[2].log_end_offset == -1


def test_a_follower_of_the_new_topic_gets_nothing_of_the_old_one_and_comes_again():
    """2 hears of the new topic first; epochs and offsets say nothing, both begin at 0."""
    cluster = CoreCluster({1: MemoryLog([0, 0, 0]), 2: MemoryLog()})
    cluster.lead(1, 0, (1, 2))
    recreated(cluster, to=(2,))
    cluster.settle()
    assert cluster.payloads(2) == []
    assert cluster.follower(2).failure is None
    recreated(cluster, to=(1,))
    cluster.produce(1, "new", topic_id=NEW_TOPIC_ID)
    cluster.run(2000)
    assert cluster.payloads(2) == ["new"]


def test_an_answer_about_the_old_topic_is_not_taken_for_one_about_the_new():
    """The answer was on its way when the follower heard of the new topic."""
    cluster = CoreCluster({1: MemoryLog([0, 0, 0]), 2: MemoryLog()})
    cluster.lead(1, 0, (1, 2))
    cluster.deliver_one()  # the fetch has reached the leader, its answer is under way
    recreated(cluster, to=(2,))
    cluster.settle()
    assert cluster.payloads(2) == []


def of_another_topic(kind: str):
    """What a client of the new topic asks of a broker that still has the old one."""
    match kind:
        case "produce":
            return ProduceRequest(partitions=((PARTITION, NEW_TOPIC_ID, ("new",)),))
        case "fetch":
            asked = FetchPartition(topic_partition=PARTITION, topic_id=NEW_TOPIC_ID, fetch_offset=0)
            return FetchRequest(partitions=(asked,), wait_ms_max=0)
        case "delete records":
            return DeleteRecordsRequest(partitions=((PARTITION, NEW_TOPIC_ID, -1),))


@pytest.mark.parametrize("kind", ["produce", "fetch", "delete records"])
@pytest.mark.parametrize("holds_a_replica", [True, False])
def test_what_is_asked_of_the_new_topic_is_refused_by_who_knows_the_old_one(kind, holds_a_replica):
    """Goal: the leader of the old topic is cut off from the controller; leader 1 and epoch 0 fit
    both topics."""
    cluster = CoreCluster({1: MemoryLog([0, 0, 0]), 2: MemoryLog(), 3: {}})
    cluster.lead(1, 0, (1, 2), replicas=(1, 2))
    cluster.settle()
    before = cluster.payloads(1)
    broker_id = 1 if holds_a_replica else 3
    (answer,) = cluster.answer(broker_id, of_another_topic(kind)).partitions
    assert answer.error in {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
    assert cluster.payloads(1) == before
    assert cluster.log(1).log_start_offset == 0


def test_the_new_topic_s_offsets_are_not_told_by_who_knows_the_old_one():
    cluster = CoreCluster({1: MemoryLog([0, 0, 0])})
    cluster.lead(1, 0, (1,))
    asked = ListOffsetsRequest(
        topic_partition=PARTITION, topic_id=NEW_TOPIC_ID, timestamp=OffsetSpec.LATEST
    )
    answer = cluster.answer(1, asked)
    assert (answer.error, answer.offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


def test_a_client_of_the_old_topic_hears_nothing_of_the_new_one():
    """It is the client that is behind, and the broker that has heard of the latest."""
    cluster = CoreCluster({1: MemoryLog()})
    cluster.lead(1, 0, (1,))
    recreated(cluster, to=(1,))
    refusal = cluster.produced(cluster.produce(1, "old"))
    assert refusal.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert str(NEW_TOPIC_ID) in refusal.message
    assert cluster.payloads(1) == []
    assert cluster.consume(1, 0).error is ErrorCode.INCONSISTENT_TOPIC_ID


def test_who_waits_at_the_old_topic_hears_nothing_of_the_new_one():
    """A fetch and a deletion of records wait at the leader when the topic is created anew there."""
    cluster = CoreCluster({1: MemoryLog([0, 0, 0]), 2: MemoryLog()}, decides=False)
    cluster.lead(1, 0, (1, 2))
    cluster.produce(1, "old")
    cluster.settle()
    asked = FetchPartition(topic_partition=PARTITION, topic_id=TOPIC_ID, fetch_offset=4)
    fetch = cluster.ask(1, FetchRequest(partitions=(asked,), wait_ms_max=60_000))
    delete = cluster.ask(1, DeleteRecordsRequest(partitions=((PARTITION, TOPIC_ID, 3),)))
    assert not {fetch, delete} & set(cluster.answers)
    recreated(cluster, to=(1,))
    refusals = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
    for request_id in (fetch, delete):
        assert cluster.answers[request_id].partitions[0].error in refusals


def test_a_session_tells_the_new_topic_s_watermark_though_the_old_one_s_was_the_same():
    """What was told of the old topic is not known of the new one."""
    asked = FetchPartition(topic_partition=PARTITION, topic_id=TOPIC_ID, fetch_offset=3)
    session = ServedSession(1, FetchRequest(partitions=(asked,), session_epoch=0))
    told = FetchedPartition(topic_partition=PARTITION, high_watermark=3, log_start_offset=0)
    assert session.is_news(told)
    assert not session.is_news(told)
    session.update(FetchRequest(partitions=(dataclasses.replace(asked, topic_id=NEW_TOPIC_ID),)))
    assert session.is_news(told)
