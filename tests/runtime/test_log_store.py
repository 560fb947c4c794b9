"""The store of a broker's logs on real directories."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import errno
import os
import threading
import uuid

import pytest

from replog._native import recorded_calls
from replog._native.record_encoder import encode
from replog.config import LogConfig
from replog.errors import (
    CorruptBatchError,
    LogClosedError,
    LogDirectoryLockedError,
    LogFailedError,
    NoSpaceError,
)
from replog.messages import NO_BROKER_EPOCH
from replog.registrations import PartitionRegistration, TopicConfig
from replog.runtime.log_store import DirectoryLogStore
from replog.storage import settled_files
from replog.storage.checkpoint_files import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from replog.storage.clean_shutdown import CLEAN_SHUTDOWN_FILE
from replog.storage.partition_metadata import PARTITION_METADATA_FILE
from replog.types import TopicPartition

PARTITION = TopicPartition("orders", 0)
TOPIC_ID, OTHER_ID = uuid.UUID(int=5000), uuid.UUID(int=5001)
NOW_MS = 1_700_000_000_000


def open_store(path) -> DirectoryLogStore:
    return DirectoryLogStore.at(path, 1, "test-cluster", {"orders": LogConfig()}, lambda: NOW_MS)


def registration(topic_id=TOPIC_ID, **log) -> PartitionRegistration:
    return PartitionRegistration(
        topic_partition=PARTITION,
        topic_id=topic_id,
        replicas=(1,),
        isr=(1,),
        leader_id=1,
        config=TopicConfig(log=LogConfig(**log)),
    )


def append(log, text: bytes, epoch: int = 0):
    return log.append_as_leader(bytes(encode([text] * 3, now_ms=NOW_MS)), epoch)


def test_a_log_is_created_with_its_topic_id_and_found_again_after_a_crash(tmp_path):
    store = open_store(tmp_path)
    log = store.open(registration())
    append(log, b"a", epoch=4)
    log.set_high_watermark(2)
    store.checkpoint_high_watermarks()
    store.abandon()

    store = open_store(tmp_path)
    [state] = store.replica_states()
    assert (state.topic_id, state.latest_epoch, state.log_end_offset) == (TOPIC_ID, 4, 3)
    assert not state.damaged
    assert store.previous_broker_epoch == NO_BROKER_EPOCH
    assert store.get(PARTITION).high_watermark == 2
    store.abandon()


def test_a_restart_of_a_new_replica_outlives_a_crash_without_a_record(tmp_path):
    """Or its checkpoints would name a partition that is gone: it would count as missing."""
    store = open_store(tmp_path)
    store.open(registration()).truncate_fully_and_start_at(20)
    store.abandon()

    store = open_store(tmp_path)
    assert not store.missing({})
    [state] = store.replica_states()
    assert (state.topic_id, state.log_end_offset) == (TOPIC_ID, 20)
    assert store.get(PARTITION).log_start_offset == 20
    store.abandon()


def test_an_empty_log_that_begins_anew_inside_a_batch_has_none_of_it_synced(tmp_path):
    store = open_store(tmp_path)
    log = store.open(registration())
    log.truncate_fully_and_start_at(5)
    before = log.sync_target()
    log.note_synced(before)
    assert log.synced_end_offset == 5
    log.append_as_follower(bytes(encode([b"v"] * 3, now_ms=NOW_MS, base_offset=4, leader_epoch=0)))
    assert (log.log_start_offset, log.synced_end_offset) == (4, 4)
    assert not log.note_synced(before)
    target = log.sync_target()
    log.sync(target)
    assert log.note_synced(target)
    assert log.synced_end_offset == 7
    store.abandon()


def test_a_clean_stop_says_which_incarnation_it_was(tmp_path):
    store = open_store(tmp_path)
    store.open(registration())
    store.close(57)
    store = open_store(tmp_path)
    assert store.previous_broker_epoch == 57
    store.abandon()
    store = open_store(tmp_path)
    assert store.previous_broker_epoch == NO_BROKER_EPOCH
    store.abandon()


def test_a_high_watermark_that_was_checkpointed_too_high_is_clamped_to_the_log(tmp_path):
    store = open_store(tmp_path)
    log = store.open(registration())
    append(log, b"a")
    log.set_high_watermark(3)
    store.checkpoint_high_watermarks()
    store.abandon()
    path = os.path.join(tmp_path, str(PARTITION), "00000000000000000000.log")
    os.truncate(path, 0)
    store = open_store(tmp_path)
    log = store.get(PARTITION)
    assert (log.log_end_offset, log.high_watermark) == (0, 0)
    store.abandon()


def test_abandoning_frees_the_lock_and_writes_nothing(tmp_path):
    store = open_store(tmp_path)
    append(store.open(registration()), b"a")
    with pytest.raises(LogDirectoryLockedError):
        open_store(tmp_path)

    def files():
        return {
            (place, name): os.stat(os.path.join(place, name)).st_mtime_ns
            for place, _, names in os.walk(tmp_path)
            for name in names
        }

    before = files()
    store.abandon()
    assert files() == before
    assert (str(tmp_path), CLEAN_SHUTDOWN_FILE) not in before
    open_store(tmp_path).abandon()


def test_a_log_of_another_topic_of_that_name_is_deleted_first(tmp_path):
    store = open_store(tmp_path)
    append(store.open(registration()), b"a")
    log = store.open(registration(OTHER_ID))
    assert (log.log_end_offset, log.topic_id) == (0, OTHER_ID)
    assert store.open(registration(OTHER_ID)) is log
    store.abandon()


def damage(tmp_path) -> str:
    """A log that was stopped cleanly and has rotted since."""
    store = open_store(tmp_path)
    log = store.open(registration())
    for _ in range(3):
        append(log, b"a")
    log.log.checkpoint()
    store.abandon()
    path = os.path.join(tmp_path, str(PARTITION), "00000000000000000000.log")
    with open(path, "r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff")
    # Recovery looks at what follows the recovery point only: it must begin before the rot.
    with open(os.path.join(tmp_path, "recovery-point-offset-checkpoint"), "w") as file:
        file.write("0\n1\norders 0 9\n")
    return path


def test_a_damaged_log_is_told_refused_and_set_aside_with_its_files(tmp_path):
    path = damage(tmp_path)
    os.truncate(path, 100)
    store = open_store(tmp_path)
    [state] = store.replica_states()
    assert state.damaged
    assert state.topic_id == TOPIC_ID
    assert store.get(PARTITION) is None
    for _ in range(2):
        with pytest.raises(CorruptBatchError):
            store.open(registration())
    log = store.set_aside(PARTITION)
    assert (log.log_end_offset, log.topic_id) == (0, TOPIC_ID)
    assert store.get(PARTITION) is log
    [kept] = store.directory.strays
    assert os.path.getsize(os.path.join(tmp_path, kept, os.path.basename(path))) == 100
    store.abandon()


def test_a_damaged_log_whose_topic_id_cannot_be_read_is_never_taken_for_another_topics(tmp_path):
    os.truncate(damage(tmp_path), 100)
    with open(os.path.join(tmp_path, str(PARTITION), "partition.metadata"), "w") as file:
        file.write("nonsense")
    store = open_store(tmp_path)
    with pytest.raises(Exception, match=r"partition.metadata|batch"):
        store.open(registration())
    assert os.path.isdir(os.path.join(tmp_path, str(PARTITION)))
    store.set_aside(PARTITION)
    assert store.get(PARTITION).topic_id == TOPIC_ID
    store.abandon()


def test_deleting_takes_damaged_logs_too_and_knows_none_by_another_name(tmp_path):
    os.truncate(damage(tmp_path), 100)
    store = open_store(tmp_path)
    store.delete(PARTITION)
    store.delete(TopicPartition("never", 3))
    assert store.get(PARTITION) is None
    assert not os.path.exists(os.path.join(tmp_path, str(PARTITION)))
    assert any(name.endswith("-delete") for name in os.listdir(tmp_path))
    store.checkpoint_high_watermarks()
    assert not any(name.endswith("-delete") for name in os.listdir(tmp_path))
    store.abandon()


def test_strays_are_kept_aside(tmp_path):
    store = open_store(tmp_path)
    append(store.open(registration()), b"a")
    store.set_aside_strays(lambda _: True)
    assert store.get(PARTITION) is not None
    store.set_aside_strays(lambda _: False)
    assert store.get(PARTITION) is None
    assert len(store.directory.strays) == 1
    store.abandon()


def test_commit_mode_leaves_syncing_to_the_scheduler(tmp_path):
    """The log's own commit mode would make the broker's loop wait for the disk."""
    store = open_store(tmp_path)
    log = store.open(registration(flush_mode="commit"))
    append(log, b"a")
    assert (log.synced_end_offset, log.log_end_offset) == (0, 3)
    target = log.sync_target()
    append(log, b"b")
    log.sync(target)
    assert log.synced_end_offset == 0
    assert log.note_synced(target)
    assert log.synced_end_offset == 3
    target = log.sync_target()
    log.truncate_to(3)
    log.sync(target)
    assert not log.note_synced(target)
    assert log.synced_end_offset == 3
    store.abandon()


def test_readable_bytes_are_counted_up_to_the_limit(tmp_path):
    store = open_store(tmp_path)
    log = store.open(registration())
    append(log, b"a")
    size = log.log.size_bytes
    append(log, b"b")
    assert log.readable_bytes(0, 0, 100) == 0
    assert log.readable_bytes(3, 3, 100) == 0
    assert log.readable_bytes(0, 3, 10_000) == size
    assert log.readable_bytes(0, 6, 10_000) == 2 * size
    assert log.readable_bytes(0, 6, 10) == 10
    store.abandon()


def copies(count: int, epoch: int) -> list:
    """Partitions of one topic, and for each a leader's batch that begins its log."""
    batch = bytes(encode([b"a"] * 3, now_ms=NOW_MS, leader_epoch=epoch))
    return [(TopicPartition("orders", number), batch) for number in range(count)]


def opened(store, appends) -> list:
    return [
        store.open(dataclasses.replace(registration(), topic_partition=name)) for name, _ in appends
    ]


def followed(store, count: int):
    """`copies` in epoch 3, and the logs that have them."""
    first = copies(count, epoch=3)
    logs = opened(store, first)
    for log, (_, batch) in zip(logs, first, strict=True):
        log.append_as_follower(batch)
    return first, logs


def epochs_on_disk(log) -> list | None:
    return read_leader_epochs(os.path.join(log.log.path, LEADER_EPOCH_CHECKPOINT))


def test_what_followers_append_next_is_settled_side_by_side_before(tmp_path):
    store = open_store(tmp_path)
    appends = copies(20, epoch=3)
    logs = opened(store, appends)
    store.settle_ahead(appends)
    for log in logs:
        assert not log.log.keeper.is_behind(log.log)
        assert not log.log.keeper.is_new
        assert epochs_on_disk(log) == [(3, 0)]
        assert os.path.exists(os.path.join(log.log.path, PARTITION_METADATA_FILE))
        assert log.log_end_offset == 0
    for log, (_, batch) in zip(logs, appends, strict=True):
        log.append_as_follower(batch)
        assert (log.log_end_offset, log.latest_epoch) == (3, 3)
    store.abandon()


def test_an_append_is_refused_where_settling_it_ahead_has_failed(tmp_path, monkeypatch):
    """The epoch is in the log's memory by then: no record of it may be written all the same."""
    store = open_store(tmp_path)
    first, logs = followed(store, 2)
    later = bytes(encode([b"b"], now_ms=NOW_MS, base_offset=3, leader_epoch=4))

    def full(contents):
        raise NoSpaceError("full")

    monkeypatch.setattr(settled_files, "replace_files", full)
    store.settle_ahead([(name, later) for name, _ in first])
    for log in logs:
        with pytest.raises(NoSpaceError):
            log.append_as_follower(later)
        assert (log.log_end_offset, epochs_on_disk(log)) == (3, [(3, 0)])
    monkeypatch.undo()
    logs[0].append_as_follower(later)
    assert epochs_on_disk(logs[0]) == [(3, 0), (4, 3)]
    store.abandon()


def test_a_failed_sync_of_the_small_files_is_never_tried_again(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    log = store.open(registration())

    def lost(contents):
        raise LogFailedError("the disk lost pages")

    monkeypatch.setattr(settled_files, "replace_files", lost)
    with pytest.raises(LogFailedError):
        append(log, b"a")
    monkeypatch.undo()
    with pytest.raises(LogFailedError, match="lost pages"):
        append(log, b"a")
    assert log.log_end_offset == 0
    store.abandon()


@pytest.fixture
def faults():
    recorded_calls.install()
    yield recorded_calls
    recorded_calls.uninstall()


def test_settling_ahead_says_nothing_of_a_log_that_has_failed_meanwhile(tmp_path, faults):
    """Its sync fails in a thread, and the loop has yet to hear of it."""
    store = open_store(tmp_path)
    first, logs = followed(store, 3)
    faults.fail("fdatasync", errno.EIO, path="orders-0")
    with pytest.raises(LogFailedError):
        logs[0].sync(logs[0].sync_target())
    faults.clear_faults()
    later = bytes(encode([b"b"], now_ms=NOW_MS, base_offset=3, leader_epoch=4))
    store.settle_ahead([(name, later) for name, _ in first])
    assert [epochs_on_disk(log)[-1] for log in logs] == [(3, 0), (4, 3), (4, 3)]
    with pytest.raises(LogFailedError):
        logs[0].append_as_follower(later)
    store.abandon()


def test_a_close_that_fails_waits_for_who_writes_and_lets_nobody_begin(
    tmp_path, faults, monkeypatch
):
    """Else a late write would put an epoch into the place of the next owner's."""
    store = open_store(tmp_path)
    log = store.open(registration())
    append(log, b"a", epoch=1)
    writes, may_go_on = threading.Event(), threading.Event()
    replace = settled_files.replace_files

    def slowly(contents):
        if threading.current_thread().name.startswith("replog-settle"):
            writes.set()
            assert may_go_on.wait(30)
        replace(contents)

    monkeypatch.setattr(settled_files, "replace_files", slowly)
    log.assign_epoch(2, 3)
    assert writes.wait(30)
    faults.fail("fdatasync", errno.EIO, path=".log")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        closing = pool.submit(store.close, 1)
        with pytest.raises(TimeoutError):
            closing.result(0.2)
        may_go_on.set()
        with pytest.raises(LogFailedError):
            closing.result(30)
    faults.clear_faults()
    store = open_store(tmp_path)
    again = store.open(registration())
    append(again, b"b", epoch=7)
    log.log.keeper.settled_files.epochs_on_disk = []  # so that there is something to write
    log.log.keeper.settle(log.log)
    with pytest.raises(LogClosedError):
        log.log.keeper.write_epochs(log.log)
    assert epochs_on_disk(again)[-1] == (7, 3)
    store.abandon()


def test_batches_that_do_not_continue_the_log_settle_no_epoch(tmp_path):
    store = open_store(tmp_path)
    appends = copies(2, epoch=3)
    logs = opened(store, appends)
    gap = bytes(encode([b"b"], now_ms=NOW_MS, base_offset=5, leader_epoch=4))
    store.settle_ahead([(name, gap) for name, _ in appends])
    assert [log.latest_epoch for log in logs] == [-1, -1]
    store.abandon()


def test_a_leaders_new_epoch_is_on_disk_soon_and_before_its_first_record(tmp_path):
    store = open_store(tmp_path)
    log = store.open(registration())
    log.assign_epoch(1, 0)
    assert epochs_on_disk(log) is None, "a new partition waits for its first record"
    append(log, b"a", epoch=1)
    log.assign_epoch(2, 3)
    append(log, b"b", epoch=2)
    assert epochs_on_disk(log) == [(1, 0), (2, 3)]
    log.assign_epoch(3, 6)
    store.delete(PARTITION)  # waits for whoever writes the epoch now
    again = store.open(registration(OTHER_ID))
    log.log.keeper.settle(log.log)
    assert epochs_on_disk(again) is None, "a deleted log writes nothing into its successor"
    store.abandon()
