"""Writes a snapshot of the metadata in pieces, each short enough for a loop that others wait for.

What is to be written down is read from the log: the latest snapshot, and the committed records
behind it, replayed into an image that nobody else has. So it stands still, however long the writing
takes, while the controller's and the brokers' go on. It costs a replay, and for that time the
memory of a second image.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from replog.controller.metadata_image import MetadataImage
from replog.errors import CorruptBatchError
from replog.runtime import garbage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from replog.runtime.metadata_batches import MetadataBatch
    from replog.runtime.quorum_log import QuorumReplicaLog

READ_BYTES = 256 * 1024
PIECE_RECORDS = 500
"""Of a piece; the batch of one decision is decoded whole."""


class SnapshotWriter:
    """One snapshot of all below `end_offset`, which is committed and ends a batch.

    It is stepped until it is done, or abandoned.
    """

    def __init__(self, log: QuorumReplicaLog, end_offset: int, now_ms: int) -> None:
        """`now_ms` is the calendar's, for the snapshot's own batches."""
        self._pieces = _write(log, end_offset, now_ms)

    def step(self) -> bool:
        """Do one piece; whether that was the last. The snapshot is durable then, and the records
        that it stands for are dropped. Raises NoSpaceError, StorageError: nothing is dropped then.
        """
        with garbage.put_off():
            return next(self._pieces, True)

    def abandon(self) -> None:
        """Leave it; what is written goes with the next one, or with the next start."""
        self._pieces.close()


def _write(log: QuorumReplicaLog, end_offset: int, now_ms: int) -> Generator[bool, None, None]:
    image = MetadataImage(tracks_changes=False)
    yield from _replay(log, end_offset, image)
    image.end_offset = end_offset
    for _ in log.write_snapshot(end_offset, image.snapshot_records(), now_ms):
        yield False
    yield from _take_apart(image)


def _replay(log: QuorumReplicaLog, end_offset: int, image: MetadataImage) -> Iterator[bool]:
    latest = log.latest_snapshot
    offset = 0
    if latest is not None:
        content = log.snapshots.read(latest, 0, log.snapshots.sizes[latest])
        for batch in log.messages_of(content):
            yield from _apply(image, batch)
        offset = latest.end_offset
    while offset < end_offset:
        before = offset
        piece = log.read(offset, READ_BYTES, end_offset=end_offset)
        for batch in log.messages_of(piece, offset):
            yield from _apply(image, batch)
            offset = batch.last_offset + 1
        if offset == before:
            raise CorruptBatchError(
                f"expected whole batches from offset {before} to {end_offset} in {log!r}, found "
                f"none; remove the directory, and the node fetches all of it again",
                offset=before,
            )


def _apply(image: MetadataImage, batch: MetadataBatch) -> Iterator[bool]:
    messages = iter(batch.messages)
    while piece := list(itertools.islice(messages, PIECE_RECORDS)):
        for message in piece:
            image.apply(message, 0)
        yield False


def _take_apart(image: MetadataImage) -> Iterator[bool]:
    """Piece by piece: topics and partitions hold each other, so that they would stay until somebody
    looks for garbage, and be freed in one go.
    """
    image.held_by.clear()
    yield False
    image.leaderless.clear()
    image.reassigning.clear()
    freed = 0
    for topic in image.topics.values():
        freed += len(topic.partitions) + 1
        topic.partitions.clear()
        if freed >= PIECE_RECORDS:
            freed = 0
            yield False
