"""How clients inside the process reach the cluster: the controllers' view, the transport."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from replog.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from replog.registrations import PartitionRegistration
    from replog.runtime.clock import Clock
    from replog.runtime.cluster_pump import ClientEndpoint
    from replog.runtime.cluster_view import ClusterView
    from replog.types import TopicPartition


class MemoryConnection:
    """A `client.connection.ClusterConnection` over the memory transport.

    Who leads is read where it is decided: a client in the same process needs no metadata of its
    own, and hears of a change in the moment of its decision.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        view: ClusterView,
        endpoint: ClientEndpoint,
    ) -> None:
        self.loop = loop
        self.wall_ms = clock.wall_ms
        self.reaches = endpoint.reaches
        self.ask = endpoint.ask
        self.give_up = endpoint.give_up
        self.tell = endpoint.tell
        self._view = view
        self._listeners: dict[int, Callable[[], None]] = {}
        self._next_listener = itertools.count()

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration:
        registration = self._view.partition(topic_partition)
        if registration is None:
            raise UnknownTopicOrPartitionError(
                f"expected an existing partition, found none called {topic_partition}; create its "
                f"topic first, with enough partitions",
                topic_partition=str(topic_partition),
            )
        return registration

    def partition_count(self, topic: str) -> int:
        count = self._view.partition_count(topic)
        if not count:
            raise UnknownTopicOrPartitionError(
                f"expected an existing topic, found none called {topic!r}; create it first"
            )
        return count

    def on_metadata_change(self, call: Callable[[], None]) -> Callable[[], None]:
        number = next(self._next_listener)
        self._listeners[number] = call
        return lambda: self._listeners.pop(number, None) and None

    def metadata_changed(self) -> None:
        """Tell all who listen."""
        for call in list(self._listeners.values()):
            call()

    def new_producer_id(self) -> int:
        # Not counted: logs of an earlier run remember the ids that were given then.
        return random.getrandbits(62)
