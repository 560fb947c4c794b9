"""What users give to a cluster, and from where they call it."""

from __future__ import annotations

import asyncio

import pytest

import replog
from replog.errors import UsageError


def run(scenario, brokers: int = 3) -> None:
    async def main():
        async with replog.LocalCluster(brokers) as cluster:
            await scenario(cluster)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("replication", replog.LogConfig()),
        ("controller", replog.ReplicationOptions()),
        ("quorum", {"election_timeout_ms": 5}),
    ],
)
def test_options_of_another_kind_are_refused_by_name(name, given):
    with pytest.raises(UsageError, match=rf"expected {name} to be a replog\.\w+Options or None"):
        replog.LocalCluster(1, **{name: given})


@pytest.mark.parametrize(
    "options",
    [
        {"min_insync_replicas": 4},
        {"min_insync_replicas": 2, "replication_factor": 1},
        {"min_insync_replicas": 3, "assignment": [(1, 2, 3), (1, 2)]},
    ],
)
def test_a_topic_that_would_refuse_every_acks_all_is_refused(options):
    async def scenario(cluster):
        with pytest.raises(UsageError, match="min_insync_replicas of at most"):
            await cluster.create_topic("orders", **options)
        assert cluster.topics() == ()
        await cluster.create_topic("orders", min_insync_replicas=3, assignment=[(1, 2, 3)])

    run(scenario)


def test_a_call_from_another_loop_is_told_so_and_the_cluster_goes_on():
    async def scenario(cluster):
        await cluster.create_topic("orders")
        producer = cluster.producer()
        consumer = cluster.consume("orders")

        def elsewhere(call) -> None:
            async def ask():
                with pytest.raises(UsageError, match="from the event loop that entered"):
                    await call()

            asyncio.run(asyncio.wait_for(ask(), 10))

        for call in (
            lambda: cluster.produce("orders", [b"lost"]),
            lambda: cluster.create_topic("payments"),
            lambda: producer.send("orders", [b"lost"]),
            consumer.fetch_slice,
            cluster.close,
        ):
            await asyncio.to_thread(elsewhere, call)
        await cluster.produce("orders", [b"kept"])
        consumed = cluster.consume("orders", end="latest")
        assert [record.value async for record in consumed] == [b"kept"]

    run(scenario, 1)
