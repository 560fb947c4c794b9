"""Lines of files as Arrow columns, repeated as often as asked, with no Python object per line."""

from __future__ import annotations

import os
import sysconfig
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHUNK_BYTES = 4 * 1024 * 1024
NEWLINE = 0x0A


def standard_library_sources() -> list[str]:
    """The .py files of this interpreter's own library, sorted; real text that every machine has."""
    root = sysconfig.get_path("stdlib")
    sources = []
    for directory, children, names in os.walk(root):
        children[:] = sorted(set(children) - {"site-packages", "dist-packages", "__pycache__"})
        sources += [os.path.join(directory, name) for name in sorted(names) if name[-3:] == ".py"]
    if not sources:
        raise UsageError(
            f"expected the standard library's sources in {root}, found none; give --input FILE"
        )
    return sources


class LineSource:
    """All lines of some files, in order; the last line of a file needs no newline."""

    def __init__(self, paths: Sequence[str], line_bytes_max: int) -> None:
        self.paths = paths
        self.line_bytes_max = line_bytes_max
        self.passes = 0
        """How often the files have been begun."""

    def columns(self, record_count: int, column_records: int) -> Iterator[pa.BinaryArray]:
        """`record_count` lines, at most `column_records` in a column, the newlines taken off.

        The files are begun again while lines are missing. Raises UsageError for no line at all or
        one above `line_bytes_max`.
        """
        missing = record_count
        while missing > 0:
            before = missing
            for lines in self._some_passes(missing):
                for start in range(0, min(len(lines), missing), column_records):
                    yield lines.slice(start, min(column_records, missing - start))
                missing -= min(len(lines), missing)
                if missing == 0:
                    return
            if missing == before:
                raise UsageError(
                    f"expected at least one line in {self.paths[0]}, found none; "
                    f"give another --input",
                    path=self.paths[0],
                )

    def _some_passes(self, missing: int) -> Iterator[pa.BinaryArray]:
        """One pass over the files; over small ones as many at once as make a chunk."""
        size_bytes = sum(os.path.getsize(path) for path in self.paths)
        if size_bytes > CHUNK_BYTES:
            self.passes += 1
            yield from self._one_pass()
            return
        text = b"".join(piece for _, piece in self._pieces())
        if text:
            line_count = text.count(b"\n")
            copies = min(-(-missing // line_count), -(-CHUNK_BYTES // len(text)))
            self.passes += copies
            yield self._split(self.paths[0], text * copies)

    def _one_pass(self) -> Iterator[pa.BinaryArray]:
        """Columns of about CHUNK_BYTES, however small the files are."""
        pieces: list[bytes] = []
        gathered_bytes = 0
        for path, piece in self._pieces():
            pieces.append(piece)
            gathered_bytes += len(piece)
            if gathered_bytes < CHUNK_BYTES:
                continue
            whole, newline, rest = b"".join(pieces).rpartition(b"\n")
            if newline:
                yield self._split(path, whole + newline)
            self._refuse_long(path, len(rest))
            pieces, gathered_bytes = [rest], len(rest)
        if gathered_bytes:
            yield self._split(path, b"".join(pieces))

    def _pieces(self) -> Iterator[tuple[str, bytes]]:
        """The files' bytes in order; each file ends with a newline."""
        for path in self.paths:
            piece = b"\n"
            with open(path, "rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    piece = chunk
                    yield path, piece
            if not piece.endswith(b"\n"):
                yield path, b"\n"

    def _split(self, path: str, text: bytes) -> pa.BinaryArray:
        """`text` ends with a newline."""
        characters = np.frombuffer(text, dtype=np.uint8)
        is_newline = characters == NEWLINE
        ends = np.flatnonzero(is_newline)
        offsets = np.zeros(len(ends) + 1, dtype=np.int32)
        # The i-th newline is preceded by i others, which the packed values no longer hold.
        np.subtract(ends, np.arange(len(ends)), out=offsets[1:], casting="same_kind")
        self._refuse_long(path, int(np.diff(offsets).max()))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(characters[~is_newline])]
        return pa.BinaryArray.from_buffers(pa.binary(), len(ends), buffers)

    def _refuse_long(self, path: str, length_bytes: int) -> None:
        if length_bytes > self.line_bytes_max:
            raise UsageError(
                f"expected lines of at most {self.line_bytes_max} bytes, found one of at least "
                f"{length_bytes} in {path}; split it or give another --input",
                path=path,
            )
