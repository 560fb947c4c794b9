"""Reads: a whole log into Arrow, and look-ups of offsets and epochs by the array."""

from __future__ import annotations

import shutil

import lmdb
import numpy as np
import pytest

import replog
from bench import workload
from bench.pairs import measure, sized, timed
from replog._native.leader_epoch_cache import LeaderEpochCache
from replog._native.offset_index import OffsetIndex
from replog.storage.partition_log import PartitionLog

SLICE_BYTES = 64 * 1024 * 1024
RECORDS = 1000


@pytest.fixture
def lmdb_records(folder):
    """An LMDB environment of the same records, and how many."""
    path = folder / "lmdb-scan"
    shutil.rmtree(path, ignore_errors=True)
    batches = sized(1000, 2)
    listed = workload.values(RECORDS, 100)
    environment = lmdb.open(str(path), map_size=1 << 32, sync=False, metasync=False)
    for number in range(batches):
        with environment.begin(write=True) as transaction:
            base = number * RECORDS
            items = [((base + at).to_bytes(8, "big"), value) for at, value in enumerate(listed)]
            transaction.cursor().putmulti(items, append=True)
    yield environment, batches * RECORDS
    environment.close()
    shutil.rmtree(path, ignore_errors=True)


def test_scan_arrow_vs_lmdb(benchmark, gibibyte, lmdb_records):
    environment, lmdb_count = lmdb_records

    def scan_lmdb():
        count = 0
        with environment.begin(buffers=True) as transaction:
            for _ in transaction.cursor():
                count += 1
        return count

    with PartitionLog.open(gibibyte, replog.LogConfig(segment_bytes=2**31 - 1)) as log:
        count = log.log_end_offset

        def scan():
            offset = rows = 0
            while (piece := log.read(offset, SLICE_BYTES)).size_bytes:
                rows += piece.to_arrow().num_rows
                offset = piece.end_offset
            return rows

        assert scan() == count
        assert scan_lmdb() == lmdb_count
        measure(
            benchmark, "scan_arrow_vs_lmdb", ">= 5", lambda: timed(scan),
            lambda: timed(scan_lmdb), share=True, scale=count / lmdb_count,
        )  # fmt: skip


def test_index_lookup(benchmark, folder):
    entries = sized(10 * 2**20 // 8, 512)
    path = folder / "00000000000000000000.index"
    offsets = np.arange(entries, dtype=np.int64) * 37 + 36
    raw = np.empty((entries, 2), dtype=">i4")
    raw[:, 0] = offsets
    raw[:, 1] = np.arange(entries) * 1000
    path.write_bytes(raw.tobytes())
    draw = np.random.default_rng(5)
    targets = draw.integers(0, int(offsets[-1]) + 100, sized(500_000, 100))
    found = OffsetIndex(str(path), 0, 10 * 2**20)

    def ours():
        seconds, (_, positions) = timed(lambda: found.lookup_many(targets))
        return seconds, int(positions.sum())

    def theirs():
        return timed(lambda: np.searchsorted(offsets, targets, side="right"))

    places = theirs()[1] - 1
    expected = np.where(places < 0, 0, places * 1000)
    assert ours()[1] == int(expected.sum())
    measure(benchmark, "index_lookup", "<= 1.5", ours, theirs, share=False)
    found.close()
    path.unlink()


def test_epoch_lookup(benchmark):
    count = sized(10_000, 10)
    epochs = np.arange(count, dtype=np.int32) * 3
    starts = np.arange(count, dtype=np.int64) * 1000
    cache = LeaderEpochCache(zip(epochs.tolist(), starts.tolist(), strict=True))
    end_offset = count * 1000
    draw = np.random.default_rng(6)
    asked = draw.integers(0, count * 3 - 2, sized(500_000, 100)).astype(np.int32)

    def ours():
        seconds, (_, ends) = timed(lambda: cache.end_offsets_for(asked, end_offset))
        return seconds, int(ends.sum())

    def theirs():
        return timed(lambda: np.searchsorted(epochs, asked, side="right"))

    bounds = np.append(starts, end_offset)
    assert ours()[1] == int(bounds[theirs()[1]].sum())
    measure(benchmark, "epoch_lookup", "<= 1.5", ours, theirs, share=False)
