"""Operators' commands on real logs: replicas move with their records, the old ones' files go."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

import replog
from replog.admin_messages import (
    AlterOptionsRequest,
    BalanceLeadersRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribePartitionsRequest,
    ListReassignmentsRequest,
    Reassignment,
    ReassignPartitionsRequest,
    ResourceKind,
)
from replog.client.connection import answer_to
from replog.errors import NoSpaceError, UnknownTopicOrPartitionError
from replog.messages import CreateTopicRequest, DeleteRecordsRequest, ErrorCode
from replog.types import TopicPartition

NAME = TopicPartition("orders", 0)


def run(scenario, brokers: int = 4, **options) -> None:
    async def main():
        async with replog.LocalCluster(brokers, **options) as cluster:
            await scenario(cluster)

    asyncio.run(asyncio.wait_for(main(), 60))


async def reassign(cluster, replicas, **more):
    asked = Reassignment(topic_partition=NAME, replicas=replicas)
    answer = await cluster.admin(ReassignPartitionsRequest(partitions=(asked,), **more))
    return answer.partitions[0].error


def replicas_are(replicas):
    return lambda cluster: cluster.registration("orders").replicas == replicas


def test_replicas_move_with_their_records_and_the_old_files_go():
    async def scenario(cluster):
        one, two, three, four = cluster.broker_ids
        await cluster.create_topic("orders", assignment=[(one, two)], min_insync_replicas=2)
        await cluster.produce("orders", [b"%d" % n for n in range(1000)])
        old = cluster.partition_directory(one, "orders")
        assert os.path.isdir(old)
        assert await reassign(cluster, (three, four)) is ErrorCode.NONE
        await cluster.until(replicas_are((three, four)), "replicas elsewhere")
        assert cluster.leader("orders") in {three, four}
        await cluster.produce("orders", [b"after"])
        found = [record.value async for record in cluster.consume("orders", end="latest")]
        assert len(found) == 1001
        assert (await cluster.admin(ListReassignmentsRequest())).reassignments == ()
        await cluster.until(lambda _: not os.path.isdir(old), "the old files to go")

    run(scenario)


def test_a_throttle_slows_the_move():
    async def scenario(cluster):
        one, two, three, _ = cluster.broker_ids
        await cluster.create_topic("orders", assignment=[(one, two)])
        await cluster.produce("orders", [b"x" * 1000] * 500)
        began = time.perf_counter()
        await reassign(cluster, (one, three), throttle_bytes_per_s=1_000_000)
        await cluster.until(replicas_are((one, three)), "replicas elsewhere")
        assert time.perf_counter() - began > 0.4

    run(scenario)


def test_progress_is_told_while_a_new_replica_is_away():
    async def scenario(cluster):
        one, two, three, _ = cluster.broker_ids
        await cluster.create_topic("orders", assignment=[(one, two)])
        await cluster.produce("orders", [b"x" * 1000] * 100)
        cluster.kill(three)
        await reassign(cluster, (one, three), throttle_bytes_per_s=1_000_000)
        progress = (await cluster.admin(ListReassignmentsRequest())).reassignments[0]
        assert (progress.adding, progress.removing) == ((three,), (two,))
        while progress.bytes_left is None:
            progress = (await cluster.admin(ListReassignmentsRequest())).reassignments[0]
        assert progress.bytes_left >= 100_000
        assert await reassign(cluster, None) is ErrorCode.NONE
        assert cluster.registration("orders").replicas == (one, two)

    run(scenario, controller=replog.ControllerOptions(broker_heartbeat_interval_ms=50))


def test_topics_of_one_command_wait_until_every_replica_has_started():
    async def scenario(cluster):
        topics = tuple(
            CreateTopicRequest(topic=f"t{n}", partitions=5, replication_factor=3) for n in range(4)
        )
        answer = await cluster.admin(CreateTopicsRequest(topics=topics, wait_ms_max=20_000))
        assert [topic.error for topic in answer.topics] == [ErrorCode.NONE] * 4
        for number in range(4):
            for partition in range(5):
                for broker_id in cluster.registration(f"t{number}", partition).replicas:
                    assert cluster.replica(broker_id, f"t{number}", partition) is not None

    run(scenario)


def test_commands_reach_the_controller_and_their_errors_come_back():
    async def scenario(cluster):
        await cluster.create_topic("orders")
        await cluster.admin(CreatePartitionsRequest(topic="orders", count=3))
        await cluster.produce("orders", [b"x"], partition=2)
        options = {"retention.ms": "60000"}
        await cluster.admin(
            AlterOptionsRequest(kind=ResourceKind.TOPIC, name="orders", options=options)
        )
        assert cluster.registration("orders").config.log.retention_ms == 60000
        assert (await cluster.admin(BalanceLeadersRequest(dry_run=True))).moves == ()
        (status,) = (await cluster.admin(DescribePartitionsRequest(partitions=(NAME,)))).partitions
        assert status.state == "Online"
        with pytest.raises(UnknownTopicOrPartitionError, match="found no 'gone'"):
            await cluster.admin(CreatePartitionsRequest(topic="gone", count=3))

    run(scenario, brokers=3)


def test_a_replica_that_was_moved_away_and_back_outlives_a_broker_that_remembers_less(tmp_path):
    """Method: the broker's copy of the metadata begins before it lost the replica; on its way to
    the present it hears of that first.
    """

    async def scenario(cluster):
        one, two = cluster.broker_ids
        await cluster.create_topic("orders", assignment=[(one,)], min_insync_replicas=1)
        for member in cluster._running().pump.members.values():
            member.log.checkpoint_high_watermark()
        for replicas in ((two,), (one,)):
            assert await reassign(cluster, replicas) is ErrorCode.NONE
            await cluster.until(replicas_are(replicas), "replicas elsewhere")
        await cluster.produce("orders", [b"a"])
        for node_id in {*cluster.controller_ids, *cluster.broker_ids}:
            cluster.kill(node_id)

    async def again(cluster):
        await cluster.in_sync("orders")
        found = [record.value async for record in cluster.consume("orders", end="latest")]
        assert found == [b"a"]

    run(scenario, 2, directory=tmp_path)
    run(again, 2, directory=tmp_path)


async def delete_records(cluster, below: int) -> int:
    """The low watermark: every live replica has dropped what lies below it."""
    running, known = cluster._running(), cluster.registration("orders")
    request = DeleteRecordsRequest(partitions=((NAME, known.topic_id, below),))
    answer = await answer_to(running.connection, known.leader_id, request)
    assert answer.partitions[0].error is ErrorCode.NONE
    return answer.partitions[0].low_watermark


async def offsets(cluster) -> list[int]:
    return [record.offset async for record in cluster.consume("orders", end="latest")]


def test_deleted_records_do_not_come_back_where_a_replica_is_moved_to():
    """The log starts inside its first batch, with which the new replica's files begin; that one
    leads afterwards, and learns from nobody where the log starts."""

    async def scenario(cluster):
        one, two, three, _ = cluster.broker_ids
        await cluster.create_topic("orders", assignment=[(one, two)])
        await cluster.produce("orders", [b"%d" % n for n in range(10)])
        assert await delete_records(cluster, 7) == 7
        assert await reassign(cluster, (three,)) is ErrorCode.NONE
        await cluster.until(replicas_are((three,)), "replicas elsewhere")
        await cluster.until(lambda now: now.leader("orders") == three, "a leader there")
        assert cluster.replica(three, "orders").log_start_offset == 7
        assert await offsets(cluster) == [7, 8, 9]

    run(scenario)


def test_a_moved_replica_keeps_the_log_start_over_a_restart():
    async def scenario(cluster):
        one, two, three, _ = cluster.broker_ids
        await cluster.create_topic("orders", assignment=[(one, two)])
        await cluster.produce("orders", [b"%d" % n for n in range(10)])
        await delete_records(cluster, 7)
        await reassign(cluster, (three,))
        await cluster.until(replicas_are((three,)), "replicas elsewhere")
        cluster.kill(three)
        await cluster.restart(three)
        await cluster.until(lambda now: now.leader("orders") == three, "a leader there")
        assert await offsets(cluster) == [7, 8, 9]

    run(scenario)


def test_a_replica_that_follows_takes_each_later_log_start():
    async def scenario(cluster):
        one, two, three, _ = cluster.broker_ids
        await cluster.create_topic("orders", assignment=[(one, two)])
        await cluster.produce("orders", [b"%d" % n for n in range(10)])
        await delete_records(cluster, 3)
        await reassign(cluster, (one, three))
        await cluster.until(replicas_are((one, three)), "replicas elsewhere")
        await cluster.in_sync("orders")
        for below in (4, 8, 10):
            assert await delete_records(cluster, below) == below
            assert cluster.replica(three, "orders").log_start_offset == below

    run(scenario)


def fill_disk_once(cluster, broker_id: int) -> list[int]:
    """The next log start that the broker's log is to write finds no room; which one, in a list."""
    node = cluster._running().members.node(broker_id)
    checkpoints = node.store.directory.partition_log(NAME).keeper.checkpoints
    refused = []

    def refuse(offset: int) -> None:
        del checkpoints.write_log_start_offset
        refused.append(offset)
        raise NoSpaceError("expected room for a checkpoint, found a full disk; free some")

    checkpoints.write_log_start_offset = refuse
    return refused


def test_a_log_start_that_finds_no_room_moves_later_and_its_replica_stays():
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=3)
        await cluster.produce("orders", [b"%d" % n for n in range(10)])
        leader = cluster.leader("orders")
        request = DeleteRecordsRequest(
            partitions=((NAME, cluster.registration("orders").topic_id, 4),)
        )
        refused = fill_disk_once(cluster, leader)
        answer = await answer_to(cluster._running().connection, leader, request)
        assert answer.partitions[0].error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (refused, await offsets(cluster)) == ([4], list(range(10)))
        follower = next(one for one in cluster.isr("orders") if one != leader)
        refused = fill_disk_once(cluster, follower)
        assert await delete_records(cluster, 4) == 4, "the leader says it to its follower again"
        assert refused == [4]
        assert cluster.replica(follower, "orders").log_start_offset == 4
        await cluster.produce("orders", [b"all three have it"])
        assert await offsets(cluster) == list(range(4, 11))

    run(scenario, 3)
