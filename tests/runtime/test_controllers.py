"""LocalCluster with its real controllers: killed, replaced, restarted, beside brokers or alone."""

from __future__ import annotations

import asyncio
import errno
import itertools
import random

import pytest

import replog
from replog._native import recorded_calls
from replog.admin_messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    StateChangesRequest,
)
from replog.config import ControllerOptions, QuorumOptions
from replog.controller.quorum.incidents import PromiseRefused
from replog.errors import UsageError
from replog.messages import CreateTopicRequest, ErrorCode
from replog.runtime.cluster_nodes import ClusterLayout
from replog.types import TopicPartition
from tests.runtime.test_local_cluster import run, values


async def turns(cluster, count: int) -> None:
    """Let the cluster do something so many times."""
    seen = itertools.count()
    await cluster.until(lambda _: next(seen) >= count, "so many turns")


async def led_again(cluster) -> None:
    await cluster.until(lambda now: now.active_controller is not None, "an active controller")


def test_commands_whose_controller_dies_are_carried_out_and_answered_so():
    """Method: the active controller dies so many turns after it was asked; its successor finds
    done what it is asked, or does it.
    """

    async def scenario(cluster):
        await cluster.create_topic("orders")
        for count in range(6):
            topics = (CreateTopicRequest(topic=f"t{count}", replication_factor=3),)
            commands = (
                CreatePartitionsRequest(topic="orders", count=2 + count),
                CreateTopicsRequest(topics=topics, wait_ms_max=5000 * (count % 2)),
            )
            first = cluster.active_controller
            asked = [asyncio.ensure_future(cluster.admin(command)) for command in commands]
            await turns(cluster, count * 6)
            cluster.kill(first)
            added, created = await asyncio.gather(*asked)
            assert (added.error, added.message) == (ErrorCode.NONE, None)
            assert [topic.error for topic in created.topics] == [ErrorCode.NONE]
            assert cluster.registration("orders", 1 + count)
            assert cluster.registration(f"t{count}").topic_id == created.topics[0].topic_id
            await cluster.restart(first)
            await led_again(cluster)

    run(scenario, controllers=3)


def test_one_controller_that_dies_leaves_the_brokers_at_work_and_comes_back():
    async def scenario(cluster):
        await cluster.create_topic("orders")
        controller = cluster.active_controller
        assert controller not in cluster.broker_ids
        cluster.kill(controller)
        assert cluster.active_controller is None
        await cluster.produce("orders", [b"a"])
        await cluster.restart(controller)
        await led_again(cluster)
        await cluster.create_topic("bills")
        assert cluster.topics() == ("bills", "orders")
        await cluster.produce("orders", [b"b"])
        assert await values(cluster) == [b"a", b"b"]

    run(scenario)


def test_three_controllers_survive_the_loss_of_the_active_one():
    async def scenario(cluster):
        await cluster.create_topic("orders")
        first = cluster.active_controller
        cluster.kill(first)
        await cluster.create_topic("bills")  # asks the next one
        assert cluster.active_controller not in {None, first}
        await cluster.produce("bills", [b"a"])
        leader_id = cluster.leader("orders")
        epoch = cluster.registration("orders").leader_epoch
        cluster.kill(leader_id)
        assert await cluster.leader_after(epoch, "orders") != leader_id
        await cluster.restart(first)
        second = cluster.active_controller
        cluster.kill(second)
        await cluster.create_topic("notes")
        assert cluster.topics() == ("bills", "notes", "orders")

    run(scenario, controllers=3)


def test_a_full_disk_at_the_promise_stops_neither_controller_nor_brokers():
    """Method: there is no room for it anywhere. Nobody can be elected; with room somebody is."""
    recorded_calls.install()

    async def scenario(cluster):
        await cluster.create_topic("orders")
        await cluster.produce("orders", [b"a"])
        first = cluster.active_controller
        recorded_calls.fail("pwritev", errno.ENOSPC, path="quorum-state")
        cluster.kill(first)
        await cluster.until(
            lambda now: any(isinstance(one.incident, PromiseRefused) for one in now.incidents()),
            "a promise to be refused",
        )
        assert cluster.active_controller is None
        recorded_calls.clear_faults()
        await led_again(cluster)  # which takes both that are left
        await cluster.create_topic("bills")
        await cluster.produce("bills", [b"b"])

    try:
        run(scenario, controllers=3)
    finally:
        recorded_calls.uninstall()


def test_controllers_beside_brokers_live_and_die_with_them():
    async def scenario(cluster):
        assert cluster.controller_ids == (1, 2, 3)
        await cluster.create_topic("orders", min_insync_replicas=2)
        await cluster.produce("orders", [b"a"])
        first = cluster.active_controller
        cluster.kill(first)
        await cluster.produce("orders", [b"b"])
        await cluster.create_topic("bills")
        await cluster.restart(first)
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"a", b"b"]

    run(scenario, controllers=3, combined=True)


def test_a_cut_off_controller_is_replaced_and_steps_down():
    async def scenario(cluster):
        first = cluster.active_controller
        cluster.isolate(first)
        await cluster.until(
            lambda now: now.active_controller not in {None, first}, "another controller"
        )
        await cluster.create_topic("orders")
        cluster.heal()
        endpoint = next(
            member for member in cluster._running().pump.members.values() if member.node_id == first
        )
        await cluster.until(lambda _: not endpoint.node.is_active, "the old one to step down")
        await cluster.until(
            lambda _: endpoint.node.controller.topics() == ("orders",),
            "it to know what was decided since",
        )

    run(scenario, controllers=3, quorum=QuorumOptions(fetch_timeout_ms=300, fetch_wait_max_ms=100))


def ends_at(cluster, broker_id, end_offset):
    replica = cluster.replica(broker_id, "orders")
    return replica is not None and replica.log_end_offset == end_offset


def test_a_broker_starts_from_its_copy_of_the_metadata_while_no_controller_runs():
    """Goal: one that was stopped follows at once; one that was killed may have forgotten whom it
    had obeyed, and waits. Nobody leads anew.
    """

    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        await cluster.produce("orders", [b"a"])
        await cluster.stop(3)
        await cluster.until(lambda now: now.isr("orders") == (1, 2), "3 to be out")
        members = cluster._running().members
        cluster.kill(1001)
        await cluster.produce("orders", [b"b"])
        await members.start(3)
        await cluster.until(lambda now: ends_at(now, 3, 2), "3 to follow")
        assert members.node(3).broker_epoch == -1
        cluster.kill(2)
        pending = asyncio.ensure_future(cluster.produce("orders", [b"c"]))
        await members.start(2)
        await cluster.until(lambda now: ends_at(now, 3, 3), "3 to follow")
        assert cluster.replica(2, "orders").log_end_offset == 2
        cluster.kill(1)
        await members.start(1)
        await cluster.until(lambda now: now.replica(1, "orders") is not None, "its log")
        assert not cluster.replica(1, "orders").is_leader, "not before it is registered"
        await cluster.restart(1001)
        await led_again(cluster)
        await cluster.in_sync("orders")
        await pending
        assert await values(cluster) == [b"a", b"b", b"c"]

    run(scenario)


HOUR_MS = 3_600_000
NO_HEARTBEATS = ControllerOptions(
    broker_session_timeout_ms=3 * HOUR_MS, broker_heartbeat_interval_ms=HOUR_MS
)


def test_what_waits_for_brokers_does_not_wait_for_their_next_heartbeat():
    """Method: the next one is due in an hour; a creation that waits for its replicas, and a
    shutdown, need one of each broker.
    """

    async def scenario(cluster):
        topics = (CreateTopicRequest(topic="orders", replication_factor=3),)
        answer = await cluster.admin(CreateTopicsRequest(topics=topics, wait_ms_max=20_000))
        assert answer.topics[0].error is ErrorCode.NONE
        await cluster.stop(3)

    run(scenario, controller=NO_HEARTBEATS)


def test_the_journal_tells_what_brokers_have_received_before_they_say_that_they_obeyed():
    """Goal: a broker that has the metadata and hangs is told from one that has not got it."""

    async def scenario(cluster):
        await cluster.create_topic("orders")
        asked = StateChangesRequest(topic_partition=TopicPartition("orders", 0))
        states: set[str] = set()
        for _ in range(1000):
            rows = (await cluster.admin(asked)).changes
            assert len(rows) == 3
            assert all((row.received_ms is None) == (row.state == "requested") for row in rows)
            assert all(row.completed_ms is None for row in rows)
            states = {row.state for row in rows}
            if states == {"received"}:
                return
            await turns(cluster, 10)
        pytest.fail(
            f"expected that all brokers have received it after 10,000 turns, found {states}"
        )

    run(scenario, controller=NO_HEARTBEATS)


def test_a_topic_deleted_while_a_broker_was_away_is_deleted_on_its_return():
    async def scenario(cluster):
        await cluster.create_topic("orders")
        await cluster.create_topic("bills")
        await cluster.stop(2)
        await cluster.delete_topic("orders")
        await cluster.create_topic("orders")
        await cluster.delete_topic("bills")
        before = cluster.registration("orders").topic_id
        await cluster.restart(2)
        await cluster.in_sync("orders")
        store = cluster._running().members.node(2).store
        assert store.get(TopicPartition("bills", 0)) is None
        assert store.get(TopicPartition("orders", 0)).topic_id == before
        assert store.directory.strays == []

    run(scenario)


def test_a_topic_created_again_outlives_brokers_that_remember_the_old_one(tmp_path):
    """Method: the copies of the metadata know the first topic as committed, and the second not."""

    async def scenario(cluster):
        await cluster.create_topic("orders")
        for member in cluster._running().pump.members.values():
            member.log.checkpoint_high_watermark()
        await cluster.delete_topic("orders")
        await cluster.create_topic("orders")
        await cluster.produce("orders", [b"a"])
        for node_id in {*cluster.controller_ids, *cluster.broker_ids}:
            cluster.kill(node_id)

    async def again(cluster):
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"a"]

    run(scenario, directory=tmp_path)
    run(again, directory=tmp_path)


@pytest.mark.parametrize("options", [{}, {"controllers": 3}, {"controllers": 3, "combined": True}])
def test_a_cluster_opens_again_after_all_of_it_was_killed(tmp_path, options):
    async def scenario(cluster):
        await cluster.create_topic("orders", partitions=2)
        for partition in (0, 1):
            await cluster.produce("orders", [b"%d" % partition], partition=partition)
        for node_id in {*cluster.controller_ids, *cluster.broker_ids}:
            cluster.kill(node_id)

    async def again(cluster):
        for partition in (0, 1):
            await cluster.produce("orders", [b"more"], partition=partition)
            assert await values(cluster, partition=partition) == [b"%d" % partition, b"more"]

    run(scenario, directory=tmp_path, **options)
    run(again, directory=tmp_path, **options)


def test_layouts_that_cannot_be_are_refused():
    for options in ({"controllers": 2}, {"controllers": 0}, {"controllers": 5, "combined": True}):
        with pytest.raises(UsageError):
            replog.LocalCluster(3, **options)
    assert ClusterLayout.of(3, 1, combined=True).nodes == (1, 2, 3)


@pytest.mark.parametrize("options", [{"controllers": 3}, {"controllers": 3, "combined": True}])
def test_logs_are_cut_below_snapshots_and_who_was_away_loads_one(options):
    async def scenario(cluster):
        pump = cluster._running().pump
        away = next(n for n in cluster.controller_ids if n != cluster.active_controller)
        await cluster.create_topic("early")
        await cluster.stop(away)
        broker_id = 4
        await cluster.stop(broker_id)
        for number in range(30):
            await cluster.create_topic(f"topic-{number}", replication_factor=1)
        await cluster.delete_topic("early")
        active = next(m for m in pump.members.values() if m.node_id == cluster.active_controller)
        await cluster.until(lambda _: active.log.log_start_offset > 30, "a snapshot")
        assert active.log.first_snapshot == active.log.latest_snapshot
        for node_id in {away, broker_id}:
            await cluster.restart(node_id)
            member = next(m for m in pump.members.values() if m.node_id == node_id)
            await cluster.until(
                lambda now, log=member.log: log.high_watermark >= now._running().view.version,
                "it to be level",
            )
            assert member.log.log_start_offset > 30, "it was told of the beginning by a snapshot"
        store = cluster._running().members.node(broker_id).store
        assert store.get(TopicPartition("early", 0)) is None
        assert len(cluster.topics()) == 30
        cluster.kill(cluster.active_controller)
        await led_again(cluster)
        assert len(cluster.topics()) == 30
        # A broker may have died beside its controller, unknown to the new one: no single copy.
        await cluster.create_topic("late")

    run(scenario, brokers=4, quorum=QuorumOptions(snapshot_interval_bytes=2000), **options)


def test_what_was_answered_survives_controllers_that_die_at_any_moment():
    """Goal: a command is answered only once a majority has it. Method: the active one is killed
    again and again while commands are on their way, and the one before comes back.
    """
    draw = random.Random(3)

    async def scenario(cluster):
        done = []

        async def create(number):
            await turns(cluster, draw.randrange(20))
            await cluster.create_topic(f"topic-{number}", replication_factor=1)
            done.append(f"topic-{number}")

        for number in range(8):
            tasks = [asyncio.ensure_future(create(number * 10 + extra)) for extra in range(4)]
            await turns(cluster, draw.randrange(20))
            await led_again(cluster)
            victim = cluster.active_controller
            cluster.kill(victim)
            await asyncio.gather(*tasks)
            await cluster.restart(victim)
        assert set(done) == set(cluster.topics())
        assert len(done) == 32

    run(scenario, controllers=3, quorum=QuorumOptions(fetch_timeout_ms=500, fetch_wait_max_ms=100))
