"""How clients inside the process reach the cluster: the controllers' view, the transport."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
import weakref
from typing import TYPE_CHECKING

from replog.errors import ReplicationError, UnknownTopicOrPartitionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.registrations import PartitionRegistration
    from replog.runtime.clock import Clock
    from replog.runtime.cluster_pump import ClientEndpoint
    from replog.runtime.cluster_view import ClusterView
    from replog.types import TopicPartition


def closed_meanwhile() -> ReplicationError:
    """For a call that was under way when the cluster was closed."""
    return ReplicationError(
        "expected the cluster to stay open until the call had ended, found it closed; what was "
        "asked of it may have been done or not"
    )


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Refuse a call from code that another loop runs: what it would wait for is never told there.

    Code that no loop runs may ask. Raises UsageError.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is not loop:
        raise UsageError(
            "expected a call from the event loop that entered the cluster, found one from another "
            "loop; use asyncio.run_coroutine_threadsafe, or enter the cluster by plain `with`, "
            "whose methods any thread may call"
        )


class MemoryConnection:
    """A `client.connection.ClusterConnection` over the memory transport.

    Who leads is read where it is decided: a client in the same process needs no metadata of its
    own, and hears of a change in the moment of its decision.

    A method that listens does not keep its object alive: a client that is dropped is gone. Once it
    is closed, whoever looks for a leader or waits for another gets a ReplicationError.
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
        self._listeners: dict[int, Callable[[], Callable[[], None] | None]] = {}
        self._next_listener = itertools.count()
        self._closed = False

    def close(self) -> None:
        """Wake all who wait for a change; they find it closed."""
        self.metadata_changed()
        self._closed = True

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration:
        self._check_open()
        registration = self._view.partition(topic_partition)
        if registration is None:
            raise UnknownTopicOrPartitionError(
                f"expected an existing partition, found none called {topic_partition}; create its "
                f"topic first, with enough partitions",
                topic_partition=str(topic_partition),
            )
        return registration

    def partition_count(self, topic: str) -> int:
        self._check_open()
        count = self._view.partition_count(topic)
        if not count:
            raise UnknownTopicOrPartitionError(
                f"expected an existing topic, found none called {topic!r}; create it first"
            )
        return count

    def on_metadata_change(self, call: Callable[[], None]) -> Callable[[], None]:
        self._check_open()
        number = next(self._next_listener)

        def forget(_: object = None) -> None:
            self._listeners.pop(number, None)

        if inspect.ismethod(call):
            self._listeners[number] = weakref.WeakMethod(call, forget)
        else:
            self._listeners[number] = lambda: call
        return forget

    def metadata_changed(self) -> None:
        """Tell all who listen."""
        for listener in list(self._listeners.values()):
            call = listener()
            if call is not None:
                call()

    def new_producer_id(self) -> int:
        # Not counted: logs of an earlier run remember the ids that were given then.
        return random.getrandbits(62)

    def _check_open(self) -> None:
        check_loop(self.loop)
        if self._closed:
            raise closed_meanwhile()
