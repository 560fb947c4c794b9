"""A log as a plain list of batches: what the real one must agree with, whatever is done to it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ModelBatch:
    """Records at base_offset, base_offset + 1, ..."""

    base_offset: int
    leader_epoch: int
    values: tuple[bytes, ...]
    timestamps: tuple[int, ...]

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.values)


class LogModel:
    """The rules of Kafka's UnifiedLog and LeaderEpochFileCache in their shortest form."""

    def __init__(self) -> None:
        self.batches: list[ModelBatch] = []
        self.epochs: list[tuple[int, int]] = []
        self.log_start_offset = 0
        self.log_end_offset = 0

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    @property
    def written_epoch(self) -> int:
        """Of the last batch in the files: no later one may be lower, even where it was deleted."""
        return self.batches[-1].leader_epoch if self.batches else -1

    @property
    def dense_end(self) -> int:
        """End of the last batch: below log_end_offset after a cut inside a batch."""
        return self.batches[-1].end_offset if self.batches else self.log_start_offset

    def append(
        self, base_offset: int, epoch: int, values: list[bytes], timestamps: list[int]
    ) -> None:
        self.assign_epoch(epoch, base_offset)
        batch = ModelBatch(base_offset, epoch, tuple(values), tuple(timestamps))
        self.batches.append(batch)
        self.log_end_offset = batch.end_offset

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        if self.epochs and self.epochs[-1][0] == epoch and self.epochs[-1][1] <= start_offset:
            return
        while self.epochs and (self.epochs[-1][0] >= epoch or self.epochs[-1][1] >= start_offset):
            self.epochs.pop()
        self.epochs.append((epoch, start_offset))

    def truncate_epochs_from_end(self, offset: int) -> None:
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]

    def truncate_epochs_from_start(self, offset: int) -> None:
        dropped = [entry for entry in self.epochs if entry[1] <= offset]
        if dropped:
            self.epochs = [(dropped[-1][0], offset), *self.epochs[len(dropped) :]]

    def truncate_to(self, offset: int, first_base_offset: int) -> None:
        if offset >= self.log_end_offset:
            self.truncate_epochs_from_end(self.log_end_offset)
        elif offset < first_base_offset:
            self.restart_at(offset)
        else:
            self.batches = [batch for batch in self.batches if batch.end_offset <= offset]
            self.log_end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)
            self.truncate_epochs_from_end(offset)

    def truncate_prefix_to(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.truncate_epochs_from_start(offset)

    def restart_at(self, offset: int) -> None:
        self.batches = []
        self.epochs = []
        self.log_start_offset = self.log_end_offset = offset

    def reopened_at(self, log_end_offset: int) -> None:
        """A reopened log ends behind its last batch, which may be before where it was cut."""
        self.log_end_offset = log_end_offset
        self.truncate_epochs_from_end(log_end_offset)
        self.truncate_epochs_from_start(self.log_start_offset)

    def records(
        self, start_offset: int = 0, end_offset: int = 2**63 - 1
    ) -> list[tuple[int, int, int, bytes]]:
        """(offset, timestamp, leader_epoch, value) of the readable ones in the interval."""
        first = max(start_offset, self.log_start_offset)
        return [
            (offset, timestamp, batch.leader_epoch, value)
            for batch in self.batches
            for offset, (value, timestamp) in enumerate(
                zip(batch.values, batch.timestamps, strict=True), batch.base_offset
            )
            if first <= offset < end_offset
        ]
