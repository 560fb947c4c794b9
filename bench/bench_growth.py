"""How the engine's costs grow: with segments, epochs, producers, transactions, logs of a directory.

What Kafka 4.2 accepts, for comparison, stands beside each bar: its rolls and truncations do not
depend on the number of segments, offset-by-time and retention walk all of them, each new epoch
rewrites the epoch file, and a directory's checkpoint is written once per interval for all logs.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import threading

import pytest

import replog
from bench import workload
from bench.floors_build import ROOT
from bench.growth import cost_of, publish_figure, publish_growth, sizes, spent
from bench.pairs import sized, timed
from replog._native import record_encoder
from replog.errors import StorageError
from replog.storage.partition_log import PartitionLog

NOW_MS = 1_800_000_000_000
OPERATIONS = sized(50, 2)
MANY = replog.LogConfig(segment_bytes=4096, file_delete_delay_ms=0)


def one_record(now_ms=NOW_MS, **producer):
    return record_encoder.encode([b"x" * 50], timestamps=now_ms, now_ms=now_ms, **producer)


@pytest.fixture
def many(folder):
    """A log, and what gives it segments of one record each, a millisecond apart."""
    path = folder / "grown-0"
    with PartitionLog.open(path, MANY, now_ms=lambda: NOW_MS) as log:

        def grow(count):
            while len(log.segments) < count:
                log.append_as_leader(one_record(NOW_MS + log.log_end_offset), 0)
                log.roll()
            log.flush()

        yield log, grow
    shutil.rmtree(path)


def test_growth_roll(benchmark, many):
    log, grow = many

    def roll():
        for _ in range(OPERATIONS):
            log.append_as_leader(one_record(), 0)
            log.roll()

    def costs():
        for size in sizes(100, 1000, 10_000):
            grow(size)
            yield cost_of(size, roll, OPERATIONS)

    publish_growth(benchmark, "growth_roll", "<= 0.2", costs(), "Kafka: a skip list of segments")


def test_growth_truncate(benchmark, many):
    log, grow = many

    def truncate():
        for _ in range(OPERATIONS):
            end_offset = log.log_end_offset
            log.append_as_leader(one_record(), 0)
            log.roll()
            log.append_as_leader(one_record(), 0)
            log.truncate_to(end_offset)

    def costs():
        for size in sizes(100, 1000, 10_000):
            grow(size)
            yield cost_of(size, truncate, OPERATIONS)

    publish_growth(benchmark, "growth_truncate", "<= 0.2", costs(), "Kafka: by segments cut")


def test_growth_timestamp(benchmark, many):
    log, grow = many

    def look_up(size):
        for number in range(OPERATIONS):
            wanted = number * (size - 1) // OPERATIONS
            assert log.offset_for_timestamp(NOW_MS + wanted).offset == wanted

    def costs():
        for size in sizes(100, 1000, 10_000):
            grow(size)
            look_up(size)  # looks at each segment, once
            look_up(size)  # opens those that it needs again
            yield cost_of(size, lambda size=size: look_up(size), OPERATIONS)

    publish_growth(benchmark, "growth_timestamp", "<= 0.2", costs(), "Kafka: walks all segments")


def test_growth_epochs(benchmark, fresh):
    """A batch of a new epoch: the epoch file holds all of them, and is replaced whole."""

    path = fresh()

    def grown(size):
        """A log of `size` epochs, a batch each."""
        shutil.rmtree(path, ignore_errors=True)
        with PartitionLog.open(path, now_ms=lambda: NOW_MS) as log:
            follow = bytearray()
            for epoch in range(size):
                batch = bytearray(one_record())
                workload.at_offset(batch, epoch, epoch)
                follow += batch
            log.append_as_follower(bytes(follow))
        return PartitionLog.open(path, now_ms=lambda: NOW_MS)

    def costs():
        for size in sizes(100, 1000, 10_000):
            with grown(size) as log:

                def append(log=log, size=size):
                    for number in range(OPERATIONS):
                        log.append_as_leader(one_record(), size + number)

                yield cost_of(size, append, OPERATIONS)

    publish_growth(benchmark, "growth_epochs", "<= 0.5", costs(), "Kafka: writes the whole file")


def test_growth_transactions(benchmark, folder):
    """Opening after a crash, with `size` transactions that were open at the same time."""
    path = folder / "transactions-0"

    def crashed(size):
        shutil.rmtree(path, ignore_errors=True)
        log = PartitionLog.open(path, now_ms=lambda: NOW_MS)
        for producer_id in range(size):
            batch = one_record(
                producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
            )
            log.append_as_leader(batch, 0)
        for producer_id in range(size):
            marker = record_encoder.encode_control(
                producer_id % 2, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0,
                timestamp=NOW_MS,
            )  # fmt: skip
            log.append_as_leader(marker, 0, coordinator=True)
        log.close(flush=False)

    def opened():
        PartitionLog.open(path, now_ms=lambda: NOW_MS).close(flush=False)

    def costs():
        for size in sizes(1000, 10_000, 100_000):
            crashed(size)
            yield cost_of(size, opened)

    publish_growth(benchmark, "growth_transactions", "<= 1.1", costs())
    shutil.rmtree(path)


class OldDirectory:
    """A directory of logs that were opened over a minute ago: their recovery points are due."""

    def __init__(self, path, size, records=1):
        self.now_ms = NOW_MS
        self.opened = replog.LogDirectory.open(path, now_ms=lambda: self.now_ms)
        self.logs = [
            self.opened.create_log("topic", number, durable=False) for number in range(size)
        ]
        for log in self.logs:
            for _ in range(records):
                log.append_as_leader(one_record(), 0)
        self.now_ms += 61_000


def test_growth_close(benchmark, folder):
    path = folder / "directory"

    def costs():
        for size in sizes(50, 500, 5000):
            directory = OldDirectory(path, size).opened
            yield cost_of(size, directory.close)
            shutil.rmtree(path)

    publish_growth(
        benchmark, "growth_close", "<= 1.1", costs(), "Kafka: a checkpoint once for all of them"
    )


def test_growth_directory_truncate(benchmark, folder):
    path = folder / "directory"

    def costs():
        for size in sizes(50, 500, 5000):
            directory = OldDirectory(path, size, records=2)
            count = min(OPERATIONS, size // 2)
            for log in directory.logs[:count]:
                log.flush()
            directory.opened.checkpoint_recovery_points()

            def truncate(directory=directory, count=count):
                for log in directory.logs[:count]:
                    log.truncate_to(1)
                for log in directory.logs[:count]:
                    directory.opened.delete_partition(log.topic_partition)

            yield cost_of(size, truncate, 2 * count)
            directory.opened.abandon()
            shutil.rmtree(path)

    publish_growth(
        benchmark, "growth_directory_truncate", "<= 0.3", costs(),
        "Kafka: the directory's whole checkpoint once for each truncation",
    )  # fmt: skip


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def mapping_count():
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)


def test_segments_100k(benchmark, folder):
    """A log of 100,000 segments opens after an unclean stop, whatever it has to look at."""
    path = folder / "segments-0"
    count = sized(100_000, 20)
    facts = {}
    log = PartitionLog.open(path, MANY, now_ms=lambda: NOW_MS)
    before = resident_bytes()
    while len(log.segments) < count:
        log.append_as_leader(one_record(), 0)
        log.roll()
    facts["bytes_a_segment"] = (resident_bytes() - before) // count
    log.close(flush=False)

    def opens():
        try:
            log = PartitionLog.open(path, MANY, now_ms=lambda: NOW_MS)
        except (StorageError, MemoryError) as error:
            facts["problem"] = repr(error)
            return 0.0
        facts["mappings"] = mapping_count()
        found = sum(1 for _ in log.records())
        log.close(flush=False)
        return float(found == count - 1)

    publish_figure(benchmark, "segments_100k", ">= 1", opens)
    benchmark.extra_info.update(facts)
    shutil.rmtree(path)


def test_partitions_30k(benchmark, folder):
    """A directory of 30,000 partitions opens after an unclean stop, and each can be read."""
    path = folder / "directory"
    count = sized(30_000, 20)
    facts = {}
    OldDirectory(path, count, records=2).opened.abandon()

    def opens():
        directory = replog.LogDirectory.open(path, now_ms=lambda: NOW_MS)
        facts["mappings"] = mapping_count()
        found = sum(len(directory.partition_log(key).read(1)) > 0 for key in directory)
        facts["problem"] = repr(next(iter(directory.refused.values()), None))
        directory.abandon()
        return float(found == count)

    publish_figure(benchmark, "partitions_30k", ">= 1", opens)
    benchmark.extra_info.update(facts)
    shutil.rmtree(path)


def test_zstd_one_append(benchmark, fresh):
    """Microseconds of one record appended with zstd."""

    def append():
        count = sized(5000, 5)
        batch = workload.ready_batch(1, 100)
        with PartitionLog.open(fresh(), replog.LogConfig(compression_type="zstd")) as log:
            log.append_as_leader(batch, 0)
            took, _ = spent(lambda: [log.append_as_leader(batch, 0) for _ in range(count)])
            return took / count * 1e6

    publish_figure(benchmark, "zstd_one_append", "<= 8", append)


def test_cli_help(benchmark):
    """Milliseconds of processor time until `replog --help` has ended: the least of several."""
    command = [str(ROOT / ".venv/bin/replog"), "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def once():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3

    publish_figure(
        benchmark, "cli_help_ms", "<= 60", lambda: min(once() for _ in range(sized(10, 2)))
    )


def test_reader_threads(benchmark, folder):
    """How many times faster two threads read two logs of batches of 1,000 records with zstd."""
    paths = [folder / "left-0", folder / "right-0"]
    for path in paths:
        config = replog.LogConfig(compression_type="zstd")
        with PartitionLog.open(path, config) as log:
            for _ in range(sized(600, 2)):
                log.append_as_leader(workload.ready_batch(1000, 100), 0)
    logs = [PartitionLog.open(path) for path in paths]

    def read(log):
        offset = 0
        while (piece := log.read(offset, 64 * 1024 * 1024)).size_bytes:
            piece.to_arrow()
            offset = piece.end_offset

    def one_by_one():
        for log in logs:
            read(log)

    def side_by_side():
        threads = [threading.Thread(target=read, args=(log,)) for log in logs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def gain():
        side_by_side()
        return statistics.median(
            timed(one_by_one)[0] / timed(side_by_side)[0] for _ in range(sized(9, 1))
        )

    publish_figure(benchmark, "reader_threads", ">= 1.6", gain, f"{os.cpu_count()} cores")
    for log, path in zip(logs, paths, strict=True):
        log.close()
        shutil.rmtree(path)
