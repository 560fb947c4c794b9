"""Partitions that Kafka wrote, opened where nothing says how they were stopped: nothing is cut."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

import pytest

from replog.config import LogConfig
from replog.errors import CorruptBatchError
from replog.reader import PartitionReader
from replog.storage.checkpoint_files import write_offset_checkpoint
from replog.storage.log_directory import LogDirectory
from replog.storage.open_mark import OPEN_MARK_FILE
from replog.storage.partition_log import PartitionLog
from replog.types import Isolation, TopicPartition
from tests.fixtures.cases import ROOT, Partition, cases, stages
from tests.oracle import kafka_files

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = ["delete", "compact", "compact,delete"]
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def partitions() -> list[Partition]:
    """Every partition of the fixtures whose files are whole."""
    return [
        Partition(case, stage, path.name)
        for case in cases()
        for stage in stages(case)
        if not stage.startswith("torn")
        for path in sorted((ROOT / case / stage).iterdir())
        if path.is_dir() and any(path.glob("*.log")) and "delete" not in path.name
    ]


PARTITIONS = partitions()
COMPACTED = [found for found in PARTITIONS if found.case == "compaction"]
DIRECTORIES = sorted({(found.case, found.stage) for found in PARTITIONS})


def records_of(path: Path) -> dict[str, bytes]:
    """The data files, less the zeros that Kafka puts behind the batches of one that is live."""
    return {file.name: file.read_bytes().rstrip(b"\0") for file in path.glob("*.log")}


def offsets_of(log: PartitionLog) -> list[int]:
    offsets: list[int] = log.to_arrow(isolation=Isolation.LOG_END)["offset"].to_pylist()
    return offsets


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_a_copy_of_a_partition_alone_keeps_every_batch(
    tmp_path: Path, partition: Partition, policy: str
) -> None:
    """Without a checkpoint of the log directory above it, whatever the options say of its topic."""
    copy = tmp_path / partition.name
    shutil.copytree(partition.path, copy)
    before = records_of(copy)
    with PartitionLog.open(copy, LogConfig(cleanup_policy=policy)) as log:
        offsets = offsets_of(log)
        log.close(flush=False)
    assert not list(copy.glob("*.torn"))
    # Killed, closed, and by a reader: as the first one found it.
    for _ in range(2):
        with PartitionLog.open(copy) as log:
            assert offsets_of(log) == offsets
    assert PartitionReader(copy).to_arrow()["offset"].to_pylist() == offsets
    assert records_of(copy) == before


def test_the_fixtures_have_holes_in_segments_and_between_them() -> None:
    """What the tests above are about is there, and most of it in what the tests call compacted."""
    wide = 0
    for partition in COMPACTED:
        rows = partition.answers("batches.jsonl.gz")
        pairs = itertools.pairwise(rows)
        wide += sum(one["last_offset"] + 1 != other["base_offset"] for one, other in pairs)
    assert wide > 20


@pytest.mark.parametrize("stop", ["unclean", "as it was"])
@pytest.mark.parametrize("points", ["as they were", "missing", "stale"])
@pytest.mark.parametrize(("case", "stage"), DIRECTORIES, ids=str)
def test_a_log_directory_of_kafkas_keeps_every_batch(
    tmp_path: Path, case: str, stage: str, points: str, stop: str
) -> None:
    copy = tmp_path / "logs"
    shutil.copytree(ROOT / case / stage, copy)
    if stop == "unclean":
        (copy / ".kafka_cleanshutdown").unlink(missing_ok=True)
    if points == "missing":
        (copy / RECOVERY_POINTS).unlink(missing_ok=True)
    elif points == "stale" and (copy / RECOVERY_POINTS).exists():
        write_offset_checkpoint(copy / RECOVERY_POINTS, {TopicPartition("gone", 0): 5})
    before = {path.name: records_of(path) for path in copy.iterdir() if path.is_dir()}
    with LogDirectory.open(copy) as logs:
        assert not logs.refused
        offsets = {key: offsets_of(logs[key]) for key in logs}
        logs.abandon()
    with LogDirectory.open(copy) as logs:
        assert not logs.refused
        assert {key: offsets_of(logs[key]) for key in logs} == offsets
    assert {path.name: records_of(path) for path in copy.iterdir() if path.is_dir()} == before
    assert not list(copy.glob("*/*.torn"))


@pytest.mark.parametrize("partition", COMPACTED, ids=str)
@pytest.mark.parametrize("stop", ["closed", "killed"])
def test_a_compacted_partition_that_is_copied_into_a_directory_of_ours_is_kept(
    tmp_path: Path, partition: Partition, stop: str
) -> None:
    """Behind a clean stop it is known for another one's; behind a kill it is refused at worst."""
    with LogDirectory.open(tmp_path) as logs:
        logs.create_partition("orders", 0).append([b"a"])
        if stop == "killed":
            logs.abandon()
    copy = tmp_path / partition.name
    shutil.copytree(partition.path, copy)
    before = records_of(copy)
    with LogDirectory.open(tmp_path) as logs:
        refused = logs.refused
        if stop == "closed":
            assert not refused
            assert offsets_of(logs[TopicPartition.parse(partition.name)])
    for error in refused.values():
        assert "cleanup_policy='compact'" in str(error)
    assert records_of(copy) == before
    compact = {partition.topic: LogConfig(cleanup_policy="compact")}
    for configs in (compact, None):
        with LogDirectory.open(tmp_path, configs=configs) as logs:
            assert not logs.refused
            assert offsets_of(logs[TopicPartition.parse(partition.name)])
    assert records_of(copy) == before


@pytest.mark.parametrize("home", ["alone", "directory"])
def test_damage_with_whole_batches_behind_it_is_refused_until_told_to_cut(
    tmp_path: Path, home: str
) -> None:
    """Kafka's own recovery cuts there; nobody can tell a torn write from rot, so nobody guesses."""
    partition = next(one for one in PARTITIONS if one.case == "crash" and one.stage == "killed")
    copy = tmp_path / partition.name
    shutil.copytree(partition.path, copy)
    segment = next(path for path in copy.glob("*.log") if path.stat().st_size > 1500)
    content = bytearray(segment.read_bytes())
    batches = list(kafka_files.batches(bytes(content)))
    content[batches[2].position + 70] ^= 1
    segment.write_bytes(content)
    before = {path.name: path.read_bytes() for path in copy.iterdir() if path.suffix == ".log"}
    side = {path.name: path.read_bytes() for path in copy.iterdir() if "index" in path.suffix}
    cut = LogConfig(unclean_recovery="cut")
    if home == "alone":
        for _ in range(2):
            with pytest.raises(CorruptBatchError, match="unclean_recovery='cut'") as refused:
                PartitionLog.open(copy)
            assert refused.value.path == str(segment)
            assert refused.value.position == batches[2].position
        assert {name: (copy / name).read_bytes() for name in side} == side
    else:
        for _ in range(2):
            with LogDirectory.open(tmp_path) as logs:
                assert "whole ones" in str(logs.refused[TopicPartition.parse(partition.name)])
                logs.close()
            assert (tmp_path / OPEN_MARK_FILE).exists()
    assert {name: (copy / name).read_bytes() for name in before} == before
    if home == "alone":
        with PartitionLog.open(copy, cut) as log:
            assert log.log_end_offset == batches[2].base_offset
            assert log.recovery_report.cut_bytes
    else:
        with LogDirectory.open(tmp_path, cut) as logs:
            assert not logs.refused
            assert logs[TopicPartition.parse(partition.name)].recovery_report.kept
