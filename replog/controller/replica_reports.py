"""What brokers have said of their logs: soft, never part of the metadata, told by heartbeats."""

from __future__ import annotations

from collections.abc import Mapping

from replog.controller.leader_selection import LogEnd
from replog.controller.partition_image import PartitionImage


class ReplicaReports:
    """Damage, and the ends of logs that nobody makes longer."""

    def __init__(self) -> None:
        self._damaged: dict[PartitionImage, frozenset[int]] = {}
        self._ends: dict[PartitionImage, tuple[int, dict[int, LogEnd]]] = {}

    def damaged(self, partition: PartitionImage) -> frozenset[int]:
        """The replicas whose logs are known corrupt."""
        return self._damaged.get(partition, frozenset())

    def found_damaged(self, partition: PartitionImage, broker_id: int) -> None:
        """A log is corrupt below its recovery point."""
        self._damaged[partition] = self.damaged(partition) | {broker_id}

    def mended(self, partition: PartitionImage, members: tuple[int, ...]) -> None:
        """Logs are whole, or have been fetched anew."""
        if partition in self._damaged:
            left = self._damaged[partition].difference(members)
            if left:
                self._damaged[partition] = left
            else:
                del self._damaged[partition]

    def ends(self, partition: PartitionImage) -> Mapping[int, LogEnd]:
        """How long logs are, as told since the partition lost its leader."""
        epoch, ends = self._ends.get(partition, (None, {}))
        if partition.leader_id is not None or epoch != partition.leader_epoch:
            return {}
        return ends

    def told(
        self, partition: PartitionImage, broker_id: int, leader_epoch: int, end: LogEnd
    ) -> bool:
        """Hear of a log end; whether it counts and is news.

        It counts where the broker obeys the registration without a leader: the log stands still.
        """
        if partition.leader_id is not None or leader_epoch != partition.leader_epoch:
            return False
        epoch, ends = self._ends.get(partition, (None, {}))
        if epoch != leader_epoch:
            ends = {}
            self._ends[partition] = (leader_epoch, ends)
        if ends.get(broker_id) == end:
            return False
        ends[broker_id] = end
        return True

    def left(self, broker_id: int, partition: PartitionImage) -> None:
        """The broker runs anew: what its last run said of its log's end may be true no more."""
        if partition in self._ends:
            self._ends[partition][1].pop(broker_id, None)

    def remove(self, partition: PartitionImage) -> None:
        """The partition is gone."""
        self._ends.pop(partition, None)
        self._damaged.pop(partition, None)

    def clear(self) -> None:
        """Another controller is told anew."""
        self._damaged.clear()
        self._ends.clear()
