"""What the parts of one broker's core share: the cluster as known, timers, and the way out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from replog.replication.deadlines import Deadlines
from replog.replication.effects import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.config import ReplicationOptions
    from replog.replication.cluster_view import ClusterView
    from replog.replication.effects import Effect
    from replog.replication.incidents import Incident
    from replog.replication.throttle import ReplicationThrottle
    from replog.types import TopicPartition


class HostContext:
    """One per broker; `emit` appends an effect to those that the present step returns."""

    __slots__ = (
        "cluster",
        "deadlines",
        "emit",
        "moved",
        "options",
        "request_ids",
        "throttle",
        "unheard",
    )

    def __init__(
        self,
        cluster: ClusterView,
        options: ReplicationOptions,
        emit: Callable[[Effect], None],
        throttle: ReplicationThrottle,
    ) -> None:
        self.cluster = cluster
        self.options = options
        self.emit = emit
        self.throttle = throttle
        self.deadlines = Deadlines()
        self.request_ids = itertools.count(1)
        """Ids of our own requests."""
        self.unheard: dict[int, dict[TopicPartition, None]] = {}
        """By follower: what we lead and it is in sync with, but has yet to fetch in this epoch."""
        self.moved: dict[TopicPartition, bool] = {}
        """Partitions of which something moved in this step that others may be waiting for.

        True: its log's end or its role did, and not merely a watermark or who is in sync.
        """

    def hear(self, replica_id: int, topic_partition: TopicPartition) -> None:
        """It has fetched, or need not any more."""
        partitions = self.unheard.get(replica_id)
        if partitions is not None:
            partitions.pop(topic_partition, None)
            if not partitions:
                del self.unheard[replica_id]

    def report(self, incident: Incident) -> None:
        """Tell operators."""
        self.emit(Report(incident))
