"""Partition directories whose creation did not end: a crash was in between, or it failed.

They hold no record that anybody was told of. Those of an earlier process go when the log directory
is opened, those of this one when the partition is created again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from replog._native.mapped_file import fsync_dir
from replog.storage import directory_access
from replog.storage.partition_metadata import lacks_id_and_records

if TYPE_CHECKING:
    from replog.types import TopicPartition


class UnfinishedCreations:
    """Those of the log directory at `path`; replicated: as `LogDirectory.open` was told."""

    def __init__(self, path: str, *, replicated: bool) -> None:
        self._path = path
        self._replicated = replicated
        self._begun: set[TopicPartition] = set()

    def remove_torn(self, topic_partition: TopicPartition, recovery_point: int) -> bool:
        """Remove what a crash inside a creation left; never a partition that held records."""
        directory = self._directory(topic_partition)
        names = os.listdir(directory)
        if recovery_point > 0:
            return False
        torn = self._replicated and lacks_id_and_records(directory, names)
        if not torn and any(not name.endswith(".tmp") for name in names):
            return False
        directory_access.remove_directory(directory)
        fsync_dir(self._path)
        return True

    def begin(self, topic_partition: TopicPartition) -> None:
        """A creation begins; what one left that failed goes."""
        if topic_partition in self._begun and os.path.exists(self._directory(topic_partition)):
            directory_access.remove_directory(self._directory(topic_partition))
        self._begun.add(topic_partition)

    def end(self, topic_partition: TopicPartition) -> None:
        """The partition is there; or there was another one of its name."""
        self._begun.discard(topic_partition)

    def _directory(self, topic_partition: TopicPartition) -> str:
        return os.path.join(self._path, str(topic_partition))
