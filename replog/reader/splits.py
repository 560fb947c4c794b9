"""Cut a segment into ranges of offsets for parallel readers, at batches that its index names."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from replog.reader.names import SegmentName
from replog.reader.segment import SegmentReader
from replog.reader.side_files import decode_offset_index, read_whole, side_path


class SplitRange(NamedTuple):
    """Offsets [start_offset, end_offset) of one segment: paths and integers, safe to send away.

    size_bytes: about how much of the file they fill. size_seen: the file's size at planning.
    """

    partition_path: str
    segment: SegmentName
    start_offset: int
    end_offset: int
    size_bytes: int
    size_seen: int


def split_segment(
    partition_path: str, segment: SegmentName, start_offset: int, end_offset: int, target_bytes: int
) -> list[SplitRange]:
    """Ranges of about target_bytes that together are [start_offset, end_offset) of the segment."""
    with SegmentReader(segment) as file:
        size = file.size()
        content = read_whole(side_path(segment.path, ".index")) or b""
        entries = decode_offset_index(content, segment.base_offset)
        inside = (entries["offset"] > start_offset) & (entries["offset"] < end_offset)
        entries = entries[inside]
        cuts: list[tuple[int, int]] = []
        position = file.seek(start_offset)
        limit = position + target_bytes
        for offset, place in zip(
            entries["offset"].tolist(), entries["position"].tolist(), strict=True
        ):
            if (
                place < limit
                or not position < place < size
                or not file.batch_stands_at(offset, place)
            ):
                continue
            header = file.header_at(place)
            first = int(header["base_offset"]) if header is not None else start_offset
            if not start_offset < first < end_offset:
                continue
            cuts.append((first, place))
            limit = place + target_bytes
    bounds = [(start_offset, position), *cuts, (end_offset, size)]
    return [
        SplitRange(partition_path, segment, low, high, max(stop - begin, 0), size)
        for (low, begin), (high, stop) in itertools.pairwise(bounds)
    ]
