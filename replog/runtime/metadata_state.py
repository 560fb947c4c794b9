"""What a node makes of the committed metadata: a state that is kept level with the log.

The state is a controller's or a broker's image: it takes committed records one by one, or all at
once as those of a snapshot. It never hears of a record twice, nor of one that is not committed.
Every so many bytes a snapshot is written, piece by piece, and the log is cut below it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from replog.config import LONG_MAX
from replog.controller.metadata_image import MetadataImage
from replog.errors import (
    CorruptBatchError,
    NoSpaceError,
    OutOfDescriptorsError,
    ReplogError,
    UsageError,
)
from replog.runtime import garbage
from replog.runtime.snapshot_writer import SnapshotWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replog._native.message_cursor import Message
    from replog.runtime.quorum_log import QuorumReplicaLog
    from replog.types import SnapshotId

READ_BYTES = 1024 * 1024
"""Of a piece: some ten thousand records, and tens of milliseconds."""
LARGE_BYTES = 64 * 1024
"""A piece from which on it matters that nobody looks for garbage meanwhile."""
CHECKPOINT_INTERVAL_MS = 5000
SNAPSHOT_PAUSE_MS = 1
"""Between two pieces of a snapshot everybody else has a turn."""


class MetadataState(Protocol):
    """A controller or an image."""

    def apply(self, record: Message, offset: int) -> None:
        """Take the next committed record."""

    def pass_over(self, end_offset: int) -> None:
        """Take note that there is nothing to apply below this offset, but control records."""

    def load(self, records: Iterable[Message], end_offset: int) -> None:
        """Become what these records of a snapshot say, whatever was known before."""


class MetadataReplay:
    """Keeps one state level with one log. `offset`: committed records below it are applied."""

    def __init__(
        self,
        log: QuorumReplicaLog,
        state: MetadataState,
        snapshot_interval_bytes: int = LONG_MAX,
    ) -> None:
        self.offset = 0
        self._log = log
        self._state = state
        self._interval_bytes = snapshot_interval_bytes
        self._bytes_since_snapshot = 0
        self._checkpointed = log.high_watermark
        self._checkpoint_ms: int | None = None
        self._writer: SnapshotWriter | None = None

    def reload(self) -> None:
        """Begin anew: the latest snapshot, then all that is known to be committed behind it."""
        latest = self._log.latest_snapshot
        if latest is None:
            self.offset = 0
            self._state.load((), 0)
        else:
            self.load_snapshot(latest)
        self.apply_committed(self._log.high_watermark)

    def load_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Take a whole snapshot in place of everything known."""
        snapshots = self._log.snapshots
        content = snapshots.read(snapshot_id, 0, snapshots.sizes[snapshot_id])
        records = (
            message for batch in self._log.messages_of(content) for message in batch.messages
        )
        with garbage.put_off():
            self._state.load(records, snapshot_id.end_offset)
        self.offset = snapshot_id.end_offset
        self._bytes_since_snapshot = 0
        self.leave_snapshot()

    def apply_committed(self, high_watermark: int) -> None:
        """Apply what is committed and not applied yet."""
        latest = self._log.latest_snapshot
        if self.offset < self._log.log_start_offset and latest is not None:
            self.load_snapshot(latest)  # somebody else has cut the log, with another state of it
        while self.offset < high_watermark:
            piece = self._log.read(self.offset, READ_BYTES, end_offset=high_watermark)
            before = self.offset
            self._bytes_since_snapshot += len(piece)
            if len(piece) < LARGE_BYTES:
                self._apply(piece)
            else:
                with garbage.put_off():
                    self._apply(piece)
            if self.offset == before:
                raise CorruptBatchError(
                    f"expected whole batches from offset {before} to {high_watermark} in "
                    f"{self._log!r}, found none; remove the directory, and the node fetches "
                    f"all of it again",
                    offset=before,
                )

    def _apply(self, piece: Any) -> None:
        apply = self._state.apply
        for batch in self._log.messages_of(piece, self.offset):
            for offset, message in enumerate(batch.messages, batch.base_offset):
                apply(message, offset)
            self.offset = batch.last_offset + 1
            if not batch.messages:
                self._state.pass_over(self.offset)

    def skip_to(self, high_watermark: int) -> None:
        """The state has these records already: it is the one that made them."""
        self.offset = high_watermark

    def note_appended(self, size_bytes: int) -> None:
        """The state has made records of so many bytes."""
        self._bytes_since_snapshot += size_bytes

    @property
    def snapshot_due(self) -> bool:
        """Whether one is to be begun, or gone on with: enough was applied since the last one."""
        return self._writer is not None or self._bytes_since_snapshot >= self._interval_bytes

    @property
    def is_writing_snapshot(self) -> bool:
        """Whether it is to be gone on with."""
        return self._writer is not None

    def write_snapshot_piece(self, now_ms: int) -> None:
        """Write the next piece of a snapshot; with the last one it is durable, and the records that
        it stands for are dropped.

        `now_ms` is the calendar's. Raises StorageError: nothing is dropped then. Where the disk is
        full, descriptors have run out, or another snapshot comes in by fetch, it is left until the
        next is due.
        """
        if self._writer is None:
            self._bytes_since_snapshot = 0
            self._writer = SnapshotWriter(self._log, self.offset, now_ms)
        try:
            is_last = self._writer.step()
        except (NoSpaceError, OutOfDescriptorsError, UsageError):
            self.leave_snapshot()
            return
        except ReplogError:
            self.leave_snapshot()
            raise
        if is_last:
            self._writer = None

    def leave_snapshot(self) -> None:
        """What is being written is out of date, or cannot be."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def checkpoint_if_due(self, now_ms: int) -> None:
        """Every few seconds, persist how far the log is known to be committed; what has no room
        must wait.
        """
        if self._checkpoint_ms is None:
            self._checkpoint_ms = now_ms + CHECKPOINT_INTERVAL_MS
        elif now_ms >= self._checkpoint_ms:
            self._checkpoint_ms = None
            if self._log.high_watermark != self._checkpointed:
                with contextlib.suppress(NoSpaceError, OutOfDescriptorsError):
                    self._log.checkpoint_high_watermark()
                    self._checkpointed = self._log.high_watermark


def read_whole(log: QuorumReplicaLog) -> MetadataImage:
    """What all records say, also those that are not known to be committed yet.

    A broker that was killed knows less than it had acted upon: its logs must open as they were, and
    it must not go back to leaders of the past.
    """
    image = MetadataImage(tracks_changes=False)
    replay = MetadataReplay(log, image)
    replay.reload()
    replay.apply_committed(log.log_end_offset)
    return image
