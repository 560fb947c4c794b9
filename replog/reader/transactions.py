"""Which transactional records a read_committed reader may see, derived from files alone.

The last stable offset is the first offset of the oldest transaction that is undecided below the end
of the read: its marker is missing, or stands at or above that end. It is found as Kafka's loading
finds it, from the newest usable producer snapshot below the end and the batch headers behind it.
Aborted transactions come from the `.txnindex` files and from the ABORT markers met on that walk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from replog._native.producer_state import ProducerState
from replog.errors import CorruptFileError
from replog.reader.names import SegmentName
from replog.reader.segment import Headers, SegmentReader
from replog.reader.side_files import (
    AbortedRange,
    decode_transaction_index,
    read_whole,
    snapshots,
)


@dataclasses.dataclass(slots=True)
class TransactionWalk:
    """What is open at `offset`, and what was seen to abort before it.

    producers: the state that a broker would have at `offset`; nothing in it ever expires here.
    """

    offset: int
    producers: ProducerState = dataclasses.field(default_factory=ProducerState)
    aborted: list[AbortedRange] = dataclasses.field(default_factory=list)

    def walk(self, headers: Headers, end_offset: int) -> None:
        """Take in those of the batches that lie in [offset, end_offset)."""
        inside = (headers["base_offset"] >= self.offset) & (headers["base_offset"] < end_offset)
        for done in self.producers.replay(headers[inside]):
            if done.aborted:
                self.aborted.append(
                    AbortedRange(
                        done.producer_id,
                        done.first_offset,
                        done.last_offset,
                        done.last_stable_offset,
                    )
                )

    def last_stable_offset(self, end_offset: int) -> int:
        """End of what is decided below `end_offset`, both exclusive."""
        return min([end_offset, *(first for _, first in self.producers.open_transactions())])


def walk_from_snapshot(path: str, log_start_offset: int, end_offset: int) -> TransactionWalk:
    """A walk from the newest readable snapshot in [log_start_offset, end_offset], if any."""
    for offset, snapshot_path in snapshots(path):
        if not log_start_offset <= offset <= end_offset:
            continue
        content = read_whole(snapshot_path)
        if content is None:
            continue
        state = TransactionWalk(offset)
        try:
            state.producers.load_snapshot(content, now_ms=0, path=snapshot_path)
        except CorruptFileError:
            continue  # derived from the log: an older one and a longer walk give the same answer
        return state
    return TransactionWalk(log_start_offset)


def aborted_ranges(segments: Iterable[SegmentName]) -> Iterator[AbortedRange]:
    """Entries of the `.txnindex` files of these segments, in order.

    A transaction stands in the index of the segment that holds its marker, so a reader gives the
    segments from the one of its first offset on.
    """
    for segment in segments:
        index = segment.path.removesuffix(".swap").removesuffix(".log") + ".txnindex"
        # In the order in which a broker renames it: what is not there yet is there later. Each is
        # true of the log, so that one too many does no harm.
        suffixes = [".swap", ""]
        found = [entry for suffix in suffixes for entry in _entries(index + suffix)]
        with SegmentReader(segment) as file:
            replaced = file.path.endswith(".deleted")
        if replaced:
            found += _entries(index + ".deleted")
        yield from dict.fromkeys(found)


def _entries(path: str) -> list[AbortedRange]:
    return decode_transaction_index(read_whole(path) or b"", path)


def touching(
    aborted: Iterable[AbortedRange], first_offset: int, last_offset: int
) -> list[tuple[int, int, int]]:
    """Those that touch [first_offset, last_offset], as the record decoder takes them."""
    return [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for entry in aborted
        if entry.first_offset <= last_offset and entry.last_offset >= first_offset
    ]
