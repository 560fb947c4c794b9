"""Snapshots of the metadata log: files beside its segments, each standing for all records below it.

    00000000000000000138-0000000001.checkpoint         all records below 138, the last of epoch 1
    00000000000000000138-0000000001.checkpoint.part    being written, or left by a crash

The names are Kafka's (KIP-630). A file is written under the second name, synced, and then given
the first: what has that name is whole, and durable. Its content is not looked into here.
"""

from __future__ import annotations

import os
import re

from replog._native.mapped_file import (
    MappedFile,
    OfflineFile,
    fsync_dir,
    list_dir,
    remove,
)
from replog.errors import UsageError
from replog.types import SnapshotId

SNAPSHOT_SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint\Z")


def snapshot_name(snapshot_id: SnapshotId) -> str:
    """The file name of a whole snapshot."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """Which snapshot a file of this name is; None if it is none."""
    found = _NAME.match(name)
    return None if found is None else SnapshotId(int(found[1]), int(found[2]))


class MetadataSnapshots:
    """The snapshots in one directory, which the metadata log's lock guards.

    Invariant: `sizes` has the whole ones alone, by id, the oldest first; one is in the making at
    most. Methods raise NoSpaceError, StorageError.
    """

    def __init__(self, directory: str) -> None:
        """Find the whole snapshots, and remove what a crash left half-written."""
        self._directory = directory
        self._part: MappedFile | None = None
        self._part_id: SnapshotId | None = None
        found: dict[SnapshotId, int] = {}
        for name in list_dir(directory):
            path = os.path.join(directory, name)
            snapshot_id = parse_snapshot_name(name)
            if name.endswith(PART_SUFFIX):
                remove(path)
            elif snapshot_id is not None:
                found[snapshot_id] = os.stat(path).st_size
        self.sizes = dict(sorted(found.items()))

    @property
    def latest(self) -> SnapshotId | None:
        """The one that stands for the most records."""
        return next(reversed(self.sizes), None)

    def ending_at(self, offset: int) -> SnapshotId | None:
        """The one that stands for all records below `offset`."""
        return next((held for held in self.sizes if held.end_offset == offset), None)

    def path_of(self, snapshot_id: SnapshotId) -> str:
        """Where a whole snapshot is."""
        return os.path.join(self._directory, snapshot_name(snapshot_id))

    def read(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Bytes of [position, position + max_bytes) of a whole snapshot, fewer at its end."""
        file = OfflineFile(self.path_of(snapshot_id))
        try:
            return file.read(position, min(max_bytes, self.sizes[snapshot_id] - position))
        finally:
            file.close()

    def write_chunk(self, snapshot_id: SnapshotId, position: int, chunk: bytes) -> None:
        """Put bytes behind those of a snapshot in the making; position 0 begins one anew.

        Raises UsageError for a position that leaves a gap, or for another snapshot's bytes.
        """
        if position == 0:
            self.discard()
            path = self.path_of(snapshot_id) + ".part"
            self._part = MappedFile(path, writable=True, create=True)
            self._part_id = snapshot_id
        part = self._part
        if part is None or self._part_id != snapshot_id or part.size_bytes != position:
            found = None if part is None else part.size_bytes
            raise UsageError(
                f"expected the bytes of one snapshot in order, found position {position} of "
                f"{snapshot_name(snapshot_id)} while {found} bytes of {self._part_id} are written; "
                f"begin again at position 0",
                path=self._directory,
            )
        part.append_bytes(chunk)

    def read_part(self, snapshot_id: SnapshotId) -> memoryview:
        """The bytes of the snapshot in the making, as far as they are written."""
        part = self._making(snapshot_id)
        return memoryview(part.view(0, part.size_bytes))

    def sync_part(self, snapshot_id: SnapshotId) -> None:
        """Sync what is written of the snapshot in the making: then there is less to do at last."""
        self._making(snapshot_id).flush()

    def publish(self, snapshot_id: SnapshotId) -> None:
        """Make the snapshot in the making whole; durable on return."""
        part = self._making(snapshot_id)
        # Its bytes before its name: what has the name is whole after any crash.
        part.flush()
        part.rename_to(self.path_of(snapshot_id))
        fsync_dir(self._directory)
        size_bytes = part.size_bytes
        part.close()
        self._part = self._part_id = None
        self.sizes = dict(sorted([*self.sizes.items(), (snapshot_id, size_bytes)]))

    def _making(self, snapshot_id: SnapshotId) -> MappedFile:
        part = self._part
        if part is None or self._part_id != snapshot_id:
            raise UsageError(
                f"expected {snapshot_name(snapshot_id)} to be in the making, found "
                f"{self._part_id}; write it first",
                path=self._directory,
            )
        return part

    def discard(self) -> None:
        """Remove the snapshot in the making, if there is one."""
        part, self._part, self._part_id = self._part, None, None
        if part is not None:
            part.close()
            remove(part.path)

    def remove_older(self, snapshot_id: SnapshotId) -> None:
        """Remove the whole ones that stand for less than this one."""
        for held in list(self.sizes):
            if held < snapshot_id:
                remove(self.path_of(held))
                del self.sizes[held]

    def close(self) -> None:
        """Let go of the snapshot in the making, as a crash would."""
        if self._part is not None:
            self._part.close()
            self._part = self._part_id = None
