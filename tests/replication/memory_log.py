"""A log in memory for the tests of the pure core: records are (epoch, payload), one batch each.

Faults it injects: `refuse_append` makes the next append fail with the error given. It never loses
records; a crash is a new Replica over the same MemoryLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replog.types import EpochEndOffset

if TYPE_CHECKING:
    from replog.errors import ReplogError


class MemoryRecord(NamedTuple):
    offset: int
    epoch: int
    payload: str


class Appended(NamedTuple):
    base_offset: int
    last_offset: int


class MemoryLog:
    """Satisfies ReplicatedLog. Its epoch cache follows facts 5 in the most literal way."""

    def __init__(self, epochs=(), *, start=0, payload="") -> None:
        self.log_start_offset = start
        self.records: list[MemoryRecord] = []
        self.epoch_entries: list[tuple[int, int]] = []
        self.refuse_append: ReplogError | None = None
        self._high_watermark = start
        for offset, epoch in enumerate(epochs, start):
            self._add(MemoryRecord(offset, epoch, f"{payload or f'e{epoch}'}@{offset}"))

    @property
    def log_end_offset(self) -> int:
        return self.records[-1].offset + 1 if self.records else self._empty_end

    @property
    def _empty_end(self) -> int:
        return self.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self.log_end_offset
        self._high_watermark = offset

    @property
    def latest_epoch(self) -> int:
        return self.epoch_entries[-1][0] if self.epoch_entries else -1

    def end_offset_for_epoch(self, asked: int) -> EpochEndOffset:
        epochs = [epoch for epoch, _ in self.epoch_entries]
        if asked == -1 or not epochs or asked > epochs[-1]:
            return EpochEndOffset(-1, -1)
        if asked == epochs[-1]:
            return EpochEndOffset(asked, self.log_end_offset)
        next_start = min(start for epoch, start in self.epoch_entries if epoch > asked)
        if asked < epochs[0]:
            return EpochEndOffset(asked, next_start)
        return EpochEndOffset(max(epoch for epoch in epochs if epoch <= asked), next_start)

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
        """`batches` is a sequence of payloads."""
        self._maybe_refuse()
        base_offset = self.log_end_offset
        for payload in batches:
            self._add(MemoryRecord(self.log_end_offset, leader_epoch, payload))
        return Appended(base_offset, self.log_end_offset - 1)

    def append_as_follower(self, batches) -> None:
        self._maybe_refuse()
        for record in batches:
            assert record.offset == self.log_end_offset, (record, self.log_end_offset)
            self._add(record)

    def read(self, start_offset: int, max_bytes: int) -> tuple[MemoryRecord, ...]:
        """As if each record took one byte."""
        assert self.log_start_offset <= start_offset <= self.log_end_offset
        behind = [record for record in self.records if record.offset >= start_offset]
        return tuple(behind[: max(1, max_bytes)])

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.log_start_offset
        self.records = [record for record in self.records if record.offset < offset]
        self.epoch_entries = [entry for entry in self.epoch_entries if entry[1] < offset]
        self._high_watermark = min(self._high_watermark, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.records = []
        self.epoch_entries = []
        self.log_start_offset = self._high_watermark = offset

    def truncate_prefix_to(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self._high_watermark
        if offset == self.log_end_offset:
            self.records = []
        self.log_start_offset = offset
        self.records = [record for record in self.records if record.offset >= offset]
        dropped = [entry for entry in self.epoch_entries if entry[1] <= offset]
        kept = [entry for entry in self.epoch_entries if entry[1] > offset]
        self.epoch_entries = [(dropped[-1][0], offset), *kept] if dropped else kept

    def _add(self, record: MemoryRecord) -> None:
        self.records.append(record)
        self.assign_epoch(record.epoch, record.offset)

    def _maybe_refuse(self) -> None:
        error, self.refuse_append = self.refuse_append, None
        if error is not None:
            raise error
