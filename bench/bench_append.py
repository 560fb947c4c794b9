"""Appends: against bare writes of the same bytes, and against what a Python service would use."""

from __future__ import annotations

import os
import shutil

import lmdb
import pytest

import replog
from bench import workload
from bench.pairs import measure, sized, timed
from replog.storage.partition_log import PartitionLog

RECORDS = 1000


@pytest.fixture
def scratch(folder):
    """A plain file beside the logs, for the floors."""
    path = folder / "floor"
    yield str(path)
    path.unlink(missing_ok=True)


def appending(fresh, append_all, config=None):
    """One side: a new log, `append_all(log)` timed, its end as the checksum."""

    def ours():
        with PartitionLog.open(fresh(), config) as log:
            log.append([b"first"])
            seconds, _ = timed(lambda: append_all(log))
            return seconds, log.log_end_offset

    return ours


def test_append_ready(benchmark, floors, fresh, scratch):
    batch = workload.ready_batch(RECORDS, 100)
    count = sized(800, 2)

    def append_all(log):
        for _ in range(count):
            log.append_as_leader(batch, 0)

    def theirs():
        return floors.pwrite_growing(scratch, batch, count), None

    ours = appending(fresh, append_all)
    measure(benchmark, "append_ready", ">= 0.80", ours, theirs, share=True, pairs=25)


def test_append_follower(benchmark, floors, fresh, scratch):
    batch = bytearray(workload.ready_batch(RECORDS, 100))
    workload.at_offset(batch, 0, 0)
    count = sized(800, 2)

    def append_all(log):
        place = floors.place
        for number in range(count):
            place(batch, 1 + number * RECORDS)
            log.append_as_follower(batch)

    def theirs():
        return floors.pwrite_growing(scratch, batch, count), None

    ours = appending(fresh, append_all)
    measure(benchmark, "append_follower", ">= 0.92", ours, theirs, share=True, pairs=25)


def test_append_one(benchmark, fresh, scratch):
    batch = workload.ready_batch(1, 100)
    count = sized(20000, 10)

    def append_all(log):
        append = log.append_as_leader
        for _ in range(count):
            append(batch, 0)

    def write_all(fd):
        position = 0
        length = len(batch)
        pwrite = os.pwrite
        for _ in range(count):
            position += pwrite(fd, batch, position)
        assert position == count * length

    def theirs():
        fd = os.open(scratch, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        try:
            return timed(lambda: write_all(fd))
        finally:
            os.close(fd)

    measure(
        benchmark, "append_one", ">= 0.5", appending(fresh, append_all), theirs, share=True,
        pairs=25,
    )  # fmt: skip


def test_append_arrow_vs_lmdb(benchmark, fresh, folder):
    column, listed = workload.arrow_values(RECORDS, 100), workload.values(RECORDS, 100)
    count = sized(400, 2)
    path = folder / "lmdb-append"

    def append_all(log):
        for _ in range(count):
            log.append(column)

    def put_all(environment):
        # Keys are made inside, as replog makes its offsets inside.
        for number in range(count):
            base = number * RECORDS
            with environment.begin(write=True) as transaction:
                items = [
                    ((base + place).to_bytes(8, "big"), value) for place, value in enumerate(listed)
                ]
                transaction.cursor().putmulti(items, append=True)

    def theirs():
        shutil.rmtree(path, ignore_errors=True)
        environment = lmdb.open(str(path), map_size=1 << 32, sync=False, metasync=False)
        try:
            return timed(lambda: put_all(environment))
        finally:
            environment.close()
            shutil.rmtree(path, ignore_errors=True)

    ours = appending(fresh, append_all)
    measure(benchmark, "append_arrow_vs_lmdb", ">= 3", ours, theirs, share=True)


def test_append_list_vs_aiokafka(benchmark, fresh, scratch):
    listed = list(workload.values(RECORDS, 100))
    stamps = [workload.timestamps(RECORDS)[0].as_py()] * RECORDS
    count = sized(300, 2)

    def append_all(log):
        for _ in range(count):
            log.append(listed)

    def write_all(fd):
        position = 0
        for _ in range(count):
            position += os.pwrite(fd, workload.aiokafka_batch(listed, stamps), position)

    def theirs():
        fd = os.open(scratch, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        try:
            return timed(lambda: write_all(fd))
        finally:
            os.close(fd)

    ours = appending(fresh, append_all)
    measure(benchmark, "append_list_vs_aiokafka", ">= 1.8", ours, theirs, share=True)


def test_append_commit(benchmark, floors, fresh, scratch):
    batch = workload.ready_batch(RECORDS, 100)
    count = sized(300, 2)

    def append_all(log):
        for _ in range(count):
            log.append_as_leader(batch, 0)

    def theirs():
        return floors.pwrite_growing(scratch, batch, count, True), None

    ours = appending(fresh, append_all, replog.LogConfig(flush_mode="commit"))
    measure(benchmark, "append_commit", ">= 0.85", ours, theirs, share=True)
