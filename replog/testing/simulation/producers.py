"""What a log knows of idempotent producers (KIP-98, KIP-360), over the simulation's batches.

Per producer id its epoch and its last five batches. Followers replay without enforcing.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from replog.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from replog.testing.simulation.batches import ClientBatch, StoredBatch
from replog.types import NO_PRODUCER_ID

CACHED_BATCHES = 5


class ProducerEntry(NamedTuple):
    """One producer's epoch and last batches, oldest first."""

    epoch: int
    batches: tuple[StoredBatch, ...]


class Producers:
    """All producers of one partition."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[int, ProducerEntry] | None = None) -> None:
        self.entries = {} if entries is None else entries

    def copy(self) -> Self:
        return type(self)(dict(self.entries))

    def duplicate_of(self, content: ClientBatch) -> StoredBatch | None:
        """The cached batch that `content` repeats."""
        entry = self.entries.get(content.producer_id)
        if entry is None or entry.epoch != content.producer_epoch:
            return None
        for batch in entry.batches:
            if (
                batch.content.first_sequence == content.first_sequence
                and batch.content.last_sequence == content.last_sequence
            ):
                return batch
        return None

    def check(self, content: ClientBatch) -> None:
        """Raise InvalidProducerEpochError or OutOfOrderSequenceError for what may not follow."""
        entry = self.entries.get(content.producer_id)
        if entry is None:
            return
        if content.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"expected producer {content.producer_id} to have epoch {entry.epoch}, found "
                f"{content.producer_epoch}"
            )
        expected = 0
        if content.producer_epoch == entry.epoch and entry.batches:
            expected = entry.batches[-1].content.last_sequence + 1
        if content.first_sequence != expected:
            raise OutOfOrderSequenceError(
                f"expected producer {content.producer_id} to go on at sequence {expected}, found "
                f"{content.first_sequence}"
            )

    def replay(self, batch: StoredBatch) -> None:
        """Take note of a batch that was appended."""
        content = batch.content
        if content.producer_id == NO_PRODUCER_ID:
            return
        entry = self.entries.get(content.producer_id)
        earlier: tuple[StoredBatch, ...] = ()
        if entry is not None and entry.epoch == content.producer_epoch:
            earlier = entry.batches[1 - CACHED_BATCHES :]
        self.entries[content.producer_id] = ProducerEntry(content.producer_epoch, (*earlier, batch))
