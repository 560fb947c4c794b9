"""What the parts of one broker's core share: the cluster as known, timers, and the way out."""

from __future__ import annotations

import dataclasses
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
    from replog.types import TopicPartition


@dataclasses.dataclass(slots=True)
class HostContext:
    """One per broker; `emit` appends an effect to those that the present step returns."""

    cluster: ClusterView
    options: ReplicationOptions
    emit: Callable[[Effect], None]
    deadlines: Deadlines = dataclasses.field(default_factory=Deadlines)
    request_ids: itertools.count[int] = dataclasses.field(
        default_factory=lambda: itertools.count(1)
    )
    """Ids of our own requests."""
    moved: dict[TopicPartition, bool] = dataclasses.field(default_factory=dict)
    """Partitions of which something moved in this step that others may be waiting for.

    True: its log's end or its role did, and not merely a watermark or who is in sync.
    """

    def report(self, incident: Incident) -> None:
        """Tell operators."""
        self.emit(Report(incident))
