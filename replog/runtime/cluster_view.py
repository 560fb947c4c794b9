"""What the controllers of an in-process cluster have decided, for clients in the same process.

Only what is committed shows: it is read from the log of the controller that is active, and of the
latest one that was while nobody is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.metadata_image import MetadataImage
from replog.runtime.metadata_state import MetadataReplay

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.registrations import BrokerRegistration, PartitionRegistration
    from replog.runtime.quorum_endpoints import ControllerEndpoint
    from replog.types import TopicPartition


class ClusterView:
    """See the module; `changed` is called when there is something new to see."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.active_id: int | None = None
        """The node whose controller is active; None while nobody's is."""
        self._changed = changed
        self._image = MetadataImage(tracks_changes=False)
        self._endpoint: ControllerEndpoint | None = None
        self._replay: MetadataReplay | None = None

    @property
    def version(self) -> int:
        """End of the committed metadata."""
        return 0 if self._replay is None else self._replay.offset

    @property
    def image(self) -> MetadataImage:
        """All of it, always the same object; what is committed changes it, and nobody else may."""
        return self._image

    def look(self, endpoint: ControllerEndpoint) -> None:
        """A controller has been stepped."""
        replay = self._replay
        if endpoint is not self._endpoint or replay is None:
            if not self._is_better(endpoint):
                return
            replay = self._follow(endpoint)
        active_id = endpoint.node_id if endpoint.node.is_active else None
        high_watermark = endpoint.log.high_watermark
        if high_watermark > replay.offset:
            replay.apply_committed(high_watermark)
        elif active_id == self.active_id:
            return
        self.active_id = active_id
        self._changed()

    def lose(self, endpoint: ControllerEndpoint) -> None:
        """A controller is gone; what it had decided shows until another is active."""
        if endpoint is self._endpoint:
            self._endpoint = None
            self.active_id = None

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """What is registered of a broker."""
        known = self._image.brokers.get(broker_id)
        return None if known is None else known.registration

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        """What is registered of a partition."""
        known = self._image.partition(topic_partition)
        return None if known is None else known.registration

    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """The names of a topic's partitions, in order; empty if there is no such topic."""
        known = self._image.topics.get(topic)
        return () if known is None else known.names

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic."""
        known = self._image.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, sorted."""
        return tuple(sorted(self._image.topics))

    def _is_better(self, endpoint: ControllerEndpoint) -> bool:
        """Active, in a later epoch than the one that is looked at; anything is if there is none."""
        held = self._endpoint
        if held is None:
            return endpoint.node.is_active or self._replay is None
        epoch, held_epoch = (one.quorum.quorum.leader_epoch for one in (endpoint, held))
        return endpoint.node.is_active and (not held.node.is_active or epoch > held_epoch)

    def _follow(self, endpoint: ControllerEndpoint) -> MetadataReplay:
        """Go on in its log: what is committed is the same in all of them."""
        before = self.version
        self._endpoint = endpoint
        self._replay = replay = MetadataReplay(endpoint.log, self._image)
        if before:
            replay.offset = before
        else:
            replay.reload()
        return replay
