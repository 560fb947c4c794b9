"""Messages between the nodes of one process: mailboxes of each node, emptied by `deliver`.

Requests and answers are handed over as objects, with no copy: records stay the leader's read view.
Every pair of nodes has a connection in the sense that matters: between two nodes messages keep
their order, a reset fails what was asked over it on both sides, and what is cut off or sent to a
paused node waits where it is, as in the buffers of a socket, until the way is free again.

`deliver` empties one mailbox after the other, in the order in which they were first written to,
until no message is on its way or its budget is spent, and never runs within itself. So whatever has
come for a node while others had their turn is handed over in one go, and a node that is told so
(`more`) need do only once what follows from all of it. A long one is left for the next after
`MESSAGES_A_TURN`, so that nobody waits for all that somebody else was sent. What clients send has
mailboxes of its own, and stays there while the node that it is for takes no more of it.
"""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from replog.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replog.messages import Request, Response

MESSAGES_A_TURN = 64
NOWHERE = -1
CLIENT = -2
"""Addresses beside the brokers' ids, which are never negative. Nobody is at the first; all clients
share the second."""


def controller_address(node_id: int) -> int:
    """Where the controller of a node listens, whether a broker runs beside it or not."""
    return -2 * node_id - 3


def observer_address(node_id: int) -> int:
    """From where a broker follows the metadata log."""
    return -2 * node_id - 4


def node_at(address: int) -> int:
    """The id of the node that has this address."""
    return address if address >= 0 else (-3 - address) // 2


def is_controller(address: int) -> bool:
    """Whether a controller listens there."""
    return address <= -3 and address % 2 == 1


class Endpoint(Protocol):
    """A node as its messages find it; the ids of requests to it are the transport's."""

    def receive_request(self, request_id: int, sender: int, request: Any, *, more: bool) -> None:
        """`more`: another request to the node is handed over right after this one."""

    def requester_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""

    def receive_response(self, request_id: int, response: Any) -> None:
        """The answer to the node's own request of this id."""

    def request_failed(self, request_id: int) -> None:
        """The node's own request of this id: its connection broke, or there was no way."""

    def connection_lost(self, peer: int) -> None:
        """A node has reset its connections; told to those alone that watch for it."""


_Exchange: TypeAlias = tuple[int, int, int]
"""A request that is not answered: who asked, under which id, and whom."""

_REQUEST, _RESPONSE, _FAILURE, _GONE, _LOST = range(5)
# A request; its answer; the receiver's request gets none, since the sender has reset its connection
# or refuses one; the sender's request needs none any more, since it has reset its connection or
# gives up; the sender has reset the connection that the receiver watches.

_Message: TypeAlias = tuple[int, int, int, int, Any]
"""Kind, sender, receiver, id (the exchange's for _REQUEST and _GONE, else the receiver's), body."""


class _Mailbox(collections.deque[_Message]):
    """What is on its way to one node, from other nodes or `of_clients`."""

    __slots__ = ("of_clients", "receiver")

    def __init__(self, receiver: int, *, of_clients: bool) -> None:
        super().__init__()
        self.receiver = receiver
        self.of_clients = of_clients


class MemoryTransport:
    """The messages on their way between all nodes. `wake` is called when some come after none."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._endpoints: dict[int, Endpoint] = {}
        self._watchers: dict[int, None] = {}
        self._of_nodes: dict[int, _Mailbox] = {}
        self._of_clients: dict[int, _Mailbox] = {}
        """Mailboxes by receiver."""
        self._turns: collections.deque[_Mailbox] = collections.deque()
        """Mailboxes that are not empty, perhaps some twice, and perhaps some that are empty."""
        self._exchanges: dict[int, _Exchange] = {}
        self._next_exchange_id = 0
        self._cut: set[tuple[int, int]] = set()
        self._paused: set[int] = set()
        self._full: set[int] = set()
        """Who receives nothing of clients for now."""
        self._held: list[_Message] = []
        self._delivering = False
        self.receiver = CLIENT
        """Who was handed the latest message."""

    def __len__(self) -> int:
        """Messages that `deliver` would hand over."""
        return sum(map(len, {id(mailbox): mailbox for mailbox in self._turns}.values()))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return any(self._turns)

    def __contains__(self, address: int) -> bool:
        """Whether a node is there."""
        return address in self._endpoints

    def attach(self, address: int, endpoint: Endpoint, *, watches: bool = False) -> None:
        """Put a node at an address that is free. watches: it is told of every `detach`."""
        invariant(address not in self._endpoints, "a free address", address=address)
        self._endpoints[address] = endpoint
        if watches:
            self._watchers[address] = None

    def request(
        self,
        sender: int,
        receiver: int,
        request_id: int,
        request: Request,
        *,
        answered: bool = True,
    ) -> None:
        """Send a request, whose answer or failure comes back under the sender's `request_id`.

        answered=False: there will be none (acks=0), and nothing is told of a failure either.
        """
        if receiver not in self._endpoints:
            if answered:
                self._put((_FAILURE, receiver, sender, request_id, None))
            return
        self._next_exchange_id += 1
        exchange_id = self._next_exchange_id
        if answered:
            self._exchanges[exchange_id] = (sender, request_id, receiver)
        self._put((_REQUEST, sender, receiver, exchange_id, request))

    def respond(self, exchange_id: int, response: Response) -> None:
        """Answer a request. Nothing happens if its sender is gone or wants no answer."""
        exchange = self._exchanges.pop(exchange_id, None)
        if exchange is not None:
            sender, request_id, receiver = exchange
            self._put((_RESPONSE, receiver, sender, request_id, response))

    def forget(self, sender: int, request_id: int) -> None:
        """The sender gives up on its request; whoever works on it is told."""
        for exchange_id, (asker, number, receiver) in self._exchanges.items():
            if asker == sender and number == request_id:
                del self._exchanges[exchange_id]
                self._put((_GONE, sender, receiver, exchange_id, None))
                return

    def detach(self, address: int) -> None:
        """Reset all connections of a node and free its address, as the death of its process does.

        What is on its way from or to it is lost; its peers are told, for each open request.
        """
        del self._endpoints[address]
        self._watchers.pop(address, None)
        self._paused.discard(address)
        self._full.discard(address)
        on_the_way = [
            message
            for message in itertools.chain(self._held, *self._mailboxes())
            if message[1] == address or message[2] == address
        ]
        if on_the_way:
            self._drop_messages(address)
        for kind, sender, receiver, request_id, _ in on_the_way:
            if kind == _RESPONSE and sender == address:
                self._put((_FAILURE, address, receiver, request_id, None))
        open_requests = [
            (number, exchange)
            for number, exchange in self._exchanges.items()
            if exchange[0] == address or exchange[2] == address
        ]
        for exchange_id, (sender, request_id, receiver) in open_requests:
            del self._exchanges[exchange_id]
            if sender == address:
                self._put((_GONE, address, receiver, exchange_id, None))
            else:
                self._put((_FAILURE, address, sender, request_id, None))
        for watcher in self._watchers:
            # Connections are read side by side: what others have sent is not in its way.
            self._put((_LOST, address, watcher, 0, None), first=True)

    def _drop_messages(self, address: int) -> None:
        """Those that die with the node at this address."""
        for mailbox in self._mailboxes():
            kept = [message for message in mailbox if not _touches(message, address)]
            mailbox.clear()
            mailbox.extend(kept)
        self._held = [message for message in self._held if not _touches(message, address)]

    def cut(self, one: int, other: int) -> None:
        """Let nothing through between two nodes until `join`; nobody is told."""
        self._cut.update(((one, other), (other, one)))

    def join(self, one: int, other: int) -> None:
        """Undo `cut`: what waited goes on its way, in its order."""
        self._cut -= {(one, other), (other, one)}
        self._release()

    def join_all(self) -> None:
        self._cut.clear()
        self._release()

    def pause(self, address: int) -> None:
        """Let a node receive nothing until `resume`; nobody is told."""
        self._paused.add(address)

    def resume(self, address: int) -> None:
        self._paused.discard(address)
        self._release()

    def hold_clients(self, address: int) -> None:
        """Let a node receive nothing of clients until `let_clients`; nobody is told."""
        self._full.add(address)

    def let_clients(self, address: int) -> None:
        self._full.discard(address)
        mailbox = self._of_clients.get(address)
        if mailbox:
            self._turns.append(mailbox)
            self._wake()

    def deliver(self, budget: int) -> None:
        """Hand over up to `budget` messages."""
        invariant(not self._delivering, "no delivery within a delivery")
        turns = self._turns
        self._delivering = True
        try:
            while budget and turns:
                mailbox = turns.popleft()
                if mailbox.of_clients and mailbox.receiver in self._full:
                    continue  # until `let_clients`
                try:
                    budget -= self._hand_over(mailbox, min(budget, MESSAGES_A_TURN))
                finally:
                    if mailbox:
                        turns.append(mailbox)
        finally:
            self._delivering = False

    def _hand_over(self, mailbox: _Mailbox, count: int) -> int:
        """Empty a mailbox, but for what is behind its first `count` messages; how many it were."""
        self.receiver = receiver = mailbox.receiver
        endpoints = self._endpoints
        left = count
        while left and mailbox:
            left -= 1
            message = mailbox.popleft()
            stops = self._cut or self._paused
            if stops and self._is_stopped(message):
                self._held.append(message)
                continue
            kind, sender, _, number, body = message
            endpoint = endpoints.get(receiver)
            if endpoint is None:
                continue
            if kind == _REQUEST:
                # What may be held back, whatever lies in the mailbox, is not promised.
                more = bool(left and mailbox and mailbox[0][0] == _REQUEST and not stops)
                endpoint.receive_request(number, sender, body, more=more)
            elif kind == _RESPONSE:
                endpoint.receive_response(number, body)
            elif kind == _FAILURE:
                endpoint.request_failed(number)
            elif kind == _GONE:
                endpoint.requester_gone(number)
            else:
                endpoint.connection_lost(sender)
        return count - left

    def _put(self, message: _Message, *, first: bool = False) -> None:
        mailbox = self._mailbox_of(message)
        if not mailbox and not self._delivering:
            self._wake()
        if first:
            if not self._turns or self._turns[0] is not mailbox:
                self._turns.appendleft(mailbox)
            mailbox.appendleft(message)
            return
        if not mailbox:
            self._turns.append(mailbox)
        mailbox.append(message)

    def _mailbox_of(self, message: _Message) -> _Mailbox:
        sender, receiver = message[1], message[2]
        mailboxes = self._of_clients if sender == CLIENT else self._of_nodes
        mailbox = mailboxes.get(receiver)
        if mailbox is None:
            mailbox = mailboxes[receiver] = _Mailbox(receiver, of_clients=sender == CLIENT)
        return mailbox

    def _mailboxes(self) -> Iterator[_Mailbox]:
        yield from self._of_nodes.values()
        yield from self._of_clients.values()

    def _release(self) -> None:
        """Try what was held again, ahead of the rest: all of it is older than its like there."""
        held, self._held = self._held, []
        for message in reversed(held):
            self._put(message, first=True)

    def _is_stopped(self, message: _Message) -> bool:
        return message[2] in self._paused or message[1:3] in self._cut


def _touches(message: _Message, address: int) -> bool:
    """Whether a message dies with a node: what tells of an earlier death of it does not."""
    kind, sender, receiver, _, _ = message
    if kind in (_REQUEST, _RESPONSE):
        return address in (sender, receiver)
    return receiver == address
