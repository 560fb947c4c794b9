"""An address that asks and waits: what simulated clients have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replog.registrations import PartitionRegistration
from replog.testing.simulation.network import Connection, Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import Scheduler
from replog.types import TopicPartition

Answered = Callable[[Any], None]


class Cluster:
    """What clients know of the cluster: as true as the last time they asked."""

    def __init__(
        self,
        lookup: Callable[[TopicPartition], PartitionRegistration | None],
        controller: Callable[[Stream], int],
    ) -> None:
        """controller(stream): the address of whom one takes for the active controller."""
        self.lookup = lookup
        self.controller = controller


class Client:
    """Satisfies `network.Node`. An answer of None: none came, whatever became of the request."""

    def __init__(
        self, address: int, scheduler: Scheduler, network: Network, stream: Stream
    ) -> None:
        self.address = address
        self.scheduler = scheduler
        self.network = network
        self.stream = stream
        self.operations = 0
        """Requests that were answered, or given up."""
        self._next_id = 0
        self._waiting: dict[int, tuple[Connection, Answered]] = {}
        network.nodes[address] = self

    def ask(self, server: int, request: Any, timeout_us: int, answered: Answered) -> None:
        """Send a request; `answered` is called once, with None after the timeout."""
        self._next_id += 1
        request_id = self._next_id
        connection = self._dead_connection(server)
        if connection is None:
            connection = self.network.request(self.address, server, request_id, request)
        self._waiting[request_id] = (connection, answered)
        self.scheduler.after(timeout_us, self._timed_out, request_id)

    def _dead_connection(self, server: int) -> Connection | None:
        """One that is broken, and on which something waits all the same: nobody has told us. What
        is written to it is lost; nobody opens another before they know.
        """
        for connection, _ in self._waiting.values():
            if connection.server == server and not (connection.open or connection.client_knows):
                return connection
        return None

    @property
    def waiting(self) -> int:
        """Requests without an answer so far."""
        return len(self._waiting)

    def request_arrived(self, connection: Connection, request_id: int, request: Any) -> None:
        raise AssertionError("nobody asks a client")

    def response_arrived(self, connection: Connection, request_id: int, response: Any) -> None:
        found = self._waiting.get(request_id)
        if found is not None and found[0] is connection:
            self._finish(request_id, response)

    def connection_lost(self, connection: Connection) -> None:
        lost = [key for key, (used, _) in self._waiting.items() if used is connection]
        for request_id in lost:
            self._finish(request_id, None)

    def _timed_out(self, request_id: int) -> None:
        if request_id in self._waiting:
            self._finish(request_id, None)

    def _finish(self, request_id: int, response: Any) -> None:
        _, answered = self._waiting.pop(request_id)
        self.operations += 1
        answered(response)
