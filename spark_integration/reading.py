"""What a task does, on an executor: ranges of segments become Arrow batches, by pread."""

from __future__ import annotations

import dataclasses
import gc
import logging
import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa

from replog.errors import LogTruncatedError
from replog.reader import DamagedRegion, read_past_damage, read_split
from spark_integration.options import MIB, Mode, SourceOptions
from spark_integration.planning import SegmentRange
from spark_integration.schema import CORRUPT_RECORD, RowShape, columns_to_decode

logger = logging.getLogger(__name__)

# Smaller batches are put together: each costs as much on its way to the JVM as many rows do.
GATHERED_ROWS = 16384
GATHERED_BYTES = 2 * MIB
BATCH_BYTES_MAX = 8 * MIB


@dataclasses.dataclass(frozen=True, slots=True)
class ReadSettings:
    """What tasks need to know besides their ranges."""

    columns: tuple[str, ...]
    mode: Mode
    fail_on_data_loss: bool
    check_crc: bool
    batch_rows: int

    @classmethod
    def of(cls, options: SourceOptions, columns: Sequence[str]) -> ReadSettings:
        """Settings for these columns, those of the user's schema or the default ones."""
        return cls(
            tuple(columns),
            options.mode,
            options.fail_on_data_loss,
            options.check_crc,
            options.batch_rows,
        )


def read_ranges(ranges: Sequence[SegmentRange], settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges in order, in batches of the exact schema, none empty.

    Raises CorruptBatchError, DecompressionError, LogTruncatedError, each with its path.
    """
    shape = RowShape(settings.columns)
    yield from _gathered(_batches(ranges, shape, settings), settings.batch_rows)
    _spare_collections()


def _spare_collections() -> None:
    """Set aside what a Python worker holds after its first task, its modules above all.

    PySpark's daemon collects garbage after every task: 25 ms to look at the same modules again,
    half of what a small task costs. It is done once a process, when no garbage is among them.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is None or main.name != "pyspark.daemon" or gc.get_freeze_count():
        return
    gc.collect()
    gc.freeze()


def _batches(
    ranges: Sequence[SegmentRange], shape: RowShape, settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    read = read_split if settings.mode == "FAILFAST" else read_past_damage
    decoded = columns_to_decode(settings.columns)
    skipped = 0
    for one in ranges:
        try:
            for found in read(
                one.split,
                columns=decoded,
                aborted=one.aborted,
                check_crc=settings.check_crc,
                batch_rows=settings.batch_rows,
            ):
                if not isinstance(found, DamagedRegion):
                    yield shape.batch(found, one.topic, one.partition)
                    continue
                skipped += 1
                logger.warning("skipped %d bytes: %s", found.size_bytes, found.problem)
                if settings.mode == "PERMISSIVE" and CORRUPT_RECORD in settings.columns:
                    yield shape.report(one.topic, one.partition, found.offset, found.problem)
        except LogTruncatedError as error:
            gone = isinstance(error.__cause__, FileNotFoundError)
            if settings.fail_on_data_loss or not gone:
                raise
            logger.warning("%s; reading on behind it, as failOnDataLoss is false", error)
    if skipped:
        logger.warning("skipped %d damaged regions in all in this task", skipped)


def _gathered(batches: Iterator[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Small neighbours as one batch."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if kept and (rows + batch.num_rows > rows_max or size + batch.nbytes > BATCH_BYTES_MAX):
            yield _joined(kept)
            kept, rows, size = [], 0, 0
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= min(GATHERED_ROWS, rows_max) or size >= GATHERED_BYTES:
            yield _joined(kept)
            kept, rows, size = [], 0, 0
    if kept:
        yield _joined(kept)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
