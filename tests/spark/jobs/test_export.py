"""Export without a JVM: every row once, whatever is killed, grows or goes away in between."""

from __future__ import annotations

import base64
import os
import shutil
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import replog
from replog.errors import (
    CorruptBatchError,
    CorruptFileError,
    LogDirectoryLockedError,
    LogTruncatedError,
    UsageError,
)
from replog.reader import PartitionReader
from replog.storage.partition_log import PartitionLog
from replog.types import Isolation
from spark_integration.jobs import dated_files, durable_files, export_state
from spark_integration.jobs.engine import LocalEngine
from spark_integration.jobs.export import ExportReport, export
from tests.reader.consumed import Consumed, consumed
from tests.spark.jobs.exports import (
    FIRST_DAY_MS,
    SECOND_DAY_MS,
    STEP,
    append,
    rows,
    visible,
)

KINDS = {"CreateTime": 0, "LogAppendTime": 1}
WHOLE = [one for one in consumed() if not any("error" in x for x in one.counts().values())]


def run(path: Path, output: Path, **options: object) -> ExportReport:
    return export([path], output, LocalEngine(1), **options)


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("told", WHOLE, ids=str)
def test_files_hold_what_kafkas_consumer_read(told: Consumed, tmp_path: Path) -> None:
    report = run(told.directory, tmp_path / "out", isolation=Isolation(told.isolation))
    expected = {
        (row["topic"], row["partition"], row["offset"]): (
            decoded(row["key"]),
            decoded(row["value"]),
            row["timestamp"],
            KINDS[row["timestamp_type"]],
            row["leader_epoch"],
            [(name, decoded(value)) for name, value in row["headers"]] or None,
        )
        for partition in told.partitions()
        for row in told.rows()[partition.name]
        if row["offset"] < PartitionReader(partition.path).bound(told.isolation)
    }
    found = {}
    for row in rows(tmp_path / "out") if report.files else ():
        stamp = row.get("timestampMillis")
        stamp = stamp if stamp is not None else row["timestamp"] // 1000
        headers = row["headers"] and [(one["key"], one["value"]) for one in row["headers"]]
        found[row["topic"], row["partition"], row["offset"]] = (
            *(row[name] for name in ("key", "value")),
            stamp,
            *(row[name] for name in ("timestampType", "leaderEpoch")),
            headers,
        )
    consumed_topics = {key[0] for key in expected}
    assert {key: row for key, row in found.items() if key[0] in consumed_topics} == expected
    assert report.records == len(found)


def test_a_second_run_exports_only_what_came_since(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 100)
    assert run(tmp_path / "t-0", tmp_path / "out").records == 100
    first = visible(tmp_path / "out")
    assert run(tmp_path / "t-0", tmp_path / "out").files == 0
    assert visible(tmp_path / "out") == first
    append(tmp_path / "t-0", 50, first=100)
    assert run(tmp_path / "t-0", tmp_path / "out").records == 50
    assert first.items() <= visible(tmp_path / "out").items()
    assert [row["offset"] for row in rows(tmp_path / "out")] == list(range(150))


def test_rows_are_filed_by_their_utc_date_and_cut_at_the_size_asked_for(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 4000)
    append(tmp_path / "t-0", 1000, first=4000, timestamp=SECOND_DAY_MS)
    report = run(tmp_path / "t-0", tmp_path / "out", file_bytes=40_000)
    assert report.files >= 5
    found = rows(tmp_path / "out")
    assert [row["offset"] for row in found] == list(range(5000))
    assert {row["date"] for row in found[:4000]} == {"2023-11-14"}
    assert {row["date"] for row in found[4000:]} == {"2023-11-15"}


def test_a_time_without_a_date_keeps_its_milliseconds(tmp_path: Path) -> None:
    stamps = [0, 2**62, -1, 253402300800000]
    config = replog.LogConfig(message_timestamp_after_max_ms=2**63 - 1)
    with PartitionLog.open(tmp_path / "t-0", config) as log:
        log.append([b"x"] * 4, timestamps=stamps)
    run(tmp_path / "t-0", tmp_path / "out")
    found = rows(tmp_path / "out")
    dates = [row["date"] for row in found]
    assert dates == ["1970-01-01", None, "1969-12-31", None]
    assert [row["timestampMillis"] for row in found] == [None, 2**62, None, stamps[3]]


def test_many_dates_in_one_range_keep_few_files_open(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(dated_files, "OPEN_FILES_MAX", 3)
    monkeypatch.setattr(dated_files, "HELD_BYTES_MAX", 2000)
    with PartitionLog.open(tmp_path / "t-0") as log:
        days = [FIRST_DAY_MS + number % 7 * 86_400_000 for number in range(70)]
        log.append([b"x" * 100] * 35, timestamps=days[:35])
        log.append([b"x" * 100] * 35, timestamps=days[35:])
    run(tmp_path / "t-0", tmp_path / "out")
    found = rows(tmp_path / "out")
    assert [row["offset"] for row in found] == list(range(70))
    assert len({row["date"] for row in found}) == 7


class Killed(BaseException):
    """Stands for kill -9: nothing in the product catches it."""


class Killer:
    """Fails the n-th of the calls that change what is on disk, and each one after it.

    Nothing is synced: what a killed process wrote stays.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.left = at
        for module, name in (
            (os, "replace"),
            (os, "remove"),
            (os, "makedirs"),
            (shutil, "rmtree"),
        ):
            monkeypatch.setattr(module, name, self.wrapped(getattr(module, name)))
        monkeypatch.setattr(os, "fsync", self.wrapped(lambda _: None))

    def wrapped(self, call):
        def counted(*arguments, **options):
            self.left -= 1
            if self.left < 0:
                raise Killed
            return call(*arguments, **options)

        return counted


def test_killed_at_any_step_the_next_run_makes_the_files_of_an_unbroken_one(tmp_path: Path) -> None:
    """Goal: same files, and never a broken one in sight. Method: stop at each step, then rerun."""
    append(tmp_path / "t-0", 400)
    append(tmp_path / "t-0", 50, first=400, timestamp=SECOND_DAY_MS)
    append(tmp_path / "t-1", 30)
    source = tmp_path / "logs"
    source.mkdir()
    for name in ("t-0", "t-1"):
        shutil.move(tmp_path / name, source / name)
    run(source, tmp_path / "unbroken", file_bytes=20_000)
    wanted = visible(tmp_path / "unbroken")
    assert len(wanted) >= 3
    resumed = 0
    for step in range(0, 10_000, STEP):
        output = tmp_path / f"out-{step}"
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, step)
            try:
                run(source, output, file_bytes=20_000)
            except Killed:
                ended = False
            else:
                ended = True
        if output.exists():
            assert visible(output).items() <= wanted.items()
        resumed += run(source, output, file_bytes=20_000).resumed
        assert visible(output) == wanted, f"after step {step}"
        shutil.rmtree(output)
        if ended:
            break
    assert step > 40
    assert resumed > 10 // STEP


def test_killed_around_its_commit_while_the_log_grows_no_record_comes_twice(tmp_path: Path) -> None:
    """A run that became visible and was forgotten would be exported again with other ranges."""
    append(tmp_path / "t-0", 400)
    with pytest.MonkeyPatch.context() as patch:
        killer = Killer(patch, 1_000_000)
        assert run(tmp_path / "t-0", tmp_path / "whole", file_bytes=5000).files > 1
    steps = 1_000_000 - killer.left
    resumed = 0
    for step in range(steps - 16, steps):
        shutil.copytree(tmp_path / "t-0", tmp_path / str(step) / "t-0")
        log, output = tmp_path / str(step) / "t-0", tmp_path / str(step) / "out"
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, step)
            with pytest.raises(Killed):
                run(log, output, file_bytes=5000)
        append(log, 40, first=400)
        resumed += run(log, output).resumed
        run(log, output)
        assert [row["offset"] for row in rows(output)] == list(range(440)), f"after step {step}"
    assert 0 < resumed < 16


def test_what_retention_took_first_is_an_error_unless_allowed(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 50)
    run(tmp_path / "t-0", tmp_path / "out")
    append(tmp_path / "t-0", 50, first=50)
    with PartitionLog.open(tmp_path / "t-0") as log:
        log.truncate_prefix_to(80)
    with pytest.raises(LogTruncatedError, match=r"\[50, 100\) of t-0"):
        run(tmp_path / "t-0", tmp_path / "out")
    assert run(tmp_path / "t-0", tmp_path / "out", allow_loss=True).records == 20
    offsets = [row["offset"] for row in rows(tmp_path / "out")]
    assert offsets == [*range(50), *range(80, 100)]


@pytest.mark.parametrize("records", [30, 80])
def test_another_log_of_the_same_name_is_refused(tmp_path: Path, records: int) -> None:
    append(tmp_path / "t-0", 60)
    run(tmp_path / "t-0", tmp_path / "out")
    shutil.rmtree(tmp_path / "t-0")
    with PartitionLog.open(tmp_path / "t-0") as log:
        log.append([b"other"] * records, leader_epoch=7)
    with pytest.raises((UsageError, LogTruncatedError), match="t-0"):
        run(tmp_path / "t-0", tmp_path / "out")


def test_damage_stops_the_run_and_nothing_of_it_is_seen(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 100)
    run(tmp_path / "t-0", tmp_path / "out")
    before = visible(tmp_path / "out")
    append(tmp_path / "t-0", 500, first=100)
    (segment,) = (tmp_path / "t-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with pytest.raises(CorruptBatchError, match=segment.name):
        run(tmp_path / "t-0", tmp_path / "out")
    assert visible(tmp_path / "out") == before


def test_what_cannot_be_exported_is_said_in_a_sentence(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 10)
    with pytest.raises(UsageError, match="topic 'u'"):
        run(tmp_path / "t-0", tmp_path / "out", topics=["u"])
    with pytest.raises(UsageError, match="compression"):
        run(tmp_path / "t-0", tmp_path / "out", compression="zip")
    with pytest.raises(UsageError, match="other files"):
        run(tmp_path / "t-0", tmp_path)
    with pytest.raises(UsageError, match="found nothing"):
        run(tmp_path / "absent", tmp_path / "out")
    with replog.LogDirectory.open(tmp_path / "empty"), pytest.raises(UsageError, match="TOPIC-N"):
        run(tmp_path / "empty", tmp_path / "out")
    run(tmp_path / "t-0", tmp_path / "out")
    with pytest.raises(UsageError, match="read_uncommitted of the earlier runs"):
        run(tmp_path / "t-0", tmp_path / "out", isolation=Isolation.TXN_COMMITTED)
    with (
        export_state.open_state(str(tmp_path / "out")),
        pytest.raises(LogDirectoryLockedError, match="one running"),
    ):
        run(tmp_path / "t-0", tmp_path / "out")


def test_a_lost_or_damaged_record_of_a_run_is_no_reason_to_export_twice(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 10)
    run(tmp_path / "t-0", tmp_path / "out")
    append(tmp_path / "t-0", 10, first=10)
    run(tmp_path / "t-0", tmp_path / "out")
    record = tmp_path / "out" / "_replog" / "committed" / "00000001.json"
    kept = record.read_text()
    for text in ("{", '{"version": 9}', "null"):
        record.write_text(text)
        with pytest.raises(CorruptFileError, match=record.name):
            run(tmp_path / "t-0", tmp_path / "out")
    record.unlink()
    with pytest.raises(CorruptFileError, match="without a hole"):
        run(tmp_path / "t-0", tmp_path / "out")
    record.write_text(kept)
    assert run(tmp_path / "t-0", tmp_path / "out").files == 0


def test_several_replicas_count_once_and_the_furthest_is_read(tmp_path: Path) -> None:
    append(tmp_path / "a" / "t-0", 100)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    append(tmp_path / "b" / "t-0", 20, first=100)
    report = export([tmp_path / "a", tmp_path / "b"], tmp_path / "out", LocalEngine(2))
    assert report.records == 120


def test_a_log_that_is_written_meanwhile_is_exported_once_each_record(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "t-0", replog.LogConfig(segment_bytes=20_000)) as log:

        def write() -> None:
            for _ in range(50):
                first = log.log_end_offset
                log.append([b"%d" % number for number in range(first, first + 20)])

        for _ in range(4):
            writer = threading.Thread(target=write)
            writer.start()
            run(tmp_path / "t-0", tmp_path / "out")
            writer.join()
    run(tmp_path / "t-0", tmp_path / "out")
    found = rows(tmp_path / "out")
    assert [row["offset"] for row in found] == list(range(4000))
    assert all(row["value"] == b"%d" % row["offset"] for row in found)


def test_files_have_types_that_spark_reads_as_the_sources(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 20)
    run(tmp_path / "t-0", tmp_path / "out", compression="none")
    (name,) = visible(tmp_path / "out")
    assert pq.read_schema(tmp_path / "out" / name).equals(dated_files.SCHEMA)


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "record.json")
    assert durable_files.read_json(path) is None
    durable_files.replace_json(path, [1])
    with pytest.MonkeyPatch.context() as patch:
        Killer(patch, 1)
        with pytest.raises(Killed):
            durable_files.replace_json(path, [2])
    assert durable_files.read_json(path) == [1]
