"""The files that are on disk before the records that need them: topic id and leader epochs.

Those of one partition. They are written by whoever appends, or ahead of it by another thread, so
each write is whole and the last one says what the log says. What a failed sync has lost a second
one does not tell: after one, every write fails as that one did.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol

from replog._native.mapped_file import fsync_dir, replace_files
from replog.errors import CorruptFileError, LogFailedError
from replog.storage.checkpoint_files import (
    LEADER_EPOCH_CHECKPOINT,
    leader_epochs_text,
    read_leader_epochs,
)
from replog.storage.kafka_uuid import random_uuid
from replog.storage.partition_metadata import (
    PARTITION_METADATA_FILE,
    read_topic_id,
    topic_id_text,
    write_topic_id,
)

if TYPE_CHECKING:
    import uuid


class SettledLog(Protocol):
    """The log that the files are of, asked from any thread."""

    @property
    def closed(self) -> bool: ...
    @property
    def epoch_entries(self) -> list[tuple[int, int]]: ...


class SettledFiles:
    """See the module. Any thread may call any method."""

    def __init__(self, directory: str, new_topic_id: uuid.UUID | None) -> None:
        """new_topic_id: of a partition that is on no disk yet; None: its files are read.

        Raises CorruptFileError for a topic id that cannot be read.
        """
        self._directory = directory
        self._lock = threading.RLock()
        self._failure: str | None = None
        self.is_new = new_topic_id is not None
        """Nothing of the partition is synced: a crash takes it."""
        self.epochs_on_disk: list[tuple[int, int]] | None = None
        """None: no file, or a damaged one."""
        if new_topic_id is not None:
            self.topic_id = new_topic_id
        else:
            self.topic_id = self._settle_topic_id()
            self.epochs_on_disk = self._read_epochs()

    def outdated(self, log: SettledLog) -> bool:
        """Whether the log says something else than the files."""
        return self.is_new or self.epochs_on_disk != log.epoch_entries

    def settle(self, log: SettledLog) -> None:
        """Bring them up to date; durable on return. Nothing happens once the log is closed."""
        with self._lock:
            if not log.closed and self.outdated(log):
                self.write(log)

    def write(self, log: SettledLog) -> None:
        """Write them in any case, and with them sync the directory; durable on return.

        Raises NoSpaceError, StorageError; LogFailedError from then on.
        """
        with self._lock:
            if self._failure is not None:
                raise LogFailedError(self._failure, path=self._directory)
            epochs = log.epoch_entries
            contents = {self._path(LEADER_EPOCH_CHECKPOINT): leader_epochs_text(epochs)}
            if self.is_new:
                contents[self._path(PARTITION_METADATA_FILE)] = topic_id_text(self.topic_id)
            try:
                replace_files(contents)
                if self.is_new:
                    fsync_dir(os.path.dirname(self._directory))
            except LogFailedError as error:
                self._failure = str(error)  # the error itself would hold the log, and its lock
                raise
            self.is_new = False
            self.epochs_on_disk = epochs

    def wait(self) -> None:
        """Return once no other thread writes."""
        with self._lock:
            return

    def _settle_topic_id(self) -> uuid.UUID:
        path = self._path(PARTITION_METADATA_FILE)
        topic_id = read_topic_id(path)
        if topic_id is None:
            topic_id = random_uuid()
            write_topic_id(path, topic_id)
        return topic_id

    def _read_epochs(self) -> list[tuple[int, int]] | None:
        try:
            return read_leader_epochs(self._path(LEADER_EPOCH_CHECKPOINT))
        except CorruptFileError:
            # Derived from the batches: a damaged one is written anew.
            return None

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)
