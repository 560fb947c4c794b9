"""Decoders of the files beside a log, for readers that must not write.

    .index      8 bytes:  i32 offset - base | i32 position
    .timeindex 12 bytes:  i64 timestamp | i32 offset - base
    .txnindex  34 bytes:  i16 version | i64 producer_id | i64 first | i64 last | i64 last_stable

All big-endian. A running Kafka broker preallocates both indexes, so a file may end in zeros:
entries count as long as they grow. All these files can be rebuilt from the log, so a reader
verifies what it takes from them against the log and goes without where they are damaged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replog._native.mapped_file import OfflineFile
from replog._native.producer_snapshot import ProducerEntry, read_snapshot
from replog.errors import CorruptFileError, LogTruncatedError
from replog.reader.names import names_in

_OFFSET_SLOT = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
_TIME_SLOT = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
_TRANSACTION_SLOT = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)

OFFSET_ENTRY = np.dtype([("offset", np.int64), ("position", np.int64)])
TIME_ENTRY = np.dtype([("timestamp", np.int64), ("offset", np.int64)])
SIDE_FILE_BYTES_MAX = 1 << 30


class AbortedRange(NamedTuple):
    """An aborted transaction: its producer's records in [first_offset, last_offset]."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_whole(path: str) -> bytes | None:
    """Content of a small file, None if there is none. Uses pread; safe beside a live writer."""
    try:
        file = OfflineFile(path)
    except (FileNotFoundError, LogTruncatedError):
        return None
    try:
        size = file.size()
        if size > SIDE_FILE_BYTES_MAX:
            raise CorruptFileError(
                f"expected a side file of at most {SIDE_FILE_BYTES_MAX} bytes, found {size} at "
                f"{path}; if it is derived from the log, remove it and open the log for writing",
                path=path,
            )
        return bytes(file.read(0, size))
    except LogTruncatedError:
        return None
    finally:
        file.close()


def _growing(keys: npt.NDArray[np.int64], *, strictly: bool) -> int:
    """How many leading entries grow; the rest is a preallocated tail or damage."""
    steps = np.diff(keys)
    breaks = np.flatnonzero(steps <= 0 if strictly else steps < 0)
    return int(breaks[0]) + 1 if len(breaks) else len(keys)


def decode_offset_index(content: bytes, base_offset: int) -> npt.NDArray[Any]:
    """Entries of an `.index` as OFFSET_ENTRY; a zero tail and what follows a fall are left out."""
    whole = len(content) // _OFFSET_SLOT.itemsize
    slots = np.frombuffer(content, _OFFSET_SLOT, whole)
    entries = np.empty(whole, OFFSET_ENTRY)
    entries["offset"] = slots["relative_offset"].astype(np.int64) + base_offset
    entries["position"] = slots["position"]
    if whole and slots["relative_offset"][0] == 0 and slots["position"][0] == 0:
        # One leading (0, 0) is Kafka's only where the first batch was indexed at position 0, which
        # the sparse rule never does: a file of zeros holds nothing.
        return entries[:0]
    return entries[: _growing(entries["offset"], strictly=True)]


def decode_time_index(content: bytes, base_offset: int) -> npt.NDArray[Any]:
    """Entries of a `.timeindex` as TIME_ENTRY; a zero tail and what follows a fall are left out."""
    whole = len(content) // _TIME_SLOT.itemsize
    slots = np.frombuffer(content, _TIME_SLOT, whole)
    entries = np.empty(whole, TIME_ENTRY)
    entries["timestamp"] = slots["timestamp"]
    entries["offset"] = slots["relative_offset"].astype(np.int64) + base_offset
    count = min(
        _growing(entries["timestamp"], strictly=True), _growing(entries["offset"], strictly=False)
    )
    kept = entries[:count]
    if count == 1 and not kept["timestamp"][0] and kept["offset"][0] == base_offset:
        return kept[:0]
    return kept


def decode_transaction_index(content: bytes, path: str) -> list[AbortedRange]:
    """Entries of a `.txnindex`. Raises CorruptFileError; a cut last entry is a torn tail."""
    whole = len(content) // _TRANSACTION_SLOT.itemsize
    slots = np.frombuffer(content, _TRANSACTION_SLOT, whole)
    if np.any(slots["version"] != 0) or np.any(slots["last_offset"] < slots["first_offset"]):
        raise CorruptFileError(
            f"expected entries of version 0 with first <= last offset in {path}, found others; "
            f"open the log for writing to rebuild the file",
            path=path,
        )
    names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    return [
        AbortedRange(*row) for row in zip(*(slots[name].tolist() for name in names), strict=True)
    ]


def decode_snapshot(content: bytes, path: str) -> list[ProducerEntry]:
    """Entries of a producer `.snapshot` in the file's order. Raises CorruptFileError."""
    return read_snapshot(content, path)


def side_path(segment_path: str, suffix: str) -> str:
    """Path of the `.index`, `.timeindex`, `.txnindex` or `.snapshot` beside a segment.

    That of a `.log.swap` or a `.log.deleted` has the same end.
    """
    stem, dot, end = segment_path.rpartition(".log")
    return stem + suffix + end if dot else segment_path + suffix


def snapshots(path: str) -> Iterator[tuple[int, str]]:
    """(offset, path) of the producer snapshots of a partition directory, newest first."""
    found = [name for name in names_in(path) if name.endswith(".snapshot")]
    for name in sorted(found, reverse=True):
        offset = name.removesuffix(".snapshot")
        if len(offset) == 20 and offset.isdecimal():
            yield int(offset), os.path.join(path, name)
