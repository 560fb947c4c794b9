"""What a producer gets back, and the batches it waits for."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, NamedTuple

from replog._native.crc32c import checksum

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from replog.messages import Durability, ErrorCode
    from replog.types import TopicPartition

SEQUENCES = 2**31
"""Sequence numbers start again at 0 after the last one."""

_LENGTH = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
# Byte positions in a batch, as `_native/batch_format.pxd` has them.
_LENGTH_AT, _BEHIND_LENGTH = 8, 12
_CRC_AT, _BEHIND_CRC = 17, 21
_PRODUCER_AT, _COUNT_AT = 43, 57


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """Where records have gone: [base_offset, last_offset], and what that vouches for.

    With acks=0 nothing is known: offsets, epoch and durability are None. What took more than one
    batch may have others' records in between.
    """

    topic_partition: TopicPartition
    base_offset: int | None = None
    last_offset: int | None = None
    leader_epoch: int | None = None
    durability: Durability | None = None
    log_append_time_ms: int = -1


class Failure(NamedTuple):
    """Why a batch was not acknowledged; `appended`: it may be in the log nevertheless."""

    code: ErrorCode
    message: str
    appended: bool


class PendingBatches:
    """Batches on their way: one with a sequence number, or any number without."""

    __slots__ = (
        "batches",
        "count",
        "deadline_ms",
        "failure",
        "future",
        "may_be_in_log",
        "order",
        "request_id",
        "sent_to",
        "sequence",
    )

    def __init__(
        self,
        batches: bytes | memoryview,
        count: int,
        sequence: int,
        deadline_ms: float,
        future: asyncio.Future[Produced],
    ) -> None:
        self.batches = batches
        self.count = count
        """Records in them."""
        self.sequence = sequence
        """Of the first record; -1 for none."""
        self.deadline_ms = deadline_ms
        self.future = future
        self.order = 0
        """Place in the partition's line."""
        self.sent_to = -1
        self.request_id = 0
        self.failure: Failure | None = None
        """Of the latest try."""
        self.may_be_in_log = False
        """A try of it, not only the latest, may have been appended."""

    def renumber(self, producer_id: int, sequence: int) -> None:
        """Make them the batch of another producer; only where none of them is in a log."""
        batch = bytearray(self.batches)
        _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, 0, sequence)
        _CRC.pack_into(batch, _CRC_AT, checksum(memoryview(batch)[_BEHIND_CRC:]))
        self.batches = bytes(batch)
        self.sequence = sequence


def split(batches: bytes) -> Iterator[tuple[bytes | memoryview, int]]:
    """Each batch of an encoded set as a set of its own, with the number of its records."""
    view = memoryview(batches)
    at = 0
    while at < len(view):
        end = at + _BEHIND_LENGTH + _LENGTH.unpack_from(view, at + _LENGTH_AT)[0]
        # A set starts at offset 0; the base offset lies outside the checksum.
        batch = bytes(_LENGTH_AT) + view[at + _LENGTH_AT : end] if at else view[:end]
        yield batch, _LENGTH.unpack_from(view, at + _COUNT_AT)[0]
        at = end
