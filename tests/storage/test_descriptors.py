"""Few descriptors, or none: a log works with what it has, or says so and works again later."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from replog._native import recorded_calls
from replog.config import LogConfig
from replog.errors import OutOfDescriptorsError
from replog.storage.partition_log import PartitionLog

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)

FEW = """
import resource, sys
from pathlib import Path
from replog.config import LogConfig
from replog.storage.partition_log import PartitionLog

config = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
path = sys.argv[1]
for _ in range(2):
    with PartitionLog.open(path, config) as log:
        for _ in range(300):
            log.append([b"x" * 100] * 2)
        log.flush()
        log.truncate_to(log.log_end_offset - 4)
        assert log.to_arrow().num_rows == log.log_end_offset
        assert log.offset_for_timestamp(0).offset == 0
"""

NONE_LEFT = """
import os, resource, sys
from replog.errors import OutOfDescriptorsError
from replog.storage.partition_log import PartitionLog

with PartitionLog.open(sys.argv[1]) as log:
    log.append([b"warm"])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
hogs = []
try:
    while True:
        hogs.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    PartitionLog.open(sys.argv[1])
except OutOfDescriptorsError as error:
    assert error.retriable and sys.argv[1] in error.path, error
else:
    raise AssertionError("opened without a descriptor")
for hog in hogs:
    os.close(hog)
with PartitionLog.open(sys.argv[1]) as log:
    log.append([b"again"])
    hogs = []
    try:
        while True:
            hogs.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    # The log gives its own files back in turn, so that even a roll and a sync go on.
    for _ in range(5):
        log.append([b"without any to spare"])
        log.roll()
        log.flush()
    log.truncate_to(4)
    for hog in hogs:
        os.close(hog)
    assert log.log_end_offset == 4
"""


@pytest.mark.parametrize("program", [FEW, NONE_LEFT])
def test_a_log_lives_with_few_descriptors(tmp_path: Path, program: str) -> None:
    """In a process of its own, whose limit is 64."""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "orders-0")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.fixture
def table() -> object:
    recorded_calls.install()
    yield recorded_calls
    recorded_calls.uninstall()


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("kind", ["open", "fsync_dir"])
def test_a_call_without_a_descriptor_fails_and_succeeds_later(
    tmp_path: Path, table: object, kind: str, cause: int
) -> None:
    """Append, roll, flush, checkpoint in turn: refused or done, and done the next time."""
    rows: list[int] = []
    refused = 0
    with PartitionLog.open(tmp_path / "orders-0", SMALL) as log:
        actions = [
            lambda: rows.append(log.append([b"x" * 150], leader_epoch=len(rows)).base_offset),
            log.roll,
            log.flush,
            log.checkpoint,
        ]
        for _ in range(4):
            for action in actions:
                recorded_calls.fail(kind, cause, times=10_000)
                try:
                    action()
                except OutOfDescriptorsError:
                    refused += 1
                recorded_calls.clear_faults()
                assert not log.failed
                action()
        assert log.to_arrow()["offset"].to_pylist() == rows == list(range(log.log_end_offset))
        end = log.log_end_offset
    assert refused
    assert OutOfDescriptorsError.retriable
    with PartitionLog.open(tmp_path / "orders-0", SMALL) as log:
        assert log.log_end_offset == end
        assert log.to_arrow()["offset"].to_pylist() == rows
