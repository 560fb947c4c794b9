"""Segment files that are gone or emptied after a clean stop: noticed wherever a read gets there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from replog._native import record_encoder
from replog.config import LogConfig
from replog.errors import CorruptBatchError, ReplogError
from replog.reader import PartitionReader, read_split
from replog.storage.log_directory import LogDirectory
from replog.storage.partition_log import PartitionLog
from replog.types import Isolation, TopicPartition

SMALL = LogConfig(segment_bytes=900, index_interval_bytes=200, retention_ms=-1)
COMPACTED = LogConfig(segment_bytes=900, index_interval_bytes=200, cleanup_policy="compact")
RECORD_COUNT = 60
START_MS = 1_700_000_000_000


def fill(log: PartitionLog, count: int = RECORD_COUNT) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        log.append([b"value %d" % offset] * 2, timestamps=START_MS + offset)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A log of about ten segments that was closed."""
    path = tmp_path / "orders-0"
    with PartitionLog.open(path, SMALL) as log:
        fill(log)
        assert len(log.segments) > 6
    return path


def remove_with_side_files(segment: Path) -> None:
    for path in segment.parent.glob(segment.stem + ".*"):
        path.unlink()


def remove_alone(segment: Path) -> None:
    segment.unlink()


def empty(segment: Path) -> None:
    segment.write_bytes(b"")


def cut_at_a_batch(segment: Path) -> None:
    content = segment.read_bytes()
    size = 12 + int.from_bytes(content[8:12], "big")
    segment.write_bytes(content[:size])


HARMS = [remove_with_side_files, remove_alone, empty, cut_at_a_batch]


def whole_reads(path: Path) -> list[Callable[[], object]]:
    """Every way to read all of a closed log, or to walk over all of it."""

    def native(read: Callable[[PartitionLog], object]) -> Callable[[], object]:
        def run() -> object:
            with PartitionLog.open(path, SMALL) as log:
                return read(log)

        return run

    def splits() -> None:
        for split in PartitionReader(path).split_points(500):
            list(read_split(split))

    late = START_MS + 2 * RECORD_COUNT - 1
    return [
        native(lambda log: log.to_arrow()),
        native(list),
        native(lambda log: log.to_arrow(isolation=Isolation.TXN_COMMITTED)),
        native(lambda log: log.offset_for_timestamp(late)),
        native(lambda log: log.offset_of_max_timestamp()),
        lambda: PartitionReader(path).to_arrow(),
        lambda: PartitionReader(path).offset_for_timestamp(late),
        splits,
    ]


@pytest.mark.parametrize("harm", HARMS)
def test_no_read_passes_over_a_segment_that_is_missing_or_emptied(
    partition: Path, harm: Callable[[Path], None]
) -> None:
    """Each of the sealed segments in turn: CorruptBatchError with file and offset, for each way."""
    segments = sorted(partition.glob("*.log"))
    for number, segment in enumerate(segments[:-1]):
        copy = partition.parent / f"harmed{number}" / partition.name
        shutil.copytree(partition, copy)
        harm(copy / segment.name)
        for place, read in enumerate(whole_reads(copy)):
            with pytest.raises(CorruptBatchError) as refused:
                read()
            assert str(copy) in str(refused.value.path), place
            assert refused.value.offset is not None
            # A reader takes nothing away; but an open for writing that fails is no clean stop.
            (copy / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def test_what_lies_before_and_behind_the_hole_can_still_be_read(partition: Path) -> None:
    segments = sorted(partition.glob("*.log"))
    remove_with_side_files(segments[3])
    hole, behind = int(segments[3].stem), int(segments[4].stem)
    reader = PartitionReader(partition)
    with PartitionLog.open(partition, SMALL) as log:
        for table in (log.to_arrow(0, hole), reader.to_arrow(0, hole)):
            assert table["offset"].to_pylist() == list(range(hole))
        for table in (log.to_arrow(behind), reader.to_arrow(behind)):
            assert table["offset"].to_pylist() == list(range(behind, 2 * RECORD_COUNT))
        with pytest.raises(CorruptBatchError) as refused:
            log.read(hole + 1)
        assert refused.value.offset == hole
        assert refused.value.path == str(segments[2])


def test_a_log_whose_first_segment_is_missing_does_not_open(partition: Path) -> None:
    first = min(partition.glob("*.log"))
    remove_with_side_files(first)
    with pytest.raises(CorruptBatchError, match="segment files are missing"):
        PartitionLog.open(partition, SMALL)


def test_segments_that_retention_took_are_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with PartitionLog.open(path, SMALL) as log:
        fill(log)
        log.high_watermark = log.log_end_offset
        log.truncate_prefix_to(log.log_end_offset // 2)
        assert log.apply_retention()
        start = log.log_start_offset
    for _ in range(2):
        assert PartitionReader(path).to_arrow()["offset"].to_pylist()[0] == start
        with PartitionLog.open(path, SMALL) as log:
            assert log.to_arrow()["offset"].to_pylist()[0] == start


@pytest.mark.parametrize("stop", ["clean", "unclean"])
def test_a_cut_inside_a_batch_leaves_no_hole_behind(tmp_path: Path, stop: str) -> None:
    """The rest of the cut batch's offsets is an empty batch; every reader passes over it."""
    path = tmp_path / "orders-0"
    log = PartitionLog.open(path, SMALL)
    cuts = []
    for _ in range(6):
        fill(log, 5)
        cut = log.log_end_offset - 1
        log.truncate_to(cut)
        assert log.recovery_point <= log.log_end_offset == cut
        cuts.append(cut - 1)
    fill(log, 5)
    kept = [offset for offset in range(log.log_end_offset) if offset not in cuts]
    assert log.to_arrow()["offset"].to_pylist() == kept
    if stop == "unclean":
        log.flush()
    log.close(flush=stop == "clean")
    with PartitionLog.open(path, SMALL) as again:
        assert again.recovery_report.cut_bytes == 0
        assert again.to_arrow()["offset"].to_pylist() == kept
        for offset in kept:
            assert again.offset_for_timestamp(START_MS + offset // 2 * 2) is not None
    reader = PartitionReader(path)
    assert reader.to_arrow()["offset"].to_pylist() == kept
    ends = [end for headers in reader.headers() for end in headers["last_offset"].tolist()]
    bases = [base for headers in reader.headers() for base in headers["base_offset"].tolist()]
    assert bases == [0, *(end + 1 for end in ends[:-1])]


def test_the_recovery_point_does_not_step_back_behind_a_cut(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "orders-0", SMALL) as log:
        fill(log, 5)
        log.flush()
        log.truncate_to(log.log_end_offset - 1)
        reported = log.recovery_point
        assert reported == log.log_end_offset
        fill(log, 1)
        assert log.recovery_point >= reported


def test_a_roll_right_behind_a_cut_inside_a_batch_leaves_no_hole(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with PartitionLog.open(path, SMALL) as log:
        fill(log, 3)
        log.truncate_to(5)
        assert log.roll()
        fill(log, 3)
    with PartitionLog.open(path, SMALL) as log:
        assert log.to_arrow()["offset"].to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert PartitionReader(path).to_arrow().num_rows == 10


@pytest.mark.parametrize("home", ["alone", "directory"])
def test_holes_between_segments_of_a_compacted_log_are_read_over(tmp_path: Path, home: str) -> None:
    """As a compacted leader sends them; the readers know it from cleaner-offset-checkpoint."""
    offsets = [0, 10, 11, 500, 501, 90_000]

    def follow(log: PartitionLog) -> None:
        for offset in offsets:
            log.append_as_follower(
                record_encoder.encode(
                    [b"v"], keys=[b"k"], base_offset=offset, leader_epoch=0, now_ms=START_MS
                )
            )
            log.roll()

    if home == "alone":
        path = tmp_path / "changes-0"
        with PartitionLog.open(path, COMPACTED) as log:
            follow(log)
        with PartitionLog.open(path, COMPACTED) as log:
            assert log.to_arrow()["offset"].to_pylist() == offsets
    else:
        path = tmp_path / "logs" / "changes-0"
        with LogDirectory.open(tmp_path / "logs", COMPACTED) as logs:
            follow(logs.create_log("changes", 0))
        with LogDirectory.open(tmp_path / "logs", COMPACTED) as logs:
            log = logs[TopicPartition("changes", 0)]
            assert log.to_arrow()["offset"].to_pylist() == offsets
    assert PartitionReader(path).to_arrow()["offset"].to_pylist() == offsets


def test_a_missing_segment_of_a_log_directory_is_noticed(tmp_path: Path) -> None:
    key = TopicPartition("orders", 0)
    with LogDirectory.open(tmp_path / "logs", SMALL) as logs:
        fill(logs.create_log(*key))
    path = tmp_path / "logs" / str(key)
    remove_with_side_files(sorted(path.glob("*.log"))[2])
    with pytest.raises(CorruptBatchError):
        PartitionReader(path).to_arrow()
    with LogDirectory.open(tmp_path / "logs", SMALL) as logs, pytest.raises(ReplogError):
        logs[key].to_arrow()


@pytest.mark.parametrize("stop", ["clean", "after retention"])
def test_the_first_segment_of_a_log_directory_is_missed(tmp_path: Path, stop: str) -> None:
    """No checkpoint has the log start where the first segment's name tells it: the epochs do."""
    key = TopicPartition("orders", 0)
    with LogDirectory.open(tmp_path / "logs", SMALL) as logs:
        log = logs.create_log(*key)
        log.assign_epoch(3, 0)
        fill(log)
        if stop == "after retention":
            log.truncate_prefix_to(log.segments[2].base_offset)
            log.apply_retention()
    path = tmp_path / "logs" / str(key)
    first, second = sorted(path.glob("*.log"))[:2]
    with LogDirectory.open(tmp_path / "logs", SMALL) as logs:
        assert logs[key].to_arrow()["offset"].to_pylist()[0] == int(first.stem)
    assert PartitionReader(path).to_arrow()["offset"].to_pylist()[0] == int(first.stem)
    remove_with_side_files(first)
    with pytest.raises(CorruptBatchError) as refused:
        PartitionReader(path).to_arrow()
    assert refused.value.offset == int(first.stem)
    with LogDirectory.open(tmp_path / "logs", SMALL) as logs:
        error = logs.refused[key]
        assert isinstance(error, CorruptBatchError)
        assert (error.path, error.offset) == (str(path), int(first.stem))
        assert str(int(second.stem)) in str(error)


def test_the_stable_offset_is_one_that_compaction_has_left(tmp_path: Path) -> None:
    """The cleaner took what began an aborted transaction; a cut takes the marker: open again.

    Kafka then looks the offset up, and stands at the next one that is there.
    """
    path = tmp_path / "changes-0"

    def batch(offset: int, **fields: int | bool) -> bytes:
        return bytes(
            record_encoder.encode(
                [b"v"], keys=[b"k"], base_offset=offset, leader_epoch=0, now_ms=START_MS, **fields
            )
        )

    with PartitionLog.open(path, COMPACTED) as log:
        log.append_as_follower(batch(0))
        size = log.size_bytes
        log.append_as_follower(
            batch(2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        )
        log.roll()
        log.append_as_follower(batch(7) + batch(9))
    # What the cleaner makes of the first segment, beside the snapshot of its producers.
    first = min(path.glob("*.log"))
    first.write_bytes(first.read_bytes()[:size])
    for side in path.glob(f"{first.stem}.*index"):
        side.unlink()
    with PartitionLog.open(path, COMPACTED, now_ms=lambda: START_MS) as log:
        log.truncate_to(9)
        assert log.last_stable_offset == 7
        log.truncate_to(7)
        assert log.last_stable_offset == log.log_end_offset
