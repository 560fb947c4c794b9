"""Kafka's storage classes and DumpLogSegments on directories that replog wrote: the same rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from replog._native import producer_snapshot, record_batch
from replog._native.transaction_index import TransactionIndex
from replog.storage.checkpoint_files import read_leader_epochs, read_offset_checkpoint
from replog.storage.partition_log import PartitionLog
from replog.types import TopicPartition
from tests.fixtures.cases import Row
from tests.fixtures.rows import rows_of_batches
from tests.judge.kafka import Judge
from tests.judge.written import KINDS

pytestmark = [pytest.mark.java, pytest.mark.parametrize("kind", sorted(KINDS))]


def copied(written: Path, kind: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written / f"{kind}-0", tmp_path / f"{kind}-0"))


def rows_of(directory: Path) -> list[Row]:
    """Every record of every segment as replog's decoder gives it."""
    name = TopicPartition.parse(directory.name)
    rows: list[Row] = []
    for path in sorted(directory.glob("*.log")):
        content = memoryview(path.read_bytes())
        scan = record_batch.scan(content)
        assert scan.end == len(content), scan.problem
        rows += rows_of_batches(*name, content, scan.headers)
    return rows


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_file_records_give_the_rows_that_replog_gives(
    judge: Judge, written: Path, kind: str, tmp_path: Path
) -> None:
    directory = copied(written, kind, tmp_path)
    count = judge.ask("read", dir=directory, out=tmp_path / "rows")["records"]
    ours = rows_of(directory)
    assert count == len(ours) > 0
    assert lines(tmp_path / "rows") == ours


def test_index_files_agree_with_the_log(
    judge: Judge, written: Path, kind: str, tmp_path: Path
) -> None:
    checked = judge.ask("check_indexes", dir=copied(written, kind, tmp_path))
    assert checked["complaints"] == []
    assert checked["entries"] > 0


def test_dump_log_segments_has_no_complaint(
    judge: Judge, written: Path, kind: str, tmp_path: Path
) -> None:
    directory = copied(written, kind, tmp_path)
    logs = sorted(map(str, directory.glob("*.log")))
    text = judge.ask("dump", args=["--deep-iteration", "--files", ",".join(logs)])
    assert "isvalid: false" not in text
    assert text.count("| offset:") == len(rows_of(directory))
    indexes = [str(path) for path in sorted(directory.glob("*.*index")) if path.stat().st_size]
    plain = [path for path in indexes if not path.endswith(".txnindex")]
    text = judge.ask("dump", args=["--index-sanity-check", "--files", ",".join(plain)])
    assert text.count("passed sanity check.") == len(plain)
    text = judge.ask("dump", args=["--deep-iteration", "--files", ",".join(indexes)])
    for complaint in ("Mismatches", "mismatch", "out of order", "not found"):
        assert complaint not in text, text


def test_side_files_say_to_kafka_what_they_say_to_replog(
    judge: Judge, written: Path, kind: str, tmp_path: Path
) -> None:
    directory = copied(written, kind, tmp_path)
    ours: Row = {}
    for path in sorted(directory.glob("*.snapshot")):
        entries = sorted(producer_snapshot.read_snapshot(path.read_bytes()))
        ours[path.name] = [entry._asdict() for entry in entries]
    for path in sorted(directory.glob("*.txnindex")):
        index = TransactionIndex(str(path), int(path.name[:20]))
        ours[path.name] = [{"version": 0} | entry._asdict() for entry in index.entries()]
        index.close()
    epochs = read_leader_epochs(directory / "leader-epoch-checkpoint") or []
    ours["leader-epoch-checkpoint"] = [list(entry) for entry in epochs]
    assert judge.ask("side_files", dir=directory) == ours


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafkas_log_loads_to_the_state_that_replog_left(
    judge: Judge, written: Path, kind: str, clean: bool, tmp_path: Path
) -> None:
    """Goal: both may open the other's directories. Unclean: Kafka recovers from the first byte."""
    directory = copied(written, kind, tmp_path)
    copy = str(copied(written, kind, tmp_path / "ours"))
    with PartitionLog.open(copy, KINDS[kind].config) as log:
        ours = {
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "last_stable_offset": log.last_stable_offset,
            "epochs": [list(entry) for entry in log.epochs],
            "producers": sorted(entry.producer_id for entry in log.producer_entries),
            "segments": [
                {
                    "base_offset": segment.base_offset,
                    "size": segment.size_bytes,
                    "next_offset": segment.next_offset(),
                }
                for segment in log.segments
            ],
        }
    starts = read_offset_checkpoint(directory / "log-start-offset-checkpoint") or {}
    state = judge.ask(
        "open",
        dir=directory,
        config=KINDS[kind].topic_config(),
        log_start_offset=starts.get(TopicPartition.parse(directory.name), 0),
        recovery_point=ours["log_end_offset"] if clean else 0,
        clean=clean,
        out=tmp_path / "rows",
    )
    state["producers"] = [entry["producer_id"] for entry in state["producers"]]
    assert {key: state[key] for key in ours} == ours
    start = ours["log_start_offset"]
    read = rows_of(written / directory.name)
    assert lines(tmp_path / "rows") == [row for row in read if row["offset"] >= start]
