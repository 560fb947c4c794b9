"""A network of TCP connections: ordered, slow, breakable.

Faults it has: latency with a long tail per link and direction; loss, which TCP repairs by sending
again (later, holding up what follows) until it gives up and resets the connection; links that are
clogged or cut, in one direction or both, for a while; resets at any time; and some addresses are
far away. After a reset either side learns of it on its own, and requests that had reached the
server may still be carried out while a newer connection is in use: that is how messages are
reordered and how an answer is lost after its request was obeyed.

Faults it does not have: messages changed on the way, repeated or reordered within a connection.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from replog.testing.simulation.prng import Stream, Streams
from replog.testing.simulation.scheduler import Scheduler

RETRANSMIT_US = 200_000
REQUEST, RESPONSE, RESET = 1, 2, 3
"""Kinds of events."""


@dataclasses.dataclass(slots=True, kw_only=True)
class NetworkOptions:
    """What links do by themselves; times in microseconds."""

    latency_min_us: int = 100
    latency_mean_us: int = 500
    """Mean of what is added to the minimum."""
    loss: float = 0.0
    """Probability that a message has to be sent again."""
    reset: float = 0.0
    """Probability that a message meets a connection that breaks under it."""
    give_up_us: int = 5_000_000
    """A cut connection with something to deliver is reset after this time."""


class Node(Protocol):
    """Whoever has an address. Each method is called when its process has noticed."""

    def request_arrived(self, connection: Connection, request_id: int, request: Any) -> None: ...

    def response_arrived(self, connection: Connection, request_id: int, response: Any) -> None: ...

    def connection_lost(self, connection: Connection) -> None:
        """For the client its unanswered requests have failed; for the server nobody waits."""


class Direction:
    """Messages on their way along one direction of a connection, oldest first."""

    __slots__ = ("connection", "latency_mean_us", "link", "ready_us", "source", "target", "waiting")

    def __init__(
        self, connection: Connection, source: int, target: int, link: Stream, latency_mean_us: int
    ) -> None:
        """`link` draws for all that goes from `source` to `target`."""
        self.connection = connection
        self.source = source
        self.target = target
        self.link = link
        self.latency_mean_us = latency_mean_us
        self.waiting: collections.deque[tuple[int, int, Any]] = collections.deque()
        """When each arrives, its id, what it says."""
        self.ready_us = 0


class Connection:
    """One TCP connection from `client` to `server` (addresses). Once broken it stays so."""

    __slots__ = (
        "client",
        "client_knows",
        "open",
        "server",
        "server_knows",
        "to_client",
        "to_server",
    )

    def __init__(
        self,
        client: int,
        server: int,
        link: Callable[[int, int], Stream],
        latency_mean_us: int,
    ) -> None:
        """link(source, target) gives the stream of a link."""
        self.client = client
        self.server = server
        self.open = True
        self.client_knows = False
        """That it is broken."""
        self.server_knows = False
        self.to_server = Direction(self, client, server, link(client, server), latency_mean_us)
        self.to_client = Direction(self, server, client, link(server, client), latency_mean_us)

    def __repr__(self) -> str:
        return f"<Connection {self.client} to {self.server}{'' if self.open else ', broken'}>"


class Network:
    """All links. Addresses are integers; a connection is made by its first request."""

    def __init__(
        self,
        scheduler: Scheduler,
        streams: Streams,
        options: NetworkOptions,
        on_event: Callable[[int, int, int, int, int], None],
    ) -> None:
        """on_event(kind, from, to, message id, now_us) is called before each delivery."""
        self.scheduler = scheduler
        self.options = options
        self.nodes: dict[int, Node] = {}
        self.distances_us: dict[int, int] = {}
        """Address -> mean latency of its connections, where that is more than the options say."""
        self._streams = streams
        self._connections: dict[tuple[int, int], Connection] = {}
        self._cut: dict[tuple[int, int], int] = {}
        """Directed links that deliver nothing, with how many faults keep them so."""
        self._clogged_until_us: dict[tuple[int, int], int] = {}
        self._on_event = on_event
        self._breaks: dict[tuple[int, int], tuple[type, int, Callable[[Any], None]]] = {}
        """Links whose connection breaks under a request of that kind, which comes so much later."""

    def request(self, client: int, server: int, request_id: int, request: Any) -> Connection:
        """Send a request; the connection is opened if there is none."""
        connection = self._connections.get((client, server))
        if connection is None or not connection.open:
            near_us = self.options.latency_mean_us
            distances_us = [self.distances_us.get(end, near_us) for end in (client, server)]
            connection = Connection(client, server, self._link, max(distances_us))
            self._connections[client, server] = connection
        self._send(connection.to_server, request_id, request)
        broken = self._breaks.get((client, server)) if self._breaks else None
        if broken is not None and isinstance(request, broken[0]):
            del self._breaks[client, server]
            _, held_us, on_break = broken
            self._hold_up(connection, held_us)
            self._break(connection, keeps_requests=True)
            on_break(request)
        return connection

    def respond(self, connection: Connection, request_id: int, response: Any) -> None:
        """Answer a request; nothing happens on a broken connection."""
        if connection.open:
            self._send(connection.to_client, request_id, response)

    def cut(self, source: int, target: int) -> None:
        """Deliver nothing from `source` to `target` until `heal` was called as often."""
        link = (source, target)
        self._cut[link] = self._cut.get(link, 0) + 1
        self.scheduler.after(self.options.give_up_us, self._give_up, link)

    def heal(self, source: int, target: int) -> None:
        """Undo one `cut`."""
        link = (source, target)
        count = self._cut.get(link, 0)
        if count > 1:
            self._cut[link] = count - 1
        elif count:
            del self._cut[link]
            self._resume(link)

    def heal_all(self) -> None:
        """Undo every cut and clog."""
        self._clogged_until_us.clear()
        for link in list(self._cut):
            del self._cut[link]
            self._resume(link)

    def clog(self, source: int, target: int, until_us: int) -> None:
        """Deliver nothing from `source` to `target` before `until_us`; then all of it."""
        self._clogged_until_us[source, target] = until_us

    def break_under(
        self,
        client: int,
        server: int,
        kind: type,
        held_us: int,
        on_break: Callable[[Any], None],
    ) -> None:
        """Break their connection under the next request of that kind, and tell `on_break` of it.

        The server finds the request `held_us` later in a socket that it had not read yet, and
        carries it out: perhaps after others that the client has sent since.
        """
        self._breaks[client, server] = (kind, held_us, on_break)

    def reset(self, client: int, server: int) -> None:
        """Break the connection between two addresses, if there is one."""
        connection = self._connections.get((client, server))
        if connection is not None:
            self._break(connection)

    def reset_all(self, address: int, *, silent: bool) -> None:
        """Break all connections of a dead process.

        silent: its machine lost power, so nobody is told; peers find out when they have waited
        `give_up_us` for an answer.
        """
        for connection in list(self._connections.values()):
            if not connection.open or address not in {connection.client, connection.server}:
                continue
            if connection.client == address:
                connection.client_knows = True
            else:
                connection.server_knows = True
            self._break(connection, told_after_us=self.options.give_up_us if silent else 0)

    def forget(self, source: int) -> None:
        """Drop what a machine has asked for and what has not arrived: its power is gone."""
        for connection in self._connections.values():
            if connection.client == source:
                connection.to_server.waiting.clear()

    def refuse(self, connection: Connection, *, silent: bool) -> None:
        """Nobody listens at the server: the client is told so; if `silent`, it waits in vain."""
        connection.server_knows = True
        self._break(connection, told_after_us=self.options.give_up_us if silent else 0)

    def in_flight(self, source: int, target: int) -> list[Any]:
        """Requests on their way from `source` to `target`."""
        connection = self._connections.get((source, target))
        return [] if connection is None else [body for _, _, body in connection.to_server.waiting]

    def _link(self, source: int, target: int) -> Stream:
        return self._streams.stream(f"link {source} {target}")

    def _send(self, direction: Direction, message_id: int, body: Any) -> None:
        options, scheduler, link = self.options, self.scheduler, direction.link
        latency_us = options.latency_min_us + link.exponential(direction.latency_mean_us)
        arrival = scheduler.now_us + latency_us
        if options.loss:
            pause = RETRANSMIT_US
            while link.draw() < options.loss and pause < options.give_up_us:
                arrival += pause
                pause *= 2
        if options.reset and link.draw() < options.reset:
            scheduler.at(arrival, self._break_at, direction.connection)
        if self._clogged_until_us:
            until_us = self._clogged_until_us.get((direction.source, direction.target), 0)
            arrival = max(arrival, until_us)
        if arrival <= direction.ready_us:
            arrival = direction.ready_us + 1
        direction.ready_us = arrival
        direction.waiting.append((arrival, message_id, body))
        scheduler.at(arrival, self._deliver, direction)

    def _deliver(self, direction: Direction) -> None:
        waiting, now_us = direction.waiting, self.scheduler.now_us
        if not waiting or waiting[0][0] > now_us:
            return  # it went with its connection, or an earlier call took it
        source, target = direction.source, direction.target
        if self._cut and (source, target) in self._cut:
            return  # `_resume` or `_give_up` sees to it
        _, message_id, body = waiting.popleft()
        connection = direction.connection
        if direction is connection.to_server:
            if connection.server_knows:
                return
            self._on_event(REQUEST, source, target, message_id, now_us)
            self.nodes[target].request_arrived(connection, message_id, body)
        elif not connection.client_knows:
            self._on_event(RESPONSE, source, target, message_id, now_us)
            self.nodes[target].response_arrived(connection, message_id, body)

    def _resume(self, link: tuple[int, int]) -> None:
        """Deliver what waited for the link, in order."""
        for direction in self._directions(link):
            for number, (arrival, _, _) in enumerate(direction.waiting):
                if arrival > self.scheduler.now_us:
                    break
                self.scheduler.after(number, self._deliver, direction)

    def _directions(self, link: tuple[int, int]) -> list[Direction]:
        """Those of all connections that lead along a link."""
        return [
            direction
            for connection in self._connections.values()
            for direction in (connection.to_server, connection.to_client)
            if (direction.source, direction.target) == link
        ]

    def _give_up(self, link: tuple[int, int]) -> None:
        """Reset the connections that have waited too long for a cut link."""
        if link not in self._cut:
            return
        late = self.scheduler.now_us - self.options.give_up_us
        for direction in self._directions(link):
            waits = direction.connection.open and direction.waiting
            if waits and direction.waiting[0][0] <= late:
                self._break(direction.connection)
        self.scheduler.after(self.options.give_up_us // 2 + 1, self._give_up, link)

    def _break_at(self, connection: Connection) -> None:
        self._break(connection)

    def _break(
        self, connection: Connection, told_after_us: int = 0, *, keeps_requests: bool = False
    ) -> None:
        """Reset it: answers on their way are lost, requests on their way may still arrive.

        The client is told at once or after `told_after_us`; the server when all that had reached it
        has been carried out.
        """
        if not connection.open:
            return
        connection.open = False
        connection.to_client.waiting.clear()
        link, waiting = connection.to_server.link, connection.to_server.waiting
        if waiting and not keeps_requests and link.draw() < 0.5:
            waiting.clear()
        self.scheduler.after(
            told_after_us + link.exponential(self.options.latency_mean_us),
            self._tell_client,
            connection,
        )
        last_us = waiting[-1][0] if waiting else self.scheduler.now_us
        self.scheduler.at(
            max(last_us, self.scheduler.now_us) + told_after_us + self.options.latency_min_us,
            self._tell_server,
            connection,
        )

    def _hold_up(self, connection: Connection, held_us: int) -> None:
        direction = connection.to_server
        late = [(at_us + held_us, *message) for at_us, *message in direction.waiting]
        direction.waiting = collections.deque(late)
        for at_us, *_ in late:
            self.scheduler.at(at_us, self._deliver, direction)

    def _tell_client(self, connection: Connection) -> None:
        if not connection.client_knows:
            connection.client_knows = True
            self._on_event(RESET, connection.server, connection.client, 0, self.scheduler.now_us)
            self.nodes[connection.client].connection_lost(connection)

    def _tell_server(self, connection: Connection) -> None:
        if not connection.server_knows:
            connection.server_knows = True
            self._on_event(RESET, connection.client, connection.server, 0, self.scheduler.now_us)
            self.nodes[connection.server].connection_lost(connection)
