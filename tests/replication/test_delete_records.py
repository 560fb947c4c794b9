"""Deleting records: refused or done at once at the leader, answered when live replicas followed."""

import dataclasses

import pytest

from replog.config import LogConfig
from replog.messages import DeleteRecordsRequest, ErrorCode
from replog.replication import events as ev
from replog.types import TopicPartition
from tests.replication.core_cluster import PARTITION, TOPIC_ID, CoreCluster, three_replicas


def with_records(**options) -> CoreCluster:
    cluster = three_replicas(**options)
    cluster.produce(1, "a", "b", "c")
    cluster.run(1000)
    return cluster


def delete(cluster, offset, *, timeout_ms=30_000, broker=1, topic_partition=PARTITION) -> int:
    request = DeleteRecordsRequest(
        partitions=((topic_partition, TOPIC_ID, offset),), timeout_ms=timeout_ms
    )
    return cluster.ask(broker, request)


def deleted(cluster, request_id):
    answer = cluster.answers.get(request_id)
    return None if answer is None else answer.partitions[0]


def test_log_start_moves_at_once_and_the_answer_waits_for_the_followers():
    cluster = with_records()
    request_id = delete(cluster, 2)
    assert cluster.log(1).log_start_offset == 2
    assert deleted(cluster, request_id) is None
    cluster.run(1500)
    assert cluster.log(2).log_start_offset == cluster.log(3).log_start_offset == 2
    assert deleted(cluster, request_id).low_watermark == 2
    assert deleted(cluster, request_id).error is ErrorCode.NONE


def test_high_watermark_may_be_asked_for_by_its_sign():
    cluster = with_records()
    request_id = delete(cluster, -1)
    cluster.run(1500)
    assert deleted(cluster, request_id).low_watermark == 3


def test_replica_that_is_dead_is_not_waited_for():
    cluster = with_records()
    cluster.kill(3)
    request_id = delete(cluster, 2)
    cluster.run(1500)
    assert deleted(cluster, request_id) is None
    cluster.register(3, fenced=True)
    assert deleted(cluster, request_id) is None, "it is in sync, and may lead when it is back"
    cluster.lead(1, 1, (1, 2))
    assert deleted(cluster, request_id).low_watermark == 2


def test_nothing_is_answered_while_who_was_in_sync_before_may_lead():
    """Goal: 3 left the in-sync set below min.insync.replicas, so it may be elected all the same
    (KIP-966), and has what is deleted. Nobody tells the leader of that."""
    cluster = with_records(min_insync_replicas=3)
    dead = cluster.kill(3)
    cluster.register(3, fenced=True)
    cluster.lead(1, 1, (1, 2))
    request_id = delete(cluster, 2)
    cluster.run(1500)
    assert cluster.log(2).log_start_offset == 2
    assert deleted(cluster, request_id) is None
    cluster.brokers[3] = dead
    cluster.restart(3)
    cluster.run(3000)
    assert cluster.log(3).log_start_offset == 2
    assert deleted(cluster, request_id).low_watermark == 2


@pytest.mark.parametrize("offset", [-2, 4, 10**12])
def test_offset_outside_the_committed_log_is_refused(offset):
    cluster = with_records()
    assert deleted(cluster, delete(cluster, offset)).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.log(1).log_start_offset == 0


def test_only_the_leader_of_a_known_partition_deletes():
    cluster = with_records()
    nowhere = TopicPartition("nowhere", 0)
    assert deleted(cluster, delete(cluster, 1, broker=2)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = deleted(cluster, delete(cluster, 1, topic_partition=nowhere)).error
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_compacted_topic_keeps_its_records():
    cluster = with_records()
    before = cluster.registrations[PARTITION]
    config = dataclasses.replace(before.config, log=LogConfig(cleanup_policy="compact"))
    after = dataclasses.replace(before, config=config, partition_epoch=before.partition_epoch + 1)
    cluster.publish(partitions=(after,))
    assert deleted(cluster, delete(cluster, 1)).error is ErrorCode.POLICY_VIOLATION


def test_deletion_that_followers_do_not_follow_in_time_says_so():
    cluster = with_records()
    cluster.brokers.pop(3)
    request_id = delete(cluster, 2, timeout_ms=1000)
    cluster.run(999)
    assert deleted(cluster, request_id) is None
    cluster.run(1)
    assert deleted(cluster, request_id).error is ErrorCode.REQUEST_TIMED_OUT


def test_deletion_hears_when_its_leader_resigns():
    cluster = with_records()
    request_id = delete(cluster, 2)
    cluster.lead(2, 2, (1, 2, 3))
    assert deleted(cluster, request_id).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_deleting_what_is_gone_already_is_answered_at_once():
    cluster = with_records()
    delete(cluster, 2)
    cluster.run(1500)
    assert deleted(cluster, delete(cluster, 1)).low_watermark == 2


def test_a_deletion_that_found_no_room_is_refused_and_may_be_asked_for_again():
    cluster = with_records()
    log = cluster.log(1)
    moved, log.truncate_prefix_to = log.truncate_prefix_to, lambda _: None
    refused, other = delete(cluster, 2), delete(cluster, 0)
    cluster.brokers[1].handle(ev.LogStartKept(topic_partition=PARTITION))
    assert deleted(cluster, refused).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert deleted(cluster, other).error is ErrorCode.NONE
    log.truncate_prefix_to = moved
    again = delete(cluster, 2)
    cluster.run(1500)
    assert deleted(cluster, again).low_watermark == 2
