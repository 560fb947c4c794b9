"""What a log directory's offset checkpoints say of its partitions, each file read once."""

from __future__ import annotations

import os
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
            self._read[path] = read_offset_checkpoint(path) or {}
        return self._read[path]
