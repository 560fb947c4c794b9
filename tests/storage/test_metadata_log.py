"""The metadata log in its directory, its snapshots, and what a crash between two steps leaves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from replog._native import record_encoder
from replog.errors import CorruptFileError, LogDirectoryLockedError, UsageError
from replog.storage.metadata_log import METADATA_TOPIC_ID, MetadataLog
from replog.storage.metadata_snapshots import MetadataSnapshots, parse_snapshot_name, snapshot_name
from replog.storage.quorum_state import QuorumState
from replog.types import SnapshotId

NOW_MS = 1_700_000_000_000


def opened(tmp_path: Path) -> MetadataLog:
    return MetadataLog.open_in(tmp_path / "node", lambda: NOW_MS)


def append(log: MetadataLog, *epochs: int) -> None:
    for epoch in epochs:
        log.append_as_leader(record_encoder.encode([b"v"], now_ms=NOW_MS), epoch)


def write(snapshots: MetadataSnapshots, snapshot_id: SnapshotId, chunks: list[bytes]) -> None:
    """A whole snapshot."""
    position = 0
    for chunk in chunks:
        snapshots.write_chunk(snapshot_id, position, chunk)
        position += len(chunk)
    snapshots.publish(snapshot_id)


def names(log: MetadataLog) -> list[str]:
    return sorted(name for name in os.listdir(log.path) if ".checkpoint" in name)


def test_a_new_log_is_kafkas_metadata_partition(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        assert os.path.basename(log.path) == "__cluster_metadata-0"
        assert log.topic_id == METADATA_TOPIC_ID
        assert (log.high_watermark, log.last_epoch, log.latest_snapshot) == (0, -1, None)
        assert log.read_quorum_state() is None
        log.write_quorum_state(QuorumState(leader_epoch=4, voted_id=2, version=0))
        with pytest.raises(LogDirectoryLockedError):
            opened(tmp_path)
    with opened(tmp_path) as log:
        assert log.read_quorum_state() == QuorumState(leader_epoch=4, voted_id=2, version=0)


def test_records_go_only_once_a_snapshot_stands_for_them(tmp_path: Path) -> None:
    first, second = SnapshotId(2, 1), SnapshotId(4, 2)
    with opened(tmp_path) as log:
        append(log, 1, 1, 2, 2, 3)
        log.set_high_watermark(5)
        for snapshot_id in (first, second):
            write(log.snapshots, snapshot_id, [b"one", b"two"])
            log.clean_below(snapshot_id)
            assert log.first_snapshot == log.latest_snapshot == snapshot_id
            assert names(log) == [snapshot_name(snapshot_id)]
        assert log.last_epoch == 3
        assert log.snapshots.read(second, 2, 100) == b"etwo"
    with opened(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (4, 5)
        assert log.first_snapshot == second


def test_what_stands_below_a_snapshot_is_dropped_by_whole_segments(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        append(log, 1, 1)
        log.roll()
        append(log, 1)
        log.set_high_watermark(3)
        write(log.snapshots, SnapshotId(2, 1), [b"one"])
        log.clean_below(SnapshotId(2, 1))
        assert [segment.base_offset for segment in log.segments] == [2]
        assert not [name for name in os.listdir(log.path) if name.endswith(".deleted")]


@pytest.mark.parametrize(
    ("epochs", "why"),
    [((1,), "it reaches past the log"), ((1, 1, 1, 1), "the log holds another epoch there")],
)
def test_a_snapshot_that_the_log_does_not_hold_stands_for_all_of_it(
    tmp_path: Path, epochs: tuple[int, ...], why: str
) -> None:
    """Goal: a crash between the snapshot and the restart of the log leaves the snapshot's word."""
    snapshot_id = SnapshotId(3, 2)
    log = opened(tmp_path)
    append(log, *epochs)
    write(log.snapshots, snapshot_id, [b"all"])
    log.close(flush=False)
    with opened(tmp_path) as log:
        ends = (log.log_start_offset, log.log_end_offset, log.high_watermark)
        assert ends == (3, 3, 3), why
        assert (log.last_epoch, log.first_snapshot) == (2, snapshot_id)
        append(log, 2)
        assert log.end_offset_for_epoch(2) == (2, 4)


def test_an_installed_snapshot_takes_the_place_of_the_log(tmp_path: Path) -> None:
    snapshot_id = SnapshotId(9, 3)
    with opened(tmp_path) as log:
        append(log, 1, 1)
        log.snapshots.write_chunk(snapshot_id, 0, b"all")
        assert log.latest_snapshot is None
        log.install_snapshot(snapshot_id)
        assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (9, 9, 3)
    with opened(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (9, 9, 3)


def test_half_written_snapshots_are_removed_at_open(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 1)
    log.snapshots.write_chunk(SnapshotId(1, 1), 0, b"half")
    log.close(flush=False)
    assert names(log) == [snapshot_name(SnapshotId(1, 1)) + ".part"]
    with opened(tmp_path) as log:
        assert names(log) == []
        assert log.latest_snapshot is None


def test_a_log_whose_beginning_nothing_stands_for_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        append(log, 1, 1)
        log.set_high_watermark(2)
        write(log.snapshots, SnapshotId(1, 1), [b"one"])
        log.clean_below(SnapshotId(1, 1))
        path = log.path
    os.remove(os.path.join(path, snapshot_name(SnapshotId(1, 1))))
    with pytest.raises(CorruptFileError, match="snapshot that ends at offset 1"):
        opened(tmp_path)
    shutil.rmtree(path)
    opened(tmp_path).close()


def test_chunks_come_in_order_and_of_one_snapshot(tmp_path: Path) -> None:
    snapshots = MetadataSnapshots(str(tmp_path))
    snapshots.write_chunk(SnapshotId(5, 1), 0, b"abc")
    for snapshot_id, position in ((SnapshotId(5, 1), 4), (SnapshotId(6, 1), 3)):
        with pytest.raises(UsageError, match="in order"):
            snapshots.write_chunk(snapshot_id, position, b"d")
    snapshots.write_chunk(SnapshotId(6, 1), 0, b"new")
    with pytest.raises(UsageError, match="in the making"):
        snapshots.publish(SnapshotId(5, 1))
    snapshots.publish(SnapshotId(6, 1))
    assert list(MetadataSnapshots(str(tmp_path)).sizes.items()) == [(SnapshotId(6, 1), 3)]


def test_the_checkpointed_high_watermark_is_where_a_node_starts(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 1, 1, 1)
    log.set_high_watermark(2)
    log.checkpoint_high_watermark()
    log.close(flush=False)
    with opened(tmp_path) as log:
        assert (log.high_watermark, log.log_end_offset) == (2, 3)


@pytest.mark.parametrize("name", ["1-1.checkpoint", f"{0:020d}.checkpoint", "bootstrap.checkpoint"])
def test_other_names_are_no_snapshots(name: str) -> None:
    assert parse_snapshot_name(name) is None
    assert parse_snapshot_name(snapshot_name(SnapshotId(7, 8))) == SnapshotId(7, 8)
