"""What one partition must hold, kept beside the log and never asked of it.

`State` is what a process that goes on must see. Beside it stands what a stop may leave: `versions`,
each a log of which a whole-batch prefix may be found that reaches its floor.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from tests.crash.workload import Batch, batches_in

RECORD_COUNT_AT = 57


class State(NamedTuple):
    """A log at one moment: its batches are those that can be read from `start` on."""

    start: int
    end: int
    batches: tuple[Batch, ...]
    epochs: tuple[tuple[int, int], ...]

    @property
    def content(self) -> bytes:
        return b"".join([batch.content for batch in self.batches])

    @property
    def dense_end(self) -> int:
        """Where the last batch ends: a cut inside a batch leaves none up to `end`."""
        return self.batches[-1].last_offset + 1 if self.batches else self.start

    def appended(self, batches: list[Batch]) -> State:
        epochs = self.epochs
        for batch in batches:
            epochs = assigned(epochs, batch.leader_epoch, batch.base_offset)
        end = batches[-1].last_offset + 1
        return self._replace(end=end, batches=self.batches + tuple(batches), epochs=epochs)

    def cut(self, offset: int) -> State:
        kept = tuple(batch for batch in self.batches if batch.last_offset < offset)
        epochs = tuple(entry for entry in self.epochs if entry[1] < offset)
        return State(min(self.start, offset), offset, kept, epochs)

    def deleted_below(self, offset: int) -> State:
        if offset <= self.start:
            return self
        kept = tuple(batch for batch in self.batches if batch.last_offset >= offset)
        return State(offset, self.end, kept, started_at(self.epochs, offset))


def assigned(
    epochs: tuple[tuple[int, int], ...], epoch: int, start: int
) -> tuple[tuple[int, int], ...]:
    if epochs and epochs[-1][0] == epoch and epochs[-1][1] <= start:
        return epochs
    kept = [entry for entry in epochs if entry[0] < epoch and entry[1] < start]
    return (*kept, (epoch, start))


def started_at(epochs: tuple[tuple[int, int], ...], offset: int) -> tuple[tuple[int, int], ...]:
    """The entries of a log that begins at `offset`."""
    below = [entry for entry in epochs if entry[1] <= offset]
    above = tuple(entry for entry in epochs if entry[1] > offset)
    return (*([(below[-1][0], offset)] if below else ()), *above)


def is_filler(batch: Batch) -> bool:
    """An empty batch, as one stands where a cut inside a batch left offsets without one."""
    return not int.from_bytes(batch.content[RECORD_COUNT_AT : RECORD_COUNT_AT + 4], "big")


def with_fillers(state: State, content: bytes) -> State:
    """The state with the empty batches that are found in its holes; they hold no record."""
    found = batches_in(content)
    wanted = list(state.batches)
    merged: list[Batch] = []
    for batch in found:
        if wanted and batch == wanted[0]:
            merged.append(wanted.pop(0))
        elif is_filler(batch) and batch.base_offset >= (
            merged[-1].last_offset + 1 if merged else 0
        ):
            before = wanted[0].base_offset if wanted else state.end
            if batch.last_offset < before:
                merged.append(batch)
    if wanted or b"".join([batch.content for batch in merged]) != content:
        return state
    return state._replace(batches=tuple(merged))


class Version(NamedTuple):
    """A log that a stop may leave: a whole-batch prefix of it that reaches `floor`."""

    state: State
    floor: int
    start_min: int
    start_max: int = 0


@dataclasses.dataclass
class PartitionModel:
    """What the partition holds, and what a kill or a power loss may leave of it."""

    state: State = State(0, 0, (), ())
    failed: bool = False
    watermark: int | None = None
    between: list[Version] = dataclasses.field(default_factory=list)
    """What a kill may leave besides `state`: outcomes of operations that failed half-way."""
    unsynced: list[State] = dataclasses.field(default_factory=list)
    """Logs since the last sync of which a power loss may leave a prefix."""
    floor: int = 0
    """Nothing below it goes with the power, in a log that was not cut below it."""
    start_min: int = 0
    """What was deleted below it is deleted for good."""
    start_max: int = 0
    """A deletion up to here was refused, and may be on the disk all the same."""
    cut_open: set[int] = dataclasses.field(default_factory=set)
    """Producers of whom a transaction may have begun below the log start."""
    epoch_max: int = 0
    epoch_tried: int = 0
    """The highest that was asked for, refused or not."""
    was_cut: bool = False
    """As in Kafka, the time index of a log that was cut may not lead to all that is left."""
    there: bool | None = True
    """None: a stop decides whether the partition is there at all."""

    def moved(self, state: State) -> None:
        """An operation has answered, durably or not."""
        self.epoch_max = max([self.epoch_max, *(epoch for epoch, _ in state.epochs[-1:])])
        if not covers(state, self.state):
            self.unsynced.append(self.state)
        self.state = state

    def moved_start(self, start: int) -> None:
        if start > self.state.start:
            self.note_cut_open(start)
        self.moved(self.state.deleted_below(start))

    def note_cut_open(self, start: int) -> None:
        below = [batch for batch in self.state.batches if batch.base_offset < start]
        self.cut_open |= open_in([batch for batch in below if batch.last_offset < start])
        self.cut_open |= {batch.producer_id for batch in below if batch.last_offset >= start}

    @property
    def epoch(self) -> int:
        """The one to append in: of an empty log, the highest that there was."""
        if not self.state.batches:
            return self.epoch_max
        return max(self.state.batches[-1].leader_epoch, *(e for e, _ in self.state.epochs[-1:]), 0)

    def synced(self) -> None:
        self.floor = self.state.dense_end
        self.unsynced.clear()

    def committed(self) -> None:
        """All records are synced; behind them may still be what a cut took away that failed."""
        self.floor = self.state.dense_end
        self.unsynced = [older for older in self.unsynced if covers(older, self.state)]

    def cut(self, state: State) -> None:
        """A cut has answered: it is durable, what is kept is synced as far as it was."""
        self.was_cut = True
        self.floor = min(self.floor, state.dense_end)
        self.start_min = min(self.start_min, state.start)
        self.unsynced = []
        self.between = []
        self.state = state

    def after_kill(self) -> list[Version]:
        own = Version(self.state, self.state.dense_end, self.state.start, self.start_max)
        left = [one._replace(start_max=max(one.start_max, self.start_max)) for one in self.between]
        return [own, *left]

    def after_power(self) -> list[Version]:
        own = [
            Version(state, self.floor, self.start_min, self.start_max)
            for state in (self.state, *self.unsynced)
        ]
        left = [
            one._replace(
                floor=min(self.floor, one.floor),
                start_min=min(self.start_min, one.start_min),
                start_max=max(self.start_max, one.start_max),
            )
            for one in self.between
        ]
        return own + left

    def reopened(self, state: State, *, by_power: bool) -> None:
        if by_power:
            self.floor = state.dense_end
            self.start_min = state.start
            self.unsynced = []
            self.start_max = 0
        else:
            if not covers(state, self.state):
                self.unsynced.append(self.state)
            # What an operation left that failed half-way is on its way to the disk still.
            for left in self.between:
                self.unsynced.append(left.state)
                self.floor = min(self.floor, left.floor)
                self.start_min = min(self.start_min, left.start_min)
                self.start_max = max(self.start_max, left.start_max)
        if state.start > self.state.start:
            self.note_cut_open(state.start)
        # One of a refused append may be on the disk: it was there before the records were to be.
        self.epoch_max = max([self.epoch_max, *(epoch for epoch, _ in state.epochs[-1:])])
        self.between = []
        self.state = state
        self.failed = False
        self.there = True


def covers(state: State, older: State) -> bool:
    """Whether each prefix of the older one is one of this."""
    return (
        older.start == state.start
        and len(older.batches) <= len(state.batches)
        and state.batches[: len(older.batches)] == older.batches
    )


def mismatch(found: State, version: Version, *, holes: bool = False) -> str | None:
    """Why `found` is no whole-batch prefix of the version that reaches its floor.

    holes: of a compacted log, where nothing tells a segment that the power took from one that the
    cleaner did: behind the floor any of it may be there.
    """
    state = version.state
    start_max = max(state.start, version.start_min, version.start_max)
    if not version.start_min <= found.start <= start_max:
        return f"it starts at {found.start}, not in [{version.start_min}, {start_max}]"
    # An empty batch in a hole is there or not: it holds no record.
    wanted = [b for b in state.batches if b.last_offset >= found.start and not is_filler(b)]
    there = [batch for batch in found.batches if not is_filler(batch)]
    count = len(there)
    if holes:
        wanted = [b for b in wanted if b.last_offset < version.floor or b in there]
    if there != wanted[:count]:
        return f"its batches {spans(there)} are no prefix of {spans(wanted)}"
    if count < len(wanted) and wanted[count].last_offset < version.floor:
        return f"batch {wanted[count].base_offset} is missing, below {version.floor} nothing may be"
    if found.end > state.end:
        return f"it ends at {found.end}, behind {state.end}"
    return None


def spans(batches: list[Batch]) -> str:
    return " ".join(f"{batch.base_offset}-{batch.last_offset}" for batch in batches) or "(none)"


class Transaction(NamedTuple):
    """last_offset: of the marker, None without one."""

    producer_id: int
    first_offset: int
    last_offset: int | None
    aborted: bool


def transactions(batches: tuple[Batch, ...], cut_open: set[int]) -> list[Transaction]:
    """Those that begin in the batches; cut_open: producers with one that began before them."""
    opened: dict[int, int | None] = dict.fromkeys(cut_open)
    found = []
    for batch in batches:
        if not batch.transactional and not batch.ends_transaction:
            continue
        producer = batch.producer_id
        if not batch.ends_transaction:
            opened.setdefault(producer, batch.base_offset)
        elif producer in opened:
            first = opened.pop(producer)
            if first is not None:
                found.append(Transaction(producer, first, batch.last_offset, batch.aborts))
    left = [Transaction(p, first, None, False) for p, first in opened.items() if first is not None]
    return found + left


def open_in(batches: list[Batch]) -> set[int]:
    """Producers with a transaction that has begun in the batches and not ended."""
    found: set[int] = set()
    for batch in batches:
        if batch.ends_transaction:
            found.discard(batch.producer_id)
        elif batch.transactional:
            found.add(batch.producer_id)
    return found
