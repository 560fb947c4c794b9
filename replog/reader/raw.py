"""Every batch of one file as Kafka's own file walk gives it: no bound, no chain, damaged ones too.

For dumps and comparisons. Unlike `SegmentReader.chunks`, a batch with a wrong CRC is told and
passed over, and what cannot be walked further ends in CorruptBatchError. Works on `.log` files,
deleted and swapped ones, and on the metadata log's `.checkpoint` snapshots, which are batches too.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from replog._native.crc32c import checksum
from replog._native.record_batch import scan
from replog._native.record_decoder import decode_arrow
from replog.reader.names import SegmentName
from replog.reader.segment import CHUNK_BYTES, BatchStamp, Chunk, SegmentReader

ATTRIBUTES_AT = 21
PREFIX_BYTES = 17
BAD_CRC = -3
BAD_MAGIC = -2

_BASE_OFFSET = re.compile(r".*?(\d{20})")


@dataclasses.dataclass(frozen=True, slots=True)
class RawBatches:
    """Neighbouring batches of a file that are all CRC-correct (`valid`), or one that is not."""

    chunk: Chunk
    valid: bool

    def records(self) -> pa.RecordBatch:
        """All their records, control ones too, as `decode_arrow` gives them."""
        return decode_arrow(
            self.chunk.content,
            include_control=True,
            check_crc=False,
            path=self.chunk.path,
            position=self.chunk.position,
        )


def base_offset_of(path: str) -> int:
    """The base offset in a file's name, 0 where there is none (`bootstrap.checkpoint`)."""
    match = _BASE_OFFSET.match(path.rpartition("/")[2])
    return int(match[1]) if match else 0


def walk_file(name: SegmentName) -> Iterator[RawBatches]:
    """Batches in file order. A cut last batch ends the walk; raises CorruptBatchError otherwise."""
    with SegmentReader(name) as file:
        position, length = 0, CHUNK_BYTES
        while file.size() - position > PREFIX_BYTES:
            content = file.read(position, length)
            file.check_witness()
            found = scan(content, position=position, lenient=True)
            if found.end:
                file.note_shown(BatchStamp.of(found.headers[-1]))
                yield from _runs(
                    file, Chunk(content[: found.end], found.headers, position, file.path)
                )
                position += found.end
                length = CHUNK_BYTES
            if found.outcome < 0:
                file.damaged(position, file.base_offset, found.problem)
            if found.end:
                continue
            length = file.batch_bytes(content)
            if length <= len(content) or length > file.size() - position:
                return


def _runs(file: SegmentReader, chunk: Chunk) -> Iterator[RawBatches]:
    """Cut a chunk of a lenient scan where a batch is not like its neighbours."""
    start = 0
    outcomes = chunk.headers["outcome"].tolist()
    for row, outcome in enumerate(outcomes):
        if outcome == 0:
            continue
        if start < row:
            yield RawBatches(_part(chunk, start, row), valid=True)
        header = chunk.headers[row]
        if outcome == BAD_MAGIC:
            file.damaged(int(header["position"]), file.base_offset, "its magic byte is not 2")
        valid = outcome != BAD_CRC and _crc_matches(chunk, header)
        yield RawBatches(_part(chunk, row, row + 1), valid=valid)
        start = row + 1
    if start < len(outcomes):
        yield RawBatches(_part(chunk, start, len(outcomes)), valid=True)


def _crc_matches(chunk: Chunk, header: Any) -> bool:
    return checksum(chunk.batch(header)[ATTRIBUTES_AT:]) == int(header["crc"])


def _part(chunk: Chunk, start: int, stop: int) -> Chunk:
    headers = chunk.headers[start:stop]
    position = int(headers["position"][0])
    end = int(headers["position"][-1]) + int(headers["size_bytes"][-1])
    content = chunk.content[position - chunk.position : end - chunk.position]
    return Chunk(content, headers, position, chunk.path)
