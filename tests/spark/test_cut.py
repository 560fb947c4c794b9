"""A plan is a consistent cut: the same rows later, or an error that says what changed."""

from __future__ import annotations

import itertools
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

import spark_integration
from replog import LogConfig
from replog.cli.main import run
from replog.errors import (
    CorruptBatchError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    ReplogError,
    StorageError,
    UsageError,
)
from replog.storage.partition_log import PartitionLog
from spark_integration import inputs
from tests.spark.in_process import (
    GOLDEN,
    offsets,
    read_partition,
    reader_of,
    retain_from,
    rows,
    time_of,
    written,
)

BROKERS = [GOLDEN / "leader_changes" / f"broker-{n}" for n in (1, 2, 3)]
TRANSACTIONS = GOLDEN / "transactions" / "data"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "orders-0")


def append(log: Path, records: int, epoch: int | None = None) -> None:
    with PartitionLog.open(log, LogConfig(segment_bytes=4000, index_interval_bytes=300)) as opened:
        first = opened.log_end_offset
        values = [b"record %d" % n for n in range(first, first + records)]
        stamps = [time_of(n) for n in range(first, first + records)]
        for n in range(0, records, 10):
            opened.append(values[n : n + 10], timestamps=stamps[n : n + 10], leader_epoch=epoch)


def read_plan(reader: Any, planned: Any) -> list[int]:
    return [
        offset
        for part in planned
        for batch in read_partition(reader, part)
        for offset in batch["offset"].to_pylist()
    ]


def test_the_cut_is_fixed_when_the_plan_is_made(log: Path) -> None:
    reader = reader_of(log, "offset")
    planned = reader.partitions()
    append(log, 50)
    assert read_plan(reader, planned) == list(range(400))
    assert offsets(reader_of(log)) == {"orders-0": list(range(450))}


@pytest.mark.parametrize("cut_at", [0, 5, 150, 155, 390, 399])
def test_a_log_truncated_and_written_anew_since_the_plan_is_an_error(
    log: Path, cut_at: int
) -> None:
    """The same offsets and sizes, other bytes, in the next epoch: only stamps can tell."""
    reader = reader_of(log, "offset", "value", maxPartitionBytes="5000")
    planned = reader.partitions()
    with PartitionLog.open(log, LogConfig(segment_bytes=4000, index_interval_bytes=300)) as opened:
        opened.truncate_to(cut_at)
        while opened.log_end_offset < 400:
            opened.append([b"another"] * 10, leader_epoch=1)
    with pytest.raises(LogTruncatedError, match=r"truncated, compacted or replaced|no such file"):
        read_plan(reader, planned)


def test_a_range_before_a_truncation_still_gives_its_rows(log: Path) -> None:
    reader = reader_of(log, "offset", endingOffsets=json.dumps({"orders": {"0": 100}}))
    planned = reader.partitions()
    with PartitionLog.open(log, LogConfig(segment_bytes=4000, index_interval_bytes=300)) as opened:
        opened.truncate_to(200)
    assert read_plan(reader, planned) == list(range(100))


def test_truncation_between_two_batches_of_a_task_is_an_error(tmp_path: Path) -> None:
    """Method: the first batch is taken, then the log is cut below the plan's end and rewritten."""
    path = tmp_path / "large-0"
    with PartitionLog.open(path) as opened:
        for _ in range(40):
            opened.append([bytes(100_000)] * 2)
        reader = reader_of(path, "offset", "value")
        (part,) = reader.partitions()
        taken = reader.read(part)
        assert next(taken).num_rows
        opened.truncate_to(40)
        for _ in range(20):
            opened.append([b"x" * 100_000] * 2, leader_epoch=1)
        opened.flush()
        with pytest.raises(LogTruncatedError):
            list(taken)


def test_segments_deleted_since_the_plan_are_an_error_or_left_out(log: Path) -> None:
    strict = reader_of(log, "offset")
    lenient = reader_of(log, "offset", failOnDataLoss="false")
    planned = strict.partitions()
    gone = sorted(log.glob("*.log"))[:2]
    kept_from = int(sorted(log.glob("*.log"))[2].stem)
    for path in gone:
        path.unlink()
    with pytest.raises(LogTruncatedError, match=gone[0].name):
        read_plan(strict, planned)
    assert read_plan(lenient, planned) == list(range(kept_from, 400))


COMPACTED = GOLDEN / "compaction"
STAGES = ("before", "after-1", "after-2")


@pytest.mark.parametrize(("planned_on", "read_on"), list(itertools.pairwise(STAGES)), ids=str)
def test_a_log_compacted_since_the_plan_gives_the_same_rows_or_an_error(
    tmp_path: Path, planned_on: str, read_on: str
) -> None:
    """Method: the directory that Kafka's cleaner left takes the place of the one it found."""
    failed = 0
    for name in sorted(path.name for path in (COMPACTED / planned_on).glob("*-[0-9]*")):
        here = tmp_path / planned_on / name
        shutil.copytree(COMPACTED / planned_on / name, here)
        reader = reader_of(here, "offset", "value")
        planned = reader.partitions()
        before = [one for part in planned for one in read_partition(reader, part)]
        shutil.rmtree(here)
        shutil.copytree(COMPACTED / read_on / name, here)
        try:
            again = [one for part in planned for one in read_partition(reader, part)]
        except LogTruncatedError:
            failed += 1
        else:
            assert pa.Table.from_batches(again) == pa.Table.from_batches(before)
    assert failed


# -- snapshots


def test_a_snapshot_is_one_line_and_repeats_a_read(log: Path) -> None:
    token = spark_integration.snapshot(str(log.parent))
    assert "\n" not in token
    assert json.loads(token)["partitions"]["orders-0"]["end"] == 400
    first = rows(reader_of(log.parent, snapshot=token))
    append(log, 30)
    assert rows(reader_of(log.parent, snapshot=token)) == first
    assert len(first) == 400


def test_the_command_prints_a_snapshot(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark", "snapshot", str(log)]) == 0
    assert capsys.readouterr().out == spark_integration.snapshot(str(log)) + "\n"
    assert run(["spark", "snapshot", str(log.parent / "absent")]) != 0


def test_a_snapshot_takes_options_and_is_read_with_others(log: Path) -> None:
    limits = {"endingOffsets": json.dumps({"orders": {"0": 55}})}
    token = spark_integration.snapshot([str(log)], **limits)
    assert offsets(reader_of(log, snapshot=token)) == {"orders-0": list(range(55))}
    starting = json.dumps({"orders": {"0": 50}})
    narrowed = offsets(reader_of(log, snapshot=token, startingOffsets=starting))
    assert narrowed == {"orders-0": list(range(50, 55))}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_snapshot_holds_for_both_isolation_levels(tmp_path: Path, isolation: str) -> None:
    """What is decided later, above the snapshot's end, changes nothing below it."""
    directory = tmp_path / "data"
    shutil.copytree(TRANSACTIONS, directory)
    ends = {"endingOffsets": json.dumps({"txn": {"0": 40}}), "subscribe": "txn"}
    token = spark_integration.snapshot(str(directory), **ends)
    options = {"kafka.isolation.level": isolation, "snapshot": token, "subscribe": "txn"}
    early = tmp_path / "early"
    shutil.copytree(TRANSACTIONS, early)
    (early / "replication-offset-checkpoint").write_text("0\n1\ntxn 0 40\n")
    asked = {"kafka.isolation.level": isolation, "subscribe": "txn"}
    assert rows(reader_of(directory, **options)) == rows(reader_of(early, **asked))


def test_a_snapshot_of_records_that_are_gone_is_an_error(log: Path) -> None:
    token = spark_integration.snapshot(str(log))
    retain_from(log, 200)
    with pytest.raises(OffsetOutOfRangeError, match="take a new snapshot"):
        reader_of(log, snapshot=token).partitions()


def test_a_snapshot_of_a_log_written_anew_is_an_error(log: Path) -> None:
    token = spark_integration.snapshot(str(log))
    with PartitionLog.open(log, LogConfig(segment_bytes=4000)) as opened:
        opened.truncate_to(390)
    with pytest.raises(LogTruncatedError, match="high watermark at 390"):
        reader_of(log, snapshot=token).partitions()
    append(log, 10, epoch=1)
    with pytest.raises(LogTruncatedError, match="leader epoch 0 and CRC"):
        reader_of(log, snapshot=token).partitions()


def test_a_snapshot_of_a_log_compacted_since_is_an_error() -> None:
    before, after = GOLDEN / "compaction" / "before", GOLDEN / "compaction" / "after-2"
    token = spark_integration.snapshot(str(before))
    rows(reader_of(before, snapshot=token))
    with pytest.raises(ReplogError, match="snapshot"):
        reader_of(after, snapshot=token).partitions()


def test_a_snapshot_whose_partition_is_not_there_is_an_error(tmp_path: Path, log: Path) -> None:
    token = spark_integration.snapshot(str(log))
    other = written(tmp_path / "other" / "other-0", 10)
    with pytest.raises(UsageError, match="no orders-0"):
        reader_of(other, snapshot=token).partitions()


# -- replicas


def test_of_several_replicas_the_one_with_the_highest_watermark_is_read(tmp_path: Path) -> None:
    copies = []
    for number, mark in ((1, 200), (2, 300), (3, 250)):
        broker = tmp_path / f"broker-{number}"
        written(broker / "orders-0", 400)
        (broker / "meta.properties").write_text("version=1\n")
        (broker / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {mark}\n")
        copies.append(broker)
    reader = reader_of(copies)
    assert offsets(reader) == {"orders-0": list(range(300))}
    assert all("broker-2" in one.split.segment.path for one in reader.partitions()[0].ranges)


def test_replicas_that_kafka_wrote_are_the_same_and_are_read_once() -> None:
    one = offsets(reader_of(BROKERS[0]))
    assert offsets(reader_of(BROKERS, replicas="verify")) == one


@pytest.mark.parametrize(("field", "at"), [("base offset", 7), ("epoch", 15), ("records", 70)])
def test_replicas_that_differ_are_an_error_that_names_the_byte(
    tmp_path: Path, field: str, at: int
) -> None:
    paths = []
    for broker in ("one", "two"):
        written(tmp_path / broker / "orders-0")
        (tmp_path / broker / "meta.properties").write_text("version=1\n")
        paths.append(tmp_path / broker)
    assert len(offsets(reader_of(paths, replicas="verify"))["orders-0"]) == 400
    segment = sorted((tmp_path / "two" / "orders-0").glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    content[at] ^= 1
    segment.write_bytes(content)
    with pytest.raises(CorruptBatchError) as caught:
        reader_of(paths, replicas="verify").partitions()
    assert str(segment) in str(caught.value)
    if field != "records":
        assert caught.value.position in {0, at}


# -- what the driver refuses


def test_a_segment_that_may_not_be_read_is_a_sentence_on_the_driver(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = sorted(log.glob("*.log"))[2]
    monkeypatch.setattr(inputs.os, "access", lambda path, _: str(path) != str(segment))
    with pytest.raises(StorageError, match=f"{segment.name}.*Permission denied.*permissions"):
        reader_of(log).partitions()


def test_a_file_instead_of_a_directory_is_refused(log: Path) -> None:
    with pytest.raises(UsageError, match="found a file"):
        reader_of(min(log.glob("*.log"))).partitions()


def test_a_plan_carries_no_native_objects_and_a_reader_no_plan(log: Path) -> None:
    reader = reader_of(log, snapshot=spark_integration.snapshot(str(log)))
    assert b"replog_snapshot" not in pickle.dumps(reader)
    assert b"PartitionReader" not in pickle.dumps(reader.partitions())
