"""Offset for a timestamp, by Kafka's walk, over files that need not have their indexes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replog._native.record_decoder import decode_arrow
from replog.reader.names import SegmentName
from replog.reader.records import segment_chunks
from replog.reader.segment import Chunk, SegmentReader
from replog.reader.side_files import decode_time_index, read_whole, side_path
from replog.reader.witness import Witness
from replog.types import TimestampedOffset


def first_at_or_after(
    segments: Sequence[SegmentName],
    timestamp: int,
    log_start_offset: int,
    end_offset: int,
    witness: Witness,
    *,
    dense: bool = False,
) -> TimestampedOffset | None:
    """The first segment that has a record this late, in it the first batch, in it the first record.

    None if that record does not lie in [log_start_offset, end_offset). dense: the offsets have no
    holes, and CorruptBatchError is raised where one would have to be passed.
    """
    for at, segment in enumerate(segments):
        sealed = at + 1 < len(segments)
        if sealed and segments[at + 1].base_offset <= log_start_offset:
            continue
        content = read_whole(side_path(segment.path, ".timeindex")) or b""
        entries = decode_time_index(content, segment.base_offset)
        if sealed and len(entries) and int(entries["timestamp"][-1]) < timestamp:
            # A roll closes the index with the segment's largest timestamp.
            if dense:
                _check_end(segment, min(segments[at + 1].base_offset, end_offset))
            continue
        before = int(entries["timestamp"].searchsorted(timestamp, side="right")) - 1
        from_offset = int(entries["offset"][before]) if before >= 0 else segment.base_offset
        upper = segments[at + 1].base_offset if sealed else end_offset
        from_offset = max(from_offset, log_start_offset)
        joined = dense and sealed
        for chunk in segment_chunks(
            segment, from_offset, min(upper, end_offset), joined=joined, witness=witness
        ):
            found = _in_chunk(chunk, timestamp, log_start_offset)
            if found is not None:
                return found if found.offset < end_offset else None
    return None


def _check_end(segment: SegmentName, end_offset: int) -> None:
    with SegmentReader(segment) as file:
        reached = file.tail().end_offset
        if reached < end_offset:
            file.refuse_hole(reached, end_offset)


def _in_chunk(chunk: Chunk, timestamp: int, log_start_offset: int) -> TimestampedOffset | None:
    headers = chunk.headers
    for header in headers[np.flatnonzero(headers["max_timestamp"] >= timestamp)]:
        records = decode_arrow(
            chunk.batch(header),
            start_offset=log_start_offset,
            columns=["offset", "timestamp"],
            include_control=True,
            path=chunk.path,
            position=int(header["position"]),
        )
        stamps = records.column("timestamp").cast(pa.int64())
        rows = pc.indices_nonzero(pc.greater_equal(stamps, timestamp))
        if len(rows):
            row = rows[0].as_py()
            return TimestampedOffset(
                stamps[row].as_py(),
                records.column("offset")[row].as_py(),
                int(header["leader_epoch"]),
            )
    return None
