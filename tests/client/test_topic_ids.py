"""A topic that is deleted and created again under its name, while brokers hear nothing of it."""

from __future__ import annotations

import asyncio

import pytest

import replog
from replog.errors import UnknownTopicIdError
from replog.messages import ErrorCode
from replog.replication.incidents import ProduceRefused

SLOW = replog.ControllerOptions(broker_session_timeout_ms=6000, broker_heartbeat_interval_ms=500)
"""Who is cut off stays registered, and leads by its own clock, until the test is over."""


def run(scenario) -> None:
    async def main():
        async with replog.LocalCluster(3, controller=SLOW) as cluster:
            await create(cluster)
            await scenario(cluster)

    asyncio.run(asyncio.wait_for(main(), 60))


async def create(cluster) -> None:
    """Each time with the leader that it had before, in the same leader epoch."""
    await cluster.create_topic("orders", assignment=[(1, 2, 3)], min_insync_replicas=2)


async def begin_to_recreate(cluster) -> asyncio.Future[None]:
    """Done once the brokers have obeyed; the new topic is registered when this returns."""
    before = cluster.registration("orders").topic_id
    await cluster.delete_topic("orders")
    creation = asyncio.ensure_future(create(cluster))
    await cluster.until(
        lambda now: now.topics() and now.registration("orders").topic_id != before, "a new topic"
    )
    return creation


async def values(cluster) -> list[bytes]:
    return [record.value async for record in cluster.consume("orders", end="latest")]


def is_refused(cluster) -> bool:
    """Whether the leader was asked to append to the topic that it has not heard of."""
    return any(
        isinstance(entry.incident, ProduceRefused)
        and entry.incident.error is ErrorCode.UNKNOWN_TOPIC_ID
        for entry in cluster.incidents()
    )


@pytest.mark.parametrize("cut_off", [(1,), (1, 2, 3)])
def test_nothing_of_a_deleted_topic_is_served_nor_acknowledged_into_its_log(cut_off):
    """Goal: what is acknowledged to the new topic stays, and its readers see nothing of the old
    one, though leader 1 in epoch 0 fits both, and has heard of neither deletion nor creation."""

    async def scenario(cluster):
        await cluster.produce("orders", [b"old"] * 10)
        for broker_id in cut_off:
            cluster.partition(broker_id, "controller")
        creation = await begin_to_recreate(cluster)
        reading = asyncio.ensure_future(values(cluster))
        produced = asyncio.ensure_future(cluster.produce("orders", [b"new"]))
        await cluster.until(lambda now: is_refused(now) or produced.done(), "an answer")
        assert not produced.done()
        assert not reading.done()
        cluster.heal()
        await creation
        assert (await produced).base_offset == 0
        assert await reading in ([], [b"new"])
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"new"]

    run(scenario)


@pytest.mark.parametrize("idempotent", [True, False])
def test_unsettled_records_of_a_deleted_topic_fail_and_are_not_in_the_new_one(idempotent):
    """Goal: nobody has asked to have them there. What the producer sends next goes there."""

    async def scenario(cluster):
        producer = cluster.producer(idempotent=idempotent)
        await producer.produce("orders", [b"first"])
        cluster.pause(1)
        unsettled = [producer.send("orders", [b"old"]) for _ in range(8)]
        creation = await begin_to_recreate(cluster)
        for outcome in await asyncio.gather(*unsettled, return_exceptions=True):
            if idempotent:
                assert isinstance(outcome, UnknownTopicIdError)
                assert not outcome.retriable
            assert "send them again" in str(outcome)
        later = producer.send("orders", [b"new"])
        cluster.resume(1)
        await creation
        assert (await later).base_offset == 0
        assert await values(cluster) == [b"new"]
        producer.close()

    run(scenario)


def test_an_idle_producer_goes_on_with_the_new_topic():
    """Its sequence numbers began in the deleted one: with a gap before them they are refused."""

    async def scenario(cluster):
        producer = cluster.producer()
        await producer.produce("orders", [b"old"] * 3)
        await (await begin_to_recreate(cluster))
        assert (await producer.produce("orders", [b"new"])).base_offset == 0
        producer.close()

    run(scenario)


def test_a_consumer_of_a_deleted_topic_is_told_so_and_reads_nothing_of_the_new_one():
    """Goal: at its position the new topic has other records. Also where it waits for more."""

    async def scenario(cluster):
        await cluster.produce("orders", [b"old"] * 2)
        consumer = cluster.consume("orders")
        assert [(await anext(consumer)).value for _ in range(2)] == [b"old"] * 2
        waiting = asyncio.ensure_future(anext(consumer))
        await (await begin_to_recreate(cluster))
        await cluster.produce("orders", [b"new"] * 5)
        with pytest.raises(UnknownTopicIdError, match="open another consumer"):
            await waiting
        consumer.position = 0
        with pytest.raises(UnknownTopicIdError):
            await anext(consumer)
        assert await values(cluster) == [b"new"] * 5

    run(scenario)
