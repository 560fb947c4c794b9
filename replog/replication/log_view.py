"""What the pure core may ask of a replica's log: offsets, epochs and sizes, never bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from replog.types import EpochEndOffset, TimestampedOffset


class LogView(Protocol):
    """A log as it stands after every effect returned so far has been carried out.

    Invariant: log_start_offset <= high_watermark <= log_end_offset,
    last_stable_offset <= high_watermark, synced_end_offset <= log_end_offset.
    """

    @property
    def log_start_offset(self) -> int:
        """First readable offset."""

    @property
    def log_end_offset(self) -> int:
        """Next offset to write (exclusive end)."""

    @property
    def synced_end_offset(self) -> int:
        """Offsets below it have survived a sync."""

    @property
    def high_watermark(self) -> int:
        """Offsets below it are known to this replica as committed."""

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open; where read_committed stops."""

    @property
    def latest_epoch(self) -> int:
        """Latest entry of the epoch cache, with records or without; NO_LEADER_EPOCH if empty."""

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """The largest epoch <= `leader_epoch` and its exclusive end; (-1, -1) if undefined."""

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that the cache gives for `offset`; NO_LEADER_EPOCH if none."""

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record at or after `timestamp` (ms); None if there is none."""

    def readable_bytes(self, start_offset: int, end_offset: int, max_bytes: int) -> int:
        """About how many bytes [start_offset, end_offset) holds, counted no further than max_bytes.

        0 exactly where the range is empty.
        """
