"""The four offset checkpoints of a log directory, shared by all its partitions.

Each file holds an entry per partition and is replaced whole, so every write goes through here, one
at a time. What is in the dictionaries is what is on disk: a partition that lowers its recovery
point before it truncates must not have it raised again by a write for another one.

A damaged file is not fatal, since each can be done without: without recovery points everything is
checked again, without log starts deleted records of the first segment show again until they are
deleted once more, a high watermark comes back from the leader, and what is compacted is entered
again.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from replog.errors import CorruptFileError, NoSpaceError
from replog.storage.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from replog.types import TopicPartition


class OffsetCheckpoint:
    """One checkpoint file; `offsets` is its content on disk, if that is not `uncertain`."""

    def __init__(self, path: str, lock: threading.RLock) -> None:
        self.path = path
        self.problem: str | None = None
        self.uncertain = False
        """A write has failed half-way: the disk has the old content or another."""
        self._lock = lock
        self._missing = False
        try:
            found = read_offset_checkpoint(path)
        except CorruptFileError as error:
            self.problem = str(error)
            found = None
        self._missing = found is None
        self.offsets: dict[TopicPartition, int] = found or {}

    def replace(self, offsets: dict[TopicPartition, int]) -> None:
        """Make `offsets` the content; durable on return. Nothing is written if it is already."""
        with self._lock:
            if self._missing or self.uncertain or offsets != self.offsets:
                try:
                    write_offset_checkpoint(self.path, offsets)
                except NoSpaceError:
                    raise  # the old content is there
                except BaseException:
                    self.uncertain = True
                    raise
                self._missing = self.uncertain = False
                self.offsets = offsets

    def update(self, read: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Replace the entries that `read` gives; it runs while no other write can."""
        with self._lock:
            self.replace({**self.offsets, **read()})

    def set(self, topic_partition: TopicPartition, offset: int) -> None:
        """Replace one entry."""
        with self._lock:
            self.replace({**self.offsets, topic_partition: offset})

    def drop(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Remove entries, if they are there."""
        with self._lock:
            gone = set(topic_partitions)
            if self.uncertain or gone & self.offsets.keys():
                self.replace({key: at for key, at in self.offsets.items() if key not in gone})


class DirectoryCheckpoints:
    """The checkpoint files of one log directory."""

    def __init__(self, directory: str) -> None:
        """Read them; what is damaged counts as missing, and `problems` says so."""
        lock = threading.RLock()
        self.lock = lock
        self.recovery_points = OffsetCheckpoint(
            os.path.join(directory, RECOVERY_POINT_CHECKPOINT), lock
        )
        self.log_start_offsets = OffsetCheckpoint(
            os.path.join(directory, LOG_START_OFFSET_CHECKPOINT), lock
        )
        self.high_watermarks = OffsetCheckpoint(
            os.path.join(directory, HIGH_WATERMARK_CHECKPOINT), lock
        )
        self.cleaner_offsets = OffsetCheckpoint(
            os.path.join(directory, CLEANER_OFFSET_CHECKPOINT), lock
        )

    @property
    def files(self) -> tuple[OffsetCheckpoint, ...]:
        return (
            self.recovery_points,
            self.log_start_offsets,
            self.high_watermarks,
            self.cleaner_offsets,
        )

    @property
    def problems(self) -> list[str]:
        """What was damaged when they were read, a sentence each."""
        return [file.problem for file in self.files if file.problem is not None]

    @property
    def partitions(self) -> set[TopicPartition]:
        """Those of which anything is known."""
        return set().union(*(file.offsets.keys() for file in self.files))

    def had_records(self, topic_partition: TopicPartition) -> bool:
        """Whether what is known of a partition says that it held records."""
        return any(file.offsets.get(topic_partition, 0) > 0 for file in self.files)

    def drop(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions: one of the same name that comes later must not find their offsets."""
        gone = list(topic_partitions)
        for file in self.files:
            file.drop(gone)


class PartitionCheckpoints:
    """What one partition's log sees of the directory's checkpoints (a LogCheckpoints)."""

    def __init__(self, checkpoints: DirectoryCheckpoints, topic_partition: TopicPartition) -> None:
        self._checkpoints = checkpoints
        self._topic_partition = topic_partition
        self.last_offsets: tuple[int, int, int | None] | None = None

    def write_recovery_point(self, read: Callable[[], int]) -> None:
        """Persist what `read` gives; it runs while no other write can."""
        self._checkpoints.recovery_points.update(lambda: {self._topic_partition: read()})

    def lower_recovery_point(self, offset: int) -> None:
        """See that no recovery point above `offset` is on disk; durable on return."""
        with self._checkpoints.lock:
            held = self._checkpoints.recovery_points
            if held.uncertain or held.offsets.get(self._topic_partition, 0) > offset:
                held.set(self._topic_partition, offset)

    def write_log_start_offset(self, offset: int) -> None:
        self._checkpoints.log_start_offsets.set(self._topic_partition, offset)

    def note_compacted(self) -> None:
        with self._checkpoints.lock:
            if self._topic_partition not in self._checkpoints.cleaner_offsets.offsets:
                self._checkpoints.cleaner_offsets.set(self._topic_partition, 0)

    def closed(self, recovery_point: int, log_start_offset: int, watermark: int | None) -> None:
        """Remember the log's last offsets; the directory writes those of all logs at its close."""
        self.last_offsets = (recovery_point, log_start_offset, watermark)

    def release(self) -> None:
        """Nothing: the lock is the directory's."""
