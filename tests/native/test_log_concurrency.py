"""One writer and many readers; views under truncation; forks; two writers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import replog
from replog import errors
from replog._native import record_batch
from replog.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from pathlib import Path


def fill(log: PartitionLog, batches: int, records: int = 5) -> None:
    for number in range(batches):
        log.append([b"%06d" % number * 10] * records)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_view_keeps_its_bytes_through_truncation_and_new_records(
    tmp_path: Path, pinned: bool
) -> None:
    with PartitionLog.open(tmp_path / "t-0") as log:
        fill(log, 40)
        view = log.read(0, 1 << 20) if pinned else None
        before = None if view is None else bytes(view)
        inode = os.stat(log.segments[0].path).st_ino
        log.truncate_to(50)
        fill(log, 40)
        assert (None if view is None else bytes(view)) == before
        # Without a view the file shrinks in place; with one it is replaced.
        assert (os.stat(log.segments[0].path).st_ino == inode) is not pinned
        assert [record.offset for record in log] == list(range(50 + 200))


def test_a_table_of_views_outlives_the_log(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "t-0") as log:
        fill(log, 10)
        table = log.to_arrow(zero_copy=True)
        log.truncate_fully_and_start_at(7)
    assert table.column("value").to_pylist() == [
        b"%06d" % number * 10 for number in range(10) for _ in range(5)
    ]


def test_readers_see_whole_batches_or_a_typed_error_while_the_log_changes(tmp_path: Path) -> None:
    config = replog.LogConfig(
        segment_bytes=6000, index_interval_bytes=300, retention_bytes=20000, file_delete_delay_ms=0
    )
    problems: list[BaseException] = []
    done = threading.Event()

    def read(log: PartitionLog) -> None:
        try:
            while not done.is_set():
                offset = log.log_start_offset
                try:
                    view = log.read(offset, 4000)
                    scan = record_batch.scan(view)
                    assert scan.outcome in (0, 1), scan.problem
                    for record in view.records(record_type=replog.Record):
                        assert len(record.value) == 60
                except (errors.OffsetOutOfRangeError, errors.LogTruncatedError):
                    continue
        except BaseException as problem:
            problems.append(problem)

    with PartitionLog.open(tmp_path / "t-0", config) as log:
        fill(log, 50)
        readers = [threading.Thread(target=read, args=(log,)) for _ in range(3)]
        for reader in readers:
            reader.start()
        for turn in range(60):
            fill(log, 10)
            if turn % 3 == 0:
                log.truncate_to(max(log.log_start_offset, log.log_end_offset - 27))
            if turn % 5 == 0:
                log.apply_retention()
        done.set()
        for reader in readers:
            reader.join()
    assert not problems


def test_threads_that_append_share_one_order(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "t-0", replog.LogConfig(flush_mode="commit")) as log:
        threads = [threading.Thread(target=fill, args=(log, 30)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [record.offset for record in log] == list(range(4 * 30 * 5))


def test_a_second_writer_is_told_that_the_directory_is_locked(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "t-0"):
        with pytest.raises(errors.LogDirectoryLockedError):
            PartitionLog.open(tmp_path / "t-0")
        script = "import sys, replog; replog.Log.open(sys.argv[1])"
        other = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "t-0")],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "LogDirectoryLockedError" in other.stderr
    with PartitionLog.open(tmp_path / "t-0") as log:
        log.append([b"free again"])


def test_a_forked_child_gets_an_error_and_harms_nothing(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "t-0") as log:
        fill(log, 3)
        child = os.fork()
        if child == 0:
            try:
                log.append([b"from the child"])
            except errors.LogClosedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        fill(log, 1)
        assert log.log_end_offset == 20
    with PartitionLog.open(tmp_path / "t-0") as log:
        assert log.log_end_offset == 20


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "t-0")
    log.close()
    with pytest.raises(errors.LogClosedError):
        log.append([b"late"])
