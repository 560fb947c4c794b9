"""Snapshots of the metadata are written in pieces, while everything else goes on."""

from __future__ import annotations

import contextlib
import gc
import time
import types
import uuid

import pytest

from replog.controller.metadata_image import MetadataImage
from replog.errors import StorageError
from replog.runtime import garbage, metadata_state
from replog.runtime.metadata_batches import metadata_batch
from replog.runtime.metadata_state import MetadataReplay
from replog.runtime.quorum_log import QuorumReplicaLog
from replog.runtime.snapshot_writer import SnapshotWriter
from replog.types import SnapshotId
from replog.wire.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

WALL_MS = 1_700_000_000_000
WORK_MS_MAX = 50
"""Of the processor's, whatever else the machine does: a fraction of any session."""
SEARCH_MS_MAX = 1000
"""Likewise, of a search for garbage in all that the process holds."""


def topic_records(number: int, partitions: int) -> list:
    raw_id = uuid.UUID(int=number + 1).bytes
    replicas = (1, 2, 3)
    return [TopicRecord(name=f"topic-{number}", topic_id=raw_id)] + [
        PartitionRecord(
            partition_id=partition,
            topic_id=raw_id,
            replicas=replicas,
            isr=replicas,
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        for partition in range(partitions)
    ]


class Written:
    """A metadata log that is committed as it is written."""

    def __init__(self, directory) -> None:
        self.log = QuorumReplicaLog.open_in(str(directory), lambda: WALL_MS)
        self.image = MetadataImage(tracks_changes=False)

    def append(self, records) -> None:
        batch = metadata_batch(records, WALL_MS)
        self.log.append_as_leader(batch, 1, coordinator=True)
        self.log.commit(self.log.log_end_offset)
        self.log.set_high_watermark(self.log.log_end_offset)
        for offset, record in enumerate(records, self.image.end_offset):
            self.image.apply(record, offset)

    def replayed(self) -> MetadataReplay:
        state = MetadataImage(tracks_changes=False)
        replay = MetadataReplay(self.log, state)
        replay.reload()
        replay.state = state
        return replay


@pytest.fixture
def written(tmp_path):
    written = Written(tmp_path)
    for number in range(5):
        written.append(topic_records(number, 3))
    return written


def test_what_happens_meanwhile_is_behind_the_snapshot(written) -> None:
    """Goal: the snapshot is of one moment, though the metadata change between its pieces."""
    end_offset = written.log.log_end_offset
    expected = list(written.image.snapshot_records())
    writer = SnapshotWriter(written.log, end_offset, WALL_MS)
    pieces = 1
    while not writer.step():
        pieces += 1
        written.append(
            [
                PartitionChangeRecord(
                    partition_id=0, topic_id=uuid.UUID(int=1).bytes, isr=(1, 2), leader=2
                )
            ]
        )
        if pieces == 3:
            written.append([RemoveTopicRecord(topic_id=uuid.UUID(int=5).bytes)])
    assert pieces > 5
    assert written.log.latest_snapshot == SnapshotId(end_offset, 1)
    assert written.log.log_start_offset == end_offset
    again = written.replayed()
    assert list(again.state.snapshot_records()) == list(written.image.snapshot_records())
    alone = MetadataImage(tracks_changes=False)
    MetadataReplay(written.log, alone).load_snapshot(written.log.latest_snapshot)
    assert list(alone.snapshot_records()) == expected


def test_the_next_one_builds_on_the_one_before(written) -> None:
    for number in (7, 8):
        writer = SnapshotWriter(written.log, written.log.high_watermark, WALL_MS)
        while not writer.step():
            pass
        written.append(topic_records(number, 2))
    replayed = written.replayed()
    assert list(replayed.state.snapshot_records()) == list(written.image.snapshot_records())
    assert len(written.log.snapshots.sizes) == 1


def test_one_that_is_abandoned_leaves_the_log_as_it_was(written) -> None:
    replay = MetadataReplay(written.log, MetadataImage(tracks_changes=False), 1)
    replay.apply_committed(written.log.high_watermark)
    for _ in range(8):
        replay.write_snapshot_piece(WALL_MS)
        assert gc.isenabled(), "a node may be paused here, for hours"
    replay.leave_snapshot()
    assert written.log.latest_snapshot is None
    assert written.log.log_start_offset == 0
    replay.note_appended(1)
    while replay.snapshot_due:
        replay.write_snapshot_piece(WALL_MS)
    assert written.log.latest_snapshot == SnapshotId(written.log.high_watermark, 1)


def test_one_that_fails_is_begun_anew_when_enough_has_been_appended(written, monkeypatch) -> None:
    replay = MetadataReplay(written.log, MetadataImage(tracks_changes=False), 1)
    replay.apply_committed(written.log.high_watermark)

    def full(*_):
        raise StorageError("expected room, found none")

    with monkeypatch.context() as planted:
        planted.setattr(written.log.snapshots, "write_chunk", full)
        for _ in range(5):
            replay.write_snapshot_piece(WALL_MS)
        with pytest.raises(StorageError):
            replay.write_snapshot_piece(WALL_MS)
    assert not replay.snapshot_due
    assert written.log.log_start_offset == 0
    replay.note_appended(1)
    while replay.snapshot_due:
        replay.write_snapshot_piece(WALL_MS)
    assert written.log.latest_snapshot is not None


@contextlib.contextmanager
def searches_for_garbage():
    """How many ms of the processor's each of them takes from here on."""
    took_ms, begun = [], []

    def searched(phase, _) -> None:
        if phase == "start":
            begun.append(time.thread_time())
        else:
            took_ms.append((time.thread_time() - begun.pop()) * 1000)

    gc.callbacks.append(searched)
    try:
        yield took_ms
    finally:
        gc.callbacks.remove(searched)


class TestThePutOffSearchForGarbage:
    """It belongs to the whole process: it is put off for one piece of work at a time."""

    def test_is_let_be_between_the_pieces_of_a_replay(self, written, monkeypatch) -> None:
        monkeypatch.setattr(metadata_state, "READ_BYTES", 1)
        monkeypatch.setattr(metadata_state, "LARGE_BYTES", 0)
        seen = {"read": [], "apply": []}
        image = MetadataImage(tracks_changes=False)
        read, apply = written.log.read, image.apply
        monkeypatch.setattr(
            written.log,
            "read",
            lambda *a, **k: seen["read"].append(gc.isenabled()) or read(*a, **k),
        )

        class State:
            def load(self, records, end_offset) -> None:
                pass

            def apply(self, record, offset) -> None:
                seen["apply"].append(gc.isenabled())
                apply(record, offset)

        MetadataReplay(written.log, State()).reload()
        assert len(seen["read"]) == 5
        assert all(seen["read"])
        assert not any(seen["apply"])

    def test_goes_on_behind_a_piece_that_fails(self, written, monkeypatch) -> None:
        monkeypatch.setattr(metadata_state, "LARGE_BYTES", 0)

        class State(MetadataImage):
            def apply(self, record, offset) -> None:
                raise StorageError("expected a sound record, found this one")

        with pytest.raises(StorageError):
            MetadataReplay(written.log, State(tracks_changes=False)).reload()
        assert gc.isenabled()

    def test_stays_off_where_the_program_has_switched_it_off(self, written) -> None:
        gc.disable()
        try:
            written.replayed()
            with garbage.put_off():
                pass
            assert not gc.isenabled()
        finally:
            gc.enable()

    def test_goes_on_when_the_last_of_several_threads_is_done(self, monkeypatch) -> None:
        """Clusters in one process have a loop, and a thread, each. Here one ends its piece while
        the other begins, at the worst moment.
        """
        first, second = contextlib.ExitStack(), contextlib.ExitStack()
        first.enter_context(garbage.put_off())

        def is_enabled_and_then_the_first_ends() -> bool:
            enabled = gc.isenabled()
            first.close()
            return enabled

        shown = types.SimpleNamespace(
            isenabled=is_enabled_and_then_the_first_ends, disable=gc.disable, enable=gc.enable
        )
        monkeypatch.setattr(garbage, "gc", shown)
        second.enter_context(garbage.put_off())
        assert not gc.isenabled()
        second.close()
        first.close()
        try:
            assert gc.isenabled()
        finally:
            gc.enable()


def test_no_piece_of_100_000_partitions_holds_others_up(tmp_path, capsys) -> None:
    """Goal: heartbeats wait for one piece at most, and that is far below any session."""
    written = Written(tmp_path)
    for number in range(100):
        written.append(topic_records(number, 1000))
    writer = SnapshotWriter(written.log, written.log.high_watermark, WALL_MS)
    pauses, cpu = [], []
    is_last = False
    with searches_for_garbage() as searches_ms:
        while not is_last:
            begun, begun_cpu, searched = time.perf_counter(), time.thread_time(), len(searches_ms)
            is_last = writer.step()
            pauses.append((time.perf_counter() - begun) * 1000)
            work_ms = (time.thread_time() - begun_cpu) * 1000
            cpu.append(work_ms - sum(searches_ms[searched:]))
    with capsys.disabled():
        print(
            f"\nsnapshot of 100,000 partitions: {len(pauses)} pieces, the longest "
            f"{max(cpu):.1f} ms of work, {max(pauses):.1f} by the clock; {sum(cpu):.0f} ms in all, "
            f"{sum(searches_ms):.0f} in searches for garbage, {max(searches_ms):.0f} in one"
        )
    assert max(cpu) < WORK_MS_MAX
    assert max(searches_ms) < SEARCH_MS_MAX
    assert len(pauses) > 100
