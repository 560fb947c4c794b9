"""The log of the cluster's metadata in a log directory, with its snapshots: `__cluster_metadata-0`.

    __cluster_metadata-0/00000000000000000060.log, .index, ...     segments as any partition's
    __cluster_metadata-0/00000000000000000138-0000000001.checkpoint  a snapshot
    __cluster_metadata-0/quorum-state                                what this node has promised
    __cluster_metadata-0/replication-offset-checkpoint, ...         what a lone partition keeps

The directory keeps its own checkpoints and lock, since a log directory's are for the brokers'
partitions. Invariant: the log starts at 0, or where a snapshot ends; whoever has the log from its
start and that snapshot has everything. After a crash a snapshot may reach past the log: then it
stands for all of it, and the log begins anew behind it.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Self

from replog.config import LONG_MAX, LogConfig
from replog.errors import CorruptFileError
from replog.storage.directory_access import absolute_path, make_directory, names_in
from replog.storage.directory_names import METADATA_TOPIC
from replog.storage.log_checkpoints import BareCheckpoints, CheckpointedOffsets
from replog.storage.metadata_snapshots import MetadataSnapshots
from replog.storage.partition_log import PartitionLog, wall_clock_ms
from replog.storage.partition_metadata import PARTITION_METADATA_FILE, write_topic_id
from replog.storage.quorum_state import (
    QUORUM_STATE_FILE,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from replog.types import NO_LEADER_EPOCH, SnapshotId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID = uuid.UUID(int=1)
"""Kafka's, in every cluster."""

BATCH_BYTES_MAX = 64 * 1024 * 1024
SEGMENT_BYTES = 128 * 1024 * 1024

METADATA_CONFIG = LogConfig(
    max_message_bytes=BATCH_BYTES_MAX,
    segment_bytes=SEGMENT_BYTES,
    segment_ms=LONG_MAX,
    retention_ms=-1,  # what no snapshot stands for stays
    file_delete_delay_ms=0,
)


class MetadataLog(PartitionLog):
    """The metadata partition's log. Open it by `open_in`; the rest is as with any PartitionLog."""

    snapshots: MetadataSnapshots
    _bare: BareCheckpoints

    @classmethod
    def open_in(
        cls, log_directory: str | os.PathLike[str], now_ms: Callable[[], int] = wall_clock_ms
    ) -> Self:
        """Open the metadata log of a log directory, created if missing.

        Raises what PartitionLog.open raises, and CorruptFileError for a log whose beginning is gone
        while no snapshot stands for it.
        """
        directory = os.path.join(absolute_path(log_directory), str(METADATA_PARTITION))
        make_directory(directory)
        fresh = not any(name.endswith(".log") for name in names_in(directory))
        checkpoints = BareCheckpoints(directory, METADATA_PARTITION, now_ms)
        try:
            if fresh:
                path = os.path.join(directory, PARTITION_METADATA_FILE)
                write_topic_id(path, METADATA_TOPIC_ID)
            found = checkpoints.take(fresh=fresh)
            opened = cls(
                directory,
                METADATA_CONFIG,
                checkpoints,
                CheckpointedOffsets(
                    last_stop=found.last_stop,
                    compacted=found.compacted,
                    recovery_point=found.recovery_point,
                    log_start_offset=found.log_start_offset,
                    # Others hold copies: nothing is committed that is not known to be.
                    high_watermark=found.high_watermark or 0,
                ),
                now_ms=now_ms,
            )
            checkpoints.opened()
            opened._bare = checkpoints
            opened.snapshots = MetadataSnapshots(directory)
            opened._settle_start()
        except BaseException:
            checkpoints.release()
            raise
        return opened

    def close(self, *, flush: bool = True) -> None:
        self.snapshots.close()
        super().close(flush=flush)

    # What this node has promised.

    def read_quorum_state(self) -> QuorumState | None:
        """What was promised before the last stop; None: nothing ever. Raises CorruptFileError."""
        return read_quorum_state(self._quorum_state_path)

    def write_quorum_state(self, state: QuorumState) -> None:
        """Replace the promise; durable on return. Raises NoSpaceError, StorageError."""
        write_quorum_state(self._quorum_state_path, state)

    @property
    def _quorum_state_path(self) -> str:
        return os.path.join(self.path, QUORUM_STATE_FILE)

    def checkpoint_high_watermark(self) -> None:
        """Persist what is known to be committed: from there a node starts when it finds nobody."""
        self._bare.write_high_watermark(self.high_watermark)

    # Where the log begins and ends, as the quorum asks.

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; of the snapshot that an empty log starts behind."""
        if self.log_end_offset > self.log_start_offset:
            return self.epoch_for_offset(self.log_end_offset - 1)
        first = self.first_snapshot
        return NO_LEADER_EPOCH if first is None else first.epoch

    @property
    def first_snapshot(self) -> SnapshotId | None:
        """The snapshot that ends where the log starts; None if the log starts at 0."""
        start = self.log_start_offset
        return self.snapshots.ending_at(start) if start else None

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The one that stands for the most records."""
        return self.snapshots.latest

    # Snapshots that take the place of records.

    def install_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Make the fetched snapshot whole, and begin the log anew behind it; durable on return."""
        # The snapshot before the records that it replaces: a crash between leaves both.
        self.snapshots.publish(snapshot_id)
        self._restart_behind(snapshot_id)

    def clean_below(self, snapshot_id: SnapshotId) -> None:
        """Drop the records that a whole snapshot stands for, then the snapshots older than it.

        Space comes back by whole segments. Interrupted anywhere, the next cleaning goes on.
        """
        self.truncate_prefix_to(snapshot_id.end_offset)
        self.apply_retention()
        self.unlink_retired()
        # The older snapshot only now: until its end is the log's start no more, it is needed.
        self.snapshots.remove_older(snapshot_id)

    def _restart_behind(self, snapshot_id: SnapshotId) -> None:
        self.truncate_fully_and_start_at(snapshot_id.end_offset)
        self.keeper.write_log_start(snapshot_id.end_offset)
        self.set_high_watermark(snapshot_id.end_offset)
        self.unlink_retired()
        self.snapshots.remove_older(snapshot_id)

    def _settle_start(self) -> None:
        """See that the log continues a snapshot, or starts at 0."""
        latest = self.snapshots.latest
        if latest is not None and not self._holds(latest):
            self._restart_behind(latest)
        start = self.log_start_offset
        if start and self.snapshots.ending_at(start) is None:
            raise CorruptFileError(
                f"expected a snapshot that ends at offset {start}, where the log in {self.path} "
                f"starts, found {[str(held) for held in self.snapshots.sizes]}; remove the "
                f"directory, and the node fetches all of it again",
                path=self.path,
            )
        if latest is not None and latest.end_offset > self.high_watermark:
            self.set_high_watermark(latest.end_offset)  # only what is committed is in a snapshot

    def _holds(self, snapshot_id: SnapshotId) -> bool:
        """Whether the log goes on where the snapshot ends, by offset and epoch."""
        end_offset = snapshot_id.end_offset
        if end_offset == self.log_start_offset:
            return True
        if not self.log_start_offset < end_offset <= self.log_end_offset:
            return False
        return self.epoch_for_offset(end_offset - 1) == snapshot_id.epoch
