"""Cut a segment into ranges of offsets for parallel readers, at batches that its index names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from replog._native.arguments import flag, integer, path_of
from replog.errors import CorruptBatchError, LogTruncatedError, UsageError, shown
from replog.reader.names import SegmentName
from replog.reader.segment import BatchStamp, SegmentReader
from replog.reader.side_files import decode_offset_index, read_whole, side_path


class SplitRange(NamedTuple):
    """Offsets [start_offset, end_offset) of one segment: paths and integers, safe to send away.

    size_bytes: about how much of the file they fill. size_seen: the file's size at planning.
    stamps: the batches at or around its ends; while they stand where they stood, so does what is
    between them. One that could not be read is not among them.
    joined: all of them are known to be there; otherwise compaction may have taken some.
    over_end: no batch of the segment reaches the range's end, so that the file may not grow either.
    """

    partition_path: str
    segment: SegmentName
    start_offset: int
    end_offset: int
    size_bytes: int
    size_seen: int
    stamps: tuple[BatchStamp, ...] = ()
    joined: bool = False
    over_end: bool = False

    def divided(self, records_max: int) -> Iterator[SplitRange]:
        """The range in parts of at most records_max offsets each. Raises UsageError."""
        integer(records_max, "records_max", self.segment.path, low=1)
        offsets = self.end_offset - self.start_offset
        for start in range(self.start_offset, self.end_offset, records_max):
            end = min(start + records_max, self.end_offset)
            size = self.size_bytes * (end - start) // offsets
            yield self._replace(start_offset=start, end_offset=end, size_bytes=size)


def check_split(split: Any) -> None:
    """Raise UsageError unless `split` is a range that could have been planned."""
    if not isinstance(split, SplitRange):
        raise UsageError(
            f"expected split to be a SplitRange, as PartitionReader.split_points plans them, found "
            f"{shown(split)}",
            argument="split",
        )
    if not isinstance(split.segment, SegmentName):
        _refuse_field("segment", "a SegmentName", split.segment)
    path = path_of(split.segment.path, "split.segment.path")
    for name, found in (
        ("split.segment.base_offset", split.segment.base_offset),
        ("split.segment.upper_offset", split.segment.upper_offset),
        ("split.start_offset", split.start_offset),
        ("split.size_seen", split.size_seen),
    ):
        integer(found, name, path)
    integer(split.end_offset, "split.end_offset", path, low=split.start_offset)
    flag(split.joined, "split.joined", path)
    flag(split.over_end, "split.over_end", path)
    if not isinstance(split.stamps, tuple):
        _refuse_field("stamps", "a tuple of BatchStamp", split.stamps)
    for stamp in split.stamps:
        if not isinstance(stamp, BatchStamp):
            _refuse_field("stamps", "a tuple of BatchStamp", split.stamps)
        integer(stamp.position, "split.stamps.position", path)


def _refuse_field(name: str, wanted: str, found: Any) -> NoReturn:
    raise UsageError(
        f"expected split.{name} to be {wanted}, found {shown(found)}", argument=f"split.{name}"
    )


def split_segment(
    partition_path: str,
    segment: SegmentName,
    start_offset: int,
    end_offset: int,
    target_bytes: int,
    *,
    active: bool,
    joined: bool = False,
) -> list[SplitRange]:
    """Ranges of about target_bytes that together are [start_offset, end_offset) of the segment.

    active: whether no segment follows. Raises LogTruncatedError if the segment is gone, or ends
    below the range by now.
    """
    with SegmentReader(segment) as file:
        size = file.size()
        content = read_whole(side_path(segment.path, ".index")) or b""
        entries = decode_offset_index(content, segment.base_offset)
        inside = (entries["offset"] > start_offset) & (entries["offset"] < end_offset)
        ends = _ends(file, start_offset, end_offset, size)
        if ends.over_end and active:
            raise LogTruncatedError(
                f"expected records up to offset {end_offset} in {segment.path}, found its end "
                f"before: it was cut meanwhile; plan the read again",
                path=segment.path,
                offset=end_offset,
            )
        cuts = list(_cuts(file, entries[inside], ends.position, ends.stop, target_bytes))
    cuts = [header for header in cuts if start_offset < int(header["base_offset"]) < end_offset]
    marks = [
        (start_offset, ends.position, ends.first),
        *((int(header["base_offset"]), int(header["position"]), header) for header in cuts),
        (end_offset, ends.stop, ends.last),
    ]
    return [
        SplitRange(
            partition_path,
            segment._replace(seen=None),  # the stamps tell, also where inodes are others
            low,
            high,
            max(until - begin, 0),
            size,
            tuple(BatchStamp.of(header) for header in (before, after) if header is not None),
            joined,
            ends.over_end and high == end_offset,
        )
        for (low, begin, before), (high, until, after) in itertools.pairwise(marks)
    ]


class _Ends(NamedTuple):
    """What stands at the ends of a range in a segment: headers, None where damage hides one.

    last: the batch that reaches the end of the range, or else the one behind it.
    over_end: there is neither; the range reaches over the last batch of the file.
    """

    first: Any
    position: int
    last: Any
    stop: int
    over_end: bool


def _ends(file: SegmentReader, start_offset: int, end_offset: int, size: int) -> _Ends:
    first = last = behind = None
    stop, over_end = size, False
    try:
        first = file.first_header_from(start_offset)
        last, behind = file.headers_around(end_offset)
    except CorruptBatchError:
        pass  # whoever reads the range will meet the damage and tell it
    else:
        if last is not None:
            stop = int(last["position"]) + int(last["size_bytes"])
        if last is None or int(last["last_offset"]) + 1 < end_offset:
            # Where offsets are missing, nothing but the next batch shows that none was put there.
            last, over_end = (last, True) if behind is None else (behind, False)
    position = file.seek(start_offset) if first is None else int(first["position"])
    return _Ends(first, position, last, stop, over_end)


def _cuts(
    file: SegmentReader,
    entries: npt.NDArray[Any],
    position: int,
    stop: int,
    target_bytes: int,
) -> Iterator[Any]:
    """Headers of batches about target_bytes apart that the index names, in order."""
    places = entries["position"]
    base = file.base_offset
    limit = position + target_bytes
    while True:
        for at in range(int(np.searchsorted(places, limit)), len(places)):
            header = file.header_at(int(places[at])) if places[at] < stop else None
            if header is None or not base <= int(header["base_offset"]) <= entries["offset"][at]:
                continue
            yield header
            limit = int(places[at]) + target_bytes
            break
        else:
            return
