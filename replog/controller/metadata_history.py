"""The metadata as versions: who asks for the changes after a version gets them without a gap.

Deltas are kept in memory, the latest `DELTAS_KEPT` of them; who asks for older ones gets one
snapshot delta that stands for all. What a snapshot cannot say, namely what is gone, is kept apart
for ever: this is a model, the metadata log that replaces it is compacted by its own snapshots.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from replog.registrations import BrokerRegistration, MetadataDelta, PartitionRegistration
from replog.types import TopicPartition

if TYPE_CHECKING:
    import uuid

DELTAS_KEPT = 10_000


class MetadataHistory:
    """Versions count from 1; 0 is "nothing yet"."""

    def __init__(self) -> None:
        self.version = 0
        self._deltas: deque[MetadataDelta] = deque(maxlen=DELTAS_KEPT)
        self._removed_versions: list[int] = []
        self._removed: list[tuple[TopicPartition, uuid.UUID]] = []

    def append(
        self,
        brokers: Iterable[BrokerRegistration],
        partitions: Iterable[PartitionRegistration],
        removed: Iterable[tuple[TopicPartition, uuid.UUID]],
    ) -> None:
        """The next version consists of these changes."""
        self.version += 1
        delta = MetadataDelta(
            version=self.version,
            brokers=tuple(brokers),
            partitions=tuple(partitions),
            removed_partitions=tuple(removed),
        )
        self._deltas.append(delta)
        for gone in delta.removed_partitions:
            self._removed.append(gone)
            self._removed_versions.append(self.version)

    def after(self, version: int) -> tuple[MetadataDelta, ...] | None:
        """The changes after `version`; None where a snapshot must stand for them."""
        if version == self.version:
            return ()
        if not 0 < version < self.version or version < self._deltas[0].version - 1:
            return None
        first = version + 1 - self._deltas[0].version
        return tuple(self._deltas[place] for place in range(first, len(self._deltas)))

    def removed_after(self, version: int) -> tuple[tuple[TopicPartition, uuid.UUID], ...]:
        """What was deleted by a later version."""
        return tuple(self._removed[bisect.bisect_right(self._removed_versions, version) :])
