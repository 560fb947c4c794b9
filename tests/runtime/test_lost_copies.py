"""Whole clusters that are stopped, robbed of a copy, and opened again (C4, C6).

A broker that comes back with less than it may have had is no copy that may be elected. What others
hold is there afterwards under its offsets, or the partition waits and says for whom.
"""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

import replog
from replog.admin_messages import (
    DescribeLossesRequest,
    DescribePartitionsRequest,
    ElectionKind,
    ElectLeadersRequest,
)
from replog.config import ControllerOptions
from replog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
ROWS = [b"row %d" % number for number in range(100)]
QUICK = ControllerOptions(broker_session_timeout_ms=2000, broker_heartbeat_interval_ms=200)


def cluster_in(path) -> replog.LocalCluster:
    return replog.LocalCluster(3, directory=path, controller=QUICK)


def play(path, *scenes) -> None:
    """Each scene in a cluster of its own over the same directory; plain calls in between."""

    async def played(scene) -> None:
        async with cluster_in(path) as cluster:
            await scene(cluster)

    for scene in scenes:
        if asyncio.iscoroutinefunction(scene):
            asyncio.run(asyncio.wait_for(played(scene), 60))
        else:
            scene()


async def create_and_fill(cluster, **options) -> None:
    await cluster.create_topic("orders", assignment=[(1, 2, 3)], **options)
    await cluster.in_sync("orders")
    produced = await cluster.produce("orders", ROWS)
    assert produced.base_offset == 0


async def values_of(cluster) -> list[bytes]:
    return [record.value async for record in cluster.consume("orders", end="latest")]


async def check_whole(cluster, rows=ROWS) -> None:
    """All records are there, under their offsets, on every replica in the end."""
    await cluster.until(lambda _: cluster.leader("orders") is not None, "a leader")
    assert await values_of(cluster) == rows
    produced = await cluster.produce("orders", [b"behind"])
    assert produced.base_offset == len(rows)
    await cluster.in_sync("orders")
    ends = {broker: cluster.replica(broker, "orders").log_end_offset for broker in (1, 2, 3)}
    assert set(ends.values()) == {len(rows) + 1}
    told = await cluster.admin(DescribeLossesRequest())
    assert told.elections == ()


async def waiting_sentence(cluster) -> str:
    """What the partition waits for; nothing of it is led or cut."""
    (status,) = (await cluster.admin(DescribePartitionsRequest(partitions=(ORDERS,)))).partitions
    assert status.leader_id is None
    return status.message


async def settled(cluster) -> None:
    """Every broker has said all that it has to say: two rounds of heartbeats."""
    loop = asyncio.get_running_loop()
    until = loop.time() + 3 * QUICK.broker_heartbeat_interval_ms / 1000
    await cluster.until(lambda _: loop.time() > until, "heartbeats")


def remove(*parts):
    def removed() -> None:
        shutil.rmtree(os.path.join(*parts))

    return removed


def wipe(directory) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


@pytest.mark.parametrize("broker_id", [1, 2, 3])
@pytest.mark.parametrize("what", ["", "orders-0"])
def test_a_directory_that_is_gone_after_a_clean_close_costs_nothing(tmp_path, broker_id, what):
    play(
        tmp_path,
        create_and_fill,
        remove(tmp_path, f"broker-{broker_id}", what),
        check_whole,
    )


@pytest.mark.parametrize("gone", [(1, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("what", ["", "orders-0"])
def test_one_copy_that_was_stopped_cleanly_is_enough(tmp_path, gone, what):
    play(
        tmp_path,
        create_and_fill,
        *(remove(tmp_path, f"broker-{broker_id}", what) for broker_id in gone),
        check_whole,
    )


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_an_older_copy_of_a_directory_costs_nothing(tmp_path, broker_id):
    path, copy = tmp_path / "cluster", tmp_path / "copy"

    async def create_half(cluster) -> None:
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        await cluster.produce("orders", ROWS[:50])
        await cluster.in_sync("orders")

    async def fill(cluster) -> None:
        await cluster.in_sync("orders")
        await cluster.produce("orders", ROWS[50:])

    def copy_it() -> None:
        shutil.copytree(path / f"broker-{broker_id}", copy)

    def put_it_back() -> None:
        shutil.rmtree(path / f"broker-{broker_id}")
        shutil.copytree(copy, path / f"broker-{broker_id}")

    play(path, create_half, copy_it, fill, put_it_back, check_whole)


def test_two_complete_copies_lead_beside_one_that_was_emptied_by_hand(tmp_path):
    def empty() -> None:
        directory = tmp_path / "broker-1" / "orders-0"
        for name in os.listdir(directory):
            os.remove(directory / name)

    play(tmp_path, create_and_fill, empty, check_whole)


async def stop_each(cluster) -> None:
    for broker_id in (1, 2, 3):
        await cluster.stop(broker_id)


@pytest.mark.parametrize("what", ["", "orders-0"])
def test_after_stopping_each_broker_others_than_the_last_may_lose_theirs(tmp_path, what):
    async def fill_and_stop(cluster) -> None:
        await create_and_fill(cluster)
        await stop_each(cluster)

    play(
        tmp_path,
        fill_and_stop,
        remove(tmp_path, "broker-1", what),
        remove(tmp_path, "broker-2", what),
        check_whole,
    )


@pytest.mark.parametrize("what", ["", "orders-0"])
def test_after_stopping_each_broker_the_last_is_waited_for(tmp_path, what):
    """Alone in sync in the end, it may have acknowledged what nobody else has."""
    path, kept = tmp_path / "cluster", tmp_path / "kept"

    async def fill_and_stop(cluster) -> None:
        await create_and_fill(cluster)
        await cluster.stop(1)
        await cluster.stop(2)
        await cluster.produce("orders", [b"of the last"])
        await cluster.stop(3)

    def take_away() -> None:
        os.rename(path / "broker-3" / what, kept)

    async def check_waits(cluster) -> None:
        await settled(cluster)
        sentence = await waiting_sentence(cluster)
        assert "broker 3 is back without the log" in sentence, sentence
        assert [cluster.replica(one, "orders").log_end_offset for one in (1, 2)] == [100, 100]

    def bring_back() -> None:
        shutil.rmtree(path / "broker-3" / what, ignore_errors=True)
        os.rename(kept, path / "broker-3" / what)

    async def check(cluster) -> None:
        await check_whole(cluster, [*ROWS, b"of the last"])

    # Twice: what was begun in its place does not come to be taken for it.
    play(path, fill_and_stop, take_away, check_waits, check_waits, bring_back, check)


def test_an_older_copy_of_the_last_one_is_not_the_one_that_is_waited_for(tmp_path):
    path, copy, kept = tmp_path / "cluster", tmp_path / "copy", tmp_path / "kept"

    def copy_it() -> None:
        shutil.copytree(path / "broker-3", copy)

    async def fill_more_and_stop(cluster) -> None:
        await cluster.in_sync("orders")
        await cluster.stop(1)
        await cluster.stop(2)
        await cluster.produce("orders", [b"of the last"])
        await cluster.stop(3)

    def put_back_the_older() -> None:
        os.rename(path / "broker-3", kept)
        shutil.copytree(copy, path / "broker-3")

    async def check_waits(cluster) -> None:
        await settled(cluster)
        assert "broker 3 is back without the log" in await waiting_sentence(cluster)

    def put_back_the_last() -> None:
        shutil.rmtree(path / "broker-3")
        os.rename(kept, path / "broker-3")

    async def check(cluster) -> None:
        await check_whole(cluster, [*ROWS, b"of the last"])

    play(
        path,
        create_and_fill,
        copy_it,
        fill_more_and_stop,
        put_back_the_older,
        check_waits,
        put_back_the_last,
        check,
    )


@pytest.mark.parametrize("by_command", [False, True])
def test_what_an_unclean_election_loses_then_is_told(tmp_path, by_command):
    async def fill_and_lose(cluster) -> None:
        await create_and_fill(cluster, unclean_leader_election=not by_command)
        await cluster.stop(1)
        await cluster.stop(2)
        await cluster.produce("orders", [b"of the last"])
        cluster.kill(3)
        wipe(tmp_path / "broker-3")
        await cluster.restart(3)
        await cluster.restart(2)
        await cluster.restart(1)
        if by_command:
            await settled(cluster)
            assert cluster.leader("orders") is None
            answer = await cluster.admin(
                ElectLeadersRequest(kind=ElectionKind.UNCLEAN, partitions=(ORDERS,))
            )
            assert not answer.partitions[0].error
        await cluster.in_sync("orders")
        assert await values_of(cluster) == ROWS
        (election,) = (await cluster.admin(DescribeLossesRequest())).elections
        assert election.leader_id in {1, 2}
        assert election.untold == (3,)

    play(tmp_path, fill_and_lose)


def test_the_last_in_sync_broker_that_is_wiped_live_is_waited_for(tmp_path):
    async def scenario(cluster) -> None:
        await create_and_fill(cluster)
        cluster.kill(1)
        cluster.kill(2)
        await cluster.in_sync("orders", replicas=[3])
        await cluster.until(lambda _: cluster.isr("orders") == (3,), "broker 3 alone")
        await cluster.produce("orders", [b"of the last"])
        cluster.kill(3)
        wipe(tmp_path / "broker-3")
        for broker_id in (3, 1, 2):
            await cluster.restart(broker_id)
        await settled(cluster)
        assert "broker 3 is back without the log" in await waiting_sentence(cluster)
        ends = [cluster.replica(one, "orders").log_end_offset for one in (1, 2)]
        assert ends == [100, 100]
        offline = [
            entry.incident
            for entry in cluster.incidents("orders")
            if type(entry.incident).__name__ == "PartitionOffline"
        ]
        assert offline

    play(tmp_path, scenario)


def test_all_brokers_that_are_killed_at_once_carry_on(tmp_path):
    """C1: whoever of them is back first waits for one more, and the longest leads."""

    async def fill_and_kill(cluster) -> None:
        await create_and_fill(cluster)
        for node_id in (*cluster.controller_ids, 1, 2, 3):
            cluster.kill(node_id)

    play(tmp_path, fill_and_kill, check_whole)


@pytest.mark.parametrize("broker_id", [1, 2, 3])
@pytest.mark.parametrize("what", ["", "orders-0"])
def test_a_directory_that_is_gone_after_all_were_killed_costs_nothing(tmp_path, broker_id, what):
    async def fill_and_kill(cluster) -> None:
        await create_and_fill(cluster)
        for node_id in (*cluster.controller_ids, 1, 2, 3):
            cluster.kill(node_id)

    play(
        tmp_path,
        fill_and_kill,
        remove(tmp_path, f"broker-{broker_id}", what),
        check_whole,
    )


def exchange(directory):
    """The partition directories of two topics change their names."""

    def exchanged() -> None:
        os.rename(directory / "orders-0", directory / "other")
        os.rename(directory / "bills-0", directory / "orders-0")
        os.rename(directory / "other", directory / "bills-0")

    return exchanged


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_a_copy_that_lies_in_another_topics_place_costs_nothing(tmp_path, broker_id):
    async def fill(cluster) -> None:
        await create_and_fill(cluster)
        await cluster.create_topic("bills", assignment=[(1, 2, 3)])
        await cluster.produce("bills", [b"bill"])
        await cluster.in_sync("bills")

    play(tmp_path, fill, exchange(tmp_path / f"broker-{broker_id}"), check_whole)
    kept = [name for name in os.listdir(tmp_path / f"broker-{broker_id}") if "-stray" in name]
    assert sorted(name.split(".")[0] for name in kept) == ["bills-0", "orders-0"]


def test_an_only_copy_that_lies_in_another_topics_place_is_waited_for(tmp_path):
    async def fill(cluster) -> None:
        for topic, values in (("orders", ROWS), ("bills", [b"bill"] * 3)):
            await cluster.create_topic(topic, assignment=[(2,)])
            await cluster.produce(topic, values)

    async def waits(cluster) -> None:
        await settled(cluster)
        assert "broker 2" in await waiting_sentence(cluster)
        assert cluster.leader("bills") is None

    async def check(cluster) -> None:
        await cluster.until(lambda now: now.leader("orders") == 2, "the copy")
        assert await values_of(cluster) == ROWS
        assert (await cluster.produce("orders", [b"on"])).base_offset == len(ROWS)
        await cluster.until(lambda now: now.leader("bills") == 2, "the other copy")

    exchanged = exchange(tmp_path / "broker-2")
    play(tmp_path, fill, exchanged, waits, waits, exchanged, check)
