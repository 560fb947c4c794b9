"""Read on behind damaged batches, and say what was passed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from replog.errors import StorageError
from replog.reader.records import BATCH_ROWS, DAMAGE, open_planned, read_split
from replog.reader.side_files import AbortedRange
from replog.reader.splits import SplitRange


class DamagedRegion(NamedTuple):
    """Neighbouring bytes of a segment that hold no batch that can be read.

    offset: the first that may be lost. size_bytes: up to the next good batch or the file's end.
    problem: the error that the first of them raised, as a sentence.
    """

    path: str
    position: int
    offset: int
    size_bytes: int
    problem: str


def read_past_damage(
    split: SplitRange,
    *,
    columns: Sequence[str] | None = None,
    aborted: Sequence[AbortedRange] = (),
    check_crc: bool = True,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch | DamagedRegion]:
    """As `read_split`, with a DamagedRegion in the place of each error that damage raises.

    Raises LogTruncatedError as `read_split` does: what was cut meanwhile is no damage.
    """
    position: int | None = None
    while True:
        try:
            yield from read_split(
                split,
                columns=columns,
                aborted=aborted,
                check_crc=check_crc,
                batch_rows=batch_rows,
                position=position,
            )
        except DAMAGE as error:
            region = _region(split, error, position or 0)
        else:
            return
        position = region.position + region.size_bytes
        yield region
        if _ends_the_range(split, position):
            return


def _region(split: SplitRange, error: StorageError, begun_at: int) -> DamagedRegion:
    if error.position is None or error.position < begun_at:
        raise error
    offset = split.start_offset if error.offset is None else error.offset
    with open_planned(split) as segment:
        resumed = segment.resume_behind(error.position, offset)
        end = segment.size() if resumed is None else resumed
    return DamagedRegion(
        split.segment.path, error.position, offset, end - error.position, str(error)
    )


def _ends_the_range(split: SplitRange, position: int) -> bool:
    with open_planned(split) as segment:
        header = segment.header_at(position)
    return header is None or int(header["base_offset"]) >= split.end_offset
