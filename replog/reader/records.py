"""From chunks of whole batches to Arrow records of a range of offsets, in bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from replog._native.arguments import flag, integer
from replog._native.record_decoder import decode_arrow
from replog.errors import (
    CorruptBatchError,
    DecompressionError,
    LogTruncatedError,
    StorageError,
    UnknownCodecError,
    UsageError,
    shown,
)
from replog.reader.data_file import places_of
from replog.reader.names import SegmentName
from replog.reader.segment import CHUNK_BYTES, Chunk, Headers, LastBatch, SegmentReader
from replog.reader.side_files import AbortedRange
from replog.reader.splits import SplitRange, check_split
from replog.reader.stretches import StretchReader
from replog.reader.transactions import touching
from replog.reader.witness import Witness

BATCH_ROWS = 32768
BATCH_BYTES_MAX = 8 * 1024 * 1024
CODEC_MASK = 0x07
DAMAGE = (CorruptBatchError, DecompressionError, UnknownCodecError)
PORTION_BYTES_FIRST = 64 * 1024
PORTION_OUTPUT_BYTES = 8 * 1024 * 1024


def cut_to_range(chunk: Chunk, start_offset: int, end_offset: int) -> Chunk | None:
    """The batches of a chunk that overlap [start_offset, end_offset); None if none does."""
    headers = chunk.headers
    first = int(np.searchsorted(headers["last_offset"], start_offset))
    stop = int(np.searchsorted(headers["base_offset"], end_offset))
    if first >= stop:
        return None
    if first == 0 and stop == len(headers):
        return chunk
    position = int(headers["position"][first])
    end = int(headers["position"][stop - 1]) + int(headers["size_bytes"][stop - 1])
    content = chunk.content[position - chunk.position : end - chunk.position]
    return Chunk(content, headers[first:stop], position, chunk.path)


def segment_chunks(
    name: SegmentName,
    start_offset: int,
    end_offset: int,
    *,
    size_seen: int = 0,
    joined: bool = False,
    check_crc: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    position: int | None = None,
    planned: SplitRange | None = None,
    witness: Witness | None = None,
) -> Generator[Chunk, None, int]:
    """Batches of one segment that overlap [start_offset, end_offset); returns the offset reached.

    `size_seen`: the file's size when the range was known to be whole. `joined`: the batches are
    known to go on to end_offset. `position`: where to begin, by default where the index says.
    `planned`: what shows that the range is what it was, looked at before the first batch is given
    and after the last. `witness`: what was shown of the log before. Raises LogTruncatedError if it
    is not, CorruptBatchError where bytes below the end are no batch, or none are there.
    """
    with open_planned(planned) if planned else SegmentReader(name, witness) as segment:
        check_unchanged(segment, planned)
        place = segment.seek(start_offset) if position is None else position
        reached = yield from _walk_range(
            segment, place, start_offset, end_offset, size_seen, check_crc, chunk_bytes
        )
        check_unchanged(segment, planned)
        if joined and reached < end_offset:
            segment.refuse_hole(reached, end_offset)
    return reached


def open_planned(split: SplitRange) -> SegmentReader:
    """The file of a range, under the name that it has by now: the one in which its stamps stand.

    Raises LogTruncatedError if there is none, about the name that it had.
    """
    path, *later = places_of(split.segment.path)
    try:
        return _standing(split, path)
    except LogTruncatedError:
        for renamed in later:
            with contextlib.suppress(LogTruncatedError):
                return _standing(split, renamed)
        raise


def _standing(split: SplitRange, path: str) -> SegmentReader:
    segment = SegmentReader(split.segment._replace(path=path))
    check_unchanged(segment, split)
    return segment


def check_unchanged(segment: SegmentReader, planned: SplitRange | None) -> None:
    """Raises LogTruncatedError if a range is not as it was when it was planned."""
    if planned is None:
        return
    for stamp in planned.stamps:
        segment.check_stamp(stamp)
    size = segment.size()
    if planned.over_end and size != planned.size_seen:
        raise LogTruncatedError(
            f"expected {planned.size_seen} bytes in the sealed segment {segment.path}, found "
            f"{size}: the log was cut or compacted since the read was planned; plan it again",
            path=segment.path,
            offset=planned.end_offset,
        )


def _walk_range(
    segment: SegmentReader,
    position: int,
    start_offset: int,
    end_offset: int,
    size_seen: int,
    check_crc: bool,
    chunk_bytes: int,
    before: LastBatch | None = None,
) -> Generator[Chunk, None, int]:
    reached = start_offset if before is None else max(start_offset, before.last_offset + 1)
    for chunk in segment.chunks(
        position, check_crc=check_crc, chunk_bytes=chunk_bytes, before=before
    ):
        kept = cut_to_range(chunk, start_offset, end_offset)
        if kept is not None:
            yield kept
        position = chunk.position + len(chunk.content)
        reached = max(reached, int(chunk.headers["last_offset"][-1]) + 1)
        if reached >= end_offset:
            return reached
    size = segment.size()
    if size < size_seen:
        raise LogTruncatedError(
            f"expected {size_seen} bytes in {segment.path}, found {size}: it was cut while it "
            f"was read; read the partition again",
            path=segment.path,
            position=position,
            offset=reached,
        )
    if position < size and not segment.only_zeros(position):
        segment.damaged(position, reached, "the file ends in the middle of it")
    return reached


def decode_chunks(
    chunks: Iterable[Chunk | pa.RecordBatch],
    start_offset: int,
    end_offset: int,
    *,
    columns: Sequence[str] | None = None,
    aborted: Sequence[AbortedRange] = (),
    include_control: bool = False,
    check_crc: bool = True,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Records of [start_offset, end_offset) without the aborted, 1 to batch_rows at a time.

    What is compressed is decoded in portions that follow how far it grows, so that memory stays
    near PORTION_OUTPUT_BYTES, or near what one batch holds. What is decoded already is only cut.
    """

    def decode(portion: Chunk) -> pa.RecordBatch:
        first, last = portion.headers["base_offset"][0], portion.headers["last_offset"][-1]
        return decode_arrow(
            portion.content,
            start_offset=start_offset,
            end_offset=end_offset,
            columns=columns,
            check_crc=check_crc,
            aborted=touching(aborted, int(first), int(last)),
            include_control=include_control,
            path=portion.path,
            position=portion.position,
        )

    step = PORTION_BYTES_FIRST
    for chunk in chunks:
        if isinstance(chunk, pa.RecordBatch):
            yield from _rows(chunk, batch_rows)
            continue
        compressed = bool(np.any(chunk.headers["attributes"] & CODEC_MASK))
        left: Chunk | None = chunk
        while left is not None:
            portion, left = _split(left, step if compressed else len(left.content))
            try:
                records = decode(portion)
            except DAMAGE as error:
                good = _before(portion, error.position)
                if good is not None:
                    yield from _rows(decode(good), batch_rows)
                raise _with_offset(error, portion) from error
            yield from _rows(records, batch_rows)
            if compressed:
                small = records.nbytes < PORTION_OUTPUT_BYTES // 2
                step = min(step * 2, CHUNK_BYTES) if small else max(step // 2, 1)


def _rows(records: pa.RecordBatch, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Slices of equal length, at most batch_rows and about BATCH_BYTES_MAX; none empty."""
    rows = records.num_rows
    if not rows:
        return
    parts = max(-(-rows // batch_rows), -(-records.nbytes // BATCH_BYTES_MAX))
    step = -(-rows // parts)
    if step == rows or records.nbytes <= BATCH_BYTES_MAX:
        for row in range(0, rows, step):
            yield records.slice(row, step)
        return
    for row in range(0, rows, step):
        yield from _halved(records.slice(row, step))


def _halved(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Where a few records are larger than the rest, equal slices are not equal in bytes."""
    rows = records.num_rows
    if rows == 1 or records.nbytes <= BATCH_BYTES_MAX:
        yield records
        return
    yield from _halved(records.slice(0, rows // 2))
    yield from _halved(records.slice(rows // 2))


def _with_offset(error: StorageError, chunk: Chunk) -> StorageError:
    """The error with the offset of the batch that it is about, by the chunk's headers."""
    row = int(np.searchsorted(chunk.headers["position"], error.position or 0, side="right")) - 1
    offset = int(chunk.headers["base_offset"][max(row, 0)])
    return type(error)(f"{error} (offset {offset} or later)", **{**error.facts, "offset": offset})


def _before(chunk: Chunk, position: int | None) -> Chunk | None:
    """The batches of a chunk that stand before `position`; None if none does."""
    count = int(np.searchsorted(chunk.headers["position"], -1 if position is None else position))
    if count == 0:
        return None
    last = chunk.headers[count - 1]
    end = int(last["position"]) + int(last["size_bytes"]) - chunk.position
    return Chunk(chunk.content[:end], chunk.headers[:count], chunk.position, chunk.path)


def _split(chunk: Chunk, length: int) -> tuple[Chunk, Chunk | None]:
    """The first batches of a chunk, about `length` bytes and at least one, and the rest."""
    ends = chunk.headers["position"] + chunk.headers["size_bytes"] - chunk.position
    count = max(int(np.searchsorted(ends, length, side="right")), 1)
    if count == len(ends):
        return chunk, None
    cut = int(ends[count - 1])
    first = Chunk(chunk.content[:cut], chunk.headers[:count], chunk.position, chunk.path)
    rest = Chunk(chunk.content[cut:], chunk.headers[count:], chunk.position + cut, chunk.path)
    return first, rest


def _check_reading(
    split: Any, aborted: Any, check_crc: Any, batch_rows: Any, position: Any
) -> None:
    check_split(split)
    path = split.segment.path
    flag(check_crc, "check_crc", path)
    integer(batch_rows, "batch_rows", path, low=1)
    if position is not None:
        integer(position, "position", path)
    if not isinstance(aborted, Sequence) or not all(
        isinstance(one, AbortedRange) for one in aborted
    ):
        raise UsageError(
            f"expected aborted to be a sequence of AbortedRange, found {shown(aborted)}",
            argument="aborted",
        )


def read_split(
    split: SplitRange,
    *,
    columns: Sequence[str] | None = None,
    aborted: Sequence[AbortedRange] = (),
    check_crc: bool = True,
    batch_rows: int = BATCH_ROWS,
    position: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Records of a range that a PartitionReader planned, perhaps in another process and earlier.

    Looks at nothing but the segment's file and index. `aborted`: what a read_committed plan found.
    `position`: where to begin, by default at the batch of the range's start.
    Raises UsageError for arguments of other kinds, LogTruncatedError if the range is no longer what
    it was, CorruptBatchError. The error may come after the last record: until the iterator has
    ended, nothing is certain.
    """
    _check_reading(split, aborted, check_crc, batch_rows, position)
    try:
        with open_planned(split) as segment:
            yield from decode_chunks(
                _portions(segment, split, columns, aborted, check_crc, batch_rows, position),
                split.start_offset,
                split.end_offset,
                columns=columns,
                aborted=aborted,
                check_crc=check_crc,
                batch_rows=batch_rows,
            )
    except DAMAGE:
        # What was cut and written again while it was read can look like damage: say what it is.
        with open_planned(split):
            raise


def _portions(
    segment: SegmentReader,
    split: SplitRange,
    columns: Sequence[str] | None,
    aborted: Sequence[AbortedRange],
    check_crc: bool,
    batch_rows: int,
    position: int | None,
) -> Iterator[Chunk | pa.RecordBatch]:
    """What segment_chunks gives of a split; plain stretches of it decoded already."""
    start, end = split.start_offset, split.end_offset
    check_unchanged(segment, split)
    place = segment.seek(start) if position is None else position
    walk: Generator[Chunk | pa.RecordBatch, None, int]
    if aborted:
        walk = _walk_range(segment, place, start, end, split.size_seen, False, CHUNK_BYTES)
    else:
        stretches = StretchReader(
            segment, start, end, columns=columns, check_crc=check_crc, batch_rows=batch_rows
        )
        walk = _walk_stretches(segment, stretches, place, start, end, split.size_seen)
    reached = yield from walk
    check_unchanged(segment, split)
    if split.joined and reached < end:
        segment.refuse_hole(reached, end)


def _walk_stretches(
    segment: SegmentReader,
    stretches: StretchReader,
    position: int,
    start_offset: int,
    end_offset: int,
    size_seen: int,
) -> Generator[Chunk | pa.RecordBatch, None, int]:
    """As `_walk_range`, a stretch and a chunk by turns."""
    before: LastBatch | None = None
    while True:
        position, before = yield from stretches.batches(position, before)
        if before is not None and before.last_offset >= end_offset - 1:
            return before.last_offset + 1
        walk = _walk_range(
            segment, position, start_offset, end_offset, size_seen, False, CHUNK_BYTES, before
        )
        if stretches.given_up:
            return (yield from walk)
        try:
            chunk = next(walk)
        except StopIteration as ended:
            return int(ended.value)
        yield chunk
        position = chunk.position + len(chunk.content)
        before = LastBatch.of(chunk.headers[-1])


def split_headers(split: SplitRange) -> Iterator[Headers]:
    """HEADER_DTYPE arrays of the batches that overlap a planned range, in order.

    Raises as `read_split` does; checksums are not looked at.
    """
    check_split(split)
    for chunk in segment_chunks(
        split.segment,
        split.start_offset,
        split.end_offset,
        size_seen=split.size_seen,
        joined=split.joined,
        planned=split,
    ):
        yield chunk.headers
