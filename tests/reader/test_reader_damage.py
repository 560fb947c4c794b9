"""PartitionReader beside a live writer and over damage: torn tails, cuts, bad side files."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from replog.errors import CorruptBatchError, LogTruncatedError, OffsetOutOfRangeError, UsageError
from replog.reader import PartitionReader, open_partitions, partition_paths, read_split
from replog.types import TopicPartition

GOLDEN = Path(__file__).parents[1] / "golden"
MANY_SEGMENTS = GOLDEN / "segments" / "data" / "falling-time-0"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A bare copy of a partition with several segments: no checkpoint bounds it."""
    path = tmp_path / "copied-3"
    shutil.copytree(MANY_SEGMENTS, path)
    return path


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def offsets(path: Path) -> list[int]:
    reader = PartitionReader(path)
    return [x.as_py() for one in reader.record_batches(columns=["offset"]) for x in one["offset"]]


def batch_positions(path: Path) -> list[int]:
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        found.append(at)
        at += 12 + struct.unpack_from(">i", content, at + 8)[0]
    return found


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)


def test_partition_is_named_by_its_directory(partition: Path) -> None:
    assert PartitionReader(partition).topic_partition == TopicPartition("copied", 3)


@pytest.mark.parametrize("cut", [1, 20, 49, 61, 100])
def test_reading_stops_at_a_torn_tail(partition: Path, cut: int) -> None:
    whole = offsets(partition)
    last = segments(partition)[-1]
    start = batch_positions(last)[-1]
    assert start + cut < last.stat().st_size
    os.truncate(last, start + cut)
    kept = offsets(partition)
    assert kept == whole[: len(kept)]
    assert len(kept) < len(whole)


@pytest.mark.parametrize("tail", [bytes(5000), b"\x55" * 700, bytes(16) + b"\x01" * 300])
def test_zeros_and_garbage_behind_the_last_batch_are_not_read(partition: Path, tail: bytes) -> None:
    whole = offsets(partition)
    with segments(partition)[-1].open("ab") as file:
        file.write(tail)
    assert offsets(partition) == whole


def test_damage_below_a_whole_batch_names_path_and_position(partition: Path) -> None:
    last = segments(partition)[-1]
    positions = batch_positions(last)
    flip(last, positions[1] + 70)
    with pytest.raises(CorruptBatchError) as caught:
        offsets(partition)
    assert caught.value.path == str(last)
    assert caught.value.position == positions[1]


def test_damage_in_a_sealed_segment_is_told_after_the_good_records(partition: Path) -> None:
    whole = offsets(partition)
    first = segments(partition)[0]
    flip(first, batch_positions(first)[2] + 70)
    reader, good = PartitionReader(partition), []
    records = reader.record_batches(columns=["offset"])
    with pytest.raises(CorruptBatchError):
        good += (x for one in records for x in one["offset"].to_pylist())
    assert good
    assert good == whole[: len(good)]


def test_a_sealed_segment_that_ends_in_a_partial_batch_is_damage(partition: Path) -> None:
    first = segments(partition)[0]
    os.truncate(first, first.stat().st_size - 5)
    with pytest.raises(CorruptBatchError, match="ends in the middle"):
        offsets(partition)


def test_torn_bytes_below_the_recovery_point_are_damage(partition: Path) -> None:
    end = PartitionReader(partition).log_end_offset
    (partition / "recovery-point-offset-checkpoint").write_text(f"0\n1\ncopied 3 {end}\n")
    last = segments(partition)[-1]
    os.truncate(last, last.stat().st_size - 5)
    with pytest.raises(CorruptBatchError):
        offsets(partition)


@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "garbage", "odd length"])
def test_side_files_change_the_time_of_an_answer_never_the_answer(
    partition: Path, damage: str
) -> None:
    reader = PartitionReader(partition)
    middle = (reader.log_start_offset + reader.end_offset) // 2
    whole = reader.to_arrow(middle)
    times = [reader.offset_for_timestamp(x) for x in whole["timestamp"].cast("int64").to_pylist()]
    for path in [*partition.glob("*.index"), *partition.glob("*.timeindex")]:
        size = path.stat().st_size
        if damage == "missing":
            path.unlink()
        else:
            made = {"empty": b"", "zeros": bytes(size), "garbage": os.urandom(size)}
            path.write_bytes(made.get(damage, path.read_bytes() + b"\x07"))
    again = PartitionReader(partition)
    assert again.log_end_offset == reader.log_end_offset
    assert again.to_arrow(middle).equals(whole)
    if damage != "garbage":
        stamps = whole["timestamp"].cast("int64").to_pylist()
        assert [again.offset_for_timestamp(x) for x in stamps] == times


def test_the_high_watermark_checkpoint_bounds_what_is_read(partition: Path) -> None:
    whole = offsets(partition)
    bound = whole[len(whole) // 2] + 1
    (partition / "replication-offset-checkpoint").write_text(f"0\n1\ncopied 3 {bound}\n")
    assert offsets(partition) == [x for x in whole if x < bound]
    reader = PartitionReader(partition)
    assert reader.to_arrow(isolation="log_end").num_rows == len(whole)


def test_the_log_start_checkpoint_hides_what_was_deleted(partition: Path) -> None:
    whole = offsets(partition)
    start = whole[len(whole) // 3] + 1
    (partition / "log-start-offset-checkpoint").write_text(f"0\n1\ncopied 3 {start}\n")
    assert offsets(partition) == [x for x in whole if x >= start]
    with pytest.raises(OffsetOutOfRangeError) as caught:
        next(PartitionReader(partition).record_batches(start - 1))
    assert caught.value.offset == start - 1


def test_a_segment_deleted_meanwhile_is_a_retriable_error(partition: Path) -> None:
    reader = PartitionReader(partition)
    segments(partition)[1].unlink()
    with pytest.raises(LogTruncatedError) as caught:
        list(reader.record_batches())
    assert caught.value.retriable
    assert caught.value.path == str(segments(MANY_SEGMENTS)[1]).replace(
        str(MANY_SEGMENTS), str(partition)
    )


def test_a_log_cut_meanwhile_is_a_retriable_error(partition: Path) -> None:
    reader = PartitionReader(partition)
    split = reader.split_points(10**9)[-1]
    last = segments(partition)[-1]
    os.truncate(last, batch_positions(last)[-1])
    with pytest.raises(LogTruncatedError):
        list(reader.record_batches())
    with pytest.raises(LogTruncatedError):
        list(read_split(split))


def test_refresh_sees_what_a_writer_appended(partition: Path) -> None:
    whole = offsets(partition)
    last = segments(partition)[-1]
    content, positions = last.read_bytes(), batch_positions(last)
    os.truncate(last, positions[-1])
    reader = PartitionReader(partition)
    before = reader.end_offset
    last.write_bytes(content)
    assert reader.to_arrow().num_rows < len(whole)
    reader.refresh()
    assert reader.end_offset > before
    assert reader.to_arrow().num_rows == len(whole)


def test_a_partition_without_segments_is_empty(tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    reader = PartitionReader(tmp_path / "empty-0")
    assert (reader.log_start_offset, reader.end_offset) == (0, 0)
    assert reader.to_arrow().num_rows == 0
    assert reader.split_points(1) == []


def test_a_log_directory_named_like_a_partition_is_still_one() -> None:
    paths = partition_paths(GOLDEN / "leader_changes" / "broker-1")
    assert [os.path.basename(path) for path in paths] == sorted(os.path.basename(p) for p in paths)
    assert len(list(open_partitions(GOLDEN / "leader_changes" / "broker-1"))) == len(paths) > 1


def test_a_path_that_is_no_log_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found nothing"):
        partition_paths(tmp_path / "absent")
    with pytest.raises(UsageError, match="log directory"):
        partition_paths(tmp_path)
