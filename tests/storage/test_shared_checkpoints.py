"""The checkpoint files of a log directory: written once for many, and never wrong about one."""

from __future__ import annotations

import errno
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replog._native import recorded_calls
from replog.errors import LogFailedError, NoSpaceError
from replog.storage.checkpoint_files import read_offset_checkpoint, write_offset_checkpoint
from replog.storage.log_directory import LogDirectory
from replog.storage.offset_checkpoint import OffsetCheckpoint
from replog.types import TopicPartition

NAME = "recovery-point-offset-checkpoint"
LOGS = 30
MINUTE_MS = 60_000


@pytest.fixture
def table() -> Iterator[None]:
    recorded_calls.install()
    yield
    recorded_calls.uninstall()


def renamed_checkpoints() -> int:
    """How often a checkpoint was put in place since `record`."""
    return sum(
        call.kind == "rename" and call.to.endswith("-offset-checkpoint")
        for call in recorded_calls.recorded()
    )


def key(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def filled(path: Path, clock: list[int]) -> LogDirectory:
    directory = LogDirectory.open(path, now_ms=lambda: clock[0], replicated=True)
    for number in range(LOGS):
        directory.create_log("t", number, durable=False).append([b"x"])
    return directory


@pytest.mark.usefixtures("table")
def test_logs_that_flush_after_a_minute_write_their_recovery_points_once(tmp_path: Path) -> None:
    clock = [0]
    directory = filled(tmp_path, clock)
    clock[0] = MINUTE_MS
    recorded_calls.record()
    for topic_partition in directory:
        directory[topic_partition].flush()
    assert renamed_checkpoints() == 1
    clock[0] = 2 * MINUTE_MS
    directory[key(0)].append([b"y"])
    directory[key(0)].flush()
    assert renamed_checkpoints() == 2
    assert set((read_offset_checkpoint(tmp_path / NAME) or {}).values()) == {1, 2}
    directory.abandon()


@pytest.mark.usefixtures("table")
def test_a_close_writes_each_checkpoint_once(tmp_path: Path) -> None:
    clock = [0]
    directory = filled(tmp_path, clock)
    clock[0] = MINUTE_MS
    recorded_calls.record()
    directory.close()
    assert renamed_checkpoints() <= 4
    assert read_offset_checkpoint(tmp_path / NAME) == {key(number): 1 for number in range(LOGS)}


@pytest.mark.usefixtures("table")
def test_deletions_are_told_once_and_before_their_files_go(tmp_path: Path) -> None:
    clock = [0]
    directory = filled(tmp_path / "live", clock)
    directory.checkpoint_recovery_points()
    for number in range(LOGS):
        directory[key(number)].flush()
    directory.checkpoint_recovery_points()
    recorded_calls.record()
    for number in range(1, LOGS):
        directory.delete_partition(key(number))
    assert renamed_checkpoints() == 0
    shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    clock[0] = 10 * MINUTE_MS
    assert len(directory.remove_deleted()) == LOGS - 1
    assert renamed_checkpoints() == 1
    assert read_offset_checkpoint(tmp_path / "live" / NAME) == {key(0): 1}
    directory.abandon()
    for path in (tmp_path / "live", tmp_path / "crashed"):
        with LogDirectory.open(path, replicated=True) as again:
            assert again.topic_partitions == [key(0)]
            assert again.missing == frozenset()
        assert read_offset_checkpoint(path / NAME) == {key(0): 1}


def test_a_partition_of_the_name_of_one_that_was_deleted_begins_with_no_offsets(
    tmp_path: Path,
) -> None:
    clock = [0]
    directory = filled(tmp_path, clock)
    directory.partition_log(key(3)).checkpoint()
    directory.delete_partition(key(3))
    directory.create_partition("t", 3)
    assert key(3) not in (read_offset_checkpoint(tmp_path / NAME) or {})
    directory.abandon()


def test_the_file_says_what_a_whole_write_would(tmp_path: Path) -> None:
    draw = random.Random(5)
    file = OffsetCheckpoint(str(tmp_path / "one"), threading.RLock())
    wanted: dict[TopicPartition, int] = {}
    for step in range(300):
        keys = [
            TopicPartition(draw.choice("ab"), draw.randrange(12))
            for _ in range(draw.choice((1, 1, 2, 15)))
        ]
        match draw.randrange(5):
            case 0:
                file.drop(keys)
                wanted = {one: at for one, at in wanted.items() if one not in keys}
            case 1:
                file.forget(keys[0])
                wanted.pop(keys[0], None)
                file.settle()
            case 2:
                wanted = dict.fromkeys(keys, step)
                file.replace(dict(wanted))
            case 3:
                file.set(keys[0], step)
                wanted[keys[0]] = step
            case _:
                file.update(lambda keys=keys, step=step: dict.fromkeys(keys, step))
                wanted |= dict.fromkeys(keys, step)
        write_offset_checkpoint(tmp_path / "whole", wanted)
        assert file.offsets == wanted
        if (tmp_path / "one").exists():
            assert (tmp_path / "one").read_bytes() == (tmp_path / "whole").read_bytes()
    again = OffsetCheckpoint(str(tmp_path / "one"), threading.RLock())
    assert again.offsets == wanted


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("kind", "cause", "error", "uncertain"),
    [("open", errno.ENOSPC, NoSpaceError, False), ("fdatasync", errno.EIO, LogFailedError, True)],
)
def test_a_write_that_fails_changes_nothing_and_is_made_again(
    tmp_path: Path, kind: str, cause: int, error: type[Exception], *, uncertain: bool
) -> None:
    file = OffsetCheckpoint(str(tmp_path / "one"), threading.RLock())
    file.replace({key(0): 5, key(1): 6})
    file.forget(key(1))
    recorded_calls.fail(kind, cause)
    with pytest.raises(error):
        file.update(lambda: {key(0): 7, key(2): 1})
    recorded_calls.clear_faults()
    assert file.uncertain is uncertain
    assert file.offsets == {key(0): 5}
    file.settle()
    assert read_offset_checkpoint(file.path) == {key(0): 5}
    assert not file.uncertain
