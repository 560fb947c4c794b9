"""The metadata log as the quorum drives it: a replica's log with snapshots and a promise.

What a quorum asks of its log beyond a replica's is answered by `storage.MetadataLog`; syncs are in
two halves, as every replica's are, so that the loop does not wait for the disk. How messages become
batches, and batches messages, is the log's business: nobody who drives it looks into them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replog.controller.quorum.election_state import ElectionState
from replog.runtime.metadata_batches import (
    MetadataBatch,
    check_snapshot,
    leader_change_batch,
    metadata_batch,
    read_batches,
    snapshot_batches,
)
from replog.runtime.synced_end import SyncedEnd
from replog.storage.metadata_log import MetadataLog
from replog.storage.quorum_state import QuorumState
from replog.types import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from replog._native.message_cursor import Message
    from replog.runtime.synced_end import SyncTarget

NOBODY = -1


class QuorumReplicaLog(MetadataLog):
    """Satisfies `controller.quorum.QuorumLog`. Open it by `open_in`; raises ReplogError alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._synced = SyncedEnd()  # first: opening may cut
        super().__init__(*arguments, **options)

    # -- syncs, as `ReplicaLog` has them

    @property
    def synced_end_offset(self) -> int:
        """Exclusive end of the records that are synced, as far as the loop has heard."""
        return max(self._synced.end_offset, super().synced_end_offset)

    def sync_target(self) -> SyncTarget:
        """What a sync that starts now is to cover."""
        return self._synced.target(self.log_end_offset)

    def sync(self, target: SyncTarget) -> None:
        """Return once the records below the target are synced. Raises LogFailedError."""
        self.commit(target.end_offset)

    def note_synced(self, target: SyncTarget) -> bool:
        """Count what was synced; False if a cut came in between, and another sync is due."""
        return self._synced.note(target)

    def truncate_to(self, offset: int) -> bool:
        self._synced.cut(offset)
        return super().truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, **options: Any) -> None:
        self._synced.cut(0)
        super().truncate_fully_and_start_at(offset, **options)

    # -- promises

    def read_state(self) -> ElectionState | None:
        """What was promised before the last stop; None: nothing ever."""
        found = self.read_quorum_state()
        if found is None:
            return None
        return ElectionState(
            leader_epoch=found.leader_epoch,
            leader_id=None if found.leader_id == NOBODY else found.leader_id,
            voted_id=None if found.voted_id == NOBODY else found.voted_id,
        )

    def write_state(self, state: ElectionState, voters: Sequence[int]) -> None:
        """Durable on return. voters: written beside each promise, as Kafka does."""
        self.write_quorum_state(
            QuorumState(
                leader_id=NOBODY if state.leader_id is None else state.leader_id,
                leader_epoch=state.leader_epoch,
                voted_id=NOBODY if state.voted_id is None else state.voted_id,
                # Of voters that are configured and named by no record (KIP-853 is not there).
                version=0,
                current_voters=tuple(voters),
            )
        )

    # -- messages

    def batch_of(self, records: Sequence[Message], now_ms: int) -> bytes:
        """These records as one batch, to be appended; its length is its size in bytes."""
        return metadata_batch(records, now_ms)

    def leader_change_of(
        self, leader_id: int, voters: Sequence[int], granting_voters: Sequence[int], now_ms: int
    ) -> bytes:
        """What a leader's epoch begins with, as a batch."""
        return leader_change_batch(leader_id, voters, granting_voters, now_ms)

    def messages_of(self, batches: Buffer, start_offset: int = 0) -> Iterator[MetadataBatch]:
        """What was read here, or in a snapshot; raises what `read_batches` raises."""
        return read_batches(batches, start_offset)

    # -- snapshots

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """Size in bytes; None if there is no such snapshot (any more)."""
        return self.snapshots.sizes.get(snapshot_id)

    def install_snapshot(self, snapshot_id: SnapshotId) -> None:
        """As MetadataLog; raises CorruptFileError for a damaged one, and the log is as it was."""
        path = self.snapshots.path_of(snapshot_id)
        check_snapshot(self.snapshots.read_part(snapshot_id), path)
        super().install_snapshot(snapshot_id)

    def write_snapshot(
        self, end_offset: int, records: Iterable[Message], now_ms: int
    ) -> Iterator[None]:
        """Write what stands for all records below `end_offset`, and drop those: a piece a step;
        durable with the last one. `end_offset` is committed, and ends a batch.
        """
        snapshot_id = SnapshotId(end_offset, self._epoch_before(end_offset))
        position = 0
        if snapshot_id in self.snapshots.sizes:
            self.clean_below(snapshot_id)
            return
        for chunk in snapshot_batches(snapshot_id, records, now_ms, now_ms):
            self.snapshots.write_chunk(snapshot_id, position, chunk)
            position += len(chunk)
            self.snapshots.sync_part(snapshot_id)
            yield
        self.snapshots.publish(snapshot_id)
        yield
        self.clean_below(snapshot_id)

    def _epoch_before(self, end_offset: int) -> int:
        first = self.first_snapshot
        if first is not None and first.end_offset == end_offset:
            return first.epoch
        return self.epoch_for_offset(end_offset - 1)
