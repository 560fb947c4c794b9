"""A broker's copy of the cluster's metadata: followed by fetch, kept on disk, told as deltas.

The copy is what the broker starts from: it knows its partitions before it has reached a controller,
and fetches only what it has missed. It takes what is committed, and hands on what that changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.metadata_image import MetadataImage
from replog.controller.quorum.incidents import OlderMetadataRefused
from replog.registrations import MetadataDelta
from replog.runtime.metadata_state import SNAPSHOT_PAUSE_MS, MetadataReplay

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.controller.quorum.incidents import QuorumIncident
    from replog.runtime.quorum_log import QuorumReplicaLog
    from replog.types import SnapshotId


class MetadataFollower:
    """The listener of a broker's own observer, or of the controller in the same process."""

    def __init__(
        self,
        log: QuorumReplicaLog,
        wall_ms: Callable[[], int],
        *,
        deliver: Callable[[MetadataDelta, int], None],
        leader_changed: Callable[[int | None, int], None],
        owns_log: bool,
        snapshot_interval_bytes: int,
        refused: Callable[[OlderMetadataRefused, int], None] | None = None,
    ) -> None:
        """deliver(delta, now_ms) gets changes, leader_changed(leader_id, now_ms) who leads.

        refused(incident, now_ms): hears of leaders that lack what is known to be committed.
        owns_log: nobody else writes snapshots of this log.
        """
        self.image = MetadataImage()
        self.leader_id: int | None = None
        self._log = log
        self._wall_ms = wall_ms
        self._deliver = deliver
        self._leader_changed = leader_changed
        self._owns_log = owns_log
        self._refused = refused
        self._told_version = 0
        self._replay = MetadataReplay(log, self.image, snapshot_interval_bytes)
        self._next_piece_ms = 0
        """Of a snapshot."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` is due; None: never, unless something happens first."""
        return self._next_piece_ms if self._owns_log and self._replay.snapshot_due else None

    def start(self, now_ms: int) -> None:
        """Take what the copy holds as committed."""
        self._replay.reload()
        self._hand_on(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due now and then."""
        if not self._owns_log:
            return
        self._replay.checkpoint_if_due(now_ms)
        if self._replay.snapshot_due and self._next_piece_ms <= now_ms:
            self._next_piece_ms = now_ms + SNAPSHOT_PAUSE_MS
            self._replay.write_snapshot_piece(self._wall_ms())

    def leave_snapshot(self) -> None:
        """The log is about to be closed."""
        self._replay.leave_snapshot()

    def leader_changed(
        self, leader_id: int | None, leader_epoch: int, epoch_start_offset: int | None, now_ms: int
    ) -> None:
        self.leader_id = leader_id
        self._leader_changed(leader_id, now_ms)

    def committed(self, high_watermark: int, now_ms: int) -> None:
        self._replay.apply_committed(high_watermark)
        self._hand_on(now_ms)

    def snapshot_installed(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        self._replay.load_snapshot(snapshot_id)
        self._hand_on(now_ms)

    def records_appended(self, proposal_id: int, last_offset: int, now_ms: int) -> None:
        """A follower proposes nothing."""

    def proposal_failed(self, proposal_id: int, now_ms: int) -> None:
        """A follower proposes nothing."""

    def report(self, incident: QuorumIncident, now_ms: int) -> None:
        """What an observer does is no news, since it tries again by itself, but for one thing."""
        if self._refused is not None and isinstance(incident, OlderMetadataRefused):
            self._refused(incident, now_ms)

    def _hand_on(self, now_ms: int) -> None:
        delta = self.image.take_delta()
        if delta is None and self.image.end_offset > self._told_version:
            # Controllers wait to hear that brokers have come this far.
            delta = MetadataDelta(version=self.image.end_offset)
        if delta is not None:
            self._told_version = delta.version
            self._deliver(delta, now_ms)
