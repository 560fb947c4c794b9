"""Record batches as the simulation has them: values instead of bytes, sizes pretended.

A client makes a `ClientBatch`; a leader's log turns it into a `StoredBatch` by giving it offsets
and an epoch; reads hand out `BatchSet`s, which is what travels in fetches. None of them ever
changes, so logs of several replicas share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replog.types import NO_PRODUCER_ID

HEADER_BYTES = 61
RECORD_BYTES = 40


class ClientBatch(NamedTuple):
    """What one produce request holds for one partition."""

    values: tuple[str, ...]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    first_sequence: int = -1

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + len(self.values) - 1


class StoredBatch(NamedTuple):
    """A batch in a log. `last_offset` is inclusive."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    size_bytes: int
    content: ClientBatch

    def __str__(self) -> str:
        values = " ".join(self.content.values)
        return f"[{self.base_offset}, {self.last_offset + 1}) epoch {self.leader_epoch}: {values}"


def stored(base_offset: int, leader_epoch: int, content: ClientBatch) -> StoredBatch:
    """The batch as a leader writes it at `base_offset`."""
    count = len(content.values)
    size = HEADER_BYTES + RECORD_BYTES * count
    return StoredBatch(base_offset, base_offset + count - 1, leader_epoch, size, content)


class BatchSet:
    """Batches that follow each other; its length is their size in bytes, as a buffer's would be."""

    __slots__ = ("batches", "size_bytes")

    def __init__(self, batches: tuple[StoredBatch, ...]) -> None:
        self.batches = batches
        self.size_bytes = sum([batch.size_bytes for batch in batches])

    def __len__(self) -> int:
        return self.size_bytes

    def __iter__(self) -> Iterator[StoredBatch]:
        return iter(self.batches)

    def __repr__(self) -> str:
        return f"BatchSet({', '.join(map(str, self.batches))})"
