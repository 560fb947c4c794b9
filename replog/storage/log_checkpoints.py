"""What a partition's log keeps outside its segments: offsets that bound it, and how it was stopped.

A partition directory that stands alone holds these files itself; one inside a log directory shares
those of the directory (`log_directory.py`). The formats are Kafka's either way.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import TYPE_CHECKING, Protocol

from replog._native.mapped_file import FileLock, fsync_dir
from replog.errors import NoSpaceError
from replog.storage.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from replog.storage.clean_shutdown import (
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from replog.storage.open_mark import LastStop, OpenMarkKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.types import TopicPartition

LOCK_FILE = ".lock"
RECOVERY_POINT_CHECKPOINT_MS = 60_000
"""How often a recovery point is persisted that nobody asks for, as Kafka does."""


@dataclasses.dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """Offsets as they were checkpointed.

    log_start_offset: None where the first segment's name tells it. high_watermark: None where
    nobody else holds a copy. compacted: compaction has been there, offsets may be missing.
    """

    last_stop: LastStop = LastStop.FOREIGN
    compacted: bool = False
    recovery_point: int = 0
    log_start_offset: int | None = None
    high_watermark: int | None = None


class LogCheckpoints(Protocol):
    """Where a PartitionLog keeps its offsets. Each write is durable on return."""

    def write_recovery_point(self, read: Callable[[], int]) -> None:
        """Persist what `read` gives; it is called while no other write can run."""

    def note_recovery_point(self, read: Callable[[], int]) -> None:
        """Persist what `read` gives if that is due: too low a one only costs time at recovery."""

    def lower_recovery_point(self, offset: int) -> None:
        """See that no recovery point above `offset` is on disk."""

    def write_log_start_offset(self, offset: int) -> None: ...
    def note_compacted(self) -> None:
        """Enter the partition among the compacted ones, for readers: its offsets may have holes."""

    def closed(self, recovery_point: int, log_start_offset: int, watermark: int | None) -> None:
        """The log is flushed and closed with these offsets."""

    def release(self) -> None:
        """Give up the lock; nothing is written."""


class BareCheckpoints:
    """Checkpoint files inside the partition directory, held under its own lock."""

    def __init__(
        self, directory: str, topic_partition: TopicPartition, now_ms: Callable[[], int]
    ) -> None:
        """Raises LogDirectoryLockedError if another Log has the directory open."""
        self._directory = directory
        self._topic_partition = topic_partition
        self._lock = FileLock(os.path.join(directory, LOCK_FILE))
        self._changes = threading.Lock()
        self._now_ms = now_ms
        self._noted_at_ms = now_ms()
        self._recovery_point = 0
        """The highest that may be on disk."""
        self._mark: OpenMarkKeeper

    def take(self, *, fresh: bool) -> CheckpointedOffsets:
        """Read what the last stop left, and mark the directory as in use (not clean)."""
        clean = fresh or read_clean_shutdown(self._directory) is not None
        self._mark = OpenMarkKeeper(self._directory, clean=clean)
        if not clean:
            fsync_dir(self._directory)  # a process that died may have synced no name
        last_stop = self._mark.last_stop(os.path.basename(self._directory))
        self._mark.opening()
        # Gone before the log loads: a crash while loading is an unclean stop, too.
        remove_clean_shutdown(self._directory)
        recovery_point = self._read(RECOVERY_POINT_CHECKPOINT)
        log_start_offset = self._read(LOG_START_OFFSET_CHECKPOINT)
        if log_start_offset is None and recovery_point is not None:
            log_start_offset = 0  # a log that was closed here has no file for 0 alone
        self._recovery_point = recovery_point or 0
        return CheckpointedOffsets(
            last_stop=last_stop,
            recovery_point=self._recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=self._read(HIGH_WATERMARK_CHECKPOINT),
            compacted=self._read(CLEANER_OFFSET_CHECKPOINT) is not None,
        )

    def opened(self) -> None:
        """The log is whole: what a crash leaves of it from here on is our own doing."""
        self._mark.opened()

    def write_recovery_point(self, read: Callable[[], int]) -> None:
        with self._changes:
            self._write_recovery_point(read())

    def note_recovery_point(self, read: Callable[[], int]) -> None:
        now_ms = self._now_ms()
        if now_ms - self._noted_at_ms >= RECOVERY_POINT_CHECKPOINT_MS:
            self._noted_at_ms = now_ms
            self.write_recovery_point(read)

    def lower_recovery_point(self, offset: int) -> None:
        with self._changes:
            if self._recovery_point > offset:
                self._write_recovery_point(offset)

    def _write_recovery_point(self, offset: int) -> None:
        try:
            self._write(RECOVERY_POINT_CHECKPOINT, offset)
        except NoSpaceError:
            raise  # the old one is there
        except BaseException:
            # Either may be: who lowers it later must not think that there is nothing to lower.
            self._recovery_point = max(self._recovery_point, offset)
            raise
        self._recovery_point = offset

    def write_log_start_offset(self, offset: int) -> None:
        self._write(LOG_START_OFFSET_CHECKPOINT, offset)

    def write_high_watermark(self, offset: int) -> None:
        """Persist a high watermark while the log is open."""
        self._write(HIGH_WATERMARK_CHECKPOINT, offset)

    def note_compacted(self) -> None:
        if self._read(CLEANER_OFFSET_CHECKPOINT) is None:
            self._write(CLEANER_OFFSET_CHECKPOINT, 0)

    def closed(self, recovery_point: int, log_start_offset: int, watermark: int | None) -> None:
        self._write(RECOVERY_POINT_CHECKPOINT, recovery_point)
        # One that was refused may be there all the same.
        if log_start_offset or self._read(LOG_START_OFFSET_CHECKPOINT):
            self._write(LOG_START_OFFSET_CHECKPOINT, log_start_offset)
        if watermark is not None:
            self._write(HIGH_WATERMARK_CHECKPOINT, watermark)
        write_clean_shutdown(self._directory)
        self._mark.closed()

    def release(self) -> None:
        self._lock.release()

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _read(self, name: str) -> int | None:
        offsets = read_offset_checkpoint(self._path(name))
        # The file has one entry, this directory's, whatever name it had when it was written.
        return None if offsets is None else next(iter(offsets.values()), None)

    def _write(self, name: str, offset: int) -> None:
        write_offset_checkpoint(self._path(name), {self._topic_partition: offset})
