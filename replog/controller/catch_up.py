"""How far replicas that catch up still have to go: bytes, and seconds at the pace of late."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

from replog.controller.partition_image import PartitionImage
from replog.messages import LogSize

PACE_OVER_MS_MIN = 1000
"""A pace is measured over at least this long: between two heartbeats it may be all or nothing."""


@dataclasses.dataclass(slots=True)
class _Replica:
    size_bytes: int
    since_ms: int
    since_bytes: int
    bytes_per_s: float | None = None

    def told(self, size_bytes: int, now_ms: int) -> None:
        self.size_bytes = size_bytes
        passed_ms = now_ms - self.since_ms
        if size_bytes < self.since_bytes:
            self.since_ms, self.since_bytes = now_ms, size_bytes  # it was cut
        elif passed_ms >= PACE_OVER_MS_MIN:
            self.bytes_per_s = (size_bytes - self.since_bytes) * 1000 / passed_ms
            self.since_ms, self.since_bytes = now_ms, size_bytes


class CatchUp:
    """Sizes of logs as brokers tell them of partitions with replicas out of sync: soft."""

    def __init__(self) -> None:
        self._replicas: dict[PartitionImage, dict[int, _Replica]] = {}

    def told(self, partition: PartitionImage, broker_id: int, log: LogSize, now_ms: int) -> None:
        """A broker says how large its log is."""
        if broker_id not in partition.replicas:
            return
        replicas = self._replicas.setdefault(partition, {})
        known = replicas.get(broker_id)
        if known is None:
            replicas[broker_id] = _Replica(log.size_bytes, now_ms, log.size_bytes)
        else:
            known.told(log.size_bytes, now_ms)

    def left(self, partition: PartitionImage) -> tuple[int | None, float | None]:
        """Bytes that the new replicas out of sync lack together, and seconds until the slowest of
        them has all; None where that is not known.
        """
        behind = [replica for replica in partition.joining if replica not in partition.isr]
        if not behind:
            return 0, 0.0
        known = self._replicas.get(partition, {})
        leader = known.get(partition.leader_id) if partition.leader_id is not None else None
        if leader is None:
            return None, None
        bytes_left = 0
        seconds_left: float | None = 0.0
        for replica in behind:
            follower = known.get(replica)
            lacking = max(leader.size_bytes - (follower.size_bytes if follower else 0), 0)
            bytes_left += lacking
            pace = follower.bytes_per_s if follower else None
            if not pace:
                seconds_left = None
            elif seconds_left is not None:
                seconds_left = max(seconds_left, lacking / pace)
        return bytes_left, seconds_left

    def keep_only(self, reassigning: Container[PartitionImage]) -> None:
        """The others are not reassigned any more, or gone."""
        for partition in [one for one in self._replicas if one not in reassigning]:
            del self._replicas[partition]

    def clear(self) -> None:
        """Another controller is told anew."""
        self._replicas.clear()
