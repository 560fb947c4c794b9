"""What a reader has shown of a log, so that a cut beside it is told and not read across.

Nothing locks a writer out, so a log may be cut and written anew between two reads. What was shown
and what comes next are of one history if three things hold:

- Each piece is of one moment: the file did not change while it was read, or a second read of it
  gave the same bytes, so that all of them stood there between the two (`SegmentReader.read`).
- The furthest batch that was shown still stands, with its offset, leader epoch and CRC, *after* the
  next piece was read. A log is changed by appending and by cutting only, so it stood there when the
  piece was read, and so did all before it: two leaders never give one offset and epoch to different
  batches (Kafka's log matching), and a cut in one epoch would have to be followed by the very same
  batch at the same byte, its time included.
- Each file is the one that was there when the reader looked, by its inode; a sealed one has its
  size and its time, too. So a segment that was cut off and begun anew is never taken for the old
  one, and what retention or compaction renamed is read on under its new name.

Whatever fails is a LogTruncatedError: nothing that was shown before is wrong by itself, but no more
of the same log is to be had. It comes before the first record of another history is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import LogTruncatedError

if TYPE_CHECKING:
    from replog.reader.names import SegmentName
    from replog.reader.segment import BatchStamp, SegmentReader


class Witness:
    """The furthest batch that was shown; of one reader since it looked, in all its segments."""

    def __init__(self) -> None:
        self._name: SegmentName | None = None
        self._stamp: BatchStamp | None = None

    def note(self, name: SegmentName, stamp: BatchStamp) -> None:
        """A batch is shown, or was relied upon."""
        if self._stamp is None or stamp.base_offset > self._stamp.base_offset:
            self._name, self._stamp = name, stamp

    def check(self, reading: SegmentReader) -> None:
        """Raises LogTruncatedError if the batch is gone from where it was."""
        if self._name is None or self._stamp is None:
            return
        if self._name.base_offset == reading.base_offset:
            reading.check_shown(self._stamp)
            return
        try:
            other = type(reading)(self._name)
        except LogTruncatedError:
            # Retention took it whole. A cut that took it took what is behind it, too, and that is
            # not opened any more: it is another file.
            self._name = None
            return
        with other:
            other.check_shown(self._stamp)
