"""A reader beside a writer in another process that appends, rolls, truncates and deletes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from replog.errors import CorruptBatchError, LogTruncatedError, OffsetOutOfRangeError
from replog.reader import PartitionReader

WRITER = """
import sys
from replog.config import LogConfig
from replog.storage.partition_log import PartitionLog

path, rounds = sys.argv[1], int(sys.argv[2])
config = LogConfig(segment_bytes=20000, index_interval_bytes=500)
with PartitionLog.open(path, config) as log:
    print("open", flush=True)
    for turn in range(rounds):
        start = log.log_end_offset
        log.append([b"record %d" % offset for offset in range(start, start + 17)])
        if turn % 40 == 39:
            log.truncate_to(log.log_end_offset - 34)
        if turn % 100 == 99:
            log.truncate_prefix_to(log.log_end_offset - 500)
    log.flush()
"""


def start_writer(path: Path, rounds: int) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(rounds)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    return writer


@pytest.mark.slow
def test_a_reader_beside_a_writer_sees_whole_right_records_only(tmp_path: Path) -> None:
    path = tmp_path / "live-0"
    reads = 0
    with start_writer(path, 1500) as writer:
        while writer.poll() is None:
            try:
                for records in PartitionReader(path).record_batches(columns=["offset", "value"]):
                    offsets, values = records["offset"].to_pylist(), records["value"].to_pylist()
                    assert values == [b"record %d" % offset for offset in offsets]
                reads += 1
            except (LogTruncatedError, OffsetOutOfRangeError):
                continue  # cut or deleted under the reader: read again
        assert writer.returncode == 0
    assert reads > 0
    final = PartitionReader(path)
    assert final.to_arrow().num_rows == final.end_offset - final.log_start_offset > 0


def test_a_killed_writers_log_is_read_up_to_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "killed-0"
    with start_writer(path, 100000) as writer:
        while PartitionReader(path).end_offset < 2000:
            pass
        writer.kill()
    try:
        table = PartitionReader(path).to_arrow()
    except CorruptBatchError as error:
        pytest.fail(f"a torn tail was taken for damage: {error}")
    offsets = table["offset"].to_pylist()
    assert table["value"].to_pylist() == [b"record %d" % offset for offset in offsets]
    assert len(offsets) > 100
