"""Directories that an open makes: whole and durable, or not there."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from replog._native import recorded_calls
from replog.errors import ReplogError
from replog.storage.directory_access import make_directory
from replog.storage.log_directory import LogDirectory
from replog.storage.partition_log import PartitionLog
from replog.types import Record, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def calls() -> Iterator[None]:
    recorded_calls.install()
    yield
    recorded_calls.uninstall()


def test_each_name_of_a_new_path_is_synced(tmp_path: Path, calls: None) -> None:
    """Before the next one is made below it: a crash leaves a path that ends early, and no hole."""
    recorded_calls.record()
    with PartitionLog.open(tmp_path / "a" / "b" / "orders-0"):
        made = recorded_calls.recorded()
    order = [
        (call.kind, os.path.relpath(call.path, tmp_path))
        for call in made
        if call.kind == "mkdir" or (call.kind == "fsync_dir" and "orders" not in call.path)
    ]
    assert order == [
        ("mkdir", "a"),
        ("fsync_dir", "."),
        ("mkdir", "a/b"),
        ("fsync_dir", "a"),
        ("mkdir", "a/b/orders-0"),
        ("fsync_dir", "a/b"),
    ]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("kind", ["mkdir", "fsync_dir"])
def test_what_could_not_be_made_whole_is_not_there(
    tmp_path: Path, calls: None, kind: str, nth: int
) -> None:
    recorded_calls.fail(kind, errno.ENOSPC, nth=nth, times=1)
    with pytest.raises(ReplogError):
        make_directory(str(tmp_path / "a" / "b" / "orders-0"))
    assert not any(tmp_path.iterdir())
    assert make_directory(str(tmp_path / "a" / "b" / "orders-0"))


def test_a_partition_that_begins_behind_0_keeps_its_topic_id_over_a_clean_close(
    tmp_path: Path,
) -> None:
    """A replica that is fresh where its leader's log starts, closed before its first append."""
    topic_id = uuid.uuid4()
    with LogDirectory.open(tmp_path, replicated=True) as directory:
        log = directory.create_log("orders", 0, topic_id, durable=False)
        log.truncate_fully_and_start_at(7)
    with LogDirectory.open(tmp_path, replicated=True) as directory:
        log = directory.partition_log(ORDERS)
        assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (topic_id, 7, 7)


def lose_records(path: Path) -> None:
    """A partition with records is closed cleanly, and its directory gone afterwards."""
    with LogDirectory.open(path, replicated=True) as directory:
        if ORDERS not in directory:
            directory.create_partition(*ORDERS)
        directory[ORDERS].append([b"a"])
    shutil.rmtree(path / "orders-0")


def test_a_partition_that_was_made_anew_is_missing_no_more(tmp_path: Path) -> None:
    lose_records(tmp_path)
    with LogDirectory.open(tmp_path, replicated=True) as directory:
        assert directory.missing == {ORDERS}
        directory.create_partition(*ORDERS)
        assert directory.missing == frozenset()


def test_files_of_a_deleted_partition_do_not_hide_that_one_of_its_name_is_gone(
    tmp_path: Path,
) -> None:
    with LogDirectory.open(tmp_path, replicated=True) as directory:
        for name in (ORDERS, ("orders", 1)):
            directory.create_partition(*name).append([b"of the deleted one"])
        view = directory.partition_log(ORDERS).read(0)
        for name in (ORDERS, ("orders", 1)):
            directory.delete_partition(name)
        directory.create_partition(*ORDERS)
        assert [name.split(".")[0] for name in os.listdir(tmp_path) if "-delete" in name] == [
            "orders-1"
        ], "another's wait for their time"
        [record] = view.records(record_type=Record)
        assert record.value == b"of the deleted one"
    lose_records(tmp_path)
    with LogDirectory.open(tmp_path, replicated=True) as directory:
        assert directory.missing == {ORDERS}
