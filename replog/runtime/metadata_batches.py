"""Batches of the metadata log and of its snapshots, made of Kafka's messages, and back.

A snapshot is a file of batches: a control batch with SnapshotHeader, batches of metadata records, a
control batch with SnapshotFooter; offsets count from 0, and each batch carries the epoch of the
last record that the snapshot stands for, as Kafka 4.2.0 writes it (KIP-630).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from replog._native import record_batch, record_encoder
from replog._native.crc32c import checksum
from replog.errors import CorruptFileError
from replog.wire.control_records import (
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from replog.wire.metadata_values import control_key, decode_metadata_batch, encode_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from replog._native.message_cursor import Message
    from replog.types import SnapshotId

CRC_AT, ATTRIBUTES_AT = 17, 21
CONTROL_BIT = 0x20
SNAPSHOT_BATCH_RECORDS = 1000
SNAPSHOT_HEADER, SNAPSHOT_FOOTER = 3, 4
NO_DIRECTORY = bytes(16)


class MetadataBatch(NamedTuple):
    """Records that were appended together: [base_offset, last_offset], all of one epoch."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    messages: list[Message]
    """Empty for a control batch."""


def metadata_batch(
    records: Iterable[Message],
    now_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """One batch of metadata records, each in its latest version."""
    values = [encode_metadata(record, record.HIGHEST_VERSION) for record in records]
    return record_encoder.encode(
        values, now_ms=now_ms, base_offset=base_offset, leader_epoch=leader_epoch
    )


def control_batch(
    message: Message, now_ms: int, *, base_offset: int = 0, leader_epoch: int = -1
) -> bytes:
    """A control batch with one record."""
    encoded = record_encoder.encode(
        [message.encode(0)],
        [control_key(message)],
        now_ms=now_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    batch = bytearray(encoded)
    batch[ATTRIBUTES_AT + 1] |= CONTROL_BIT
    batch[CRC_AT : CRC_AT + 4] = checksum(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(batch)


def leader_change_batch(
    leader_id: int, voters: Sequence[int], granting_voters: Sequence[int], now_ms: int
) -> bytes:
    """The control batch that a leader's epoch begins with."""
    return control_batch(
        LeaderChangeMessage(
            version=0,
            leader_id=leader_id,
            voters=_named(voters),
            granting_voters=_named(granting_voters),
        ),
        now_ms,
    )


def _named(voters: Sequence[int]) -> tuple[LeaderChangeVoter, ...]:
    return tuple(
        LeaderChangeVoter(voter_id=voter, voter_directory_id=NO_DIRECTORY) for voter in voters
    )


def snapshot_batches(
    snapshot_id: SnapshotId,
    records: Iterable[Message],
    now_ms: int,
    last_timestamp: int,
) -> Iterator[bytes]:
    """The content of a snapshot, batch by batch. `last_timestamp`: of the last record it covers, or
    later.
    """
    epoch = snapshot_id.epoch
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp)
    yield control_batch(header, now_ms, leader_epoch=epoch)
    base_offset = 1
    remaining = iter(records)
    while piece := list(itertools.islice(remaining, SNAPSHOT_BATCH_RECORDS)):
        yield metadata_batch(piece, now_ms, base_offset=base_offset, leader_epoch=epoch)
        base_offset += len(piece)
    footer = SnapshotFooterRecord(version=0)
    yield control_batch(footer, now_ms, base_offset=base_offset, leader_epoch=epoch)


def read_batches(batches: Buffer, start_offset: int = 0) -> Iterator[MetadataBatch]:
    """The batches in a buffer, from the one on that holds `start_offset`; a torn last one is left.

    Checksums are checked. Raises CorruptBatchError, MalformedMessageError,
    UnsupportedMessageVersionError.
    """
    view = memoryview(batches).cast("B")
    for header in record_batch.scan(view, check_crc=False).headers:
        base_offset, last_offset = int(header["base_offset"]), int(header["last_offset"])
        if last_offset < start_offset:
            continue
        at = int(header["position"])
        yield MetadataBatch(
            base_offset,
            last_offset,
            int(header["leader_epoch"]),
            decode_metadata_batch(view[at : at + int(header["size_bytes"])]),
        )


def check_snapshot(content: Buffer, path: str) -> None:
    """Raise CorruptFileError unless all batches are whole, from the header to the footer."""
    scan = record_batch.scan(content)
    kinds = [int(header["control_type"]) for header in scan.headers]
    whole = scan.end == memoryview(content).nbytes and scan.problem is None
    if not whole or kinds[:1] != [SNAPSHOT_HEADER] or kinds[-1:] != [SNAPSHOT_FOOTER]:
        raise CorruptFileError(
            f"expected whole batches from a snapshot's header to its footer in {path!r}, found "
            f"{scan.problem or 'them to be missing'}; it is fetched again",
            path=path,
        )
