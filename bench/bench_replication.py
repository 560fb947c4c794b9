"""Replication in one process: against what the same bytes cost with bare system calls.

One cluster per benchmark, on a loop of the module's own; topics are new in every round, so that
files grow as the floor's do.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import pytest

import replog
from bench import workload
from bench.floors_build import ROOT, TARGET
from bench.pairs import TINY, measure, sized, timed
from bench.soak import pass_time

BROKERS = 3
IN_FLIGHT = 16


class Driver:
    """A cluster, and a loop to drive it from plain code."""

    def __init__(self, directory, brokers=BROKERS):
        self.runner = asyncio.Runner()
        self.cluster = replog.LocalCluster(brokers, directory=directory)
        self.topics = 0
        self.run(self.cluster.start())

    def run(self, coroutine):
        return self.runner.run(coroutine)

    def new_topic(self, partitions=1, **options):
        """A topic's name; the one before is deleted first."""
        if self.topics:
            self.run(self.cluster.delete_topic(f"topic-{self.topics}"))
            self.run(self.unlink())
        self.topics += 1
        topic = f"topic-{self.topics}"
        self.run(self.cluster.create_topic(topic, partitions, **options))
        return topic

    async def unlink(self):
        """Give the space back before the next round, not some seconds into it."""
        members = self.cluster._running().members
        for broker_id in self.cluster.broker_ids:
            await self.cluster.until(
                lambda now, one=broker_id: (
                    members.node(one).session.version == now._running().view.version
                ),
                "every broker to have heard of it",
            )
            members.node(broker_id).store.directory.remove_deleted()

    def close(self):
        self.run(self.cluster.close())
        self.runner.close()


@pytest.fixture
def driver(folder):
    place = folder / "cluster"
    driver = Driver(place)
    yield driver
    driver.close()
    shutil.rmtree(place)


async def produce_pipelined(cluster, topic, values, batches, partitions=1):
    """Send `batches` batches by turns, `IN_FLIGHT` at most under way; the last offsets."""
    producer = cluster.producer()
    waiting = []
    ends = 0
    for number in range(batches):
        waiting.append(producer.send(topic, values, partition=number % partitions))
        if len(waiting) >= IN_FLIGHT:
            half = IN_FLIGHT // 2
            ends += sum([(await future).last_offset for future in waiting[:half]])
            del waiting[:half]
    ends += sum([(await future).last_offset for future in waiting])
    producer.close()
    return ends


def replicate(benchmark, driver, floors, folder, bar, record_bytes, records, batches, partitions):
    values = workload.arrow_values(records, record_bytes)
    batch = workload.ready_batch(records, record_bytes)

    def ours():
        topic = driver.new_topic(partitions)
        work = produce_pipelined(driver.cluster, topic, values, batches, partitions)
        return timed(lambda: driver.run(work))

    def theirs():
        return sum(
            floors.pwrite_growing(str(folder / f"floor-{copy}"), batch, batches)
            for copy in range(BROKERS)
        ), None

    measure(benchmark, bar, ">= 0.40", ours, theirs, share=True)
    rate = batches * records / benchmark.extra_info["ours_s"]
    print(f"\n{bar}: {rate:,.0f} records/s, {rate * record_bytes / 1e6:,.0f} MB/s of values")


def test_replicate_100(benchmark, driver, floors, folder):
    replicate(benchmark, driver, floors, folder, "replicate_100", 100, 1000, sized(1000, 4), 1)


def test_replicate_1k(benchmark, driver, floors, folder):
    replicate(benchmark, driver, floors, folder, "replicate_1k", 1024, 100, sized(1000, 12), 6)


def test_closed_loop(benchmark, driver, folder):
    count = sized(2000, 10)
    value = list(workload.values(1, 100))
    batch = workload.ready_batch(1, 100)
    fds = [os.open(folder / f"ping-{copy}", os.O_CREAT | os.O_RDWR, 0o644) for copy in range(3)]

    async def produce_one_by_one(topic):
        produce = driver.cluster.produce
        times = []
        for _ in range(count):
            began = time.perf_counter()
            await produce(topic, value)
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    async def ping_pong():
        loop = asyncio.get_running_loop()
        ping, pong = loop.create_future(), loop.create_future()
        times = []

        async def other():
            nonlocal ping, pong
            for number in range(count):
                await ping
                ping = loop.create_future()
                for fd in fds:
                    os.pwrite(fd, batch, number * len(batch))
                pong.set_result(None)

        task = asyncio.create_task(other())
        for _ in range(count):
            began = time.perf_counter()
            ping.set_result(None)
            await pong
            pong = loop.create_future()
            times.append(time.perf_counter() - began)
        await task
        return statistics.median(times)

    def ours():
        return driver.run(produce_one_by_one(driver.new_topic())), None

    def theirs():
        for fd in fds:
            os.ftruncate(fd, 0)
        return driver.run(ping_pong()), None

    measure(benchmark, "closed_loop", "<= 12", ours, theirs, share=False)
    for fd in fds:
        os.close(fd)


def test_catch_up(benchmark, driver, floors, folder):
    cluster = driver.cluster
    size = sized(2**30, 2**20)
    values = workload.arrow_values(1000, 100)
    config = replog.LogConfig(segment_bytes=2**31 - 1)
    topic = driver.new_topic(assignment=[(1, 2, 3)], config=config)
    cluster.kill(3)
    driver.run(produce_pipelined(cluster, topic, values, size // 106_000 + 1))
    behind = cluster.partition_directory(3, topic)
    segment = os.path.join(cluster.partition_directory(1, topic), f"{0:020}.log")
    wanted = cluster.replica(1, topic).log_end_offset

    async def catch_up():
        await cluster.restart(3)
        await cluster.in_sync(topic)

    def ours():
        shutil.rmtree(behind)
        seconds, _ = timed(lambda: driver.run(catch_up()))
        assert cluster.replica(3, topic).log_end_offset == wanted
        cluster.kill(3)
        driver.run(cluster.until(lambda now: 3 not in now.isr(topic), "the dead to be out"))
        return seconds, os.path.getsize(os.path.join(behind, f"{0:020}.log"))

    def theirs():
        return floors.copy_by_pread(segment, str(folder / "copy"))

    measure(benchmark, "catch_up", ">= 0.5", ours, theirs, share=True, pairs=5 if not TINY else 1)


READY = """
import asyncio, json, sys, time
import replog
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
imported = anonymous()
began = time.perf_counter()
async def main():
    async with replog.LocalCluster(3, directory=sys.argv[1]) as cluster:
        await cluster.create_topic("orders")
        await cluster.produce("orders", [b"first"])
        seconds = time.perf_counter() - began
        print(json.dumps([seconds, (anonymous() - imported) / 1024]))
asyncio.run(main())
"""


def in_fresh_process(folder):
    """Seconds until the first acknowledged record, and the megabytes that a cluster adds.

    With compiled modules, as pip leaves them, whatever the environment says: without them two
    thirds of the processor time would be the compiler's. The first process makes them.
    """
    place = folder / "fresh-cluster"
    shutil.rmtree(place, ignore_errors=True)
    compiled = {
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(TARGET / "compiled-modules"),
    }
    outcome = subprocess.run(
        [sys.executable, "-c", READY, str(place)],
        capture_output=True, check=True,
        env={**os.environ, **compiled, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return json.loads(outcome.stdout)


def test_cluster_ready(benchmark, folder):
    """The other side is one second, so that the ratio is in seconds."""
    measure(
        benchmark, "cluster_ready_s", "<= 0.5", lambda: (in_fresh_process(folder)[0], None),
        lambda: (1.0, None), share=False,
    )  # fmt: skip


def test_cluster_memory(benchmark, folder):
    """RssAnon of an idle cluster beyond `import replog`; a megabyte is called a second."""
    measure(
        benchmark, "cluster_rss_mb", "<= 150", lambda: (in_fresh_process(folder)[1], None),
        lambda: (1.0, None), share=False, pairs=3,
    )  # fmt: skip


def test_many_partitions(benchmark, driver):
    """The same topics in every round: it is not the making of files that is measured."""
    cluster, partitions = driver.cluster, sized(1000, 3)
    batches = sized(2000, 6)
    values = workload.arrow_values(1000, 100)
    driver.run(cluster.create_topic("many", partitions))
    driver.run(cluster.create_topic("one"))

    def side(topic, count):
        work = produce_pipelined(cluster, topic, values, batches, count)
        return timed(lambda: driver.run(work))[0], None

    side("many", partitions)
    measure(
        benchmark, "many_partitions", ">= 0.5", lambda: side("many", partitions),
        lambda: side("one", 1), share=True, pairs=5,
    )  # fmt: skip
    seconds = sized(5, 0.1)
    began = time.process_time()
    driver.run(pass_time(seconds))
    share = (time.process_time() - began) / seconds
    benchmark.extra_info["idle_share"] = share
    print(f"\nidle with {partitions:,} partitions: {share:.1%} of a core (at most 5 %)")
