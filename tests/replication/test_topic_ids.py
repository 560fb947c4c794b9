"""A topic that was deleted and created again: the name is the same, the records are not."""

from __future__ import annotations

import dataclasses
import uuid

from replog.messages import ErrorCode, FetchPartition, FetchRequest
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
    cluster.produce(1, "new")
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
