"""Nodes that are started, stopped, killed and closed while one of these is under way."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading

import pytest

import replog
from replog.errors import LogFailedError, ReplicationError, RequestTimedOutError, UsageError
from replog.runtime.cluster_members import MemberState


def run(scenario, brokers: int = 3, **options) -> None:
    async def main():
        async with replog.LocalCluster(brokers, **options) as cluster:
            await scenario(cluster)

    asyncio.run(asyncio.wait_for(main(), 60))


async def settle() -> None:
    """Let everything go on that can."""
    for _ in range(20):
        await asyncio.to_thread(lambda: None)


async def without_controllers(cluster, call):
    """`call` as a task that waits for a controller, since none runs; to be started again."""
    for controller in cluster.controller_ids:
        cluster.kill(controller)
    calling = asyncio.create_task(call)
    await settle()
    assert not calling.done()
    return calling


def slow_to_open(cluster, monkeypatch):
    """Nodes that open from now on wait for the second event, and set the first one before."""
    files = cluster._running().members.files
    opens, begun, may_go_on = files._open_node, threading.Event(), threading.Event()

    def slowly(node_id):
        begun.set()
        assert may_go_on.wait(30)
        return opens(node_id)

    monkeypatch.setattr(files, "_open_node", slowly)
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
        closing = asyncio.create_task(cluster.close())
        await settle()
        assert not closing.done()
        may_go_on.set()
        await closing
        # Nobody holds the files any more, and who still waits is told.
        async with replog.LocalCluster(3, directory=tmp_path) as again:
            await again.in_sync("orders")
        with pytest.raises(ReplicationError, match="found it closed"):
            await restarting

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
        again = asyncio.create_task(cluster.restart(2))
        await settle()
        may_go_on.set()
        await again
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


def test_a_stop_that_is_called_off_goes_on_and_every_verb_works_afterwards():
    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        await cluster.produce("orders", [b"before"])
        stopping = await without_controllers(cluster, cluster.stop(1))
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        again = asyncio.create_task(cluster.stop(1))
        for controller in cluster.controller_ids:
            await cluster.restart(controller)
        await again
        with pytest.raises(UsageError, match="found 1 stopped"):
            cluster.replica(1, "orders")
        await cluster.restart(1)
        await cluster.in_sync("orders")
        cluster.pause(1)
        cluster.resume(1)
        await cluster.produce("orders", [b"behind"])
        await cluster.stop(1)
        await cluster.restart(1)
        cluster.kill(1)
        await cluster.restart(1)
        await cluster.in_sync("orders")

    run(scenario)


def test_a_stop_that_takes_too_long_is_told_and_goes_on(monkeypatch):
    monkeypatch.setattr("replog.runtime.cluster_members.STOP_TIMEOUT_MS", 20)

    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        for controller in cluster.controller_ids:
            cluster.kill(controller)
        with pytest.raises(RequestTimedOutError, match="it stops as soon as one does"):
            await cluster.stop(1)
        monkeypatch.undo()
        with pytest.raises(UsageError, match="found 1 stopping"):
            await cluster.restart(1)
        for controller in cluster.controller_ids:
            await cluster.restart(controller)
        states = cluster._running().members.states
        await cluster.until(lambda _: states[1] is MemberState.STOPPED, "the end of the stop")
        await cluster.restart(1)
        await cluster.in_sync("orders")

    run(scenario)


def test_a_stop_whose_close_fails_leaves_a_node_that_can_be_started_again(monkeypatch):
    async def scenario(cluster):
        await cluster.create_topic("orders")
        await cluster.produce("orders", [b"before"])
        store = cluster._running().members.node(2).store

        def close(broker_epoch):
            store.abandon()
            raise LogFailedError("expected a disk that works, found none")

        monkeypatch.setattr(store, "close", close)
        with pytest.raises(LogFailedError):
            await cluster.stop(2)
        await cluster.restart(2)
        await cluster.in_sync("orders")

    run(scenario)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_close_with_a_restart_under_way_leaves_no_file(tmp_path, monkeypatch, cancelled):
    """In the temporary folder, and of whoever is told what by then."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main():
        cluster = replog.LocalCluster(3)
        await cluster.start()
        await cluster.create_topic("orders")
        await cluster.produce("orders", [b"before"])
        cluster.kill(2)
        begun, may_go_on = slow_to_open(cluster, monkeypatch)
        restarting = asyncio.create_task(cluster.restart(2))
        await asyncio.to_thread(begun.wait, 30)
        closing = asyncio.create_task(cluster.close())
        await settle()
        # The loop may stand still once the close is called off: let a thread say go.
        threading.Timer(0.05, may_go_on.set).start()
        if cancelled:
            closing.cancel()
        outcomes = await asyncio.gather(closing, restarting, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError if cancelled else type(None))
        assert isinstance(outcomes[1], ReplicationError)
        assert "found it closed" in str(outcomes[1])
        assert os.listdir(tmp_path) == []
        await cluster.start()  # every verb works
        await cluster.create_topic("orders")
        await cluster.close()
        assert os.listdir(tmp_path) == []

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_broker_whose_close_fails_does_not_keep_the_others_open(tmp_path, monkeypatch):
    async def main():
        cluster = replog.LocalCluster(3, directory=tmp_path)
        await cluster.start()
        await cluster.create_topic("orders")
        store = cluster._running().members.node(1).store

        def close(broker_epoch):
            store.abandon()
            raise LogFailedError("expected a disk that works, found none")

        monkeypatch.setattr(store, "close", close)
        with pytest.raises(LogFailedError):
            await cluster.close()
        async with replog.LocalCluster(3, directory=tmp_path) as again:
            await again.in_sync("orders")

    asyncio.run(asyncio.wait_for(main(), 60))
