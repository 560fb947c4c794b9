"""A cluster under steady work and now and then a killed leader, for as long as asked: does it grow?

python -m bench.soak --minutes 10      prints RssAnon each half minute, and its growth since minute
two (at most 5 MB in eight minutes).
"""

from __future__ import annotations

import argparse
import asyncio
import time

import replog
from bench import workload

KILL_EVERY_S = 20
WARM_UP_S = 120


def anonymous_mb() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024


async def pass_time(seconds: float) -> None:
    """Let the loop run with nothing of ours to do."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


async def disturb(cluster: replog.LocalCluster, until: float) -> None:
    """Kill the leader and take it back, over and over."""
    while time.monotonic() < until:
        leader_id = cluster.leader("soak")
        epoch = cluster.registration("soak").leader_epoch
        if leader_id is not None:
            cluster.kill(leader_id)
            await cluster.leader_after(epoch, "soak")
            await cluster.restart(leader_id)
            await cluster.in_sync("soak")
        await pass_time(KILL_EVERY_S)


async def produce(cluster: replog.LocalCluster, until: float) -> int:
    values = workload.arrow_values(100, 100)
    records = 0
    while time.monotonic() < until:
        await cluster.produce("soak", values)
        records += 100
        await pass_time(0.002)
    return records


async def consume(cluster: replog.LocalCluster) -> None:
    async for consumed in cluster.consume("soak", start="latest").slices():
        consumed.to_arrow()


async def report(until: float) -> float:
    """The growth since the end of the warm-up, in MB."""
    began = time.monotonic()
    first = None
    while time.monotonic() < until:
        await pass_time(30)
        seconds, now = time.monotonic() - began, anonymous_mb()
        if first is None and seconds >= min(WARM_UP_S, (until - began) / 4):
            first = now
        print(f"{seconds:6.0f} s  RssAnon {now:7.1f} MB", flush=True)
    return anonymous_mb() - (first or 0.0)


async def main(minutes: float) -> None:
    until = time.monotonic() + minutes * 60
    async with replog.LocalCluster(3) as cluster:
        await cluster.create_topic("soak", min_insync_replicas=2)
        reading = asyncio.create_task(consume(cluster))
        records, growth, _ = await asyncio.gather(
            produce(cluster, until), report(until), disturb(cluster, until)
        )
        reading.cancel()
        print(f"{records:,} records, {len(cluster.failovers)} failovers; grew {growth:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    asyncio.run(main(parser.parse_args().minutes))
