"""Plain stretches of a segment, decoded piece by piece while they are in the processor's cache.

Most of a log is batches that follow on each other, of one leader epoch and not compressed. They are
read into one small buffer that is kept, checked and decoded at once. Whatever is not so ends a
stretch and is read as chunks, by code that knows damage from a torn tail: results are the same.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pyarrow as pa

from replog._native.stretch_decoder import StretchDecoder
from replog.reader.segment import BatchStamp, LastBatch, SegmentReader

PIECE_BYTES = 256 * 1024
ROWS_ENOUGH = 16384
BYTES_ENOUGH = 4 * 1024 * 1024
# Where so many tries in a row found nothing plain, the segment is of another kind.
FRUITLESS_MAX = 4


class StretchReader:
    """Reads what is plain of the offsets [start_offset, end_offset) of a segment."""

    def __init__(
        self,
        segment: SegmentReader,
        start_offset: int,
        end_offset: int,
        *,
        columns: Sequence[str] | None,
        check_crc: bool,
        batch_rows: int,
    ) -> None:
        self._segment = segment
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._columns = columns
        self._check_crc = check_crc
        self._rows_enough = min(batch_rows, ROWS_ENOUGH)
        self._buffer = memoryview(bytearray(PIECE_BYTES))
        self._piece = self._buffer[:0]
        self._piece_position = 0
        self._fruitless = 0

    @property
    def given_up(self) -> bool:
        """Whether the segment is of another kind, so that it is better read as chunks."""
        return self._fruitless >= FRUITLESS_MAX

    def batches(
        self, position: int, before: LastBatch | None
    ) -> Generator[pa.RecordBatch, None, tuple[int, LastBatch | None]]:
        """Records of the stretch that begins at `position`; returns where it ended.

        before: the batch that ends at `position`, None if it is not known.
        """
        first = before if before is not None else self._assumed(position)
        if first is None or self.given_up:
            return position, before
        decoder = StretchDecoder(
            first.last_offset + 1,
            first.leader_epoch,
            columns=self._columns,
            start_offset=self._start_offset,
            end_offset=self._end_offset,
            upper_offset=self._segment.upper_offset,
            check_crc=self._check_crc,
            proven=before is not None,
        )
        begun_at = position
        while True:
            reached = self._fill(decoder, position)
            if reached is None:
                break
            if decoder.rows:
                yield decoder.take()
            if reached == position:
                break
            position = reached
            before = LastBatch(decoder.next_offset - 1, first.leader_epoch)
        self._fruitless = self._fruitless + 1 if position == begun_at else 0
        return position, before

    def _fill(self, decoder: StretchDecoder, position: int) -> int | None:
        """Decode until there are rows for a batch; returns the position behind them.

        None if a batch contradicts itself, so that all since `position` has to be read otherwise.
        """
        while decoder.rows < self._rows_enough and decoder.size_bytes < BYTES_ENOUGH:
            piece = self._piece_at(position)
            taken = decoder.feed(piece, rows_enough=self._rows_enough, bytes_enough=BYTES_ENOUGH)
            if taken == 0 and len(piece) < PIECE_BYTES:
                # Perhaps only the end of what was read before: look at the whole batch.
                piece = self._read(position)
                taken = decoder.feed(
                    piece, rows_enough=self._rows_enough, bytes_enough=BYTES_ENOUGH
                )
            if taken is None:
                return None
            if taken == 0:
                break
            last_at = taken - decoder.last_size_bytes
            self._segment.note_shown(BatchStamp.in_piece(piece[last_at:], position + last_at))
            position += taken
        return position

    def _piece_at(self, position: int) -> memoryview:
        """What is left of the piece read last, if it goes on at `position`; else a new one."""
        at = position - self._piece_position
        return self._piece[at:] if 0 <= at < len(self._piece) else self._read(position)

    def _read(self, position: int) -> memoryview:
        self._piece = self._segment.read_into(position, self._buffer)
        self._piece_position = position
        self._segment.check_witness()
        return self._piece

    def _assumed(self, position: int) -> LastBatch | None:
        """What would be before `position` if the batch there told the truth about itself."""
        header = self._segment.header_at(position)
        if header is None or int(header["base_offset"]) < self._segment.base_offset:
            return None
        return LastBatch(int(header["base_offset"]) - 1, int(header["leader_epoch"]))
