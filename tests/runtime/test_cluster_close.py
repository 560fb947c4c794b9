"""What waits when a cluster is closed: it ends with a sentence, and nothing of it is kept."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

import replog
from replog.errors import ReplicationError, ReplogError

SENTENCE = "expected the cluster to stay open until the call had ended"
# Far below every timeout that would end the calls anyway.
SOON_S = 5


def ended_by_close(start) -> list[BaseException | None]:
    """What became of the calls that `start` makes, once the cluster is closed while they wait."""

    async def main():
        async with replog.LocalCluster(3) as cluster:
            await cluster.create_topic("orders")
            calls = [asyncio.ensure_future(call) for call in await start(cluster)]
            done, _ = await asyncio.wait(calls, timeout=0.05)
            assert not done
        _, waiting = await asyncio.wait(calls, timeout=SOON_S)
        assert not waiting
        return [call.exception() for call in calls]

    return asyncio.run(main())


def check_told(errors) -> None:
    for error in errors:
        assert isinstance(error, ReplicationError)
        assert SENTENCE in str(error)


def test_a_consumer_that_waits_for_records_hears_of_the_close():
    async def start(cluster):
        return [
            cluster.consume("orders").next_slice(),
            cluster.consume("orders", start="latest", wait_ms_max=20_000).next_slice(),
        ]

    check_told(ended_by_close(start))


def test_a_consumer_that_waits_for_a_leader_hears_of_the_close():
    async def start(cluster):
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id)
        return [
            cluster.consume("orders").next_slice(),
            cluster.consume("orders", end=5).next_slice(),
        ]

    check_told(ended_by_close(start))


def test_a_consumer_that_is_used_after_the_close_is_refused():
    async def main():
        async with replog.LocalCluster(1) as cluster:
            await cluster.create_topic("orders")
            consumer = cluster.consume("orders")
        with pytest.raises(ReplicationError, match=SENTENCE):
            await asyncio.wait_for(consumer.next_slice(), SOON_S)

    asyncio.run(main())


def test_commands_and_waits_hear_of_the_close():
    async def start(cluster):
        for node_id in cluster.controller_ids:
            cluster.pause(node_id)
        return [
            cluster.create_topic("new"),
            cluster.delete_topic("orders"),
            cluster.until(lambda _: False, "what never is"),
            cluster.leader_after(99, "orders"),
        ]

    check_told(ended_by_close(start))


def test_a_command_that_waits_for_a_controller_hears_of_the_close():
    async def start(cluster):
        for node_id in cluster.controller_ids:
            cluster.kill(node_id)
        return [cluster.create_topic("new")]

    check_told(ended_by_close(start))


def test_a_broker_that_is_being_stopped_ends_with_the_cluster():
    async def start(cluster):
        for node_id in cluster.controller_ids:
            cluster.pause(node_id)
        return [cluster.stop(cluster.leader("orders"))]

    assert ended_by_close(start) == [None]


def test_records_on_their_way_fail_by_the_close():
    async def start(cluster):
        cluster.pause(cluster.leader("orders"))
        return [cluster.produce("orders", [b"a"]), cluster.producer(acks=1).send("orders", [b"b"])]

    for error in ended_by_close(start):
        assert isinstance(error, ReplicationError)


def test_threads_that_wait_hear_of_the_close():
    errors: list[BaseException] = []
    begun = threading.Barrier(4)

    def call(wait):
        begun.wait()
        try:
            wait()
        except BaseException as error:
            errors.append(error)

    with replog.LocalCluster(1) as cluster:
        cluster.create_topic("orders")
        waits = (
            lambda: next(iter(cluster.consume("orders"))),
            lambda: cluster.until(lambda _: False, "what never is"),
            lambda: [cluster.topics() for _ in iter(int, 1)],
        )
        threads = [threading.Thread(target=call, args=(wait,), daemon=True) for wait in waits]
        for thread in threads:
            thread.start()
        begun.wait()
    for thread in threads:
        thread.join(SOON_S)
        assert not thread.is_alive()
    assert len(errors) == len(waits)
    assert all(isinstance(error, ReplogError) for error in errors), errors


def test_producers_that_nobody_holds_are_not_kept():
    """Closed or not; one that sends stays until its records are acknowledged."""

    async def main():
        async with replog.LocalCluster(1) as cluster:
            await cluster.create_topic("orders")
            held = []
            for number in range(20):
                producer = cluster.producer()
                await producer.send("orders", [b"a"])
                if number % 2:
                    producer.close()
                held.append(weakref.ref(producer))
                del producer
            sent = cluster.producer().send("orders", [b"last"])
            gc.collect()
            assert (await sent).base_offset == 20

            def are_gone(_):
                gc.collect()
                return not any(found() for found in held)

            await cluster.until(are_gone, "the producers to be gone", timeout_ms=SOON_S * 1000)

    asyncio.run(main())


def test_a_producer_that_is_held_is_closed_with_the_cluster():
    async def main():
        async with replog.LocalCluster(1) as cluster:
            await cluster.create_topic("orders")
            producer = cluster.producer()
        with pytest.raises(ReplogError, match="closed"):
            producer.send("orders", [b"a"])

    asyncio.run(main())
