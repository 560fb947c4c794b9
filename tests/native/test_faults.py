"""System calls that fail: typed errors, nothing half done, the log readable, sticky if need be."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replog import errors
from replog._native import mapped_file, record_encoder, recorded_calls
from replog.config import LogConfig
from replog.storage.partition_log import PartitionLog

NOW_MS = 1_800_000_000_000
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=100)


@pytest.fixture(autouse=True)
def recording_table() -> Iterator[None]:
    recorded_calls.install()
    yield
    recorded_calls.uninstall()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Any]:
    log = reopened(tmp_path)
    append(log, 5)
    yield log
    recorded_calls.clear_faults()
    log.close(flush=not log.failed)


def reopened(folder: Path) -> Any:
    return PartitionLog.open(folder / "t-0", CONFIG, now_ms=lambda: NOW_MS)


def append(log: Any, count: int = 1) -> None:
    for _ in range(count):
        batch = record_encoder.encode([b"value" * 10], timestamps=NOW_MS, now_ms=NOW_MS)
        log.append_as_leader(batch, 0)


def values(log: Any) -> list[bytes]:
    return [record.value for record in log.records()]


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_an_append_without_space_leaves_nothing_and_works_again_later(log: Any, cause: int) -> None:
    size = os.path.getsize(os.path.join(log.path, f"{0:020d}.log"))
    recorded_calls.shorten("pwritev", 20, times=1, path=".log")
    recorded_calls.fail("pwritev", cause, nth=2, path=".log")
    with pytest.raises(errors.NoSpaceError) as caught:
        append(log)
    assert caught.value.retriable
    # As the standard library says it: who catches OSError asks for its number.
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == cause
    assert os.path.getsize(os.path.join(log.path, f"{0:020d}.log")) == size
    assert values(log) == [b"value" * 10] * 5
    assert log.log_end_offset == 5
    recorded_calls.clear_faults()
    append(log, 2)
    assert log.log_end_offset == 7
    assert len(values(log)) == 7


def test_an_append_that_meets_an_io_error_fails_the_log_for_good(log: Any, tmp_path: Path) -> None:
    recorded_calls.fail("pwritev", errno.EIO, times=1, path=".log")
    with pytest.raises(errors.LogFailedError):
        append(log)
    with pytest.raises(errors.LogFailedError):
        append(log)
    with pytest.raises(errors.LogFailedError):
        log.flush()
    assert values(log) == [b"value" * 10] * 5
    log.close(flush=False)
    again = reopened(tmp_path)
    assert values(again) == [b"value" * 10] * 5
    again.close()


def test_a_rollback_that_fails_too_fails_the_log_for_good(log: Any) -> None:
    recorded_calls.fail("pwritev", errno.ENOSPC, path=".log")
    recorded_calls.fail("ftruncate", errno.EIO, path=".log")
    with pytest.raises(errors.LogFailedError):
        append(log)
    recorded_calls.clear_faults()
    with pytest.raises(errors.LogFailedError):
        append(log)


def test_short_writes_go_on_until_all_is_written(log: Any) -> None:
    recorded_calls.shorten("pwritev", 7)
    append(log, 3)
    assert log.log_end_offset == 8
    assert values(log) == [b"value" * 10] * 8


@pytest.mark.parametrize(
    "kind", ["open", "pwritev", "fdatasync", "fsync_dir", "rename", "ftruncate"]
)
def test_an_interrupted_call_is_made_again(log: Any, kind: str) -> None:
    recorded_calls.fail(kind, errno.EINTR, times=3)
    append(log)
    log.roll()
    append(log)
    log.checkpoint()
    log.truncate_to(4)
    assert values(log) == [b"value" * 10] * 4


@pytest.mark.parametrize("cause", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_fails_the_log_for_good(log: Any, cause: int) -> None:
    """A second sync may lie: the kernel has dropped the pages that the first could not write."""
    recorded_calls.fail("fdatasync", cause, times=1, path=".log")
    with pytest.raises(errors.LogFailedError):
        log.flush()
    for use in (log.flush, lambda: append(log), lambda: log.truncate_to(1), log.checkpoint):
        with pytest.raises(errors.LogFailedError):
            use()
    assert log.recovery_point == 0


def test_a_failed_sync_of_the_directory_fails_the_log_for_good(log: Any) -> None:
    log.roll()
    recorded_calls.fail("fsync_dir", errno.EIO, times=1)
    with pytest.raises(errors.LogFailedError):
        log.flush()
    with pytest.raises(errors.LogFailedError):
        append(log)


def test_a_checkpoint_without_space_keeps_the_old_one_and_the_log_goes_on(
    log: Any, tmp_path: Path
) -> None:
    log.checkpoint()
    append(log)
    recorded_calls.fail("pwritev", errno.ENOSPC, path="offset-checkpoint")
    with pytest.raises(errors.NoSpaceError):
        log.checkpoint()
    checkpoint = tmp_path / "t-0" / "recovery-point-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 5\n"
    assert not any(name.endswith(".tmp") for name in os.listdir(log.path))
    recorded_calls.clear_faults()
    log.checkpoint()
    assert checkpoint.read_text() == "0\n1\nt 0 6\n"


@pytest.mark.parametrize(
    ("kind", "cause", "nth", "error", "text"),
    [
        ("open", errno.EACCES, 2, errors.StorageError, "to open '.*second.tmp'"),
        ("open", errno.EMFILE, 2, errors.OutOfDescriptorsError, "to open '.*second.tmp'"),
        ("pwritev", errno.ENOSPC, 2, errors.NoSpaceError, "write 3 bytes to '.*second.tmp'"),
        ("fdatasync", errno.EIO, 2, errors.LogFailedError, "to sync '.*second.tmp'"),
        ("fdatasync", errno.ENOSPC, 2, errors.LogFailedError, "to sync '.*second.tmp'"),
        ("rename", errno.EIO, 1, errors.LogFailedError, "to rename to '.*first' the file"),
        ("fsync_dir", errno.EIO, 1, errors.LogFailedError, "to sync the directory '.*'"),
        ("fsync_dir", errno.EMFILE, 1, errors.OutOfDescriptorsError, "to sync the directory"),
    ],
)
def test_files_that_are_replaced_together_are_so_or_the_error_names_the_one(
    tmp_path: Path, kind: str, cause: int, nth: int, error: type, text: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"old")
    recorded_calls.fail(kind, cause, nth=nth)
    with pytest.raises(error, match=text) as caught:
        mapped_file.replace_files({str(first): b"new", str(second): b"two"})
    assert getattr(caught.value, "of_sync", False) == ("to sync" in text and cause != errno.EMFILE)
    if kind != "fsync_dir":
        assert first.read_bytes() == b"old"
        assert not (tmp_path / "second").exists()
    assert (tmp_path / "second.tmp").exists() == (kind == "rename")
    recorded_calls.clear_faults()
    mapped_file.replace_files({str(first): b"new", str(second): b"two"})
    assert (first.read_bytes(), second.read_bytes()) == (b"new", b"two")
    assert sorted(os.listdir(tmp_path)) == ["first", "second"]


def test_files_of_several_directories_are_replaced_together_and_each_directory_synced_once(
    tmp_path: Path,
) -> None:
    contents = {}
    for number in range(40):
        folder = tmp_path / f"t-{number % 5}"
        folder.mkdir(exist_ok=True)
        contents[str(folder / f"file-{number}")] = f"content {number}".encode()
    kinds = ("open", "fdatasync", "close", "rename", "fsync_dir")
    before = [recorded_calls.call_count(kind) for kind in kinds]
    mapped_file.replace_files(contents)
    calls = [recorded_calls.call_count(kind) - was for kind, was in zip(kinds, before, strict=True)]
    assert calls == [40, 40, 40, 40, 5]
    for path, content in contents.items():
        assert Path(path).read_bytes() == content
        assert not os.path.exists(path + ".tmp")
    mapped_file.replace_files({})
    for wrong in ("text", bytearray(b"abc"), None):
        with pytest.raises(TypeError):
            mapped_file.replace_files({str(tmp_path / "wrong"): wrong})
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("kind", ["open", "fsync_dir"])
def test_files_are_replaced_although_descriptors_ran_out_where_one_of_ours_can_go(
    log: Any, tmp_path: Path, kind: str
) -> None:
    recorded_calls.fail(kind, errno.EMFILE, nth=1, times=1)
    mapped_file.replace_files({str(tmp_path / "first"): b"1", str(tmp_path / "second"): b"2"})
    assert (tmp_path / "second").read_bytes() == b"2"
    append(log)


def test_a_roll_without_space_leaves_the_log_as_it_was(log: Any) -> None:
    recorded_calls.fail("open", errno.ENOSPC, path=f"{5:020d}")
    with pytest.raises(errors.NoSpaceError):
        log.roll()
    assert values(log) == [b"value" * 10] * 5
    recorded_calls.clear_faults()
    append(log)
    log.roll()
    append(log)
    assert values(log) == [b"value" * 10] * 7


def test_an_index_without_space_does_not_stop_appends(log: Any) -> None:
    recorded_calls.fail("pwritev", errno.ENOSPC, path=".index")
    append(log, 5)
    assert len(values(log)) == 10
    recorded_calls.clear_faults()
    log.flush()


def test_a_cut_that_fails_fails_the_log_for_good(log: Any, tmp_path: Path) -> None:
    recorded_calls.fail("ftruncate", errno.EIO, path=".log")
    with pytest.raises(errors.LogFailedError):
        log.truncate_to(2)
    with pytest.raises(errors.LogFailedError):
        append(log)
    recorded_calls.clear_faults()
    log.close(flush=False)
    again = reopened(tmp_path)
    assert values(again) in ([b"value" * 10] * 2, [b"value" * 10] * 5)
    again.close()


def every_call(kind: str, work: Callable[[], None]) -> int:
    before = recorded_calls.call_count(kind)
    work()
    return recorded_calls.call_count(kind) - before


class Life:
    """A life of a log that goes on after a refusal; `outcomes`: what it may hold in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes: list[list[bytes]] = [[]]
        self.count = 0

    def play(self) -> None:
        try:
            log = reopened(self.folder)
        except errors.ReplogError:
            return
        for step in "aaarmaaacaakaa":
            held = self.outcomes[0]
            after = [*held, b"value %d" % self.count] if step == "a" else held
            after = held[:5] if step == "k" else after
            try:
                self.carry_out(log, step, after)
            except errors.ReplogError:
                if log.failed:  # half-way, and nothing goes any more
                    self.outcomes.append(after)
                    break
                assert values(log) == held
            else:
                self.outcomes = [after]
                assert values(log) == after
        with contextlib.suppress(errors.ReplogError):  # half a cut says so where it is met
            assert values(log) in self.outcomes
        with contextlib.suppress(errors.ReplogError):
            log.close()
        assert log.closed

    def carry_out(self, log: Any, step: str, after: list[bytes]) -> None:
        match step:
            case "a":
                self.count += 1
                log.append([after[-1]], timestamps=NOW_MS)
            case "r":
                log.roll()
            case "m":
                log.assign_epoch(log.latest_epoch + 1, log.log_end_offset)
            case "c":
                log.checkpoint()
            case _:
                log.truncate_to(5)


@pytest.mark.parametrize("cause", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize(
    "kind", ["open", "pwritev", "fdatasync", "ftruncate", "rename", "fsync_dir"]
)
def test_whichever_call_fails_the_log_holds_all_that_it_answered_and_nothing_else(
    tmp_path: Path, kind: str, cause: int
) -> None:
    """Fail the n-th call of a kind, for every n that a whole life of a log makes."""
    count = every_call(kind, lambda: Life(tmp_path / "whole").play())
    for nth in range(1, count + 1):
        life = Life(tmp_path / str(nth))
        recorded_calls.fail(kind, cause, nth=nth, times=1)
        life.play()
        recorded_calls.clear_faults()
        log = reopened(life.folder)
        assert values(log) in life.outcomes, (nth, values(log), life.outcomes)
        log.append([b"last"])
        log.close()
