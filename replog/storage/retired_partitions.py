"""Partition directories out of use, told from those in use by their names.

Deleted ones wait for their files to be unlinked. Those set aside are kept for whoever wants to look
at them, and are never opened again.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from replog._native.mapped_file import fsync_dir, rename
from replog.errors import UsageError
from replog.storage import directory_access
from replog.storage.directory_names import (
    METADATA_TOPIC,
    DirectoryKind,
    deleted_name,
    is_deleted_name,
    kind_of,
    stray_name,
)
from replog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable


class RetiredPartitions:
    """Those of the log directory at `path`."""

    def __init__(self, path: str) -> None:
        self.kept: list[str] = []
        """Names of the directories that were set aside."""
        self._path = path
        self._lock = threading.Lock()
        self._deleted: list[tuple[int, str]] = []

    def scan(self, unlink_at_ms: int) -> list[TopicPartition]:
        """The partitions in use, sorted by name; what an earlier process has retired is noted.

        Raises UsageError for a directory that does not belong.
        """
        found = []
        for name in sorted(directory_access.names_in(self._path)):
            path = os.path.join(self._path, name)
            if not os.path.isdir(path):
                continue
            try:
                kind = kind_of(name)
            except UsageError as error:
                raise UsageError(
                    f"expected only partition directories (TOPIC-N) in the log directory "
                    f"{self._path}, found {name!r}; move it elsewhere",
                    path=path,
                ) from error
            if kind is DirectoryKind.DELETED:
                self._deleted.append((unlink_at_ms, path))
            elif kind in (DirectoryKind.STRAY, DirectoryKind.FUTURE):
                self.kept.append(name)
            elif kind is DirectoryKind.PARTITION:
                topic_partition = TopicPartition.parse(name)
                # The controller's log is opened by the controller, as in Kafka.
                if topic_partition.topic != METADATA_TOPIC:
                    found.append(topic_partition)
        return found

    def is_deleted(self, topic_partition: TopicPartition) -> bool:
        """Whether the files of a partition called so are still to be unlinked."""
        with self._lock:
            names = [os.path.basename(path) for _, path in self._deleted]
        return any(is_deleted_name(name, topic_partition) for name in names)

    def delete(self, topic_partition: TopicPartition, unlink_at_ms: int) -> None:
        """Rename the partition's directory, durably, and unlink its files after `unlink_at_ms`."""
        path = self._rename(topic_partition, deleted_name)
        with self._lock:
            self._deleted.append((unlink_at_ms, path))

    def set_aside(self, topic_partition: TopicPartition) -> str:
        """Rename the partition's directory, durably, and keep its files; returns its new path."""
        path = self._rename(topic_partition, stray_name)
        self.kept.append(os.path.basename(path))
        return path

    def unlink_due(self, now_ms: int) -> list[str]:
        """Unlink the deleted partitions whose time has come at `now_ms`; returns their paths."""
        with self._lock:
            return self._unlink([pair for pair in self._deleted if pair[0] <= now_ms])

    def unlink_called(self, topic_partition: TopicPartition) -> None:
        """Unlink the deleted partitions of that name at once: another is to be made.

        Should its directory be lost, theirs would say that it was deleted (`is_deleted`).
        """
        with self._lock:
            called = (
                pair
                for pair in self._deleted
                if is_deleted_name(os.path.basename(pair[1]), topic_partition)
            )
            self._unlink(list(called))

    def _unlink(self, due: list[tuple[int, str]]) -> list[str]:
        """One that fails stays in the list, and is tried again."""
        for pair in due:
            directory_access.remove_directory(pair[1])
            self._deleted.remove(pair)
        return [path for _, path in due]

    def _rename(
        self, topic_partition: TopicPartition, new_name: Callable[[TopicPartition], str]
    ) -> str:
        path = os.path.join(self._path, new_name(topic_partition))
        rename(os.path.join(self._path, str(topic_partition)), path)
        fsync_dir(self._path)
        return path


def not_there(path: str) -> str:
    """Of a partition's directory that its checkpoints speak of."""
    return (
        f"expected the directory {path} of a checkpointed partition, found none; if nobody deleted "
        f"it, copy it from a replica"
    )
