"""A process on a machine with an address: what brokers and controllers have in common.

The process can be killed (its connections are reset), lose its power (nobody is told), be paused
(what arrives waits, timers stand still, its peers see silence) and be started again. Its clock is
monotonic and starts anywhere. A subclass runs production code in it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from replog.testing.simulation.network import Connection, Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS, Scheduler


class SimMachine:
    """See the module; satisfies `network.Node`."""

    def __init__(
        self, address: int, scheduler: Scheduler, network: Network, stream: Stream
    ) -> None:
        self.address = address
        self.incarnation = 0
        self.paused = False
        self.powered = True
        self.clock_us = stream.below(10**9)
        """What its clock shows at virtual time 0."""
        self._scheduler = scheduler
        self._network = network
        self._stream = stream
        self._inbox: collections.deque[tuple[Callable[..., None], tuple[Any, ...]]] = (
            collections.deque()
        )
        self._armed_us: int | None = None
        self._next_request_id = 0
        self._asked: dict[int, tuple[Connection, int, Any]] = {}
        """Requests that wait for our answer: on which connection, under which id."""
        self._asking: dict[Connection, dict[int, None]] = {}
        """Ids of our requests that wait for an answer, per connection, oldest first."""
        network.nodes[address] = self

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "down"
        return f"<{type(self).__name__} {self.address}, {state}>"

    # -- what runs in it

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        raise NotImplementedError

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` is due, by its own clock."""
        raise NotImplementedError

    def tick(self) -> None:
        """Do what is due."""
        raise NotImplementedError

    def take_request(self, own_id: int, sender: int, request: Any, *, more: bool) -> None:
        """A request arrived, to be answered under `own_id`; `more` arrive right after it."""
        raise NotImplementedError

    def take_response(self, request_id: int, response: Any) -> None:
        """The answer to a request of ours."""
        raise NotImplementedError

    def request_failed(self, request_id: int) -> None:
        """A request of ours will not be answered."""
        raise NotImplementedError

    def requester_gone(self, own_id: int) -> None:
        """The answer to this request goes nowhere."""

    def peer_lost(self, address: int) -> None:
        """A connection with that address was reset, and its requests are dealt with."""

    def has_ended(self) -> bool:
        """See to it if the process has come to its end by itself, and say so."""
        raise NotImplementedError

    # -- what happens to it

    @property
    def now_ms(self) -> int:
        """What its clock shows."""
        return (self._scheduler.now_us + self.clock_us) // MICROSECONDS_PER_MS

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Go on with what has arrived meanwhile; timers that are due may come first."""
        if not self.paused:
            return
        self.paused = False
        if not self.running:
            return
        if self._stream.chance(0.5):
            self._tick()
        while self._inbox and not self.paused and self.running:
            act, arguments = self._inbox.popleft()
            if act == self._take_request and self._inbox and self._inbox[0][0] == act:
                self._take_request(*arguments, more=True)
                continue
            act(*arguments)
            self._after()
        self._tick()

    def request_arrived(self, connection: Connection, request_id: int, request: Any) -> None:
        if not self.running:
            self._network.refuse(connection, silent=not self.powered)
        elif self.paused:
            self._inbox.append((self._take_request, (connection, request_id, request)))
        else:
            self._take_request(connection, request_id, request)
            self._after()

    def response_arrived(self, connection: Connection, request_id: int, response: Any) -> None:
        if self.paused:
            self._inbox.append((self._take_response, (connection, request_id, response)))
        elif self.running:
            self._take_response(connection, request_id, response)
            self._after()

    def connection_lost(self, connection: Connection) -> None:
        if self.paused:
            self._inbox.append((self._take_loss, (connection,)))
        elif self.running:
            self._take_loss(connection)
            self._after()

    # -- for what runs in it

    def _end(self) -> None:
        """Forget whatever the process had in memory."""
        self.paused = False
        self._inbox.clear()
        self._asked.clear()
        self._asking.clear()
        self._armed_us = None

    def _send(self, request_id: int, to: int, request: Any) -> None:
        connection = self._network.request(self.address, to, request_id, request)
        asking = self._asking.get(connection)
        if asking is None:
            asking = self._asking[connection] = {}
        asking[request_id] = None

    def _answer(self, own_id: int, response: Any) -> Any:
        """Answer; returns the request, None where nobody waits for it any more."""
        asked = self._asked.pop(own_id, None)
        if asked is None:
            return None
        connection, asked_id, request = asked
        self._network.respond(connection, asked_id, response)
        return request

    def _do(self, act: Callable[..., None], *arguments: Any) -> None:
        """Let the process do something: now, or when it is not paused any more."""
        if self.paused:
            self._inbox.append((act, arguments))
        else:
            act(*arguments)
            self._after()

    def _take_request(
        self, connection: Connection, request_id: int, request: Any, *, more: bool = False
    ) -> None:
        self._next_request_id += 1
        own_id = self._next_request_id
        self._asked[own_id] = (connection, request_id, request)
        self.take_request(own_id, connection.client, request, more=more)

    def _take_response(self, connection: Connection, request_id: int, response: Any) -> None:
        asking = self._asking.get(connection)
        if asking is None or request_id not in asking or not self.running:
            return
        del asking[request_id]
        self.take_response(request_id, response)

    def _take_loss(self, connection: Connection) -> None:
        if not self.running:
            return
        if connection.server == self.address:
            gone = [own for own, asked in self._asked.items() if asked[0] is connection]
            for own_id in gone:
                if self._asked.pop(own_id, None) is not None:
                    self.requester_gone(own_id)
            self.peer_lost(connection.client)
            return
        for request_id in self._asking.pop(connection, {}):
            self.request_failed(request_id)
        self.peer_lost(connection.server)

    def _after(self) -> None:
        """See whether the process goes on, and that the timer is set."""
        if not self.running or self.has_ended():
            return
        deadline = self.deadline_ms
        if deadline is None:
            return
        due_us = deadline * MICROSECONDS_PER_MS - self.clock_us
        if self._armed_us is None or due_us < self._armed_us:
            self._armed_us = due_us
            self._scheduler.at(due_us, self._timer, (self.incarnation, due_us))

    def _timer(self, armed: tuple[int, int]) -> None:
        incarnation, due_us = armed
        if incarnation != self.incarnation or due_us != self._armed_us:
            return
        self._armed_us = None
        if not self.paused:
            self._tick()

    def _tick(self) -> None:
        if not self.running:
            return
        deadline = self.deadline_ms
        if deadline is not None and deadline <= self.now_ms:
            self.tick()
        self._after()
