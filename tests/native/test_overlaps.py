"""Threads that overlap where a test holds one of them in the middle of a system call."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replog import errors
from replog._native import mapped_file, recorded_calls
from replog.config import LogConfig
from tests.native.log_under_test import VALUE, append, in_thread, killed, offsets, opened


@pytest.fixture(autouse=True)
def recording_table() -> Iterator[None]:
    recorded_calls.install()
    yield
    recorded_calls.uninstall()


def test_flush_beside_append_keeps_indexes_in_order(tmp_path: Path) -> None:
    """The default options; before the writer's lock held both, this ended in SIGSEGV."""
    log = opened(tmp_path, LogConfig(segment_bytes=1 << 20, index_interval_bytes=64))
    ended = threading.Event()

    def flush() -> None:
        while not ended.is_set():
            log.flush()

    thread, raised = in_thread(flush)
    for _ in range(40):
        append(log, 100)
    ended.set()
    thread.join()
    assert not raised
    for segment in log.segments:
        assert segment.offset_index.check(whole=True)
        assert segment.time_index.check(whole=True)
        assert segment.offset_index.entry_count > 100
    assert offsets(log) == list(range(4000))
    log.close()


def test_an_append_waits_while_a_flush_writes_out_an_index(tmp_path: Path) -> None:
    """What both change is the tail of the index in memory."""
    log = opened(tmp_path)
    append(log, 20)
    recorded_calls.hold("pwritev", path=".index")
    flushing, raised = in_thread(log.flush)
    recorded_calls.wait_until_held()
    appending, more = in_thread(lambda: append(log))
    appending.join(0.1)
    assert appending.is_alive()
    recorded_calls.clear_faults()
    for thread in (flushing, appending):
        thread.join(10)
    assert not raised
    assert not more
    assert log.log_end_offset == 21
    log.close()


def test_a_large_append_is_a_unit_beside_others(tmp_path: Path) -> None:
    """It holds the lock between its batches: nobody's records come between or are cut with it."""
    config = LogConfig(segment_bytes=4096, max_message_bytes=2048, index_interval_bytes=100)
    log = opened(tmp_path, config)
    append(log, 3)
    recorded_calls.hold("pwritev", nth=2, times=1, path=".log")
    large, raised = in_thread(lambda: log.append([b"large" * 100] * 30))
    recorded_calls.wait_until_held()
    # A part of it is in, and nobody sees it.
    assert log.high_watermark == 3
    assert offsets(log) == [0, 1, 2]
    other, more = in_thread(lambda: append(log))
    other.join(0.1)
    assert other.is_alive()
    recorded_calls.clear_faults()
    large.join(10)
    other.join(10)
    assert not raised
    assert not more
    assert [record.value for record in log.records()] == [VALUE] * 3 + [b"large" * 100] * 30 + [
        VALUE
    ]
    log.close()


def test_a_flush_that_a_cut_overtakes_syncs_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 20)
    recorded_calls.hold("fdatasync", times=1, path=".log")
    flushing, raised = in_thread(log.flush)
    recorded_calls.wait_until_held()
    log.truncate_to(10)
    append(log, 5)
    recorded_calls.clear_faults()
    flushing.join(10)
    assert not raised
    assert log.recovery_point == log.synced_end_offset == 15
    append(log, 3)
    before = recorded_calls.call_count("fdatasync")
    assert log.flush() == 18
    assert recorded_calls.call_count("fdatasync") > before
    log.close()


def test_a_commit_takes_its_target_before_it_syncs(tmp_path: Path) -> None:
    """What was appended while the disk worked is synced by the next commit."""
    log = opened(tmp_path)
    append(log, 5)
    recorded_calls.hold("fdatasync", times=1, path=".log")
    committing, raised = in_thread(lambda: log.commit(5))
    recorded_calls.wait_until_held()
    append(log, 5)
    recorded_calls.clear_faults()
    committing.join(10)
    assert not raised
    before = recorded_calls.call_count("fdatasync")
    log.commit(10)
    assert recorded_calls.call_count("fdatasync") == before + 1
    log.close()


def test_a_commit_that_a_cut_overtakes_counts_nothing_behind_the_cut(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 10)
    recorded_calls.hold("fdatasync", times=1, path=".log")
    committing, raised = in_thread(lambda: log.commit(10))
    recorded_calls.wait_until_held()
    log.truncate_to(4)
    append(log, 6)
    recorded_calls.clear_faults()
    committing.join(10)
    assert not raised
    append(log, 2)
    before = recorded_calls.call_count("fdatasync")
    log.commit(12)
    assert recorded_calls.call_count("fdatasync") == before + 1
    log.close()


def test_a_flush_beside_retention_with_few_descriptors_does_no_harm(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 200)
    before = mapped_file.limit_descriptors(4)
    try:
        recorded_calls.hold("fdatasync", times=1, path=f"{0:020d}.log")
        flushing, raised = in_thread(log.flush)
        recorded_calls.wait_until_held()
        log.truncate_prefix_to(150)
        assert log.apply_retention()
        recorded_calls.clear_faults()
        flushing.join(10)
        assert not raised
        assert not log.failed
        assert log.recovery_point == 200
    finally:
        mapped_file.limit_descriptors(before)
    log = killed(log, tmp_path)
    assert offsets(log) == list(range(150, 200))
    log.close()


def test_a_file_that_was_put_in_anothers_place_is_not_read_as_it(tmp_path: Path) -> None:
    """A descriptor that was given away is opened again by its path, which may name another file."""
    path = str(tmp_path / "data")
    file = mapped_file.MappedFile(path, writable=True, create=True)
    file.append_bytes(b"first")
    before = mapped_file.limit_descriptors(1)
    try:
        other = mapped_file.MappedFile(str(tmp_path / "other"), writable=True, create=True)
        other.append_bytes(b"second")
        os.replace(tmp_path / "other", path)
        with pytest.raises(errors.LogTruncatedError, match="another in its place"):
            file.view(0, 5)
    finally:
        mapped_file.limit_descriptors(before)


def test_a_file_that_is_closed_beside_a_running_call_lets_it_end(tmp_path: Path) -> None:
    file = mapped_file.MappedFile(str(tmp_path / "data"), writable=True, create=True)
    file.append_bytes(b"first")
    before = mapped_file.open_descriptor_count()
    recorded_calls.hold("fdatasync", times=1)
    syncing, raised = in_thread(file.flush)
    recorded_calls.wait_until_held()
    file.close()
    assert mapped_file.open_descriptor_count() == before
    recorded_calls.clear_faults()
    syncing.join(10)
    assert not raised
    assert mapped_file.open_descriptor_count() == before - 1
