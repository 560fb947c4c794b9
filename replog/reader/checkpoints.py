"""What a log directory's offset checkpoints say of its partitions, each file parsed once.

A file is shared by all partitions of its directory, and by all readers of this process for as long
as it is the same: a writer replaces it, so that another one has another inode or time. One that was
written a moment ago is parsed again, since the next may carry the same time.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from replog.reader.names import checkpoint_home
from replog.storage.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
)
from replog.types import TopicPartition


class CheckpointedOffsets(NamedTuple):
    """Offsets of one partition, None where no checkpoint has it."""

    high_watermark: int | None
    log_start_offset: int | None
    recovery_point: int | None
    cleaned_offset: int | None


_FILES = (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


_FILES_KEPT = 16
_SETTLED_AFTER_NS = 100_000_000
"""More than a tick of the clock by which file systems stamp."""


class _ParsedFiles:
    """The content of a few files; any thread may ask, and any child of a fork."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[int, ...], dict[TopicPartition, int]]] = {}
        """Without a lock, which a fork could leave held: two threads may parse the same."""

    def offsets_in(self, path: str) -> dict[TopicPartition, int]:
        """What the file says now, not to be changed; empty if there is none.

        Raises CorruptFileError.
        """
        try:
            found = os.stat(path)
        except OSError:
            return read_offset_checkpoint(path) or {}  # which raises what is worth it
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        kept = self._kept.get(path)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        asked_ns = time.time_ns()
        offsets = read_offset_checkpoint(path) or {}
        if asked_ns - max(found.st_mtime_ns, found.st_ctime_ns) > _SETTLED_AFTER_NS:
            for oldest in list(self._kept)[: -_FILES_KEPT + 1]:
                self._kept.pop(oldest, None)
            self._kept[path] = stamp, offsets
        return offsets


_parsed_files = _ParsedFiles()


class Checkpoints:
    """The checkpoints of any number of directories, as they were when first asked for."""

    def __init__(self) -> None:
        self._read: dict[str, dict[TopicPartition, int]] = {}

    def of(self, partition_path: str, partition: TopicPartition) -> CheckpointedOffsets:
        """What they say of this partition. Raises CorruptFileError."""
        home = checkpoint_home(partition_path)
        return CheckpointedOffsets(
            *(self._file(os.path.join(home, name)).get(partition) for name in _FILES)
        )

    def _file(self, path: str) -> dict[TopicPartition, int]:
        if path not in self._read:
            self._read[path] = _parsed_files.offsets_in(path)
        return self._read[path]
