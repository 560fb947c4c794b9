"""A pipe or a directory where a file belongs: an error or a new file, never a hang."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replog.config import LogConfig
from replog.storage.partition_log import PartitionLog

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=-1)
READ_ALL = """
import sys
from replog.config import LogConfig
from replog.errors import StorageError
from replog.reader import PartitionReader
from replog.storage.partition_log import PartitionLog
from replog.types import Isolation

config = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=-1)

def native():
    with PartitionLog.open(sys.argv[1], config) as log:
        rows = log.to_arrow(isolation=Isolation.TXN_COMMITTED).num_rows
        log.append([b"more"])
    return rows

def offline():
    return PartitionReader(sys.argv[1]).to_arrow(isolation=Isolation.TXN_COMMITTED).num_rows

for read in (offline, native):
    try:
        rows = read()
        assert rows == 20, rows
    except StorageError as error:
        assert "expected" in str(error), error
"""
FILES = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "last.log",
    "last.index",
    "last.timeindex",
    "last.snapshot",
    "last.txnindex",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    ".lock",
    "leader-epoch-checkpoint.tmp",
    "recovery-point-offset-checkpoint.tmp",
]


@pytest.mark.parametrize("stop", ["clean", "unclean"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_or_replaced(
    tmp_path: Path, make: object, stop: str
) -> None:
    """Each kind of file in turn, opened by the reader and for writing, with a deadline."""
    for number, name in enumerate(FILES):
        path = tmp_path / str(number) / "orders-0"
        with PartitionLog.open(path, SMALL) as log:
            for _ in range(20):
                log.append([b"x" * 50])
            last = f"{log.segments[-1].base_offset:020}"
        if stop == "unclean":
            (path / ".kafka_cleanshutdown").unlink()
        strange = path / name.replace("last", last)
        strange.unlink(missing_ok=True)
        make(strange)
        ran = subprocess.run(
            [sys.executable, "-c", READ_ALL, str(path)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ran.returncode == 0, (name, ran.stderr[-2000:])
