"""The files that are on disk before the records that need them: topic id and leader epochs.

Those of one partition. They are written by whoever appends, or ahead of it by another thread, so
each write is whole and the last one says what the log says. What a failed sync has lost a second
one does not tell: after one, every write fails as that one did.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Protocol

from replog._native.mapped_file import fsync_dir, replace_files
from replog.errors import CorruptFileError, LogClosedError, LogFailedError
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
    from collections.abc import Sequence


class SettledLog(Protocol):
    """The log that the files are of, asked from any thread."""

    @property
    def closed(self) -> bool: ...
    @property
    def epoch_text(self) -> bytes:
        """What its epoch checkpoint is to hold."""


class SettledFiles:
    """See the module. Any thread may call any method."""

    def __init__(self, directory: str, new_topic_id: uuid.UUID | None) -> None:
        """new_topic_id: of a partition that is on no disk yet; None: its files are read.

        Raises CorruptFileError for a topic id that cannot be read.
        """
        self.directory = directory
        self.lock = threading.RLock()
        self.closed = False
        """Also where the log could not be closed: its directory was given up all the same."""
        self.failure: str | None = None
        """Of a sync, of these files or of others that were written with them."""
        self.is_new = new_topic_id is not None
        """Nothing of the partition is synced: a crash takes it."""
        self.epochs_found: list[tuple[int, int]] | None = None
        """When it was opened; None: no file, or a damaged one."""
        self.epochs_on_disk: bytes | None = None
        if new_topic_id is not None:
            self.topic_id = new_topic_id
        else:
            self.topic_id = self._settle_topic_id()
            self.epochs_found = self._read_epochs()
            if self.epochs_found is not None:
                self.epochs_on_disk = leader_epochs_text(self.epochs_found)

    def outdated(self, log: SettledLog) -> bool:
        """Whether the log says something else than the files."""
        return self.is_new or self.epochs_on_disk != log.epoch_text

    def settle(self, log: SettledLog) -> None:
        """Bring them up to date; durable on return. Nothing happens once the log is closed."""
        settle_together([(self, log)])

    def write(self, log: SettledLog) -> None:
        """Write them in any case, and with them sync the directory; durable on return.

        Raises NoSpaceError, StorageError, LogClosedError; LogFailedError from then on.
        """
        with self.lock:
            _write([(self, log)])

    def contents(self, epochs: bytes) -> dict[str, bytes]:
        """What is to be written, by path."""
        contents = {self._path(LEADER_EPOCH_CHECKPOINT): epochs}
        if self.is_new:
            contents[self._path(PARTITION_METADATA_FILE)] = topic_id_text(self.topic_id)
        return contents

    def close(self) -> None:
        """No thread writes any more when this returns: the directory may be another log's then."""
        with self.lock:
            self.closed = True

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
        return os.path.join(self.directory, name)


def settle_together(logs: Sequence[tuple[SettledFiles, SettledLog]]) -> None:
    """Settle the files of several logs, which costs less than one after the other.

    All that are not up to date are on disk on return. An error may be any of theirs, and leaves it
    open which of them are: each is told so, or not, when it is settled alone. Raises what
    `SettledFiles.write` raises.
    """
    with contextlib.ExitStack() as locks:
        # In the same order in each thread, or two could wait for each other.
        for files, _ in sorted(logs, key=_directory_of):
            locks.enter_context(files.lock)
        _write([(files, log) for files, log in logs if not log.closed and files.outdated(log)])


def _directory_of(settled: tuple[SettledFiles, SettledLog]) -> str:
    return settled[0].directory


def _write(logs: Sequence[tuple[SettledFiles, SettledLog]]) -> None:
    """Under the locks of all."""
    contents: dict[str, bytes] = {}
    written = []
    parents = set()
    for files, log in logs:
        if files.closed:
            raise LogClosedError(
                f"expected the log in {files.directory} to be open, found that its close has "
                f"failed; open it again",
                path=files.directory,
            )
        if files.failure is not None:
            raise LogFailedError(files.failure, path=files.directory)
        epochs = log.epoch_text
        contents.update(files.contents(epochs))
        if files.is_new:
            parents.add(os.path.dirname(files.directory))
        written.append((files, epochs))
    if not written:
        return
    try:
        replace_files(contents)
        for parent in parents:
            fsync_dir(parent)
    except LogFailedError as error:
        # Which of them a failed sync hit is not asked: such a disk is not to be relied on.
        if error.of_sync or len(written) == 1:
            for files, _ in written:
                files.failure = str(error)  # the error itself would hold the log, and its lock
        raise
    for files, epochs in written:
        files.is_new = False
        files.epochs_on_disk = epochs
