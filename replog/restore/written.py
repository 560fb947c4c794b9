"""A partition written anew from its records, each with its offset, epoch, timestamp and headers.

Records that follow each other without a gap, of one epoch and one timestamp type, become batches.
Where offsets are missing (compaction, transaction markers, aborted records), the batch before the
gap is given the last offset of the gap, as compaction itself leaves batches, so that the log has no
hole. Producers, sequences and transactions are not records and do not come back.
"""

from __future__ import annotations

import itertools
import os
import struct
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replog._native import record_batch, record_encoder
from replog._native.crc32c import checksum
from replog.config import INT_MAX, LogConfig
from replog.errors import OutOfOrderOffsetError, UsageError
from replog.restore.target import StagedPartition
from replog.storage.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from replog.storage.clean_shutdown import CLEAN_SHUTDOWN_FILE
from replog.storage.log_checkpoints import LOCK_FILE
from replog.storage.partition_log import PartitionLog
from replog.types import Codec, TimestampType

BATCH_BYTES = 256 * 1024
RECORD_OVERHEAD_BYTES = 64
PIECE_ROWS = 65536
_CRC_AT, _ATTRIBUTES_AT, _LAST_OFFSET_DELTA_AT = 17, 21, 23
_OWN_FILES = (
    LOCK_FILE,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)


class PartitionWriter:
    """Writes one partition at `path`, a new directory TOPIC-N outside any log directory.

    append() takes records in the order of their offsets; finish() makes it a staged partition.
    """

    def __init__(self, path: str, log_start_offset: int, codec: Codec = Codec.NONE) -> None:
        """Start an empty log whose first offset is `log_start_offset`."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Gaps too large for a batch to span are holes, which only a compacted log may have.
        self._log = PartitionLog.open(path, LogConfig(cleanup_policy="compact,delete"))
        self._codec = codec
        self._held = b""
        self._held_end_offset = log_start_offset
        self._records = 0
        self._has_holes = False
        self.path = path
        if log_start_offset:
            self._log.truncate_fully_and_start_at(log_start_offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close(flush=False)

    def append(self, records: pa.RecordBatch) -> None:
        """Records with the columns key, value, offset, timestamp (ms), timestamp_type, headers and
        leader_epoch. Raises OutOfOrderOffsetError unless offsets grow from batch to batch.
        """
        for start in range(0, records.num_rows, PIECE_ROWS):
            self._append(records.slice(start, PIECE_ROWS))

    def _append(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset").to_numpy()
        if offsets[0] < self._held_end_offset or np.any(np.diff(offsets) <= 0):
            raise OutOfOrderOffsetError(
                f"expected records of {self._log.topic_partition} from offset "
                f"{self._held_end_offset} on in rising order, found {offsets.min()} among them; "
                f"restore from an export that is whole",
                offset=int(offsets[0]),
            )
        stamps = rows.column("timestamp").cast(pa.int64()).to_numpy()
        bounds = _run_bounds(rows, offsets, stamps)
        for first, stop in itertools.pairwise(bounds):
            run = rows.slice(first, stop - first)
            self._write_held(int(offsets[first]))
            self._held = self._encoded(run, int(offsets[first]), stamps[first:stop])
            self._held_end_offset = int(offsets[stop - 1]) + 1
        self._records += rows.num_rows

    def _encoded(self, run: pa.RecordBatch, base_offset: int, stamps: npt.NDArray[Any]) -> bytes:
        kind = run.column("timestamp_type")[0].as_py()
        append_time = kind == TimestampType.LOG_APPEND_TIME
        return record_encoder.encode(
            run.column("value"),
            run.column("key"),
            stamps,
            run.column("headers"),
            now_ms=int(stamps[0]) if append_time else 0,
            codec=int(self._codec),
            timestamp_type=int(kind),
            base_offset=base_offset,
            leader_epoch=run.column("leader_epoch")[0].as_py(),
            batch_bytes_max=max(BATCH_BYTES, _largest_record_bytes(run)),
        )

    def _write_held(self, next_offset: int) -> None:
        """Append the batches that waited to learn where the next record is."""
        if not self._held:
            if next_offset > self._log.log_end_offset:
                # Nothing stands before the gap: the log begins behind it.
                self._log.truncate_fully_and_start_at(next_offset)
            return
        batches = self._held
        if next_offset > self._held_end_offset:
            batches = _reaching_to(batches, next_offset - 1)
            self._has_holes |= next_offset - self._held_end_offset > INT_MAX - PIECE_ROWS
        self._log.append_as_follower(batches)
        self._held = b""

    def finish(self, end_offset: int) -> StagedPartition:
        """Close the log, its end and its high watermark at `end_offset`; durable on return."""
        if end_offset < self._held_end_offset:
            raise UsageError(
                f"expected an end offset from {self._held_end_offset} on, found {end_offset}"
            )
        self._write_held(end_offset)
        start_offset = self._log.log_start_offset
        reached = self._log.log_end_offset
        self._log.close()
        for name in _OWN_FILES:
            path = os.path.join(self.path, name)
            if os.path.exists(path):
                os.remove(path)
        return StagedPartition(
            *self._log.topic_partition,
            log_start_offset=start_offset,
            high_watermark=reached,
            recovery_point=reached,
            cleaned_offset=0 if self._has_holes else None,
            size_bytes=sum(entry.stat().st_size for entry in os.scandir(self.path)),
            records=self._records,
        )


def _run_bounds(
    rows: pa.RecordBatch, offsets: npt.NDArray[Any], stamps: npt.NDArray[Any]
) -> list[int]:
    """Row numbers where runs begin that can share batches, and the number of rows at the end."""
    epochs = rows.column("leader_epoch").to_numpy()
    kinds = rows.column("timestamp_type").cast(pa.int32()).to_numpy()
    breaks = np.diff(offsets) != 1
    breaks |= np.diff(epochs) != 0
    breaks |= np.diff(kinds) != 0
    # A LogAppendTime batch has one time for all of its records.
    breaks |= (kinds[1:] == TimestampType.LOG_APPEND_TIME) & (np.diff(stamps) != 0)
    return [0, *(np.flatnonzero(breaks) + 1).tolist(), len(offsets)]


def _largest_record_bytes(run: pa.RecordBatch) -> int:
    """A bound on the encoded size of each record, batch header included."""
    sizes = np.full(run.num_rows, 2 * RECORD_OVERHEAD_BYTES, np.int64)
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(run.column(name)), 0).to_numpy()
    headers = run.column("headers")
    if headers.null_count < len(headers):
        entries = pc.list_flatten(headers)
        parents = pc.list_parent_indices(headers).to_numpy()
        entry_bytes = np.full(len(entries), RECORD_OVERHEAD_BYTES, np.int64)
        for field in ("key", "value"):
            lengths = pc.binary_length(pc.struct_field(entries, field))
            entry_bytes += pc.fill_null(lengths, 0).to_numpy()
        np.add.at(sizes, parents, entry_bytes)
    return int(sizes.max())


def _reaching_to(batches: bytes, last_offset: int) -> bytes:
    """The same batches, the last of them reaching to `last_offset`, as far as one can."""
    header = record_batch.scan(batches, check_crc=False).headers[-1]
    start, size = int(header["position"]), int(header["size_bytes"])
    changed = bytearray(batches)
    delta = min(last_offset - int(header["base_offset"]), INT_MAX)
    struct.pack_into(">i", changed, start + _LAST_OFFSET_DELTA_AT, delta)
    crc = checksum(memoryview(changed)[start + _ATTRIBUTES_AT : start + size])
    struct.pack_into(">I", changed, start + _CRC_AT, crc)
    return bytes(changed)
