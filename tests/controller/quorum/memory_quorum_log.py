"""A metadata log in memory, with a disk that loses what was not synced.

Records are (epoch, payload). Faults it injects: `crash` keeps what was synced and a prefix, drawn
by the caller, of the rest. It does not rot, and a cut is durable at once. A snapshot is the tuple
of the records that it stands for.
"""

from __future__ import annotations

from typing import NamedTuple

from replog.errors import invariant
from replog.types import EpochEndOffset, SnapshotId


class Entry(NamedTuple):
    epoch: int
    payload: object


class MemoryQuorumLog:
    """Satisfies QuorumLog. Invariant: entries[:start] are what the first snapshot stands for."""

    def __init__(self, epochs=(), *, synced=None) -> None:
        self.entries: list[Entry] = [Entry(e, f"e{e}@{at}") for at, e in enumerate(epochs)]
        self.log_start_offset = 0
        self.synced_end_offset = len(self.entries) if synced is None else synced
        self.high_watermark = 0
        self.latest_snapshot: SnapshotId | None = None
        self.incoming: list[Entry] = []

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else -1

    @property
    def first_snapshot(self) -> SnapshotId | None:
        start = self.log_start_offset
        return SnapshotId(start, self.entries[start - 1].epoch) if start else None

    def end_offset_for_epoch(self, asked: int) -> EpochEndOffset:
        """By LeaderEpochFileCache.endOffsetFor of Kafka, over the records from the log start on."""
        starts: list[tuple[int, int]] = []
        for offset in range(self.log_start_offset, len(self.entries)):
            if not starts or starts[-1][0] != self.entries[offset].epoch:
                starts.append((self.entries[offset].epoch, offset))
        if asked == -1 or not starts or asked > starts[-1][0]:
            return EpochEndOffset(-1, -1)
        if asked == starts[-1][0]:
            return EpochEndOffset(asked, len(self.entries))
        end_offset = min(start for epoch, start in starts if epoch > asked)
        largest = max((epoch for epoch, _ in starts if epoch <= asked), default=asked)
        return EpochEndOffset(largest, end_offset)

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        return snapshot_id.end_offset if snapshot_id == self.latest_snapshot else None

    def read(self, start_offset: int, end_offset: int, max_records: int) -> tuple[Entry, ...]:
        inside = self.log_start_offset <= start_offset <= end_offset <= len(self.entries)
        invariant(inside, "only a prefix of the log to be read on from", start_offset=start_offset)
        return tuple(self.entries[start_offset : min(end_offset, start_offset + max_records)])

    def append(self, entries) -> None:
        self.entries.extend(entries)

    def sync(self, end_offset: int) -> None:
        self.synced_end_offset = max(self.synced_end_offset, min(end_offset, len(self.entries)))

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.log_start_offset
        del self.entries[offset:]
        self.synced_end_offset = min(self.synced_end_offset, offset)

    def take_snapshot(self) -> None:
        """Of all that is committed; the records that it stands for go."""
        end = self.high_watermark
        if end > self.log_start_offset and end <= self.synced_end_offset:
            self.latest_snapshot = SnapshotId(end, self.entries[end - 1].epoch)
            self.log_start_offset = end

    def write_chunk(self, position: int, chunk) -> None:
        del self.incoming[position:]
        assert len(self.incoming) == position
        self.incoming.extend(chunk)

    def install(self, snapshot_id: SnapshotId) -> None:
        assert len(self.incoming) == snapshot_id.end_offset
        self.entries, self.incoming = self.incoming, []
        self.latest_snapshot = snapshot_id
        self.log_start_offset = self.high_watermark = snapshot_id.end_offset
        self.synced_end_offset = snapshot_id.end_offset

    def crash(self, kept_unsynced: int) -> None:
        """`kept_unsynced` records past the synced ones happened to reach the disk."""
        del self.entries[self.synced_end_offset + kept_unsynced :]
        self.high_watermark = self.log_start_offset
        self.incoming = []
