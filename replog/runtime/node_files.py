"""Opening and closing nodes' files, which takes a while: in threads, one a node.

Whoever waits for an opening may be called off, and the cluster closed meanwhile. The thread goes on
all the same, since nothing can stop a recovery; what it has opened is let go then, by the same
thread before it opens anything else. So whatever a node is asked to do next finds its files free,
and once `drained` returns nobody is at any file of the cluster.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

from replog.errors import ReplogError
from replog.runtime.cluster_connection import closed_meanwhile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replog.runtime.cluster_nodes import OpenedNode
    from replog.runtime.cluster_pump import BrokerEndpoint
    from replog.runtime.quorum_endpoints import MemberEndpoint


class NodeFiles:
    """See the module. Not for use outside the loop's thread."""

    def __init__(self, open_node: Callable[[int], OpenedNode]) -> None:
        """open_node(node_id) is called in the node's thread."""
        self._open_node = open_node
        self._threads: dict[int, concurrent.futures.ThreadPoolExecutor] = {}
        self._latest: dict[int, concurrent.futures.Future[None]] = {}
        """What each node's thread has still to come to last, for `drained`."""
        self._untaken: set[concurrent.futures.Future[OpenedNode]] = set()
        """Openings that nobody has the result of yet."""
        self._closed = False

    async def open(self, node_id: int) -> OpenedNode:
        """Open a node, with all the recovery that it needs.

        Raises what the opening raises, ReplicationError if the cluster is closed meanwhile.
        """
        opening = self._thread(node_id).submit(self._open_node, node_id)
        self._untaken.add(opening)
        try:
            # Shielded: one that waits behind another in the thread must not vanish from its queue.
            opened = await asyncio.shield(asyncio.wrap_future(opening))
        except BaseException as error:
            if opening in self._untaken and not self._closed:
                self._untaken.remove(opening)
                self._latest[node_id] = self._thread(node_id).submit(_let_go, opening)
            if self._closed and isinstance(error, Exception):
                raise closed_meanwhile() from error
            raise
        if self._closed:
            raise closed_meanwhile()  # `drained` lets go of it
        self._untaken.remove(opening)
        return opened

    async def close(
        self, node_id: int, endpoints: Sequence[BrokerEndpoint | MemberEndpoint]
    ) -> None:
        """Flush and close what a node had open, also if the caller is called off.

        Raises the first StorageError; all are closed nevertheless.
        """
        closing = self._thread(node_id).submit(close_all, endpoints)
        self._latest[node_id] = closing
        await asyncio.shield(asyncio.wrap_future(closing))

    async def drained(self) -> None:
        """Return once no thread is at any file. Nothing can be opened any more.

        The loop goes on meanwhile, unless the caller is called off: then it stands still.
        """
        self._closed = True
        # Not gathered: that would take back what waits in a thread's queue if we are called off.
        at_work: list[asyncio.Future[Any]] = [
            *map(asyncio.wrap_future, self._untaken),
            *map(asyncio.wrap_future, self._latest.values()),
        ]
        try:
            if at_work:
                await asyncio.wait(at_work)
        finally:
            for thread in self._threads.values():
                thread.shutdown()
            for waiter in at_work:
                waiter.add_done_callback(_note)
            untaken, self._untaken = self._untaken, set()
            for opening in untaken:
                _let_go(opening)

    def _thread(self, node_id: int) -> concurrent.futures.ThreadPoolExecutor:
        if self._closed:
            raise closed_meanwhile()
        if node_id not in self._threads:
            self._threads[node_id] = concurrent.futures.ThreadPoolExecutor(
                1, thread_name_prefix=f"replog-node-{node_id}"
            )
        return self._threads[node_id]


def close_all(endpoints: Sequence[BrokerEndpoint | MemberEndpoint]) -> None:
    """Flush and close each; raises the first error, once all are closed."""
    first = None
    for endpoint in endpoints:
        try:
            endpoint.close()
        except ReplogError as error:
            first = first or error
    if first is not None:
        raise first


def _note(waiter: asyncio.Future[Any]) -> None:
    """Its error is told to whoever asked for it, who is gone: nobody need log it."""
    if not waiter.cancelled():
        waiter.exception()


def _let_go(opening: concurrent.futures.Future[OpenedNode]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().abandon()
