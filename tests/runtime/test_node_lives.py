"""Nodes that are started, stopped, killed and closed while one of these is under way."""

from __future__ import annotations

import asyncio
import threading

import pytest

import replog
from replog.errors import LogDirectoryLockedError, ReplicationError, UsageError


def run(scenario, brokers: int = 3, **options) -> None:
    async def main():
        async with replog.LocalCluster(brokers, **options) as cluster:
            await scenario(cluster)

    asyncio.run(asyncio.wait_for(main(), 60))


def slow_to_open(cluster, monkeypatch):
    """Nodes that open from now on wait for the second event, and set the first one before."""
    members = cluster._running().members
    opens, begun, may_go_on = members._open, threading.Event(), threading.Event()

    def slowly(node_id):
        begun.set()
        assert may_go_on.wait(30)
        return opens(node_id)

    monkeypatch.setattr(members, "_open", slowly)
    return begun, may_go_on


def test_a_node_whose_recovery_ends_after_the_cluster_has_been_closed_is_let_go(
    tmp_path, monkeypatch
):
    async def main():
        cluster = replog.LocalCluster(3, directory=tmp_path)
        await cluster.start()
        await cluster.create_topic("orders")
        cluster.kill(2)
        begun, may_go_on = slow_to_open(cluster, monkeypatch)
        restarting = asyncio.create_task(cluster.restart(2))
        await asyncio.to_thread(begun.wait, 30)
        with pytest.raises(UsageError, match="found 2 starting"):
            await cluster.restart(2)
        with pytest.raises(UsageError, match="found it starting"):
            cluster.kill(2)
        await cluster.close()
        may_go_on.set()
        with pytest.raises(ReplicationError, match="found it closed"):
            await restarting
        async with replog.LocalCluster(3, directory=tmp_path) as again:
            await again.in_sync("orders")

    asyncio.run(main())


def test_a_restart_that_is_called_off_leaves_the_node_to_the_next_one(monkeypatch):
    async def scenario(cluster):
        await cluster.create_topic("orders")
        cluster.kill(2)
        begun, may_go_on = slow_to_open(cluster, monkeypatch)
        restarting = asyncio.create_task(cluster.restart(2))
        await asyncio.to_thread(begun.wait, 30)
        restarting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await restarting
        may_go_on.set()
        monkeypatch.undo()
        for _ in range(1000):
            try:
                await cluster.restart(2)
                break
            except LogDirectoryLockedError:  # the recovery that was called off holds it still
                await asyncio.to_thread(lambda: None)
        await cluster.in_sync("orders")

    run(scenario)


def test_a_broker_that_is_killed_while_it_stops_lets_the_stop_return():
    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        for controller in cluster.controller_ids:
            cluster.kill(controller)  # nobody takes its leaderships, so it waits
        stopping = asyncio.create_task(cluster.stop(1))
        await asyncio.to_thread(lambda: None)
        assert not stopping.done()
        cluster.kill(1)
        await asyncio.wait_for(stopping, 5)
        with pytest.raises(UsageError, match="found it killed"):
            cluster.kill(1)

    run(scenario)
