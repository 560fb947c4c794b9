"""`replog.Log`: what its user sees. What it does with the bytes is tested with `PartitionLog`."""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import replog
from replog import errors
from replog.storage import log as log_module

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {
    "append", "apply_retention", "close", "closed", "config", "delete_records", "failed", "flush",
    "follow", "high_watermark", "last_stable_offset", "log_end_offset", "log_start_offset",
    "offset_for_timestamp", "open", "path", "read", "record_batches", "records",
    "recovery_report", "size_bytes", "to_arrow", "topic_id", "topic_partition", "truncate_to",
}  # fmt: skip
SMALL = replog.LogConfig(segment_bytes=1000, file_delete_delay_ms=0, retention_ms=-1)
WAIT_S = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def offsets(records: object) -> list[int]:
    return [record.offset for record in records]  # type: ignore[attr-defined]


def numbered(log: replog.Log, count: int) -> None:
    for number in range(count):
        log.append([b"%d" % number], timestamps=1_000_000 + 1000 * number)


def test_it_has_what_a_user_needs_and_nothing_else(path: Path) -> None:
    with replog.Log.open(path) as log:
        assert {name for name in dir(log) if not name.startswith("_")} == NAMES
        assert not hasattr(log, "__dict__")


def test_a_log_directory_gives_the_same_kind_of_log(tmp_path: Path) -> None:
    with replog.LogDirectory.open(tmp_path) as directory:
        created = directory.create_partition("orders", 0)
        assert type(created) is replog.Log
        assert directory["orders", 0] is created
        assert ("orders", 0) in directory
        assert ("orders", 1) not in directory
        assert ["orders", 0] not in directory
        directory.delete_partition(("orders", 0))
        assert created.closed
        assert directory.create_partition("orders", 0) is not created


@pytest.mark.parametrize(("start", "end"), [(None, None), (3, None), (None, 5), (3, 5), (7, 2)])
def test_the_newest_first_is_the_same_the_other_way_round(
    path: Path, start: int | None, end: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "REVERSE_OFFSETS", 3)
    with replog.Log.open(path, SMALL) as log:
        numbered(log, 40)
        forth = list(log.records(start, end))
        assert list(log.records(start, end, reverse=True)) == forth[::-1]
        assert bool(forth) == ((start or 0) < (end or 40))


def test_a_wrong_start_is_told_at_once_in_both_directions(path: Path) -> None:
    with replog.Log.open(path) as log:
        numbered(log, 3)
        for reverse in (False, True):
            with pytest.raises(errors.OffsetOutOfRangeError):
                log.records(4, reverse=reverse)


def test_a_read_begins_at_a_time(path: Path) -> None:
    moment = dt.datetime(1970, 1, 1, 0, 16, 42, 1, tzinfo=dt.UTC)  # a microsecond after record 2
    with replog.Log.open(path) as log:
        numbered(log, 5)
        assert offsets(log.records(start_time=moment)) == [3, 4]
        assert offsets(log.records(start_time=1_002_000)) == [2, 3, 4]
        assert log.to_arrow(start_time=moment).num_rows == 2
        assert offsets(log.records(start_time=moment, reverse=True)) == [4, 3]
        assert offsets(log.records(start_time=dt.datetime.now(dt.UTC))) == []
        found = log.offset_for_timestamp(moment)
        assert found is not None
        assert (found.offset, found.timestamp) == (3, 1_003_000)
        with pytest.raises(errors.UsageError, match="start_offset or start_time"):
            log.records(0, start_time=moment)
        with pytest.raises(errors.UsageError, match="time zone"):
            log.records(start_time=moment.replace(tzinfo=None))


def test_batches_come_one_at_a_time_with_the_columns_asked_for(path: Path) -> None:
    with replog.Log.open(path, SMALL) as log:
        numbered(log, 40)
        reader = log.record_batches(5, 35, columns=["offset"])
        assert isinstance(reader, pa.RecordBatchReader)
        assert reader.schema.names == ["offset"]
        batches = list(reader)
        assert len(batches) > 1  # one a segment
        assert pa.Table.from_batches(batches)["offset"].to_pylist() == list(range(5, 35))
        empty = log.record_batches(40)
        assert empty.read_all().num_rows == 0


def test_deleted_records_are_gone_and_their_segments_go_with_retention(path: Path) -> None:
    with replog.Log.open(path, SMALL) as log:
        numbered(log, 40)
        before = log.size_bytes
        assert log.delete_records(30) == 30
        assert offsets(log) == list(range(30, 40))
        assert log.apply_retention()
        assert log.size_bytes < before
        assert log.delete_records(3) == 30
        with pytest.raises(errors.OffsetOutOfRangeError):
            log.delete_records(41)


def test_a_follower_gets_what_others_append_while_it_waits(path: Path) -> None:
    with replog.Log.open(path) as log:
        numbered(log, 2)
        found: list[int] = []
        arrived = threading.Semaphore(0)

        def follow() -> None:
            for record in log.follow(0, timeout=WAIT_S):
                found.append(record.offset)
                arrived.release()
                if record.offset == 4:
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        for end_offset in (2, 3, 5):
            while log.log_end_offset < end_offset:
                log.append([b"later"])
            while len(found) < end_offset:
                assert arrived.acquire(timeout=WAIT_S)
        thread.join(WAIT_S)
        assert found == [0, 1, 2, 3, 4]


def test_a_follower_ends_when_nothing_has_come_in_time(path: Path) -> None:
    with replog.Log.open(path) as log:
        numbered(log, 3)
        assert offsets(log.follow(1, timeout=0)) == [1, 2]
        began = time.monotonic()
        assert offsets(log.follow(timeout=0.05)) == []
        assert time.monotonic() - began >= 0.05


def test_a_follower_sleeps_while_it_waits(path: Path) -> None:
    with replog.Log.open(path) as log:
        began_s = time.thread_time()
        assert offsets(log.follow(timeout=0.3)) == []
        assert time.thread_time() - began_s < 0.1


def test_a_follower_of_a_log_that_is_closed_is_told(path: Path) -> None:
    log = replog.Log.open(path)
    raised: list[Exception] = []

    following = log.follow(timeout=WAIT_S)

    def follow() -> None:
        try:
            list(following)
        except errors.ReplogError as error:
            raised.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    log.close()
    thread.join(WAIT_S)
    assert [type(error) for error in raised] == [errors.LogClosedError]


def test_a_gap_by_retention_is_an_error_or_counted(path: Path) -> None:
    with replog.Log.open(path) as log:
        numbered(log, 6)
        following, counting = log.follow(0, timeout=0), None
        gaps: list[tuple[int, int]] = []
        counting = log.follow(
            0, timeout=0, on_gap=lambda expected, start: gaps.append((expected, start))
        )
        log.delete_records(4)
        with pytest.raises(errors.OffsetOutOfRangeError):
            next(following)
        assert offsets(counting) == [4, 5]
        assert gaps == [(0, 4)]


def test_a_follower_behind_a_cut_is_told(path: Path) -> None:
    with replog.Log.open(path) as log:
        numbered(log, 6)
        following = log.follow(0, timeout=0)
        assert [next(following).offset for _ in range(6)] == list(range(6))
        log.truncate_to(3)
        with pytest.raises(errors.OffsetOutOfRangeError):
            next(following)


@pytest.mark.parametrize("timeout", [-1, "1", float("nan"), True])
def test_a_timeout_that_is_none_is_refused(path: Path, timeout: object) -> None:
    with replog.Log.open(path) as log, pytest.raises(errors.UsageError, match="timeout"):
        log.follow(timeout=timeout)  # type: ignore[arg-type]


def test_options_are_kept_for_the_next_opening(path: Path) -> None:
    commit = replog.LogConfig(flush_mode="commit", segment_bytes=5000)
    replog.Log.open(path).close()
    assert not (path / ".replog_options").exists()
    replog.Log.open(path, commit).close()
    with replog.Log.open(path) as log:
        assert log.config == commit
    replog.Log.open(path, replog.LogConfig()).close()
    with replog.Log.open(path) as log:
        assert log.config == replog.LogConfig()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"{}", b'{"version": 1, "options": {}}',
     b'{"version": 0, "options": {"segment_bytes": 1}}', b'{"version": 0, "options": {"x": 1}}'],
)  # fmt: skip
def test_options_that_cannot_be_read_are_told_and_replaced(path: Path, content: bytes) -> None:
    replog.Log.open(path, SMALL).close()
    (path / ".replog_options").write_bytes(content)
    with pytest.raises(errors.CorruptFileError, match="config"):
        replog.Log.open(path)
    replog.Log.open(path, SMALL).close()
    assert json.loads((path / ".replog_options").read_bytes())["version"] == 0
    with replog.Log.open(path) as log:
        assert log.config == SMALL


def test_its_name_says_how_it_stands(path: Path) -> None:
    log = replog.Log.open(path)
    log.append([b"a", b"b"])
    assert repr(log) == "<replog.Log orders-0 [0, 2)>"
    log.close()
    assert repr(log) == "<replog.Log orders-0 [0, 2), closed>"


@pytest.mark.parametrize("home", ["alone", "directory"])
def test_a_forked_child_that_closes_leaves_the_log_to_its_parent(tmp_path: Path, home: str) -> None:
    """A clean marker under a living parent makes its next crash look like a clean stop."""
    owner: replog.Log | replog.LogDirectory
    if home == "alone":
        owner = log = replog.Log.open(tmp_path / "orders-0")
        markers = tmp_path / "orders-0"
    else:
        owner = replog.LogDirectory.open(tmp_path)
        log = owner.create_partition("orders", 0)
        markers = tmp_path
    log.append([b"first"])
    before = sorted(os.listdir(markers))
    contents = {
        name: (markers / name).read_bytes() for name in before if (markers / name).is_file()
    }
    child = multiprocessing.get_context("fork").Process(target=owner.close)
    child.start()
    child.join(WAIT_S)
    assert child.exitcode == 0
    assert sorted(os.listdir(markers)) == before
    assert contents == {name: (markers / name).read_bytes() for name in contents}
    log.append([b"second"])
    owner.close()
    if home == "alone":
        owner = log = replog.Log.open(tmp_path / "orders-0")
    else:
        owner = replog.LogDirectory.open(tmp_path)
        log = owner["orders", 0]
    assert [record.value for record in log] == [b"first", b"second"]
    assert log.recovery_report.clean
    owner.close()


def test_the_type_checker_refuses_text_for_bytes(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import replog\n"
        "with replog.Log.open('orders-0') as log:\n"
        "    log.append([b'right'], keys=[None])\n"
        "    log.append('text')\n"
        "    log.append(['text'])\n"
        "    log.append(b'bytes')\n"
    )
    told, _, code = api.run(["--strict", "--no-incremental", "--follow-imports=silent", str(wrong)])
    assert code == 1
    lines = {int(line.split(":")[1]) for line in told.splitlines() if ": error:" in line}
    assert lines == {4, 5, 6}
