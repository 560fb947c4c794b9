"""Reads and writes that are called off: a timeout, a `break`, a fork."""

from __future__ import annotations

import asyncio
import os

import pytest

import replog
from replog.errors import RequestTimedOutError, UsageError


def run(scenario, **options) -> None:
    async def main():
        async with replog.LocalCluster(3, **options) as cluster:
            await cluster.create_topic("orders", assignment=[(1, 2, 3)])
            await scenario(cluster)

    asyncio.run(asyncio.wait_for(main(), 60))


async def produced(cluster, *texts):
    for text in texts:
        await cluster.produce("orders", [text])


async def values(cluster) -> list[bytes]:
    return [record.value async for record in cluster.consume("orders", end="latest")]


def test_a_record_that_is_acknowledged_behind_a_given_up_one_is_in_the_log_once():
    """Both are on the next leader already; only their acknowledgement is held back."""

    async def scenario(cluster):
        producer = cluster.producer(delivery_timeout_ms=1000)
        await producer.produce("orders", [b"0"])
        cluster.pause(3)
        first = producer.send("orders", [b"1"])
        await cluster.until(
            lambda now: now.replica(2, "orders").log_end_offset == 2, "broker 2 to have it"
        )
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(first), 0.7)
        second = producer.send("orders", [b"2"])
        with pytest.raises(RequestTimedOutError):
            await first
        cluster.kill(1)
        cluster.resume(3)
        outcome = (await asyncio.gather(second, return_exceptions=True))[0]
        await cluster.until(lambda now: now.leader("orders") not in (None, 1), "a leader")
        await producer.produce("orders", [b"3"])
        found = await values(cluster)
        assert found.count(b"2") == 1 or (
            b"2" not in found and isinstance(outcome, RequestTimedOutError)
        )
        assert found.count(b"3") == 1
        producer.close()

    run(scenario)


def test_flush_waits_for_what_nobody_waits_for_any_more():
    async def scenario(cluster):
        async with cluster.producer() as producer:
            await producer.produce("orders", [b"0"])
            cluster.pause(1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.produce("orders", [b"1"]), 0.1)
            flushing = asyncio.ensure_future(producer.flush())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(flushing), 0.1)
            cluster.resume(1)
            await asyncio.wait_for(flushing, 20)
        assert await values(cluster) == [b"0", b"1"]

    run(scenario)


def test_a_consumer_whose_read_timed_out_goes_on():
    async def scenario(cluster):
        reader = aiter(cluster.consume("orders"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(reader), 0.1)
        await produced(cluster, b"0", b"1")
        assert (await anext(reader)).value == b"0"
        assert (await anext(reader)).value == b"1"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(reader), 0.1)
        await produced(cluster, b"2")
        assert (await anext(reader)).value == b"2"

    run(scenario)


def test_the_position_is_behind_the_record_that_was_handed_out_last():
    async def scenario(cluster):
        await cluster.produce("orders", [b"0", b"1", b"2"])
        await produced(cluster, b"3")
        reader = cluster.consume("orders", end="latest")
        assert reader.position is None
        async for record in reader:
            assert reader.position == record.offset + 1
            break
        assert [record.offset async for record in reader] == [1, 2, 3]
        assert reader.position == 4
        assert [record.offset async for record in reader] == []
        reader.position = 2
        assert (await anext(reader)).offset == 2
        reader.position = 1
        assert (await anext(reader)).offset == 1
        rest = await reader.next_slice()
        assert rest.start_offset == 2
        assert reader.position == rest.end_offset

    run(scenario)


def test_the_blocking_face_goes_on_after_a_break_too():
    with replog.LocalCluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", [b"0", b"1", b"2"])
        reader = cluster.consume("orders", end="latest")
        for record in reader:
            assert (record.offset, reader.position) == (0, 1)
            break
        assert [record.offset for record in reader] == [1, 2]
        assert reader.position == 3


def test_a_forked_child_is_told_so_and_takes_nothing_of_its_parents(tmp_path):
    with replog.LocalCluster(1, directory=tmp_path) as cluster:
        cluster.create_topic("orders")
        child = os.fork()
        if child == 0:
            outcome = 1
            try:
                cluster.produce("orders", [b"from the child"])
            except UsageError as error:
                outcome = 0 if "forked" in str(error) else 2
            finally:
                cluster.close()
                os._exit(outcome)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        cluster.produce("orders", [b"0"])
        assert [record.value for record in cluster.consume("orders", end="latest")] == [b"0"]
