"""What happened to a broker's partitions, for whoever asks afterwards. Bounded: old ones go."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replog.controller.incidents import Incident as ControllerIncident
    from replog.controller.quorum.incidents import QuorumIncident
    from replog.replication.incidents import Incident as ReplicaIncident
    from replog.types import TopicPartition

ENTRIES_MAX = 10_000


class JournalEntry(NamedTuple):
    """An incident, where it was seen and when.

    at_ms: of a clock that never goes back, for order and durations. wall_ms: since 1970-01-01 UTC,
    to lay beside other logs; None where the journal was given no calendar.
    """

    broker_id: int | None
    at_ms: int
    incident: ReplicaIncident | ControllerIncident | QuorumIncident
    wall_ms: int | None = None


class Journal:
    """The latest incidents of one broker, or of the controller."""

    def __init__(
        self,
        broker_id: int | None = None,
        entries_max: int = ENTRIES_MAX,
        *,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self._wall_ms = wall_ms
        self.listener: Callable[[JournalEntry], None] | None = None
        """Called with each entry as it is made."""
        self._entries: collections.deque[JournalEntry] = collections.deque(maxlen=entries_max)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(tuple(self._entries))

    def add(
        self, incident: ReplicaIncident | ControllerIncident | QuorumIncident, now_ms: int
    ) -> None:
        wall_ms = None if self._wall_ms is None else self._wall_ms()
        entry = JournalEntry(self.broker_id, now_ms, incident, wall_ms)
        self._entries.append(entry)
        if self.listener is not None:
            self.listener(entry)

    def incidents(self, topic_partition: TopicPartition | None = None) -> list[JournalEntry]:
        """Entries of one partition, or of all, oldest first."""
        return [
            entry
            for entry in self._entries
            if topic_partition is None
            or getattr(entry.incident, "topic_partition", None) == topic_partition
        ]
