"""A replica's log in memory, with the crash behaviour of the real one.

What a crash leaves (ARCHITECTURE.md section 6 says why the real log leaves the same):

- Batches are written to the kernel at once: a crash of the process loses none of them. A loss of
  power keeps everything below `durable_end_offset` and a drawn prefix of what lies above it; a torn
  batch is one that recovery cuts.
- Truncations, the epoch file and the log start are durable when the call returns.
- The high watermark is as old as the last checkpoint, the recovery point as old as the last time it
  was written: `synced_end_offset` starts there.
- Entries of epochs without records are gone after a load.

`observer` is told of every change, which is how the checkers build their own view.
"""

from __future__ import annotations

import bisect
from typing import NamedTuple, Protocol, Self

from replog._native.leader_epoch_cache import LeaderEpochCache
from replog.errors import (
    LogFailedError,
    NoSpaceError,
    OffsetOutOfRangeError,
    OutOfOrderOffsetError,
    UsageError,
)
from replog.testing.simulation.batches import BatchSet, ClientBatch, StoredBatch, stored
from replog.testing.simulation.producers import Producers
from replog.types import NO_PRODUCER_ID, EpochEndOffset, TimestampedOffset, TopicPartition


class Appended(NamedTuple):
    """Where an append has gone: [base_offset, last_offset]."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


class LogObserver(Protocol):
    """Who is told what a log did. Called after the change."""

    def leader_appended(self, log: SimLog, batch: StoredBatch) -> None: ...

    def batch_repeated(self, log: SimLog, batch: StoredBatch) -> None:
        """A producer sent `batch` again; nothing was appended."""

    def created(self, log: SimLog) -> None:
        """It is empty, whatever its broker had before."""

    def set_aside(self, log: SimLog) -> None:
        """A damaged log was replaced by an empty one."""

    def follower_appended(self, log: SimLog, batches: tuple[StoredBatch, ...]) -> None: ...

    def epoch_assigned(self, log: SimLog, leader_epoch: int, start_offset: int) -> None: ...

    def truncated(self, log: SimLog, old_end_offset: int, high_watermark: int) -> None:
        """`high_watermark` is the one from before the cut."""

    def high_watermark_set(self, log: SimLog, old: int) -> None: ...

    def impossible_order(self, log: SimLog, order: str, offset: int) -> None:
        """The log was asked for something that no log can do."""

    def log_start_moved(self, log: SimLog, old: int) -> None: ...


class SimLog:
    """Satisfies `runtime.ports.ReplicatedLog`. See the module for what survives what.

    Invariant: log_start_offset <= high_watermark <= log_end_offset,
    synced_end_offset <= durable_end_offset <= log_end_offset.
    """

    def __init__(
        self, broker_id: int, topic_partition: TopicPartition, observer: LogObserver
    ) -> None:
        self.broker_id = broker_id
        self.topic_partition = topic_partition
        self.observer = observer
        self.batches: list[StoredBatch] = []
        self.base_offsets: list[int] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.synced_end_offset = 0
        """Known to have been synced; what the core is told."""
        self.durable_end_offset = 0
        """What a loss of power keeps: the system also writes back by itself."""
        self.recovery_point = 0
        """Where `synced_end_offset` starts after an unclean stop."""
        self.epochs = LeaderEpochCache()
        self.producers = Producers()
        self.full = False
        """No space is left: appends raise NoSpaceError."""
        self.failed = False
        """The disk has failed: every call that touches it raises LogFailedError."""
        self.cut_count = 0
        """Truncations so far."""
        self._producers_at_start = Producers()

    def __repr__(self) -> str:
        return (
            f"<SimLog {self.topic_partition} of {self.broker_id} "
            f"[{self.log_start_offset}, {self.log_end_offset}) hw {self.high_watermark}>"
        )

    @property
    def last_stable_offset(self) -> int:
        """There are no transactions."""
        return self.high_watermark

    @property
    def size_bytes(self) -> int:
        return sum([batch.size_bytes for batch in self.batches])

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        return EpochEndOffset(*self.epochs.end_offset_for(leader_epoch, self.log_end_offset))

    def epoch_for_offset(self, offset: int) -> int:
        return self.epochs.epoch_for_offset(offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """Batches carry no timestamps here."""
        return None

    def batch_at(self, offset: int) -> StoredBatch | None:
        """The batch that holds `offset`."""
        place = bisect.bisect_right(self.base_offsets, offset) - 1
        if place < 0 or self.batches[place].last_offset < offset:
            return None
        return self.batches[place]

    def readable_bytes(self, start_offset: int, end_offset: int, max_bytes: int) -> int:
        if start_offset >= end_offset:
            return 0
        size = 0
        batches = self.batches
        place = max(bisect.bisect_right(self.base_offsets, start_offset) - 1, 0)
        while size < max_bytes and place < len(batches):
            batch = batches[place]
            if batch.base_offset >= end_offset:
                break
            size += batch.size_bytes
            place += 1
        return min(size, max_bytes)

    def read(self, start_offset: int, max_bytes: int, end_offset: int) -> BatchSet:
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"expected an offset of [{self.log_start_offset}, {self.log_end_offset}], found "
                f"{start_offset}",
                offset=start_offset,
            )
        taken: list[StoredBatch] = []
        size = 0
        batches = self.batches
        place = max(bisect.bisect_right(self.base_offsets, start_offset) - 1, 0)
        while place < len(batches):
            batch = batches[place]
            if batch.last_offset >= end_offset:
                break
            size += batch.size_bytes
            if taken and size > max_bytes:
                break
            if batch.last_offset >= start_offset:
                taken.append(batch)
            place += 1
        return BatchSet(tuple(taken))

    def aborted_transactions(self, start_offset: int, end_offset: int) -> tuple[()]:
        return ()

    def append_as_leader(self, batches: ClientBatch, leader_epoch: int) -> Appended:
        self._check_writable()
        content = batches
        if not content.values:
            raise UsageError("expected at least one record to append, found none")
        if content.producer_id != NO_PRODUCER_ID:
            first_time = self.producers.duplicate_of(content)
            if first_time is not None:
                self.observer.batch_repeated(self, first_time)
                return Appended(first_time.base_offset, first_time.last_offset, duplicate=True)
            self.producers.check(content)
        batch = stored(self.log_end_offset, leader_epoch, content)
        self._add(batch)
        self.observer.leader_appended(self, batch)
        return Appended(batch.base_offset, batch.last_offset)

    def append_as_follower(self, batches: BatchSet) -> None:
        self._check_writable()
        added = []
        latest_epoch = self.batches[-1].leader_epoch if self.batches else -1
        first = batches.batches[0] if batches.batches else None
        if not self.batches and first is not None and first.base_offset < self.log_end_offset:
            # The leader's log starts inside this batch: so does ours, once it says so again.
            self.log_start_offset = self.log_end_offset = first.base_offset
            self.high_watermark = min(self.high_watermark, first.base_offset)
            self._synced_to_start()
        for batch in batches:
            if batch.last_offset < self.log_end_offset:
                continue  # a read may begin inside a batch that we have already
            if batch.base_offset != self.log_end_offset or batch.leader_epoch < latest_epoch:
                raise OutOfOrderOffsetError(
                    f"expected a batch at offset {self.log_end_offset} of epoch >= {latest_epoch}, "
                    f"found one at {batch.base_offset} of epoch {batch.leader_epoch}",
                    offset=batch.base_offset,
                )
            latest_epoch = batch.leader_epoch
            self._add(batch)
            added.append(batch)
        self.observer.follower_appended(self, tuple(added))

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        self._check_not_failed()
        self.epochs.assign(leader_epoch, start_offset)
        self.observer.epoch_assigned(self, leader_epoch, start_offset)

    def set_high_watermark(self, offset: int) -> None:
        old = self.high_watermark
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self.observer.impossible_order(self, "set the high watermark to", offset)
            raise UsageError(
                f"expected a high watermark of [{self.log_start_offset}, {self.log_end_offset}], "
                f"found {offset}",
                offset=offset,
            )
        self.high_watermark = offset
        self.observer.high_watermark_set(self, old)

    def truncate_to(self, offset: int) -> None:
        self._check_not_failed()
        old_end, old_watermark = self.log_end_offset, self.high_watermark
        self.cut_count += 1
        if offset < self.log_end_offset:
            place = bisect.bisect_left(self.base_offsets, offset)
            if place and self.batches[place - 1].last_offset >= offset:
                place -= 1  # the batch that holds the cut goes as a whole
            self._cut_behind(place)
        self.epochs.truncate_from_end(min(offset, self.log_end_offset))
        self.observer.truncated(self, old_end, old_watermark)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._check_not_failed()
        old_end, old_watermark = self.log_end_offset, self.high_watermark
        self.cut_count += 1
        self.batches.clear()
        self.base_offsets.clear()
        self.epochs.clear()
        self.producers = Producers()
        self._producers_at_start = Producers()
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset
        self._synced_to_start()
        self.observer.truncated(self, old_end, old_watermark)

    def truncate_prefix_to(self, offset: int) -> None:
        self._check_not_failed()
        old = self.log_start_offset
        if offset > self.high_watermark:
            self.observer.impossible_order(self, "advance the log start to", offset)
            raise OffsetOutOfRangeError(
                f"expected a log start up to the high watermark {self.high_watermark}, found "
                f"{offset}",
                offset=offset,
            )
        if offset <= old:
            return
        self.log_start_offset = offset
        gone = bisect.bisect_left([batch.last_offset for batch in self.batches], offset)
        for batch in self.batches[:gone]:
            self._producers_at_start.replay(batch)
        del self.batches[:gone]
        del self.base_offsets[:gone]
        self.epochs.truncate_from_start(offset)
        self.observer.log_start_moved(self, old)

    def synced(self, end_offset: int) -> None:
        """A sync that began when the log ended at `end_offset` is done."""
        end_offset = min(end_offset, self.log_end_offset)
        self.synced_end_offset = max(self.synced_end_offset, end_offset)
        self.written_back(end_offset)

    def written_back(self, end_offset: int) -> None:
        """The system wrote what lies below `end_offset`, and told nobody."""
        end_offset = min(end_offset, self.log_end_offset)
        self.durable_end_offset = max(self.durable_end_offset, end_offset)

    def _check_not_failed(self) -> None:
        if self.failed:
            raise LogFailedError(
                f"expected a working disk under {self.topic_partition}, found a failed one",
                topic_partition=str(self.topic_partition),
            )

    def _check_writable(self) -> None:
        self._check_not_failed()
        if self.full:
            raise NoSpaceError(
                f"expected space for {self.topic_partition}, found a full disk",
                topic_partition=str(self.topic_partition),
            )

    def _add(self, batch: StoredBatch) -> None:
        self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self.batches.append(batch)
        self.base_offsets.append(batch.base_offset)
        self.log_end_offset = batch.last_offset + 1
        self.producers.replay(batch)

    def _cut_behind(self, place: int) -> None:
        """Drop the batches from `place` on."""
        end = self.batches[place].base_offset
        del self.batches[place:]
        del self.base_offsets[place:]
        self.log_end_offset = end
        self.high_watermark = min(self.high_watermark, end)
        self.synced_end_offset = min(self.synced_end_offset, end)
        self.durable_end_offset = min(self.durable_end_offset, end)
        self.recovery_point = min(self.recovery_point, end)
        self.producers = self._producers_at_start.copy()
        for batch in self.batches:
            self.producers.replay(batch)

    def _synced_to_start(self) -> None:
        """An empty log that begins anew is durable; its recovery point was lowered before."""
        self.synced_end_offset = self.durable_end_offset = self.log_start_offset
        self.recovery_point = 0

    def crashed(self, checkpointed_high_watermark: int, keep_end_offset: int) -> Self:
        """The log as a new process finds it: what lies at or above `keep_end_offset` is gone."""
        found = type(self)(self.broker_id, self.topic_partition, self.observer)
        found._producers_at_start = self._producers_at_start.copy()  # noqa: SLF001 - one of us
        found.producers = self._producers_at_start.copy()
        found.log_start_offset = found.log_end_offset = self.log_start_offset
        for entry in self.epochs.entries():
            found.epochs.assign(*entry)
        for batch in self.batches:
            if batch.last_offset >= keep_end_offset:
                break
            found.batches.append(batch)
            found.base_offsets.append(batch.base_offset)
            found.log_end_offset = batch.last_offset + 1
            found.producers.replay(batch)
        end = found.log_end_offset
        found.epochs.truncate_from_end(end)
        found.durable_end_offset = min(self.durable_end_offset, end)
        if found.batches:  # else the log begins anew at its start
            found.recovery_point = found.synced_end_offset = min(self.recovery_point, end)
        found.high_watermark = min(max(checkpointed_high_watermark, self.log_start_offset), end)
        return found
