"""One segment's data file, read by pread in chunks of whole batches, beside a writer or not.

A chunk is 1 to 4 MiB, larger only where one batch is. Bytes that are not a whole batch are either
the torn tail of a write under way (the walk stops there) or damage (the caller is told where).
"""

from __future__ import annotations

import dataclasses
import os
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt

from replog._native.record_batch import Scan, scan
from replog.errors import CorruptBatchError, LogTruncatedError
from replog.reader.data_file import open_data_file
from replog.reader.names import SegmentName, segment_names
from replog.reader.side_files import decode_offset_index, read_whole, side_path
from replog.reader.witness import Witness

CHUNK_BYTES = 2 * 1024 * 1024
GLANCE_BYTES = 64 * 1024
HEADER_BYTES = 61
READS_MAX = 8
# A change within a tick of the file system's clock leaves the time as it was.
TICK_MS = 100
LOG_OVERHEAD = 12
BATCH_BAD_OFFSET = -6
BATCH_BAD_EPOCH = -8
CHAIN_BROKEN = "its offsets or its leader epoch contradict the batches around it"

# What tells a batch from another: i64 base_offset | length | i32 leader_epoch | magic | u32 crc.
_IDENTITY = struct.Struct(">q4xixI")

Headers = npt.NDArray[Any]


class BatchStamp(NamedTuple):
    """What shows that a batch is the one that was seen before, at its place in the file."""

    position: int
    base_offset: int
    leader_epoch: int
    crc: int

    @classmethod
    def of(cls, header: Any) -> BatchStamp:
        """The stamp of a batch with this header."""
        return cls(*(int(header[name]) for name in cls._fields))

    @classmethod
    def in_piece(cls, content: memoryview, position: int) -> Self:
        """The stamp of the batch that `content` begins with, which stands at `position`."""
        return cls(position, *_IDENTITY.unpack_from(content))


class LastBatch(NamedTuple):
    """Where a walk stands: behind the batch with this last offset and leader epoch."""

    last_offset: int
    leader_epoch: int

    @classmethod
    def of(cls, header: Any) -> LastBatch:
        """The batch with this header."""
        return cls(int(header["last_offset"]), int(header["leader_epoch"]))


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches that stand together in a file.

    content: their bytes. headers: HEADER_DTYPE, one a batch, `position` being its place in the
    file. position: place of content[0] in the file. path: the file.
    """

    content: memoryview
    headers: Headers
    position: int
    path: str

    def batch(self, header: Any) -> memoryview:
        """The bytes of the batch with this header."""
        start = int(header["position"]) - self.position
        return self.content[start : start + int(header["size_bytes"])]


@dataclasses.dataclass(frozen=True, slots=True)
class Tail:
    """Where the whole batches of a segment end.

    end_offset: next offset behind the last whole batch. position: place behind it.
    problem: why what follows is no batch; None if nothing follows.
    """

    end_offset: int
    position: int
    problem: str | None


class SegmentReader:
    """Read-only access to one data file. Raises LogTruncatedError if it is gone or was changed.

    witness: what was shown of the log before; see `replog.reader.witness`.
    """

    def __init__(self, name: SegmentName, witness: Witness | None = None) -> None:
        self._name = name
        self._witness = Witness() if witness is None else witness
        self.base_offset = name.base_offset
        self.upper_offset = name.upper_offset
        self._file = open_data_file(name)
        self.path = self._file.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def size(self) -> int:
        """Bytes in the file now."""
        return int(self._file.size())

    def read(self, position: int, length: int) -> memoryview:
        """The bytes [position, position + length) of one moment, fewer at the end of the file."""
        before = self._file.state()
        length = max(min(length, before[0] - position), 0)
        content = self._file.read(position, length)
        for _ in range(READS_MAX):
            if length <= HEADER_BYTES or self._quiet_since(before):
                return memoryview(content)
            before, again = self._file.state(), self._file.read(position, length)
            if again == content:
                return memoryview(content)
            content = again
        raise LogTruncatedError(
            f"expected the bytes of {self.path} behind {position} to stay while they are read, "
            f"found others {READS_MAX} times in a row; read the partition again",
            path=self.path,
            position=position,
        )

    def read_into(self, position: int, buffer: memoryview) -> memoryview:
        """As much of `buffer` as the file had bytes for from `position` on, all of one moment."""
        before = self._file.state()
        length = self._file.read_into(position, buffer)
        content = buffer[:length]
        if not length or self._quiet_since(before):
            return content
        again = self.read(position, length)
        content[: len(again)] = again
        return content[: len(again)]

    def _quiet_since(self, before: tuple[int, int]) -> bool:
        """Whether nobody has written to the file since it was in the state `before`."""
        return before == self._file.state() and time.time() * 1000 - before[1] > TICK_MS

    def check_shown(self, stamp: BatchStamp) -> None:
        """Raises LogTruncatedError unless the batch that was shown still stands where it stood."""
        found = self._identity_at(stamp.position)
        if found != stamp[1:]:
            raise LogTruncatedError(
                f"expected the batch of offset {stamp.base_offset} (leader epoch "
                f"{stamp.leader_epoch}, CRC {stamp.crc:08x}) to stay at byte {stamp.position} of "
                f"{self.path}, found {_identity(found)}: the log was cut and written anew while "
                f"it was read; read the partition again",
                path=self.path,
                position=stamp.position,
                offset=stamp.base_offset,
                leader_epoch=stamp.leader_epoch,
            )

    def _identity_at(self, position: int) -> tuple[int, ...] | None:
        head = self.read(position, HEADER_BYTES)
        return _IDENTITY.unpack_from(head) if len(head) == HEADER_BYTES else None

    def check_witness(self) -> None:
        """Raises LogTruncatedError unless what was shown still stands; asked behind each read."""
        self._witness.check(self)

    def note_shown(self, stamp: BatchStamp) -> None:
        """The batch, and what stands before it, is given."""
        self._witness.note(self._name, stamp)

    def chunks(
        self,
        position: int = 0,
        *,
        check_crc: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
        before: LastBatch | None = None,
    ) -> Iterator[Chunk]:
        """Whole batches from the batch at `position` on, up to the torn tail or the end.

        before: the batch that ends at `position`, if it is known. Raises CorruptBatchError at the
        first bytes that are neither a batch nor a torn tail.
        """
        length = chunk_bytes
        while True:
            size = self.size()
            begun_at, content = position, self.read(position, length)
            self.check_witness()
            found = scan(content, position=position, check_crc=check_crc)
            headers = found.headers[: self._believable(found, before)]
            if len(headers):
                last = headers[-1]
                before = LastBatch.of(last)
                end = int(last["position"]) + int(last["size_bytes"]) - position
                self.note_shown(BatchStamp.of(last))
                yield Chunk(content[:end], headers, position, self.path)
                position += end
                length = chunk_bytes
            if len(headers) < len(found.headers):
                self._raise_if_replaced()
                self._raise_if_rewritten(begun_at, content)
                self.damaged(position, self._next_offset(before), CHAIN_BROKEN)
            if found.outcome < 0:
                if self.only_zeros(position):
                    return
                self._raise_if_rewritten(position, content[found.end :])
                self.damaged(position, self._next_offset(before), found.problem)
            if len(headers):
                continue
            length = self.batch_bytes(content)
            if length <= len(content) or length > size - position:
                return

    def _next_offset(self, before: LastBatch | None) -> int:
        return self.base_offset if before is None else before.last_offset + 1

    def _believable(self, found: Scan, before: LastBatch | None) -> int:
        """How many of the headers fit the segment and the batches around them.

        Base offset and leader epoch are outside the CRC. What gives a wrong one away is the chain:
        offsets and epochs never fall, and offsets stay inside the segment. Where a gap or a rise is
        followed by a fall, the batch behind the gap is the one that cannot be believed. The epoch
        checkpoint is no witness: it is derived from these batches.
        """
        headers = found.headers
        if not len(headers):
            return 0
        unfit = headers["last_offset"] >= self.upper_offset
        unfit[0] |= int(headers["base_offset"][0]) < self._next_offset(before)
        if before is not None:
            unfit[0] |= int(headers["leader_epoch"][0]) < before.leader_epoch
        first_unfit = np.flatnonzero(unfit)
        count = int(first_unfit[0]) if len(first_unfit) else len(headers)
        if count == len(headers) and found.outcome in {BATCH_BAD_OFFSET, BATCH_BAD_EPOCH}:
            last, previous = headers[-1], before
            if len(headers) > 1:
                previous = LastBatch.of(headers[-2])
            gap = previous is None or last["base_offset"] != previous.last_offset + 1
            rise = previous is None or last["leader_epoch"] != previous.leader_epoch
            count -= bool(gap if found.outcome == BATCH_BAD_OFFSET else rise)
        return count

    def _raise_if_replaced(self) -> None:
        """Tell damage from a compaction that put a merged file in this one's place."""
        there = segment_names(os.path.dirname(self.path))
        if self._name[:3] not in [segment[:3] for segment in there]:
            raise LogTruncatedError(
                f"expected {self.path} to end below offset {self.upper_offset}, found the "
                f"segments of the directory changed meanwhile; read the partition again",
                path=self.path,
                offset=self.upper_offset,
            )

    def batch_bytes(self, content: memoryview) -> int:
        """Size of the batch that begins here, by its length field; 0 if that is not there."""
        if len(content) < LOG_OVERHEAD:
            return 0
        (batch_length,) = struct.unpack_from(">i", content, 8)
        return LOG_OVERHEAD + int(batch_length)

    def only_zeros(self, position: int) -> bool:
        """Whether the file holds nothing but zeros from `position` on, as preallocated ones do."""
        size = self.size()
        while position < size:
            content = self.read(position, CHUNK_BYTES)
            if bytes(content).strip(b"\0"):
                return False
            position += max(len(content), 1)
        return True

    def _raise_if_rewritten(self, position: int, content: memoryview) -> None:
        """Tell damage from a writer that cut the file and wrote on while this process read it."""
        if self.read(position, len(content)) != content:
            raise LogTruncatedError(
                f"expected the bytes of {self.path} behind {position} to stay, found them "
                f"rewritten while they were read; read the partition again",
                path=self.path,
                position=position,
            )

    def damaged(self, position: int, offset: int, problem: str | None) -> NoReturn:
        """Raise CorruptBatchError for the batch at `position`, the first that may hold `offset`."""
        raise CorruptBatchError(
            f"expected a whole record batch at byte {position} of {self.path} (offset {offset} or "
            f"later), found that {problem}; restore the file from another replica",
            path=self.path,
            position=position,
            offset=offset,
        )

    def refuse_hole(self, offset: int, end_offset: int) -> NoReturn:
        """Raise for a file that ends at `offset` though no other has what is below end_offset."""
        self._raise_if_replaced()
        if self.tail().end_offset >= end_offset:
            raise LogTruncatedError(
                f"expected the end of {self.path} to stay, found it cut and written on while it "
                f"was read; read the partition again",
                path=self.path,
                offset=offset,
            )
        raise CorruptBatchError(
            f"expected the records of {self.path} to go on up to offset {end_offset}, where the "
            f"next segment begins, found them to end at offset {offset}; the file was emptied or "
            f"cut, or those behind it are gone: bring them back, or copy them from a replica",
            path=self.path,
            position=self.size(),
            offset=offset,
        )

    def seek(self, offset: int) -> int:
        """Position of a batch at or before the one of `offset`, by the index where it is right.

        An index that is missing, zero-tailed or damaged costs time, never a wrong answer: the entry
        is taken only if a whole batch of fitting offsets stands where it points.
        """
        content = read_whole(side_path(self.path, ".index"))
        if not content:
            return 0
        entries = decode_offset_index(content, self.base_offset)
        at = int(entries["offset"].searchsorted(offset, side="right")) - 1
        if at < 0:
            return 0
        entry = int(entries["offset"][at]), int(entries["position"][at])
        return entry[1] if self.batch_stands_at(*entry) else 0

    def batch_stands_at(self, last_offset: int, position: int) -> bool:
        """Whether a whole batch stands at `position` that begins at or before `last_offset`."""
        header = self.header_at(position)
        if header is None or not self.base_offset <= int(header["base_offset"]) <= last_offset:
            return False
        # A walk that begins here relies on it: where the file is cut before, it meets no damage.
        self.note_shown(BatchStamp.of(header))
        return True

    def header_at(self, position: int) -> Any | None:
        """Header of the whole, CRC-correct batch at `position`; None if there is none."""
        size = self.size()
        if not 0 <= position <= size - HEADER_BYTES:
            return None
        length = self.batch_bytes(self.read(position, HEADER_BYTES))
        if not HEADER_BYTES <= length <= size - position:
            return None
        found = scan(self.read(position, length), position=position, limit=1)
        return found.headers[0] if found.end else None

    def first_header_from(self, offset: int) -> Any | None:
        """Header of the first batch that reaches `offset` or lies behind it; None if none does.

        Raises as `chunks` does.
        """
        for chunk in self.chunks(self.seek(offset), check_crc=False, chunk_bytes=GLANCE_BYTES):
            row = int(np.searchsorted(chunk.headers["last_offset"], offset))
            if row < len(chunk.headers):
                return chunk.headers[row]
        return None

    def headers_around(self, end_offset: int) -> tuple[Any | None, Any | None]:
        """Headers of the last batch that begins below `end_offset` and of the one behind it.

        None where there is no such batch. Raises as `chunks` does.
        """
        below: Any = None
        position = self.seek(end_offset - 1)
        for chunk in self.chunks(position, check_crc=False, chunk_bytes=GLANCE_BYTES):
            row = int(np.searchsorted(chunk.headers["base_offset"], end_offset))
            below = chunk.headers[row - 1] if row else below
            if row < len(chunk.headers):
                return below, chunk.headers[row]
        return below, None

    def check_stamp(self, stamp: BatchStamp) -> None:
        """Raises LogTruncatedError unless the batch that was seen stands where it stood."""
        found = self._identity_at(stamp.position)
        if found != stamp[1:]:
            raise LogTruncatedError(
                f"expected the batch of offset {stamp.base_offset} (leader epoch "
                f"{stamp.leader_epoch}, CRC {stamp.crc:08x}) at byte {stamp.position} of "
                f"{self.path}, found {_identity(found)}: the log was truncated, compacted or "
                f"replaced since the read was planned; plan it again",
                path=self.path,
                position=stamp.position,
                offset=stamp.base_offset,
                leader_epoch=stamp.leader_epoch,
            )

    def tail(self) -> Tail:
        """Find the end of the whole batches, from the last index entry on, checking each CRC.

        Damage with a whole batch behind it does not end the segment: reading up to the end that is
        told here will meet it and say so. Damage with nothing good behind it is a torn tail.
        """
        position = self.seek(2**63 - 1)
        end = Tail(self.base_offset, position, None)
        while True:
            try:
                for chunk in self.chunks(position):
                    last = chunk.headers[-1]
                    position = chunk.position + len(chunk.content)
                    end = Tail(int(last["last_offset"]) + 1, position, None)
            except CorruptBatchError as error:
                damaged_at = position if error.position is None else error.position
                resumed = self._next_good(damaged_at, end.end_offset)
                if resumed is None:
                    return dataclasses.replace(end, problem=str(error))
                position = resumed
                continue
            rest = self.size() - end.position
            if rest > 0 and not self.only_zeros(end.position):
                return dataclasses.replace(end, problem="a batch is cut off by the end of the file")
            return end

    def resume_behind(self, position: int, end_offset: int) -> int | None:
        """Position of the next whole batch of `end_offset` or later behind damage at `position`.

        Found by the lengths of the damaged batches, or else by the offset index; None if neither
        leads to one.
        """
        found = self._next_good(position, end_offset)
        if found is not None:
            return found
        content = read_whole(side_path(self.path, ".index")) or b""
        for place in decode_offset_index(content, self.base_offset)["position"].tolist():
            header = self.header_at(place) if place > position else None
            if header is not None and int(header["base_offset"]) >= end_offset:
                return int(place)
        return None

    def _next_good(self, position: int, end_offset: int) -> int | None:
        """Position of the next whole batch behind a damaged one whose length still leads there."""
        size = self.size()
        while position <= size - HEADER_BYTES:
            length = self.batch_bytes(self.read(position, HEADER_BYTES))
            if not HEADER_BYTES <= length <= size - position:
                return None
            position += length
            header = self.header_at(position)
            if header is not None and int(header["base_offset"]) >= end_offset:
                return position
        return None


def _identity(found: tuple[int, ...] | None) -> str:
    if found is None:
        return "the end of the file"
    return f"offset {found[0]} (leader epoch {found[1]}, CRC {found[2]:08x})"


def segment_size(name: SegmentName) -> int:
    """Bytes in a segment's file now. Raises LogTruncatedError if it is gone, StorageError."""
    with SegmentReader(name) as segment:
        return segment.size()
