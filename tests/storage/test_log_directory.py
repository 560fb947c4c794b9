"""LogDirectory: locks, ids, the clean marker, checkpoints, names, creation and deletion."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from replog._native import record_encoder
from replog.config import LogConfig
from replog.errors import (
    CorruptBatchError,
    CorruptFileError,
    LogClosedError,
    LogDirectoryLockedError,
    StorageError,
    UsageError,
)
from replog.runtime.replica_log import ReplicaLog
from replog.storage.checkpoint_files import (
    read_leader_epochs,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from replog.storage.clean_shutdown import read_clean_shutdown
from replog.storage.directory_names import DirectoryKind, deleted_name, kind_of
from replog.storage.kafka_uuid import random_uuid
from replog.storage.log_directory import LogDirectory
from replog.storage.meta_properties import read_meta_properties
from replog.storage.partition_metadata import read_topic_id
from replog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 3)
SMALL = LogConfig(segment_bytes=1000)


def values_of(directory: LogDirectory, topic_partition: TopicPartition = ORDERS) -> list[bytes]:
    return [record.value for record in directory[topic_partition].records()]


def crash_copy(directory: Path) -> Path:
    """What a process that is killed now leaves behind."""
    copy = directory.with_name(f"{directory.name}-crashed")
    shutil.copytree(directory, copy)
    return copy


def test_a_new_directory_gets_ids_and_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "new" / "logs"
    with LogDirectory.open(path) as directory:
        ids = directory.meta_properties
        assert ids.cluster_id
        assert ids.node_id is not None
        assert ids.directory_id
        assert len(directory) == 0
        assert directory.last_shutdown is None
    assert read_meta_properties(path / "meta.properties") == ids
    with LogDirectory.open(path, cluster_id=ids.cluster_id, node_id=ids.node_id) as directory:
        assert directory.meta_properties == ids


@pytest.mark.parametrize("ids", [{"cluster_id": "other"}, {"node_id": 99}])
def test_a_directory_of_another_cluster_or_node_is_refused(
    tmp_path: Path, ids: dict[str, object]
) -> None:
    LogDirectory.open(tmp_path, cluster_id="mine", node_id=1).close(5)
    with pytest.raises(UsageError, match="expected a log directory of"):
        LogDirectory.open(tmp_path, **ids)  # type: ignore[arg-type]
    found = read_clean_shutdown(tmp_path)
    assert found is not None, "a refused open leaves the directory as it was"


def test_one_process_at_a_time_may_open_it(tmp_path: Path) -> None:
    with LogDirectory.open(tmp_path), pytest.raises(LogDirectoryLockedError):
        LogDirectory.open(tmp_path)
    LogDirectory.open(tmp_path).close()


def test_records_survive_a_clean_close(tmp_path: Path) -> None:
    with LogDirectory.open(tmp_path) as directory:
        topic_id = random_uuid()
        directory.create_partition("orders", 0, topic_id).append([b"a", b"b"])
        directory.create_partition("payments", 3).append([b"c"])
        directory.broker_epoch = 57
    marker = read_clean_shutdown(tmp_path)
    assert marker is not None
    assert marker.broker_epoch == 57
    recovery_points = read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint")
    assert recovery_points == {ORDERS: 2, PAYMENTS: 1}
    with LogDirectory.open(tmp_path) as directory:
        assert directory.topic_partitions == [ORDERS, PAYMENTS]
        assert directory.last_shutdown == marker
        assert read_clean_shutdown(tmp_path) is None, "gone while the directory is open"
        assert values_of(directory) == [b"a", b"b"]
        assert directory[ORDERS].topic_id == topic_id
        assert directory[ORDERS].recovery_report.clean


def test_records_survive_a_crash_and_the_tail_is_checked(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with LogDirectory.open(live) as directory:
        directory.create_partition("orders", 0).append([b"a", b"b"])
        copy = crash_copy(live)
    with LogDirectory.open(copy) as directory:
        assert directory.last_shutdown is None
        assert not directory[ORDERS].recovery_report.clean
        assert values_of(directory) == [b"a", b"b"]


def test_partitions_are_opened_with_progress_and_the_options_of_their_topic(
    tmp_path: Path,
) -> None:
    with LogDirectory.open(tmp_path) as directory:
        for partition in range(5):
            directory.create_partition("orders", partition)
    seen: list[tuple[int, int]] = []
    with LogDirectory.open(
        tmp_path,
        configs={"orders": SMALL},
        recovery_threads=3,
        on_progress=lambda done, total: seen.append((done, total)),
    ) as directory:
        assert seen == [(done, 5) for done in range(1, 6)]
        assert directory[ORDERS].config == SMALL
        assert directory.create_partition("others", 0).config == LogConfig()


@pytest.mark.parametrize("name", ["lost+found", "orders", "orders-x", "orders-0.abc-delete"])
def test_a_directory_that_does_not_belong_is_an_error(tmp_path: Path, name: str) -> None:
    LogDirectory.open(tmp_path).close()
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match="move it elsewhere"):
        LogDirectory.open(tmp_path)
    assert read_clean_shutdown(tmp_path) is not None
    (tmp_path / name).rmdir()
    LogDirectory.open(tmp_path).close()


def test_strays_and_foreign_directories_are_left_alone(tmp_path: Path) -> None:
    hexadecimal = "0123456789abcdef" * 2
    names = [f"a-0.{hexadecimal}-stray", f"a-0.{hexadecimal}-future", "remote-log-index-cache"]
    for name in [*names, "__cluster_metadata-0"]:
        (tmp_path / name).mkdir()
    with LogDirectory.open(tmp_path) as directory:
        assert directory.topic_partitions == []
        assert sorted(directory.strays) == sorted(names[:2])
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} >= set(names)


def test_names_say_what_a_directory_is() -> None:
    assert kind_of("a-b-0") is DirectoryKind.PARTITION
    long_topic = TopicPartition("t" * 249, 7)
    name = deleted_name(long_topic)
    assert len(name) == 255
    assert kind_of(name) is DirectoryKind.DELETED
    with pytest.raises(UsageError):
        kind_of("orders-0.extra")


@pytest.mark.parametrize(("topic", "partition"), [("a/b", 0), ("", 0), ("..", 0), ("a", -1)])
def test_a_partition_with_a_bad_name_is_not_created(
    tmp_path: Path, topic: str, partition: int
) -> None:
    with LogDirectory.open(tmp_path) as directory:
        with pytest.raises(UsageError):
            directory.create_partition(topic, partition)
        directory.create_partition("orders", 0)
        with pytest.raises(UsageError, match="there already"):
            directory.create_partition("orders", 0)
        with pytest.raises(UsageError, match="create it first"):
            directory[PAYMENTS]


def test_a_creation_cut_short_by_a_crash_is_undone(tmp_path: Path) -> None:
    LogDirectory.open(tmp_path).close()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "partition.metadata.tmp").write_text("vers")
    with LogDirectory.open(tmp_path) as directory:
        assert directory.topic_partitions == []
        directory.create_partition("orders", 0).append([b"a"])


def test_a_partition_emptied_behind_our_back_is_refused(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with LogDirectory.open(live) as directory:
        directory.create_partition("orders", 0).append([b"a"])
        directory.partition_log(ORDERS).checkpoint()
        copy = crash_copy(live)
    shutil.rmtree(copy / "orders-0")
    (copy / "orders-0").mkdir()
    with LogDirectory.open(copy) as directory:
        assert isinstance(directory.refused[ORDERS], CorruptBatchError)


def test_a_deleted_partition_goes_at_once_and_its_files_later(tmp_path: Path) -> None:
    clock = [1000]
    with LogDirectory.open(tmp_path, now_ms=lambda: clock[0]) as directory:
        directory.create_partition("orders", 0).append([b"a"])
        directory.checkpoint_recovery_points()
        view = directory[ORDERS].read(0)
        directory.delete_partition(ORDERS)
        assert ORDERS not in directory
        assert not (tmp_path / "orders-0").exists()
        assert directory.remove_deleted(1000 + 59_999) == []
        assert read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint") == {}
        assert len(list(tmp_path.glob("orders-0.*-delete"))) == 1
        assert len(directory.remove_deleted(1000 + 60_000)) == 1
        created = directory.create_partition("orders", 0)
        assert created.log_end_offset == 0
        assert memoryview(view).nbytes > 61
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["orders-0"]


def test_a_deletion_is_finished_after_a_restart(tmp_path: Path) -> None:
    clock = [1000]
    with LogDirectory.open(tmp_path) as directory:
        directory.create_partition("orders", 0).append([b"a"])
        directory.delete_partition(ORDERS)
    with LogDirectory.open(tmp_path, now_ms=lambda: clock[0]) as directory:
        assert directory.topic_partitions == []
        assert directory.remove_deleted(1000) == []
        assert len(directory.remove_deleted(1000 + 60_000)) == 1
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_offsets_of_a_deleted_partition_do_not_reach_a_new_one(tmp_path: Path) -> None:
    """A crash between the rename and the checkpoint write must not harm a later partition."""
    live = tmp_path / "live"
    LogDirectory.open(live).close()
    write_offset_checkpoint(live / "recovery-point-offset-checkpoint", {ORDERS: 500})
    with LogDirectory.open(live) as directory:
        assert "orders-0" in directory.problems[0]
        directory.create_partition("orders", 0).append([b"a"])
        copy = crash_copy(live)
    with LogDirectory.open(copy) as directory:
        assert values_of(directory) == [b"a"]


def test_checkpoints_hold_what_kafka_puts_there(tmp_path: Path) -> None:
    with LogDirectory.open(tmp_path, SMALL) as directory:
        orders = directory.create_log("orders", 0)
        for _ in range(4):
            orders.append([b"x" * 100] * 2)
        directory.create_partition("payments", 3)
        directory.checkpoint_high_watermarks()
        directory.checkpoint_log_start_offsets()
        assert read_offset_checkpoint(tmp_path / "replication-offset-checkpoint") == {}
        assert read_offset_checkpoint(tmp_path / "log-start-offset-checkpoint") == {}
        orders.high_watermark = 6
        orders.truncate_prefix_to(3)
        orders.flush()
        directory.checkpoint_high_watermarks()
        directory.checkpoint_log_start_offsets()
        directory.checkpoint_recovery_points()
        assert read_offset_checkpoint(tmp_path / "replication-offset-checkpoint") == {ORDERS: 6}
        assert read_offset_checkpoint(tmp_path / "log-start-offset-checkpoint") == {ORDERS: 3}
        recovery_points = read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint")
        assert recovery_points == {ORDERS: 8, PAYMENTS: 0}
        orders.truncate_to(6)
        recovery_points = read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint")
        assert recovery_points == {ORDERS: 6, PAYMENTS: 0}
    with LogDirectory.open(tmp_path, SMALL) as directory:
        assert directory.partition_log(ORDERS).high_watermark == 6
        assert directory[ORDERS].log_start_offset == 3


def test_a_replicated_partition_without_checkpoint_has_committed_nothing(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with LogDirectory.open(live, replicated=True) as directory:
        directory.create_partition("orders", 0).append([b"a"])
        assert directory.partition_log(ORDERS).high_watermark == 0
        copy = crash_copy(live)
    with LogDirectory.open(copy, replicated=True) as directory:
        assert directory.partition_log(ORDERS).high_watermark == 0
        assert directory[ORDERS].log_end_offset == 1


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ],
)
def test_a_damaged_checkpoint_is_reported_and_done_without(tmp_path: Path, name: str) -> None:
    with LogDirectory.open(tmp_path) as directory:
        directory.create_partition("orders", 0).append([b"a"])
        directory.partition_log(ORDERS).high_watermark = 1
    (tmp_path / name).write_text("0\n7\nrubbish\n")
    with LogDirectory.open(tmp_path) as directory:
        assert name in directory.problems[0]
        assert directory[ORDERS].log_end_offset == 1
    assert read_offset_checkpoint(tmp_path / name) is not None


def test_damaged_meta_properties_stop_the_open(tmp_path: Path) -> None:
    LogDirectory.open(tmp_path).close()
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(CorruptFileError, match=r"meta\.properties"):
        LogDirectory.open(tmp_path)


def test_a_damaged_partition_is_refused_and_the_others_serve(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with LogDirectory.open(live) as directory:
        directory.create_partition("orders", 0).append([b"a"])
        directory.create_partition("payments", 3).append([b"c"])
        directory[ORDERS].flush()
        directory.checkpoint_recovery_points()
        copy = crash_copy(live)
    segment = copy / "orders-0" / f"{0:020}.log"
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 1
    segment.write_bytes(damaged)
    with LogDirectory.open(copy) as directory:
        with pytest.raises(CorruptBatchError):
            directory[ORDERS]
        assert values_of(directory, PAYMENTS) == [b"c"]
    assert read_clean_shutdown(copy) is None, "what was refused was not checked"
    recovery_points = read_offset_checkpoint(copy / "recovery-point-offset-checkpoint")
    assert recovery_points == {ORDERS: 1, PAYMENTS: 1}
    with LogDirectory.open(copy) as directory:
        assert list(directory.refused) == [ORDERS]
        directory.delete_partition(ORDERS)
        assert not directory.refused
    assert read_clean_shutdown(copy) is not None


def test_damaged_partition_metadata_refuses_that_partition(tmp_path: Path) -> None:
    with LogDirectory.open(tmp_path) as directory:
        directory.create_partition("orders", 0)
    path = tmp_path / "orders-0" / "partition.metadata"
    assert read_topic_id(path) is not None
    path.write_text("version: 0\n")
    with LogDirectory.open(tmp_path) as directory, pytest.raises(StorageError):
        directory[ORDERS]


def test_a_log_closed_as_by_a_crash_leaves_the_directory_unclean(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    directory.create_partition("orders", 0).append([b"a"])
    directory[ORDERS].close(flush=False)
    directory.close()
    assert read_clean_shutdown(tmp_path) is None


def test_nothing_works_after_a_close(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    directory.create_partition("orders", 0)
    directory.close()
    directory.close()
    with pytest.raises(LogClosedError):
        directory[ORDERS]
    with pytest.raises(LogClosedError):
        directory.create_partition("orders", 1)
    with pytest.raises(LogClosedError):
        directory.checkpoint_recovery_points()


def test_a_partition_that_was_never_settled_is_gone_after_a_crash(tmp_path):
    """Goal: names that were not synced cost nothing. What a crash may leave of them is removed."""
    directory = LogDirectory.open(tmp_path / "logs", replicated=True)
    for topic in ("empty", "torn", "settled", "kept"):
        log = directory.create_log(topic, 0, durable=False)
        assert log.keeper.is_behind(log)
        assert not os.path.exists(os.path.join(log.path, "partition.metadata"))
    (tmp_path / "logs" / "torn-0" / "partition.metadata.tmp").write_bytes(b"")
    for topic in ("settled", "kept"):
        log = directory.partition_log(TopicPartition(topic, 0))
        log.keeper.settle(log)
    kept = directory.partition_log(TopicPartition("kept", 0))
    assert not kept.keeper.is_behind(kept)
    kept.append([b"a"], leader_epoch=3)
    directory.abandon()
    with LogDirectory.open(tmp_path / "logs", replicated=True) as again:
        assert [str(name) for name in again] == ["kept-0", "settled-0"]
        assert again[TopicPartition("kept", 0)].topic_id == kept.topic_id
    (tmp_path / "logs" / "kept-0" / "partition.metadata").write_bytes(b"")
    with LogDirectory.open(tmp_path / "logs", replicated=True) as damaged:
        assert list(damaged.refused) == [TopicPartition("kept", 0)], "it has a record"


def test_an_epoch_that_was_assigned_later_is_on_disk_before_its_first_record(tmp_path):
    with LogDirectory.open(tmp_path / "logs", replicated=True) as directory:
        log = directory.create_log("orders", 0, durable=False)
        path = os.path.join(log.path, "leader-epoch-checkpoint")
        replica = ReplicaLog(log)
        replica.assign_epoch(5, 0)
        assert log.latest_epoch == 5
        assert not os.path.exists(path)
        native, found = log.append_as_leader, []

        class Watched:
            def __getattr__(self, name):
                return getattr(log, name)

            def append_as_leader(self, *arguments):
                found.append(read_leader_epochs(path))
                return native(*arguments)

        replica.log = Watched()
        replica.append_as_leader(record_encoder.encode([b"a"], now_ms=1), 5)
        assert found == [[(5, 0)]]
        replica.assign_epoch(6, 1)
        assert read_leader_epochs(path) == [(5, 0)]
        replica.append_as_leader(record_encoder.encode([b"b"], now_ms=1), 6)
        assert found[1] == [(5, 0), (6, 1)]
