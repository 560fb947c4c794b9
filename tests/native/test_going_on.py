"""Operations that go on after a fault.

An operation that fails leaves the log as it was or fails it for good; a kill or a power loss behind
it loses nothing that was answered.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from replog import errors
from replog._native import record_encoder, recorded_calls
from replog.config import LogConfig
from replog.storage.log_directory import LogDirectory
from tests.native.log_under_test import (
    COMMIT,
    CONFIG,
    NOW_MS,
    VALUE,
    append,
    fill_segment,
    killed,
    offsets,
    opened,
)


@pytest.fixture(autouse=True)
def recording_table() -> Iterator[None]:
    recorded_calls.install()
    yield
    recorded_calls.uninstall()


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
def test_a_roll_that_makes_only_some_files_leaves_none(
    tmp_path: Path, suffix: str, cause: int
) -> None:
    log = opened(tmp_path)
    fill_segment(log)
    end = log.log_end_offset
    recorded_calls.fail("open", cause, path=f"{end:020d}{suffix}")
    for _ in range(2):
        with pytest.raises((errors.NoSpaceError, errors.OutOfDescriptorsError)):
            log.roll()
    names = os.listdir(log.path)
    assert not [name for name in names if name.startswith(f"{end:020d}.")], names
    small = LogConfig(segment_bytes=8192, index_interval_bytes=100)
    append_into_old_segment = record_encoder.encode([b"x"], timestamps=NOW_MS, now_ms=NOW_MS)
    log.append_as_leader(append_into_old_segment, 0)
    log = killed(log, tmp_path, small)
    assert offsets(log) == list(range(end + 1))
    log.close()
    log = opened(tmp_path)
    assert offsets(log) == list(range(end + 1))
    log.close()


@pytest.mark.parametrize("suffix", [".log", ".index", ".txnindex"])
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_retention_that_cannot_rename_forgets_no_segment(
    tmp_path: Path, cause: int, nth: int, suffix: str
) -> None:
    log = opened(tmp_path)
    append(log, 200)
    log.flush()
    log.truncate_prefix_to(log.segments[3].base_offset)
    start = log.log_start_offset
    recorded_calls.fail("rename", cause, nth=nth, times=1, path=suffix)
    failed = True
    try:
        log.apply_retention()
        failed = False
    except errors.StorageError:
        pass
    recorded_calls.clear_faults()
    assert log.failed == (failed and cause == errno.EIO)
    if failed and not log.failed:
        assert len(log.apply_retention()) == 4 - nth
    log = killed(log, tmp_path)
    assert offsets(log) == list(range(start, 200))
    log.close()


def test_a_large_append_that_fails_takes_only_its_own_records_along(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=4096, max_message_bytes=2048, index_interval_bytes=100)
    log = opened(tmp_path, config)
    append(log, 3)
    recorded_calls.fail("pwritev", errno.ENOSPC, nth=4, path=".log")
    with pytest.raises(errors.NoSpaceError):
        log.append([b"large" * 100] * 30)
    assert not log.failed
    assert log.log_end_offset == log.high_watermark == 3
    recorded_calls.clear_faults()
    answer = log.append([b"large" * 100] * 30)
    assert (answer.base_offset, answer.last_offset) == (3, 32)
    log = killed(log, tmp_path, config)
    assert offsets(log) == list(range(33))
    log.close()


def test_a_cut_under_a_pinned_view_syncs_the_name_of_the_kept_part(tmp_path: Path) -> None:
    log = opened(tmp_path, COMMIT)
    append(log, 20)
    held = log.read(0)
    content = bytes(held)
    recorded_calls.record()
    log.truncate_to(10)
    recorded_calls.pause()
    calls = [(call.kind, os.path.basename(call.to)) for call in recorded_calls.recorded()]
    renamed = calls.index(("rename", f"{0:020d}.log"))
    kinds = [kind for kind, _ in calls[renamed:]]
    assert "fsync_dir" in kinds
    assert bytes(held) == content
    log.close()


@pytest.mark.parametrize("kind", ["rename", "open", "pwritev", "fsync_dir"])
@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_restart_of_the_log_that_fails_takes_no_more_records(
    tmp_path: Path, kind: str, cause: int
) -> None:
    log = opened(tmp_path)
    append(log, 100)
    log.flush()
    before = offsets(log)
    recorded_calls.fail(kind, cause, times=1)
    try:
        log.truncate_fully_and_start_at(500)
    except errors.StorageError:
        recorded_calls.clear_faults()
        if log.failed:
            with pytest.raises(errors.LogFailedError):
                append(log)
        else:
            assert offsets(log) == before
            append(log)
            before.append(100)
        log = killed(log, tmp_path)
        found = offsets(log)
        # A restart that was begun may have taken segments from the end.
        assert found == before[: len(found)]
        log.close()
        return
    append(log)
    log = killed(log, tmp_path)
    assert offsets(log) == [500]
    log.close()


@pytest.mark.parametrize("cause", [errno.EIO, errno.EMFILE])
def test_a_recovery_point_that_may_be_on_disk_is_lowered_before_a_cut(
    tmp_path: Path, cause: int
) -> None:
    log = opened(tmp_path)
    append(log, 20)
    log.flush()
    recorded_calls.fail("fsync_dir", cause)
    with pytest.raises(errors.StorageError):
        log.checkpoint()
    recorded_calls.clear_faults()
    assert log.failed == (cause == errno.EIO)
    if not log.failed:
        log.truncate_to(5)
    log = killed(log, tmp_path)
    assert offsets(log) == list(range(20 if cause == errno.EIO else 5))
    log.close()


def test_a_shared_recovery_point_that_may_be_on_disk_is_lowered_before_a_cut(
    tmp_path: Path,
) -> None:
    directory = LogDirectory.open(tmp_path / "d", CONFIG, now_ms=lambda: NOW_MS)
    log = directory.create_log("t", 0)
    append(log, 20)
    log.flush()
    recorded_calls.fail("fsync_dir", errno.EIO, times=1)
    with pytest.raises(errors.LogFailedError):
        directory.checkpoint_recovery_points()
    recorded_calls.clear_faults()
    log.truncate_to(5)
    directory.abandon()
    directory = LogDirectory.open(tmp_path / "d", CONFIG, now_ms=lambda: NOW_MS)
    assert not directory.refused
    assert offsets(directory[("t", 0)]) == list(range(5))
    directory.close()


@pytest.mark.parametrize("kind", ["pwritev", "open", "fdatasync", "unlink", "fsync_dir"])
@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_closed_is_closed_whatever_fails(tmp_path: Path, kind: str, cause: int) -> None:
    log = opened(tmp_path)
    append(log, 200)
    log.truncate_prefix_to(150)
    log.apply_retention()
    recorded_calls.fail(kind, cause)
    with contextlib.suppress(errors.StorageError):
        log.close()
    assert log.closed
    with pytest.raises(errors.LogClosedError):
        append(log)
    recorded_calls.clear_faults()
    log = opened(tmp_path)
    assert offsets(log)[-1] == 199
    append(log)
    assert offsets(log)[-1] == 200
    log.close()


@pytest.mark.parametrize("kind", ["pwritev", "open"])
@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EMFILE])
def test_a_directory_that_cannot_be_closed_cleanly_closes_every_log(
    tmp_path: Path, kind: str, cause: int
) -> None:
    directory = LogDirectory.open(tmp_path / "d", CONFIG, now_ms=lambda: NOW_MS)
    logs = [directory.create_log("t", number) for number in range(3)]
    for log in logs:
        append(log, 50)
    recorded_calls.fail(kind, cause)
    with pytest.raises(errors.StorageError):
        directory.close()
    recorded_calls.clear_faults()
    for log in logs:
        assert log.closed
    directory = LogDirectory.open(tmp_path / "d", CONFIG, now_ms=lambda: NOW_MS)
    assert [offsets(directory[("t", number)])[-1] for number in range(3)] == [49] * 3
    directory.close()


def marker(commit: bool) -> bytes:
    return bytes(
        record_encoder.encode_control(
            control_type=int(commit),
            producer_id=7,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=NOW_MS,
        )
    )


@pytest.mark.parametrize("kind", ["open", "pwritev"])
def test_an_abort_marker_without_its_index_entry_is_taken_back(tmp_path: Path, kind: str) -> None:
    log = opened(tmp_path)
    transaction = record_encoder.encode(
        [VALUE],
        timestamps=NOW_MS,
        now_ms=NOW_MS,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append_as_leader(transaction, 0)
    size = log.size_bytes
    recorded_calls.fail(kind, errno.ENOSPC, path=".txnindex")
    for _ in range(2):
        with pytest.raises(errors.NoSpaceError):
            log.append_as_leader(marker(commit=False), 0, coordinator=True)
    assert not log.failed
    assert (log.log_end_offset, log.size_bytes, log.last_stable_offset) == (1, size, 0)
    recorded_calls.clear_faults()
    log.append_as_leader(marker(commit=False), 0, coordinator=True)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    log = killed(log, tmp_path)
    assert list(log.records(isolation="read_committed")) == []
    assert log.aborted_transactions(0, 2)
    log.close()


@pytest.mark.parametrize("kind", ["pwritev", "open", "rename"])
def test_delete_records_that_could_not_be_written_has_deleted_nothing(
    tmp_path: Path, kind: str
) -> None:
    log = opened(tmp_path)
    append(log, 20)
    recorded_calls.fail(kind, errno.ENOSPC, path="log-start-offset-checkpoint")
    for _ in range(2):
        with pytest.raises(errors.NoSpaceError):
            log.truncate_prefix_to(10)
    assert log.log_start_offset == 0
    recorded_calls.clear_faults()
    assert log.truncate_prefix_to(10)
    log = killed(log, tmp_path)
    assert offsets(log) == list(range(10, 20))
    log.close()


def test_a_failed_log_can_be_read_and_closed(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 20)
    recorded_calls.fail("fdatasync", errno.EIO, times=1, path=".log")
    with pytest.raises(errors.LogFailedError):
        log.flush()
    assert log.failed
    assert offsets(log) == list(range(20))
    with pytest.raises(errors.LogFailedError):
        log.close()
    assert log.closed
    log = opened(tmp_path)
    assert offsets(log) == list(range(20))
    log.close()


def test_a_view_of_a_closed_log_outlives_a_cut_by_the_next_one(tmp_path: Path) -> None:
    """The next log of the same process has another mapping of the same file."""
    log = opened(tmp_path, LogConfig(segment_bytes=1 << 20))
    append(log, 200)
    held = log.read(0, 1 << 20)
    content = bytes(held)
    log.close()
    log = opened(tmp_path, LogConfig(segment_bytes=1 << 20))
    log.truncate_to(1)
    assert bytes(held) == content
    del held
    log.truncate_to(0)
    assert offsets(log) == []
    log.close()
