"""A log in memory for the tests of the pure core: records are (epoch, payload), one batch each.

Faults it injects: `refuse_append` makes the next append fail with the error given. It never loses
records; a crash is a new host over the same MemoryLog. `producers` remembers the batches that came
as (producer id, sequence), so that a repeated one is answered with its first offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replog.types import EpochEndOffset, TimestampedOffset

if TYPE_CHECKING:
    from replog.errors import ReplogError


class MemoryRecord(NamedTuple):
    offset: int
    epoch: int
    payload: str


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    duplicate: bool = False


class MemoryLog:
    """Satisfies LogView. Its epoch cache is Kafka's LeaderEpochFileCache at its most literal."""

    def __init__(self, epochs=(), *, start=0, payload="", high_watermark=None) -> None:
        self.log_start_offset = start
        self.log_end_offset = start
        self.records: list[MemoryRecord] = []
        self.epoch_entries: list[tuple[int, int]] = []
        self.refuse_append: ReplogError | None = None
        self.producers: dict[tuple[int, int], Appended] = {}
        self.syncs_at_once = True
        self.first_unstable_offset: int | None = None
        for offset, epoch in enumerate(epochs, start):
            self._add(MemoryRecord(offset, epoch, f"{payload or f'e{epoch}'}@{offset}"))
        self.synced_end_offset = self.log_end_offset
        self._high_watermark = start if high_watermark is None else high_watermark

    @property
    def size_bytes(self) -> int:
        return sum(len(record.payload) for record in self.records)

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self.log_end_offset
        self._high_watermark = offset

    @property
    def last_stable_offset(self) -> int:
        if self.first_unstable_offset is None:
            return self._high_watermark
        return min(self._high_watermark, self.first_unstable_offset)

    @property
    def latest_epoch(self) -> int:
        return self.epoch_entries[-1][0] if self.epoch_entries else -1

    def end_offset_for_epoch(self, asked: int) -> EpochEndOffset:
        entries = self.epoch_entries
        if asked == -1 or not entries or asked > entries[-1][0]:
            return EpochEndOffset(-1, -1)
        if asked == entries[-1][0]:
            return EpochEndOffset(asked, self.log_end_offset)
        next_start = min(start for epoch, start in entries if epoch > asked)
        if asked < entries[0][0]:
            return EpochEndOffset(asked, next_start)
        return EpochEndOffset(max(epoch for epoch, _ in entries if epoch <= asked), next_start)

    def epoch_for_offset(self, offset: int) -> int:
        return max((epoch for epoch, start in self.epoch_entries if start <= offset), default=-1)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """As if each record's timestamp were its offset."""
        for record in self.records:
            if record.offset >= timestamp:
                return TimestampedOffset(record.offset, record.offset, record.epoch)
        return None

    def readable_bytes(self, start_offset: int, end_offset: int, max_bytes: int) -> int:
        return min(max_bytes, max(0, end_offset - start_offset))

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        if self.epoch_entries:
            latest, start = self.epoch_entries[-1]
            if latest == leader_epoch and start <= start_offset:
                return
        while self.epoch_entries and (
            self.epoch_entries[-1][0] >= leader_epoch or self.epoch_entries[-1][1] >= start_offset
        ):
            self.epoch_entries.pop()
        self.epoch_entries.append((leader_epoch, start_offset))

    def append_as_leader(self, batches, leader_epoch: int) -> Appended:
        """`batches` is a sequence of payloads, or of (producer id, sequence) pairs."""
        self._maybe_refuse()
        known = self.producers.get(batches[0])
        if known is not None:
            return known._replace(duplicate=True)
        base_offset = self.log_end_offset
        for payload in batches:
            self._add(MemoryRecord(self.log_end_offset, leader_epoch, payload))
        appended = Appended(base_offset, self.log_end_offset - 1)
        if isinstance(batches[0], tuple):
            self.producers[batches[0]] = appended
        return appended

    def append_as_follower(self, batches) -> None:
        self._maybe_refuse()
        if not self.records and batches[0].offset < self.log_end_offset <= batches[-1].offset:
            # As if they were one batch, with which the log begins, as the real one does.
            self.truncate_fully_and_start_at(batches[0].offset)
        for record in batches:
            assert record.offset == self.log_end_offset, (record, self.log_end_offset)
            self._add(record)
            if isinstance(record.payload, tuple):
                self.producers[record.payload] = Appended(record.offset, record.offset)

    def read(self, start_offset: int, end_offset: int, max_bytes: int) -> tuple[MemoryRecord, ...]:
        """As if each record took one byte."""
        assert self.log_start_offset <= start_offset <= end_offset <= self.log_end_offset
        first = start_offset - self.log_start_offset
        return tuple(self.records[first : first + min(max_bytes, end_offset - start_offset)])

    def sync(self) -> None:
        self.synced_end_offset = self.log_end_offset

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.log_start_offset
        if offset < self.log_end_offset:
            del self.records[offset - self.log_start_offset :]
            self.log_end_offset = offset
        self.epoch_entries = [
            entry for entry in self.epoch_entries if entry[1] < self.log_end_offset
        ]
        self._high_watermark = min(self._high_watermark, self.log_end_offset)
        self.synced_end_offset = min(self.synced_end_offset, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.records = []
        self.epoch_entries = []
        self.log_start_offset = self._high_watermark = offset
        self.log_end_offset = self.synced_end_offset = offset

    def truncate_prefix_to(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self._high_watermark
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset
        dropped = [entry for entry in self.epoch_entries if entry[1] <= offset]
        kept = [entry for entry in self.epoch_entries if entry[1] > offset]
        self.epoch_entries = [(dropped[-1][0], offset), *kept] if dropped else kept

    def _add(self, record: MemoryRecord) -> None:
        self.records.append(record)
        self.log_end_offset = record.offset + 1
        if not self.epoch_entries or self.epoch_entries[-1][0] != record.epoch:
            self.assign_epoch(record.epoch, record.offset)

    def _maybe_refuse(self) -> None:
        error, self.refuse_append = self.refuse_append, None
        if error is not None:
            raise error
