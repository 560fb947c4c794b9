"""A reader beside cuts behind which other values are written: rows of one history, or an error.

Nothing here waits for luck: the log is cut and written anew at every single read of a file that a
reader makes, one run each. Values tell the history that they are of.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replog import LogConfig
from replog._native.mapped_file import OfflineFile
from replog.errors import LogTruncatedError, OffsetOutOfRangeError
from replog.reader import PartitionReader, read_split
from replog.storage.partition_log import PartitionLog

RECORDS = 120
BATCH = 10
TOLD = (LogTruncatedError, OffsetOutOfRangeError)
Rows = list[tuple[int, bytes]]


def write(log: PartitionLog, history: int, end: int) -> None:
    while (start := log.log_end_offset) < end:
        log.append([b"%06d in history %d" % (at, history) for at in range(start, start + BATCH)])


class HookedFile(OfflineFile):
    """Counts reads of data files, and has something done before one of them."""

    reads = 0
    at = -1
    done: Callable[[], None]

    def before_read(self) -> None:
        if self.path.endswith(".log"):
            HookedFile.reads += 1
            if HookedFile.reads == HookedFile.at:
                HookedFile.done()

    def read(self, position: int, length_bytes: int) -> bytes:
        self.before_read()
        return super().read(position, length_bytes)

    def read_into(self, position: int, into: memoryview) -> int:  # type: ignore[override]
        self.before_read()
        return super().read_into(position, into)


def by_chunks(reader: PartitionReader) -> Iterator[Rows]:
    for chunk in reader.chunks(chunk_bytes=1000):
        yield [(int(header["base_offset"]), bytes(chunk.batch(header))) for header in chunk.headers]


def by_records(reader: PartitionReader) -> Iterator[Rows]:
    for records in reader.record_batches(columns=["offset", "value"], batch_rows=7):
        yield list(zip(records["offset"].to_pylist(), records["value"].to_pylist(), strict=True))


def by_calls(reader: PartitionReader) -> Iterator[Rows]:
    for start in range(reader.log_start_offset, reader.end_offset, 20):
        table = reader.to_arrow(start, start + 20)
        yield list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def by_bare_splits(reader: PartitionReader) -> Iterator[Rows]:
    """Without the stamps of a plan, a split at a time: rows of one split are of one history."""
    (split,) = reader.split_points(1 << 30)
    for records in read_split(split._replace(stamps=(), over_end=False), batch_rows=7):
        yield list(zip(records["offset"].to_pylist(), records["value"].to_pylist(), strict=True))


def history_of(value: bytes) -> bytes:
    return value[value.index(b"in history ") :][:12]


@pytest.mark.parametrize("cut", [0, 35, 70])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 900])
@pytest.mark.parametrize("read", [by_chunks, by_records, by_calls, by_bare_splits])
@pytest.mark.parametrize("pinned", [False, True])
def test_rows_beside_a_cut_at_any_read_are_of_one_history(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[PartitionReader], Iterator[Rows]],
    segment_bytes: int,
    cut: int,
    *,
    pinned: bool,
) -> None:
    if read is by_bare_splits and segment_bytes < 1 << 20:
        pytest.skip("a split is of one segment")
    monkeypatch.setattr("replog.reader.data_file.OfflineFile", HookedFile)
    monkeypatch.setattr("replog.reader.stretches.PIECE_BYTES", 700)
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=300)
    told = whole = at = 0
    reads = 1
    while at < reads:
        at += 1
        with PartitionLog.open(tmp_path / f"log{at}-0", config) as log:
            write(log, 0, RECORDS)
            view = log.read(0) if pinned else None

            def cut_and_write(log: PartitionLog = log) -> None:
                log.truncate_to(cut)
                write(log, 1, RECORDS)

            HookedFile.reads, HookedFile.at = 0, at
            HookedFile.done = staticmethod(cut_and_write)
            rows: Rows = []
            try:
                for part in read(PartitionReader(log.path)):
                    rows += part
                whole += 1
                assert len(rows) > RECORDS - BATCH or read is by_chunks
            except TOLD:
                told += 1
            reads = max(reads, HookedFile.reads)
            histories = {history_of(value) for offset, value in rows if offset >= cut}
            assert len(histories) <= 1, f"rows of two histories, with a cut before read {at}"
            del view
    assert told + whole == at > 3


WRITER = """
import random, sys
from replog import LogConfig
from replog.storage.partition_log import PartitionLog

path, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
choose = random.Random(seed)
config = LogConfig(segment_bytes=20000, index_interval_bytes=500)
with PartitionLog.open(path, config) as log:
    print("open", flush=True)
    for history in range(rounds):
        for _ in range(choose.randrange(1, 40)):
            start = log.log_end_offset
            count = choose.randrange(1, 30)
            log.append([b"%d of %d" % (at, history) for at in range(start, start + count)])
        if history % 20 == 19:
            log.truncate_prefix_to(log.log_end_offset // 2)
        low, end = log.log_start_offset, log.log_end_offset
        log.truncate_to(max(low, end - choose.choice([10, 300, 3000])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_random_cuts_in_another_process_never_mix_histories(tmp_path: Path, seed: int) -> None:
    """A history is cut off behind a later one, so that its number never falls along the log."""
    path = tmp_path / "cut-0"
    command = [sys.executable, "-c", WRITER, str(path), str(seed), "1500"]
    reads = refused = 0
    choose = random.Random(seed)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        while writer.poll() is None:
            reader: PartitionReader | None = None
            histories: list[int] = []
            next_offset = -1
            try:
                reader = PartitionReader(os.fspath(path))
                for rows in choose.choice([by_records, by_calls])(reader):
                    for offset, value in rows:
                        assert next_offset <= offset
                        next_offset = offset + 1
                        at, history = value.split(b" of ")
                        assert int(at) == offset
                        histories.append(int(history))
                reads += 1
            except TOLD:
                refused += 1
            assert histories == sorted(histories)
        assert writer.returncode == 0
    assert reads > 10
