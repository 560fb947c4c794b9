"""What the quorum may ask of the metadata log: offsets, epochs and snapshots, never bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from replog.divergence import EpochHistory

if TYPE_CHECKING:
    from replog.types import SnapshotId


class QuorumLog(EpochHistory, Protocol):
    """A log as it stands after every effect returned so far has been carried out.

    Invariant: log_start_offset <= high_watermark <= log_end_offset and
    synced_end_offset <= log_end_offset. A log starts at 0 or where a snapshot ends.
    """

    @property
    def synced_end_offset(self) -> int:
        """Offsets below it have survived a sync, as have all cuts that were made."""

    @property
    def high_watermark(self) -> int:
        """Offsets below it are known to this member as committed."""

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; of the snapshot that the log starts behind, if it is empty.

        NO_LEADER_EPOCH where there is neither. An epoch that was begun without a record does not
        count: nobody else has to know of it.
        """

    @property
    def first_snapshot(self) -> SnapshotId | None:
        """The snapshot that ends at log_start_offset; None if the log starts at 0."""

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The snapshot that a member far behind should load."""

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """Size in bytes; None if there is no such snapshot (any more)."""
