"""A replica's log as the core and the executor see it, over a `PartitionLog`.

The native log is opened with flush.mode `os` whatever the topic asks for: its own `commit` would
make the broker's loop wait for the disk. Syncs run in another thread instead, in two halves (see
`synced_end`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replog.runtime.synced_end import SyncedEnd
from replog.types import EpochEndOffset

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Sequence

    from replog._native.append_result import AppendResult
    from replog._native.log_slice import LogSlice
    from replog._native.transaction_index import AbortedTransaction
    from replog.messages import RawBatches
    from replog.runtime.synced_end import SyncTarget
    from replog.storage.partition_log import PartitionLog
    from replog.types import TimestampedOffset


LEADER_EPOCH_AT, LEADER_EPOCH_END = 12, 16


class ReplicaLog:
    """One replica's log. `sync` may run in any thread, all else in the broker's."""

    __slots__ = (
        "_settle_soon",
        "_settled_epoch",
        "_synced",
        "append_as_follower",
        "append_as_leader",
        "log",
        "set_high_watermark",
    )

    _settled_epoch: bytes
    """The latest leader epoch, as batches have it, if nothing is put off; else none."""
    append_as_leader: Callable[..., AppendResult]
    append_as_follower: Callable[..., AppendResult]

    def __init__(
        self, log: PartitionLog, settle_soon: Callable[[PartitionLog], None] | None = None
    ) -> None:
        """settle_soon: has a log's `settle` called in another thread, ahead of its next append."""
        self.log = log
        self._settle_soon = settle_soon
        self._bind_appends()
        self.set_high_watermark = log.set_high_watermark
        self._synced = SyncedEnd(log.synced_end_offset)

    def __repr__(self) -> str:
        return f"<ReplicaLog {self.log!r} high watermark {self.high_watermark}>"

    @property
    def topic_id(self) -> uuid.UUID:
        return self.log.topic_id

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def synced_end_offset(self) -> int:
        return max(self._synced.end_offset, self.log.synced_end_offset)

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def latest_epoch(self) -> int:
        return self.log.latest_epoch

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        return self.log.end_offset_for_epoch(leader_epoch)

    def epoch_for_offset(self, offset: int) -> int:
        return self.log.epoch_for_offset(offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        return self.log.offset_for_timestamp(timestamp)

    def readable_bytes(self, start_offset: int, end_offset: int, max_bytes: int) -> int:
        if start_offset >= end_offset:
            return 0
        return min(len(self.log.read(start_offset, max_bytes, end_offset=end_offset)), max_bytes)

    def read(self, start_offset: int, max_bytes: int, end_offset: int) -> LogSlice:
        return self.log.read(start_offset, max_bytes, end_offset=end_offset)

    def aborted_transactions(
        self, start_offset: int, end_offset: int
    ) -> Sequence[AbortedTransaction]:
        return self.log.aborted_transactions(start_offset, end_offset)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> bool:
        log = self.log
        changed = log.assign_epoch_later(leader_epoch, start_offset)
        self._bind_appends()
        if self._settle_soon is not None and not log.keeper.is_new and log.keeper.is_behind(log):
            self._settle_soon(log)
        return changed

    def lacks_for(self, batches: RawBatches) -> bool:
        """Whether something must be synced before a leader's batches can be appended."""
        if memoryview(batches)[LEADER_EPOCH_AT:LEADER_EPOCH_END] == self._settled_epoch:
            return False
        return (
            self.log.keeper.is_behind(self.log) or _leader_epoch_of(batches) > self.log.latest_epoch
        )

    def expect(self, batches: RawBatches) -> None:
        """Note the epoch that the batches begin, so that `settle` has it on disk before they come.

        Batches that do not continue the log are left to the append that refuses them.
        """
        log = self.log
        head = memoryview(batches).cast("B")[:LEADER_EPOCH_END]
        end_offset, leader_epoch = log.log_end_offset, _leader_epoch_of(batches)
        continues = int.from_bytes(head[:8], "big", signed=True) == end_offset
        if continues and leader_epoch > log.latest_epoch:
            log.assign_epoch_later(leader_epoch, end_offset)
            self._bind_appends()

    def _bind_appends(self) -> None:
        """What each produce calls goes straight to the log, once what was put off is synced."""
        log = self.log
        if log.keeper.is_behind(log):
            self._settled_epoch = b""
            self.append_as_leader = self._settle_and_append_as_leader
            self.append_as_follower = self._settle_and_append_as_follower
            return
        self._settled_epoch = log.latest_epoch.to_bytes(4, "big", signed=True)
        self.append_as_leader = log.append_as_leader
        self.append_as_follower = log.append_as_follower
        if log.log_start_offset == log.log_end_offset:
            self.append_as_follower = self._settle_and_append_as_follower

    def _settle_and_append_as_leader(
        self, batches: RawBatches, leader_epoch: int, **options: Any
    ) -> AppendResult:
        self.log.keeper.settle(self.log)
        self._bind_appends()
        return self.log.append_as_leader(batches, leader_epoch, **options)

    def _settle_and_append_as_follower(self, batches: RawBatches, **options: Any) -> AppendResult:
        log = self.log
        log.keeper.settle(log)
        base_offset = int.from_bytes(memoryview(batches).cast("B")[:8], "big", signed=True)
        if log.log_start_offset == log.log_end_offset > base_offset:
            # An empty log begins anew with a batch that its start lies inside of.
            self._synced.cut(base_offset)
        try:
            return log.append_as_follower(batches, **options)
        finally:
            self._bind_appends()

    def truncate_to(self, offset: int) -> bool:
        self._synced.cut(offset)
        try:
            return self.log.truncate_to(offset)
        finally:
            self._bind_appends()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        # Else a crash would take a replica that is new, and with it the start that it is given.
        self.log.keeper.settle(self.log)
        self._synced.cut(0)
        try:
            self.log.truncate_fully_and_start_at(offset)
        finally:
            self._bind_appends()

    def truncate_prefix_to(self, offset: int) -> bool:
        moved = self.log.truncate_prefix_to(offset)
        self._bind_appends()
        return moved

    def sync_target(self) -> SyncTarget:
        """What a sync that starts now is to cover."""
        return self._synced.target(self.log.log_end_offset)

    def sync(self, target: SyncTarget) -> None:
        """Return once the records below the target are synced. Raises LogFailedError."""
        self.log.commit(target.end_offset)

    def note_synced(self, target: SyncTarget) -> bool:
        """Count what was synced; False if a cut came in between, and another sync is due."""
        return self._synced.note(target)


def _leader_epoch_of(batches: RawBatches) -> int:
    """Of the first batch; below all others where there is none."""
    raw = memoryview(batches).cast("B")[LEADER_EPOCH_AT:LEADER_EPOCH_END]
    return int.from_bytes(raw, "big", signed=True) if len(raw) == 4 else -1
