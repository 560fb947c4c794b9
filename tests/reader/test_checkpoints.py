"""Checkpoint files that many readers share: parsed once, and never older than the directory."""

from __future__ import annotations

import os

import pytest

import replog
from replog.reader import Checkpoints, PartitionReader, checkpoints
from replog.storage.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from replog.types import TopicPartition

PARTITIONS = [TopicPartition("orders", number) for number in range(20)]
LONG_AGO = 1_000_000_000


@pytest.fixture
def parsed(monkeypatch):
    """Paths of the files that were parsed."""
    paths: list[str] = []

    def read(path):
        paths.append(os.path.basename(path))
        return read_offset_checkpoint(path)

    monkeypatch.setattr(checkpoints, "read_offset_checkpoint", read)
    monkeypatch.setattr(checkpoints, "_parsed_files", checkpoints._ParsedFiles())
    return paths


@pytest.fixture
def directory(tmp_path):
    with replog.LogDirectory.open(tmp_path) as opened:
        for partition in PARTITIONS:
            opened.create_partition(*partition).append([b"x"])
    for name in os.listdir(tmp_path):
        if name.endswith("-offset-checkpoint"):
            os.utime(tmp_path / name, (LONG_AGO, LONG_AGO))
    return tmp_path


def high_watermark(directory) -> int | None:
    return Checkpoints().of(str(directory / "orders-0"), PARTITIONS[0]).high_watermark


def age(monkeypatch, seconds: float) -> None:
    """Let all files have been written so long ago."""
    now_ns = checkpoints.time.time_ns

    monkeypatch.setattr(checkpoints.time, "time_ns", lambda: now_ns() + int(seconds * 1e9))


def test_readers_of_all_partitions_parse_each_file_once(directory, parsed, monkeypatch):
    age(monkeypatch, 60)
    for partition in PARTITIONS:
        assert PartitionReader(directory / str(partition)).end_offset == 1
    assert parsed.count(RECOVERY_POINT_CHECKPOINT) == 1


def test_every_new_content_is_seen_at_once(directory, parsed, monkeypatch):
    """Also where the file has the size of the one before, its inode and, by the clock, its time."""
    path = str(directory / HIGH_WATERMARK_CHECKPOINT)
    for offset in range(100, 400):
        write_offset_checkpoint(path, {PARTITIONS[0]: offset})
        assert high_watermark(directory) == offset
    age(monkeypatch, 60)
    before = len(parsed)
    assert [high_watermark(directory) for _ in range(3)] == [399, 399, 399]
    assert parsed[before:].count(HIGH_WATERMARK_CHECKPOINT) == 1
    write_offset_checkpoint(path, {PARTITIONS[0]: 99})
    assert high_watermark(directory) == 99
    os.unlink(path)
    assert high_watermark(directory) is None


def test_a_file_that_has_just_been_written_is_parsed_again(directory, parsed):
    """Its successor may have the same inode, size and time: nothing would tell them apart."""
    path = directory / HIGH_WATERMARK_CHECKPOINT
    write_offset_checkpoint(str(path), {PARTITIONS[0]: 100})
    assert high_watermark(directory) == 100
    assert high_watermark(directory) == 100
    assert parsed.count(HIGH_WATERMARK_CHECKPOINT) == 2


def test_a_reader_keeps_what_it_was_told_until_it_is_refreshed(directory, monkeypatch):
    age(monkeypatch, 60)
    shared = Checkpoints()
    reader = PartitionReader(directory / "orders-0", checkpoints=shared)
    path = str(directory / HIGH_WATERMARK_CHECKPOINT)
    write_offset_checkpoint(path, {PARTITIONS[0]: 0})
    assert PartitionReader(directory / "orders-0", checkpoints=shared).end_offset == 1
    assert reader.end_offset == 1
    reader.refresh()
    assert reader.end_offset == 0


def test_few_files_are_kept(tmp_path, parsed, monkeypatch):
    age(monkeypatch, 60)
    for number in range(2 * checkpoints._FILES_KEPT):
        home = tmp_path / str(number)
        home.mkdir()
        write_offset_checkpoint(str(home / HIGH_WATERMARK_CHECKPOINT), {PARTITIONS[0]: number})
        assert checkpoints._parsed_files.offsets_in(str(home / HIGH_WATERMARK_CHECKPOINT))
    assert len(checkpoints._parsed_files._kept) == checkpoints._FILES_KEPT
