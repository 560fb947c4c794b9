"""The control plane: topics and leaders by the thousand, and how long nobody decides or leads.

Bars that are no ratio of times (CPU per partition, topics a second, milliseconds of a failover,
records a second) are compared with 1; `failover_1000` is a ratio to small files and small appends
on the same disk in the same run.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import time

import pytest

import replog
from bench import workload
from bench.pairs import TINY, measure, sized
from replog._native.mapped_file import replace_file
from replog.admin_messages import AlterOptionsRequest, CreateTopicsRequest, ResourceKind
from replog.controller.controller import Controller
from replog.controller.metadata_image import MetadataImage
from replog.messages import CreateTopicRequest, ErrorCode
from replog.runtime.memory_transport import controller_address
from replog.runtime.metadata_batches import metadata_batch
from replog.runtime.metadata_state import MetadataReplay
from replog.runtime.quorum_log import QuorumReplicaLog
from replog.types import TopicPartition
from replog.wire.metadata_records import (
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

PAIRS = 1 if TINY else 3
ASSIGNED = ((1, 2, 3), (2, 3, 1), (3, 1, 2))


def cpu_seconds():
    """Of this process, all threads, in user space and in the kernel."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run_cluster(scenario, kept_in=None, **options):
    """Run the scenario in a fresh cluster; what it returns.

    kept_in: where its files go afterwards, to be removed later. Before ext4 gives out an inode it
    looks at each one that was deleted in the last half minute, so that whoever makes files right
    after others were removed pays for that.
    """

    async def main():
        async with replog.LocalCluster(3, **options) as cluster:
            result = await scenario(cluster)
            if kept_in is not None:
                os.rename(cluster.directory, kept_in / f"cluster-{time.perf_counter_ns()}")
            return result

    return asyncio.run(main())


def one():
    """The other side of a bar that is a figure, not a ratio."""
    return 1.0, None


def names_of(topics, partitions):
    return [
        TopicPartition(f"topic-{topic}", partition)
        for topic in range(topics)
        for partition in range(partitions)
    ]


async def create_many(cluster, topics, partitions):
    """Topics by one command; when it was answered, and when every leader served."""
    running = cluster._running()
    requests = tuple(
        CreateTopicRequest(topic=f"topic-{number}", partitions=partitions, replication_factor=3)
        for number in range(topics)
    )
    began = time.perf_counter()
    response = await running.ask_controller(CreateTopicsRequest(topics=requests))
    answered_s = time.perf_counter() - began
    assert all(found.error is ErrorCode.NONE for found in response.topics)
    missing = names_of(topics, partitions)

    def all_serve():
        while missing and running.has_leader(missing[-1]):
            missing.pop()
        return not missing

    await running.until(all_serve, "every leader to serve", 120_000)
    serving_s = time.perf_counter() - began
    stores = [running.members.node(broker_id).store for broker_id in (1, 2, 3)]
    left = [(store, name) for store in stores for name in names_of(topics, partitions)]

    def all_there():
        while left and left[-1][0].get(left[-1][1]) is not None:
            left.pop()
        return not left

    await running.until(all_there, "every log to be there", 120_000)
    return answered_s, serving_s


def test_create_cpu(benchmark, folder):
    topics, partitions = sized(100, 2, 40), sized(50, 3)
    notes = []

    def ours():
        async def scenario(cluster):
            before = cpu_seconds()
            answered_s, serving_s = await create_many(cluster, topics, partitions)
            notes.append((answered_s, serving_s))
            return (cpu_seconds() - before) / (topics * partitions) * 1e6

        return run_cluster(scenario, folder), None

    measure(
        benchmark, "create_cpu_us_per_partition", "<= 1200", ours, one, share=False, pairs=PAIRS
    )
    answered_s, serving_s = (statistics.median(column) for column in zip(*notes, strict=True))
    benchmark.extra_info.update(unit="µs", answered_s=answered_s, serving_s=serving_s)
    print(f"\nanswered after {answered_s:.2f} s, every leader served after {serving_s:.2f} s")


def test_create_topics(benchmark, folder):
    count = sized(300, 5)

    def ours():
        async def scenario(cluster):
            began = time.perf_counter()
            for number in range(count):
                await cluster.create_topic(f"topic-{number}")
            return count / (time.perf_counter() - began)

        return run_cluster(scenario, folder), None

    measure(benchmark, "create_topics_per_s", ">= 200", ours, one, share=False, pairs=PAIRS)
    benchmark.extra_info["unit"] = "topics/s"


async def produce_to_all(cluster, names, batch):
    """One record with acks=all to each partition; returns when all are acknowledged."""
    producer = cluster.producer()
    futures = [producer.send(topic, [batch], partition=number) for topic, number in names]
    for future in futures:
        await future
    producer.close()


def test_failover_of_many(benchmark, folder):
    count = sized(1000, 6, 200)
    batch = workload.ready_batch(1, 100)
    notes = []

    def ours():
        async def scenario(cluster):
            running = cluster._running()
            # Broker 1 leads them all.
            request = CreateTopicRequest(topic="topic-0", assignment=((1, 2, 3),) * count)
            await running.ask_controller(request)
            names = names_of(1, count)
            await running.until(
                lambda: all(map(running.has_leader, names)), "every leader to serve", 120_000
            )
            await produce_to_all(cluster, names, batch)
            sent = count_requests(running.pump.transport)
            cluster.kill(1)  # its connections are reset, which is the detection
            began = time.perf_counter()
            await produce_to_all(cluster, names, batch)
            seconds = time.perf_counter() - began
            notes.append(dict(sent))
            return seconds

        return run_cluster(scenario, folder), None

    def theirs():
        began = time.perf_counter()
        for number in range(count):
            place = str(folder / f"small-{number % 100}")
            replace_file(place, batch)
        fds = [
            os.open(folder / f"append-{n % 100}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            for n in range(100)
        ]
        for number in range(2 * count):
            os.write(fds[number % 100], batch)
        for fd in fds:
            os.close(fd)
        return time.perf_counter() - began, None

    measure(benchmark, "failover_1000", "<= 3", ours, theirs, share=False, pairs=PAIRS)
    benchmark.extra_info["unit"] = "times the floor"
    print(f"\nrequests while {count} leaders changed: {notes[-1]}")


def count_requests(transport):
    """Requests by kind from here on."""
    sent = {}
    request = transport.request

    def counted(sender, receiver, request_id, message, **options):
        kind = type(message).__name__
        sent[kind] = sent.get(kind, 0) + 1
        return request(sender, receiver, request_id, message, **options)

    transport.request = counted
    return sent


def test_failover_detect(benchmark):
    def ours():
        async def scenario(cluster):
            await cluster.create_topic("orders")
            await cluster.produce("orders", [b"before"])
            began = time.perf_counter()
            cluster.kill(cluster.leader("orders"))
            await cluster.produce("orders", [b"after"])
            return (time.perf_counter() - began) * 1e3

        return run_cluster(scenario), None

    measure(benchmark, "failover_detect_ms", "<= 1000", ours, one, share=False, pairs=PAIRS)
    benchmark.extra_info["unit"] = "ms"


def test_leader_change_cost(benchmark):
    """Requests while a broker's leaderships move: 3 brokers, 1,000 topics of 3 partitions."""
    topics, partitions = sized(1000, 2, 100), 3
    notes = []

    def ours():
        async def scenario(cluster):
            running = cluster._running()
            await create_many(cluster, topics, partitions)
            names = names_of(topics, partitions)
            led = sum(cluster.leader(*name) == 1 for name in names)
            sent = count_requests(running.pump.transport)
            began = time.perf_counter()
            cluster.kill(1)
            await running.until(
                lambda: all(map(running.has_leader, names)), "other leaders to serve", 120_000
            )
            seconds = time.perf_counter() - began
            notes.append((led, dict(sent), seconds))
            return sent.get("QuorumFetchRequest", 0) / 2  # by each of the two brokers left

        return run_cluster(scenario), None

    measure(benchmark, "leader_change_fetches", "<= 4", ours, one, share=False, pairs=1)
    led, sent, seconds = notes[-1]
    benchmark.extra_info.update(unit="fetches a broker", requests=str(sent))
    print(f"\n{led} leaderships moved in {seconds:.2f} s by these requests: {sent}")


def test_burst_in_front_of_a_leader_change(benchmark):
    """What 5,000 changes of options that were sent before add to a leader change."""
    count = sized(5000, 20)

    async def change_leader(cluster, burst):
        running = cluster._running()
        leader_id, epoch = cluster.leader("orders"), cluster.registration("orders").leader_epoch
        address = controller_address(cluster.active_controller)
        answers = []
        for number in range(burst):
            request = AlterOptionsRequest(
                kind=ResourceKind.TOPIC, name="orders", options={"retention.ms": str(number + 1)}
            )
            running.clients.ask(address, request, answers.append)
        began = time.perf_counter()
        cluster.kill(leader_id)
        await cluster.leader_after(epoch, "orders")
        seconds = time.perf_counter() - began
        await running.until(lambda: len(answers) == burst, "every command to be answered", 120_000)
        await cluster.restart(leader_id)
        await cluster.in_sync("orders")
        return seconds

    def ours():
        async def scenario(cluster):
            await cluster.create_topic("orders")
            await change_leader(cluster, 0)
            alone = await change_leader(cluster, 0)
            return (await change_leader(cluster, count) - alone) * 1e3

        return run_cluster(scenario), None

    measure(benchmark, "burst_adds_ms", "<= 10", ours, one, share=False, pairs=PAIRS)
    benchmark.extra_info["unit"] = "ms"


def test_controller_failover(benchmark):
    def ours():
        async def scenario(cluster):
            await cluster.create_topic("before")
            began = time.perf_counter()
            cluster.kill(cluster.active_controller)
            await cluster._running().ask_controller(
                CreateTopicRequest(topic="after", replication_factor=3)
            )
            return (time.perf_counter() - began) * 1e3

        return run_cluster(scenario, controllers=3), None

    measure(benchmark, "controller_failover_ms", "<= 1000", ours, one, share=False, pairs=PAIRS)
    benchmark.extra_info["unit"] = "ms"


def cluster_records(topics, partitions):
    """What creates three brokers and these topics, as the controller writes it."""
    for broker_id in (1, 2, 3):
        yield RegisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=False)
    for topic in range(topics):
        topic_id = topic.to_bytes(16, "big")
        yield TopicRecord(name=f"topic-{topic}", topic_id=topic_id)
        for number in range(partitions):
            replicas = ASSIGNED[number % 3]
            yield PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
            )


@pytest.fixture
def metadata_log(folder):
    """A log of all those records in batches, committed, and nothing else."""
    count = sized(1000, 2)
    log = QuorumReplicaLog.open_in(folder / f"metadata-{time.perf_counter_ns()}")
    records = list(cluster_records(count, sized(100, 3)))
    for start in range(0, len(records), 1000):
        log.append_as_leader(metadata_batch(records[start : start + 1000], 1), 1)
    log.set_high_watermark(log.log_end_offset)
    yield log
    log.close(flush=False)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_metadata_replay(benchmark, metadata_log):
    count = metadata_log.log_end_offset
    kept = []

    def ours():
        kept.clear()
        controller = Controller(replog.config.ControllerOptions(), lambda: None)
        kept.append(controller)
        began = time.perf_counter()
        MetadataReplay(metadata_log, controller).reload()
        seconds = time.perf_counter() - began
        assert controller.version == count
        return count / seconds, None

    measure(benchmark, "metadata_replay_per_s", ">= 100000", ours, one, share=False, pairs=PAIRS)
    benchmark.extra_info["unit"] = "records/s"


def test_snapshot_load(benchmark, metadata_log):
    image = MetadataImage(tracks_changes=False)
    MetadataReplay(metadata_log, image).reload()
    partitions = sum(1 for _ in image.partitions())
    for _ in metadata_log.write_snapshot(metadata_log.log_end_offset, image.snapshot_records(), 1):
        pass
    kept = []
    sizes = []

    def ours():
        kept.clear()
        loaded = MetadataImage(tracks_changes=False)
        kept.append(loaded)
        before = resident_bytes()
        began = time.perf_counter()
        MetadataReplay(metadata_log, loaded).reload()
        seconds = time.perf_counter() - began
        sizes.append((resident_bytes() - before) / partitions)
        assert sum(1 for _ in loaded.partitions()) == partitions
        return seconds, None

    measure(benchmark, "snapshot_load_s", "<= 3", ours, one, share=False, pairs=PAIRS)
    size = metadata_log.snapshot_size(metadata_log.latest_snapshot) / partitions
    benchmark.extra_info.update(unit="s", bytes_per_partition=max(sizes))
    print(f"\n{partitions} partitions: {max(sizes):,.0f} B each in memory, {size:.0f} B on disk")
