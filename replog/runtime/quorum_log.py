"""The metadata log as the quorum and its node see it: a ReplicaLog with snapshots and a promise.

What a quorum asks of its log beyond a replica's is answered by `storage.MetadataLog`; syncs are in
two halves, as every replica's are, so that the loop does not wait for the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.quorum.election_state import ElectionState
from replog.runtime.metadata_batches import check_snapshot, snapshot_batches
from replog.runtime.replica_log import ReplicaLog
from replog.storage.quorum_state import QuorumState
from replog.types import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replog._native.append_result import AppendResult
    from replog._native.message_cursor import Message
    from replog.messages import RawBatches
    from replog.storage.metadata_log import MetadataLog

NOBODY = -1


class QuorumReplicaLog(ReplicaLog):
    """Satisfies `controller.quorum.QuorumLog`. Methods raise ReplogError, and only that."""

    __slots__ = ("_voters", "metadata")

    def __init__(self, log: MetadataLog, voters: Sequence[int]) -> None:
        """Take over an open log. voters: written beside each promise, as Kafka does."""
        super().__init__(log)
        self.metadata = log
        self._voters = tuple(voters)

    # -- promises

    def read_state(self) -> ElectionState | None:
        """What was promised before the last stop; None: nothing ever."""
        found = self.metadata.read_quorum_state()
        if found is None:
            return None
        return ElectionState(
            leader_epoch=found.leader_epoch,
            leader_id=None if found.leader_id == NOBODY else found.leader_id,
            voted_id=None if found.voted_id == NOBODY else found.voted_id,
        )

    def write_state(self, state: ElectionState) -> None:
        """Durable on return."""
        self.metadata.write_quorum_state(
            QuorumState(
                leader_id=NOBODY if state.leader_id is None else state.leader_id,
                leader_epoch=state.leader_epoch,
                voted_id=NOBODY if state.voted_id is None else state.voted_id,
                # Of voters that are configured and named by no record (KIP-853 is not there).
                version=0,
                current_voters=self._voters,
            )
        )

    # -- what the quorum asks

    @property
    def last_epoch(self) -> int:
        return self.metadata.last_epoch

    @property
    def first_snapshot(self) -> SnapshotId | None:
        return self.metadata.first_snapshot

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.metadata.latest_snapshot

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        return self.metadata.snapshots.sizes.get(snapshot_id)

    # -- what its effects ask

    def append_records(self, batches: RawBatches, leader_epoch: int) -> AppendResult:
        """Append as the leader; control batches too."""
        return self.log.append_as_leader(batches, leader_epoch, coordinator=True)

    def write_chunk(self, snapshot_id: SnapshotId, position: int, chunk: bytes) -> None:
        self.metadata.snapshots.write_chunk(snapshot_id, position, chunk)

    def install_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Raises CorruptFileError for a damaged one, and the log is as it was."""
        snapshots = self.metadata.snapshots
        check_snapshot(snapshots.read_part(snapshot_id), snapshots.path_of(snapshot_id))
        self._cut(0)
        self.metadata.install_snapshot(snapshot_id)

    def discard_snapshot(self) -> None:
        """Forget the one in the making."""
        self.metadata.snapshots.discard()

    # -- snapshots of this node's own state

    def take_snapshot(self, end_offset: int, records: Iterable[Message], now_ms: int) -> SnapshotId:
        """Write what stands for all records below `end_offset`, and drop those; durable on return.

        `end_offset` is committed, and ends a batch.
        """
        snapshot_id = SnapshotId(end_offset, self._epoch_before(end_offset))
        self.metadata.snapshots.write(
            snapshot_id, snapshot_batches(snapshot_id, records, now_ms, now_ms)
        )
        self.metadata.clean_below(snapshot_id)
        return snapshot_id

    def _epoch_before(self, end_offset: int) -> int:
        first = self.first_snapshot
        if first is not None and first.end_offset == end_offset:
            return first.epoch
        return self.epoch_for_offset(end_offset - 1)
