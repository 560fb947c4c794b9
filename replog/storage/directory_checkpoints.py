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

from replog.storage.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from replog.storage.log_checkpoints import RECOVERY_POINT_CHECKPOINT_MS
from replog.storage.offset_checkpoint import OffsetCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from replog.types import TopicPartition


class DirectoryCheckpoints:
    """The checkpoint files of one log directory."""

    def __init__(
        self,
        directory: str,
        now_ms: Callable[[], int],
        recovery_points: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        """Read them; what is damaged counts as missing, and `problems` says so.

        recovery_points: of all logs that are open.
        """
        lock = threading.RLock()
        self.lock = lock
        self._now_ms = now_ms
        self._read_recovery_points = recovery_points
        self._noted_at_ms = now_ms()
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

    def note_recovery_point(self) -> None:
        """A log has flushed: persist the recovery points of all, as often as Kafka does."""
        with self.lock:
            now_ms = self._now_ms()
            if now_ms - self._noted_at_ms >= RECOVERY_POINT_CHECKPOINT_MS:
                self._noted_at_ms = now_ms
                self.recovery_points.update(self._read_recovery_points)

    def drop(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions: one of the same name that comes later must not find their offsets."""
        gone = list(topic_partitions)
        for file in self.files:
            file.drop(gone)

    def forget(self, topic_partition: TopicPartition) -> None:
        """As drop(), for one whose directory says that it was deleted: on disk by `settle`."""
        for file in self.files:
            file.forget(topic_partition)

    def settle(self) -> None:
        """See that nothing on disk tells of partitions that were forgotten.

        Before their directories go: what is told of a partition that has none is missed.
        """
        for file in self.files:
            file.settle()


class PartitionCheckpoints:
    """What one partition's log sees of the directory's checkpoints (a LogCheckpoints)."""

    def __init__(self, checkpoints: DirectoryCheckpoints, topic_partition: TopicPartition) -> None:
        self._checkpoints = checkpoints
        self._topic_partition = topic_partition
        self.last_offsets: tuple[int, int, int | None] | None = None

    def write_recovery_point(self, read: Callable[[], int]) -> None:
        """Persist what `read` gives; it runs while no other write can."""
        self._checkpoints.recovery_points.update(lambda: {self._topic_partition: read()})

    def note_recovery_point(self, read: Callable[[], int]) -> None:
        """Persist what `read` gives, now or with those of the other logs."""
        self._checkpoints.note_recovery_point()

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
