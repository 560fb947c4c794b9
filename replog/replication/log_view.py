"""What the pure core may ask of a replica's log: offsets and epochs, never bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from replog.types import EpochEndOffset


class LogView(Protocol):
    """A log as it stands after every effect returned so far has been carried out.

    Invariant: log_start_offset <= high_watermark <= log_end_offset.
    """

    @property
    def log_start_offset(self) -> int:
        """First readable offset."""

    @property
    def log_end_offset(self) -> int:
        """Next offset to write (exclusive end)."""

    @property
    def high_watermark(self) -> int:
        """Offsets below it are known to this replica as committed."""

    @property
    def latest_epoch(self) -> int:
        """Latest entry of the epoch cache, with records or without; NO_LEADER_EPOCH if empty."""

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """The largest epoch <= `leader_epoch` and its exclusive end; (-1, -1) if undefined."""
