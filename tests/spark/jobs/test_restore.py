"""Restore without a JVM: the same bytes or the same records, whole partitions or none."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import replog
from replog.cli.main import run as command
from replog.errors import (
    CorruptFileError,
    LogDirectoryLockedError,
    LogTruncatedError,
    OutOfOrderOffsetError,
    UsageError,
)
from replog.reader import PartitionReader, open_partitions
from replog.restore import PartitionWriter, target
from replog.storage.partition_log import PartitionLog
from replog.types import Isolation, TopicPartition
from spark_integration.jobs.engine import LocalEngine
from spark_integration.jobs.export import export
from spark_integration.jobs.restore import RestoreReport, restore
from tests.reader.consumed import Consumed, consumed
from tests.spark.jobs.exports import STEP, append

COMPARED = ["offset", "timestamp", "timestamp_type", "leader_epoch", "key", "value", "headers"]
WHOLE = [one for one in consumed() if not any("error" in x for x in one.counts().values())]
COMPACTED = [f"compact{suffix}" for suffix in ("", "-delete", "-idempotent", "-txn", "-zstd")]
HELD = ("log", "index", "timeindex", "txnindex", "snapshot")


def run(source: Path, to: Path, **options: object) -> RestoreReport:
    return restore([source], to, LocalEngine(2), **options)


def records(reader: PartitionReader, isolation: str = "read_uncommitted") -> pa.Table:
    return reader.to_arrow(columns=COMPARED, isolation=isolation).combine_chunks()


def held_bytes(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.suffix[1:] in HELD or path.name in {"leader-epoch-checkpoint", "partition.metadata"}
    }


@pytest.mark.parametrize("told", WHOLE, ids=str)
def test_an_export_comes_back_with_its_offsets_epochs_times_and_headers(
    told: Consumed, tmp_path: Path
) -> None:
    isolation = Isolation(told.isolation)
    export([told.directory], tmp_path / "out", LocalEngine(2), isolation=isolation)
    if not run(tmp_path / "out", tmp_path / "logs").partitions:
        return
    originals = {one.topic_partition: one for one in open_partitions(told.directory)}
    restored = {one.topic_partition: one for one in open_partitions(tmp_path / "logs")}
    for key, reader in restored.items():
        original = originals[key]
        assert records(reader).equals(records(original, told.isolation)), key
        assert reader.high_watermark == original.bound(isolation)
    with replog.LogDirectory.open(tmp_path / "logs") as directory:
        assert directory.refused == {}
        for key in directory:
            assert directory[key].log_end_offset == originals[key].bound(isolation)


@pytest.mark.parametrize(
    "case",
    ["leader_changes/broker-1", "transactions/data", "codecs/data", "compaction/after-2"],
)
def test_segments_come_back_byte_for_byte(case: str, tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "golden" / case
    report = run(source, tmp_path / "logs")
    names = {path.name for path in source.iterdir() if path.is_dir()} - {"__cluster_metadata-0"}
    assert report.partitions == len(names) > 0
    for name in names:
        assert held_bytes(tmp_path / "logs" / name) == held_bytes(source / name)
    for reader in open_partitions(tmp_path / "logs"):
        original = PartitionReader(source / str(reader.topic_partition))
        assert (reader.high_watermark, reader.log_start_offset) == (
            original.high_watermark,
            original.log_start_offset,
        )
        assert records(reader).equals(records(original))
    compacted = replog.LogConfig(cleanup_policy="compact")
    with replog.LogDirectory.open(
        tmp_path / "logs", configs=dict.fromkeys(COMPACTED, compacted)
    ) as directory:
        assert directory.refused == {}
        assert len(directory) == len(names)


def log_directory(path: Path, names: tuple[str, ...] = ("t-0", "t-1", "u-0")) -> Path:
    with replog.LogDirectory.open(path) as directory:
        for number, name in enumerate(names):
            log = directory.create_log(*TopicPartition.parse(name))
            for _ in range(3):
                log.append([b"%d" % number] * 20, leader_epoch=number)
            log.truncate_prefix_to(7)
            log.high_watermark = 50
    return path


class Killed(BaseException):
    """Stands for kill -9. What was written stays, so nothing needs to be synced."""


def killed_at(step: int, patch: pytest.MonkeyPatch) -> None:
    left = step

    def wrapped(call):
        def counted(*arguments, **options):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return call(*arguments, **options)

        return counted

    for module, name in (
        (os, "makedirs"),
        (os, "remove"),
        (os, "rmdir"),
        (shutil, "copyfile"),
        (target, "rename"),
        (target, "replace_file"),
        (target, "write_offset_checkpoint"),
        (target, "write_meta_properties"),
    ):
        patch.setattr(module, name, wrapped(getattr(module, name)))
    for module, name in ((os, "fsync"), (target, "fsync_dir")):
        patch.setattr(module, name, wrapped(lambda _: None))


@pytest.mark.parametrize("kind", ["segments", "export"])
def test_killed_at_any_step_it_can_be_run_again_and_no_half_is_seen(
    kind: str, tmp_path: Path
) -> None:
    source = log_directory(tmp_path / "source")
    wanted = {one.topic_partition: records(one) for one in open_partitions(source)}
    if kind == "export":
        export([source], tmp_path / "out", LocalEngine(1))
        source = tmp_path / "out"
    skipped = 0
    for step in range(0, 10_000, STEP):
        to = tmp_path / f"logs-{step}"
        with pytest.MonkeyPatch.context() as patch:
            killed_at(step, patch)
            try:
                restore([source], to, LocalEngine(1))
            except Killed:
                ended = False
            else:
                ended = True
        if (to / "meta.properties").exists():
            for reader in open_partitions(to):
                assert records(reader).equals(wanted[reader.topic_partition])
        # Without the journal all was done: killed while that became durable.
        if not ended and ((to / target.JOURNAL).exists() or not (to / "u-0").exists()):
            skipped += run(source, to).skipped
        found = {one.topic_partition: records(one) for one in open_partitions(to)}
        assert found == wanted
        assert not list(to.glob("*-delete"))
        assert not (to / target.JOURNAL).exists()
        with replog.LogDirectory.open(to) as directory:
            assert [directory[key].high_watermark for key in directory] == [50, 50, 50]
            assert directory.refused == {}
            assert directory.problems == []
        shutil.rmtree(to)
        if ended:
            break
    assert step > 20
    assert skipped > 0


def test_a_partition_that_is_there_is_never_touched(tmp_path: Path) -> None:
    source = log_directory(tmp_path / "source")
    to = log_directory(tmp_path / "to", ("u-0", "v-0"))
    before = {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="no partition u-0"):
        run(source, to)
    after = {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    assert {path.name for path in before.keys() - after.keys()} <= {".kafka_cleanshutdown"}
    assert after.items() <= before.items()
    assert run(source, to, topics=["t"]).partitions == 2
    with replog.LogDirectory.open(to) as directory:
        assert [str(key) for key in directory] == ["t-0", "t-1", "u-0", "v-0"]


def test_a_torn_tail_of_a_copy_is_cut_when_the_target_is_opened(tmp_path: Path) -> None:
    """The target was closed cleanly, so without more ado nobody would look at the tail."""
    source = log_directory(tmp_path / "source", ("t-0",))
    (segment,) = (source / "t-0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-3])
    to = log_directory(tmp_path / "to", ("v-0",))
    assert (to / ".kafka_cleanshutdown").exists()
    run(source, to)
    assert not (to / ".kafka_cleanshutdown").exists()
    with replog.LogDirectory.open(to) as directory:
        assert directory.refused == {}
        assert directory[TopicPartition("t", 0)].log_end_offset == 40
        assert directory[TopicPartition("v", 0)].log_end_offset == 60


def test_a_directory_in_use_or_of_something_else_is_refused(tmp_path: Path) -> None:
    source = log_directory(tmp_path / "source")
    with replog.LogDirectory.open(tmp_path / "to"), pytest.raises(LogDirectoryLockedError):
        run(source, tmp_path / "to")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("x")
    with pytest.raises(UsageError, match=r"letter\.txt"):
        run(source, tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] in (
        ["letter.txt"],
        ["letter.txt", ".lock"],
        [".lock", "letter.txt"],
    )
    with pytest.raises(UsageError, match="topic 'w'"):
        run(source, tmp_path / "to", topics=["w"])


def test_an_unfinished_restore_goes_on_from_its_own_source_only(tmp_path: Path) -> None:
    source = log_directory(tmp_path / "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(target.RestoreTarget, "finish")
        with pytest.raises(AttributeError):
            run(source, tmp_path / "to")
    with pytest.raises(UsageError, match="finish that one first"):
        run(log_directory(tmp_path / "second"), tmp_path / "to")
    assert run(source, tmp_path / "to").skipped == 3


def test_an_export_that_lacks_a_file_or_rows_is_refused_and_leaves_no_partition(
    tmp_path: Path,
) -> None:
    append(tmp_path / "t-0", 100)
    export([tmp_path / "t-0"], tmp_path / "out", LocalEngine(1))
    (file,) = (tmp_path / "out" / "topic=t").rglob("*.parquet")
    kept = file.read_bytes()
    append(tmp_path / "u-0", 3)
    export([tmp_path / "u-0"], tmp_path / "other", LocalEngine(1))
    (shorter,) = (tmp_path / "other").rglob("*.parquet")
    for content in (None, kept[:-10], shorter.read_bytes()):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(CorruptFileError, match="exported file"):
            run(tmp_path / "out", tmp_path / "to")
        assert list((tmp_path / "to").glob("t-*")) in ([], list((tmp_path / "to").glob("*-delete")))
        file.write_bytes(kept)
    assert run(tmp_path / "out", tmp_path / "to").records == 100


def test_several_runs_and_interleaved_dates_become_one_log(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "t-0") as log:
        for begin in (0, 30):
            log.append(
                [b"%d" % number for number in range(begin, begin + 30)],
                timestamps=[1_700_000_000_000 + n % 3 * 86_400_000 for n in range(30)],
                leader_epoch=begin,
            )
            export([tmp_path / "t-0"], tmp_path / "out", LocalEngine(1))
    run(tmp_path / "out", tmp_path / "to", codec=replog.Codec.ZSTD)
    restored = PartitionReader(tmp_path / "to" / "t-0")
    assert records(restored).equals(records(PartitionReader(tmp_path / "t-0")))


def test_records_larger_than_a_batch_come_back(tmp_path: Path) -> None:
    config = replog.LogConfig(max_message_bytes=10_000_000)
    with PartitionLog.open(tmp_path / "t-0", config) as log:
        log.append(
            [b"v" * 3_000_000, b"small", None],
            keys=[None, b"k" * 700_000, None],
            headers=[[], [("h" * 300, b"x" * 500_000)], [("n", None)]],
        )
    export([tmp_path / "t-0"], tmp_path / "out", LocalEngine(1))
    run(tmp_path / "out", tmp_path / "to")
    restored = PartitionReader(tmp_path / "to" / "t-0")
    assert records(restored).equals(records(PartitionReader(tmp_path / "t-0")))


def test_gaps_are_spanned_by_the_batch_before_them(tmp_path: Path) -> None:
    offsets = [5, 6, 9, 10, 4_000_000_000]
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * 5),
            "value": pa.array([b"v"] * 5),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([1] * 5, pa.int64()),
            "timestamp_type": pa.array([0] * 5, pa.int32()),
            "headers": pa.nulls(
                5, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
            "leader_epoch": pa.array([3] * 5, pa.int32()),
        }
    )
    with PartitionWriter(str(tmp_path / "t-0"), 2) as writer:
        writer.append(rows)
        with pytest.raises(OutOfOrderOffsetError, match="found 5"):
            writer.append(rows)
        staged = writer.finish(4_000_000_007)
    assert (staged.high_watermark, staged.records, staged.cleaned_offset) == (4_000_000_007, 5, 0)
    reader = PartitionReader(tmp_path / "t-0")
    assert reader.to_arrow(columns=["offset"])["offset"].to_pylist() == offsets
    headers = [row for found in reader.headers() for row in found]
    assert int(headers[0]["last_offset"]) == 8


def test_a_live_source_that_drops_a_segment_is_told_and_tried_again(tmp_path: Path) -> None:
    source = log_directory(tmp_path / "source", ("t-0",))
    (segment,) = (source / "t-0").glob("*.log")
    copy = shutil.copyfile
    with pytest.MonkeyPatch.context() as patch:

        def gone(path, place):
            if path.endswith(".log"):
                raise FileNotFoundError(2, "No such file", path)
            return copy(path, place)

        patch.setattr(shutil, "copyfile", gone)
        with pytest.raises(LogTruncatedError, match=segment.name):
            run(source, tmp_path / "to")
    assert run(source, tmp_path / "to").partitions == 1


def test_the_command_tells_what_it_restored(tmp_path: Path, capfd) -> None:
    source = log_directory(tmp_path / "source")
    line = ["spark", "restore", "--no-spark", "--target", str(tmp_path / "to"), str(source)]
    assert command([*line, "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert (facts["partitions"], facts["kind"]) == (3, "segments")
    assert command(line) == 1
    assert "overwrites nothing" in capfd.readouterr().err
