"""A node's metadata log in memory: a `SimLog` with a promise and with snapshots.

Batches hold messages as they are, and snapshots too; one message counts as so many bytes. The
promise (`quorum-state`) and whole snapshots are durable when the call returns, a snapshot on its
way is lost in a crash. Faults are those of `SimLog`; a full disk has no room for a promise either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, Self, cast

from replog.controller.quorum.election_state import ElectionState
from replog.errors import CorruptFileError, OutOfOrderOffsetError
from replog.runtime.metadata_batches import MetadataBatch
from replog.testing.simulation.batches import HEADER_BYTES, BatchSet, StoredBatch
from replog.testing.simulation.sim_log import Appended, LogObserver, SimLog
from replog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, SnapshotId, TopicPartition

METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)
MESSAGE_BYTES = 50
_EDGE = None
"""Stands for the header and the footer of a snapshot."""


class Messages:
    """What is appended together: messages of the metadata, or the begin of a leader's epoch."""

    __slots__ = ("leader_id", "messages", "size_bytes")

    producer_id = NO_PRODUCER_ID

    def __init__(self, messages: tuple[Any, ...], leader_id: int | None = None) -> None:
        """leader_id: who begins its epoch with it; such a batch has no messages."""
        self.messages = messages
        self.leader_id = leader_id
        self.size_bytes = HEADER_BYTES + MESSAGE_BYTES * self.count

    def __len__(self) -> int:
        return self.size_bytes

    @property
    def count(self) -> int:
        """How many offsets it takes."""
        return 1 if self.leader_id is not None else len(self.messages)

    @property
    def values(self) -> tuple[str, ...]:
        """For a reader."""
        if self.leader_id is not None:
            return (f"leader {self.leader_id}",)
        return tuple(type(message).__name__ for message in self.messages)


class SnapshotPart(tuple[Any, ...]):
    """Messages of a snapshot, each a byte as far as anybody counts them."""

    __slots__ = ()


class SimSnapshots:
    """The snapshots of one node. `sizes` tells which there are."""

    def __init__(self) -> None:
        self.sizes: dict[SnapshotId, int] = {}
        self._contents: dict[SnapshotId, SnapshotPart] = {}
        self._making: list[Any] = []
        self.latest: SnapshotId | None = None

    def ending_at(self, offset: int) -> SnapshotId | None:
        return next((held for held in self.sizes if held.end_offset == offset), None)

    def read(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> SnapshotPart:
        return SnapshotPart(self._contents[snapshot_id][position : position + max_bytes])

    def write(self, snapshot_id: SnapshotId, content: Iterable[Any]) -> None:
        self._contents[snapshot_id] = SnapshotPart(content)
        self.sizes[snapshot_id] = len(self._contents[snapshot_id])
        self.latest = max(self.sizes)

    def write_chunk(self, snapshot_id: SnapshotId, position: int, chunk: SnapshotPart) -> None:
        del self._making[position:]
        if len(self._making) == position:
            self._making.extend(chunk)

    def publish(self, snapshot_id: SnapshotId) -> None:
        """Raises CorruptFileError unless all of it is there."""
        whole = len(self._making) > 1 and self._making[0] is self._making[-1] is _EDGE
        if not whole:
            self._making.clear()
            raise CorruptFileError(
                f"expected a whole snapshot {snapshot_id}, found {len(self._making)} messages"
            )
        self.write(snapshot_id, self._making)
        self._making.clear()

    def discard(self) -> None:
        self._making.clear()

    def remove_older(self, snapshot_id: SnapshotId) -> None:
        for held in [held for held in self.sizes if held < snapshot_id]:
            del self.sizes[held], self._contents[held]
        self.latest = max(self.sizes, default=None)

    def crashed(self) -> SimSnapshots:
        """As a new process finds them."""
        self._making.clear()
        return self


class MetadataLogObserver(LogObserver, Protocol):
    """Who is told what a metadata log did, and what its node has promised."""

    def promised(self, log: SimMetadataLog, before: ElectionState) -> None:
        """The promise has been replaced."""


class SimMetadataLog(SimLog):
    """Does what `runtime.quorum_log.QuorumReplicaLog` does."""

    def __init__(
        self,
        node_id: int,
        topic_partition: TopicPartition,
        observer: LogObserver,
    ) -> None:
        super().__init__(node_id, topic_partition, observer)
        self.promise: ElectionState | None = None
        self.snapshots = SimSnapshots()
        self.checkpointed_high_watermark = 0

    # -- messages

    def batch_of(self, records: Sequence[Any], now_ms: int) -> Messages:
        return Messages(tuple(records))

    def leader_change_of(
        self, leader_id: int, voters: Sequence[int], granting_voters: Sequence[int], now_ms: int
    ) -> Messages:
        return Messages((), leader_id)

    def messages_of(
        self, batches: BatchSet | SnapshotPart, start_offset: int = 0
    ) -> Iterator[MetadataBatch]:
        if isinstance(batches, SnapshotPart):
            messages = [message for message in batches if message is not _EDGE]
            yield MetadataBatch(0, len(messages), NO_LEADER_EPOCH, messages)
            return
        for batch in batches:
            if batch.last_offset >= start_offset:
                content = cast("Messages", batch.content)
                yield MetadataBatch(
                    batch.base_offset,
                    batch.last_offset,
                    batch.leader_epoch,
                    list(content.messages),
                )

    # -- what a replica's log does otherwise

    def append_as_leader(
        self, batches: Any, leader_epoch: int, *, coordinator: bool = False
    ) -> Appended:
        self._check_writable()
        content: Messages = batches
        if leader_epoch < (self.batches[-1].leader_epoch if self.batches else -1):
            raise OutOfOrderOffsetError(f"expected no older epoch, found {leader_epoch}")
        base = self.log_end_offset
        batch = StoredBatch(
            base,
            base + content.count - 1,
            leader_epoch,
            content.size_bytes,
            cast("Any", content),
        )
        self._add(batch)
        self.observer.leader_appended(self, batch)
        return Appended(batch.base_offset, batch.last_offset)

    @property
    def last_epoch(self) -> int:
        if self.batches:
            return self.batches[-1].leader_epoch
        first = self.first_snapshot
        return NO_LEADER_EPOCH if first is None else first.epoch

    def checkpoint_high_watermark(self) -> None:
        self.checkpointed_high_watermark = self.high_watermark

    def crashed(self, checkpointed_high_watermark: int, keep_end_offset: int) -> Self:
        found = super().crashed(checkpointed_high_watermark, keep_end_offset)
        found.promise = self.promise
        found.checkpointed_high_watermark = self.checkpointed_high_watermark
        found.snapshots = self.snapshots.crashed()
        found.full, found.failed = self.full, self.failed
        latest = found.latest_snapshot
        if latest is not None and not found.holds(latest):
            found.truncate_fully_and_start_at(latest.end_offset)
        if latest is not None and latest.end_offset > found.high_watermark:
            found.high_watermark = latest.end_offset
        return found

    def holds(self, snapshot_id: SnapshotId) -> bool:
        """Whether the log goes on where the snapshot ends, by offset and epoch."""
        end_offset = snapshot_id.end_offset
        if end_offset == self.log_start_offset:
            return True
        last = self.batch_at(end_offset - 1)
        return last is not None and last.leader_epoch == snapshot_id.epoch

    # -- promises

    def read_state(self) -> ElectionState | None:
        return self.promise

    def write_state(self, state: ElectionState, voters: Sequence[int]) -> None:
        self._check_writable()
        before = self.promise or ElectionState()
        self.promise = state
        cast("MetadataLogObserver", self.observer).promised(self, before)

    # -- snapshots

    @property
    def first_snapshot(self) -> SnapshotId | None:
        start = self.log_start_offset
        return self.snapshots.ending_at(start) if start else None

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots.latest

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        return self.snapshots.sizes.get(snapshot_id)

    def install_snapshot(self, snapshot_id: SnapshotId) -> None:
        self._check_writable()
        self.snapshots.publish(snapshot_id)
        self.truncate_fully_and_start_at(snapshot_id.end_offset)
        self.snapshots.remove_older(snapshot_id)

    def write_snapshot(
        self, end_offset: int, records: Iterable[Any], now_ms: int
    ) -> Iterator[None]:
        """In two pieces, so that something may happen in between."""
        kept = list(records)
        yield
        self._check_writable()
        last = self.batch_at(end_offset - 1)
        epoch = self.last_epoch if last is None else last.leader_epoch
        snapshot_id = SnapshotId(end_offset, epoch)
        self.snapshots.write(snapshot_id, (_EDGE, *kept, _EDGE))
        self.truncate_prefix_to(end_offset)
        self.snapshots.remove_older(snapshot_id)
