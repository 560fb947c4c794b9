"""What a log has kept for it outside its segments: epochs, recovery point, log start.

The log calls its keeper before the step that relies on what is written; each write is durable on
return. An epoch that may be put off is the exception, which `settle` makes good before the first
append that follows.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from replog.errors import NoSpaceError, OutOfDescriptorsError
from replog.storage.settled_files import SettledLog

if TYPE_CHECKING:
    from replog.storage.log_checkpoints import LogCheckpoints
    from replog.storage.settled_files import SettledFiles


class KeptLog(SettledLog, Protocol):
    """The log that is kept."""

    @property
    def synced_end_offset(self) -> int: ...


class LogKeeper:
    """See the module. Of one log; any thread may call any method."""

    def __init__(self, checkpoints: LogCheckpoints, settled_files: SettledFiles) -> None:
        self.checkpoints = checkpoints
        self.settled_files = settled_files
        """Topic id and epochs on disk."""
        self.puts_off = False
        """An epoch that is assigned now is written later, by `settle`."""

    @property
    def is_new(self) -> bool:
        """Whether nothing of the partition is synced yet: a crash takes it. See `settle`."""
        return self.settled_files.is_new

    def is_behind(self, log: KeptLog) -> bool:
        """Whether `settle` is due before the log's next append."""
        return self.settled_files.outdated(log)

    def settle(self, log: KeptLog) -> None:
        """Sync what was put off: the names of a new partition, and an epoch without records.

        Before the first append that follows: a batch must not survive a crash that takes the topic
        id of its partition, or the epoch that it was written in. In any thread, beside any other
        call; nothing happens to a closed log. Raises NoSpaceError, StorageError.
        """
        self.settled_files.settle(log)

    def write_epochs(self, log: KeptLog) -> None:
        """Persist the log's epochs, also if they are on disk: who calls counts on the sync of the
        directory as well.
        """
        if not (self.puts_off or self.settled_files.is_new):
            self.settled_files.write(log)

    def lower_recovery_point(self, offset: int) -> None:
        """See that no recovery point above `offset` is on disk; before a cut there."""
        self.checkpoints.lower_recovery_point(offset)

    def write_recovery_point(self, log: KeptLog, offset: int) -> None:
        """Persist a recovery point: everything below `offset` is synced."""
        # Read again under the checkpoints' lock: a truncation may have lowered it meanwhile.
        self.checkpoints.write_recovery_point(lambda: min(offset, log.synced_end_offset))

    def note_recovery_point(self, log: KeptLog, offset: int) -> None:
        """Everything below `offset` is synced: persist that as often as Kafka does.

        A recovery point that is too low only costs time at recovery.
        """
        with contextlib.suppress(NoSpaceError, OutOfDescriptorsError):
            self.checkpoints.note_recovery_point(lambda: min(offset, log.synced_end_offset))

    def write_log_start(self, offset: int) -> None:
        """Persist the log start offset, before it moves up in memory."""
        self.checkpoints.write_log_start_offset(offset)
