"""One broker machine: a process that runs production code, a disk that outlives it, an address.

The process can be killed (its connections are reset), lose its power (nobody is told), be paused
(what arrives waits, timers stand still, its peers see silence) and be started again with the same
disk. Its clock is monotonic and starts anywhere.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, Protocol

from replog.config import ControllerOptions, ReplicationOptions
from replog.errors import ReplogError
from replog.messages import (
    ControllerRequest,
    ErrorCode,
    MetadataFetchResponse,
    PartitionRequest,
    PartitionResponse,
)
from replog.registrations import MetadataDelta
from replog.runtime.broker_node import BrokerNode
from replog.runtime.journal import JournalEntry
from replog.runtime.ports import Ports, ReplicatedLog
from replog.testing.simulation.disk import SimDisk, SimFlushes, SimStore
from replog.testing.simulation.network import Connection, Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS, Scheduler
from replog.types import TopicPartition

CONTROLLER = 0
"""The controller's address; brokers have their ids, from 1 on."""


class BrokerObserver(Protocol):
    """Who is told what brokers do and say."""

    def incident(self, entry: JournalEntry) -> None:
        """The broker reported something."""

    def process_started(self, broker: SimBroker) -> None: ...

    def process_ended(self, broker: SimBroker, how: str) -> None:
        """`how`: killed, power lost or closed."""

    def broker_sent(self, broker: SimBroker, to: int, request: Any) -> None: ...

    def broker_received(self, broker: SimBroker, request: Any) -> None:
        """A request is about to be handed to the process; None: it has dealt with it."""

    def broker_answered(
        self, broker: SimBroker, request: Any, response: PartitionResponse
    ) -> None: ...

    def broker_told(
        self, broker: SimBroker, deltas: tuple[MetadataDelta, ...], version: int
    ) -> None:
        """The process was given these, and has obeyed those up to `version`."""


class SimBroker:
    """See the module; satisfies `network.Node`, and `runtime.ports.Network` for its process."""

    def __init__(
        self,
        broker_id: int,
        scheduler: Scheduler,
        network: Network,
        observer: BrokerObserver,
        disk: SimDisk,
        stream: Stream,
        *,
        replication: ReplicationOptions,
        controller: ControllerOptions,
        sync_mean_us: int = 500,
        rack: str | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.disk = disk
        self.node: BrokerNode | None = None
        self.incarnation = 0
        self.paused = False
        self.powered = True
        self.stopping = False
        """A controlled shutdown is under way."""
        self.clock_us = stream.below(10**9)
        """What its clock shows at virtual time 0."""
        self.flushes: SimFlushes | None = None
        self._scheduler = scheduler
        self._network = network
        self._observer = observer
        self._stream = stream
        self._options = (replication, controller, rack)
        self._sync_mean_us = sync_mean_us
        self._inbox: collections.deque[tuple[Callable[..., None], tuple[Any, ...]]] = (
            collections.deque()
        )
        self._armed_us: int | None = None
        self._next_request_id = 0
        self._asked: dict[int, tuple[Connection, int, Any]] = {}
        """Requests that wait for our answer: on which connection, under which id."""
        self._asking: dict[Connection, dict[int, None]] = {}
        """Ids of our requests that wait for an answer, per connection, oldest first."""
        network.nodes[broker_id] = self

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.node is not None else "down"
        return f"<SimBroker {self.broker_id}, {state}>"

    @property
    def running(self) -> bool:
        return self.node is not None

    @property
    def now_ms(self) -> int:
        """What this broker's clock shows."""
        return (self._scheduler.now_us + self.clock_us) // MICROSECONDS_PER_MS

    def start(self) -> None:
        """Start a process on the disk as it is."""
        assert self.node is None
        self.incarnation += 1
        self.powered = True
        self.stopping = False
        incarnation = self.incarnation

        def flushed(
            topic_partition: TopicPartition, log: ReplicatedLog, error: ReplogError | None
        ) -> None:
            if self.incarnation == incarnation and self.node is not None:
                self._do(self._take_flush, topic_partition, log, error)

        self.flushes = SimFlushes(self._scheduler, self._stream, self._sync_mean_us, flushed)
        replication, controller, rack = self._options
        self.node = BrokerNode(
            self.broker_id,
            f"{self.broker_id}-{self.incarnation}",
            Ports(SimStore(self.disk), self, self.flushes),
            replication=replication,
            controller=controller,
            rack=rack,
        )
        self.node.journal.listener = self._observer.incident
        self._observer.process_started(self)
        self._do(self._take_start)

    def kill(self, power: Stream | None = None) -> None:
        """End the process with nothing flushed; with `power`, what was not synced is at risk."""
        if self.node is None:
            return
        self._end()
        self.disk.crash(power)
        self.powered = power is None
        self._network.reset_all(self.broker_id, silent=power is not None)
        self._observer.process_ended(self, "killed" if power is None else "power lost")

    def close(self) -> None:
        """Stop the process cleanly, with or without the controller's leave."""
        if self.node is None:
            return
        node = self.node
        try:
            node.close()
        except ReplogError:
            self.kill()
            return
        self._end()
        clean_epoch = self.disk.clean_epoch
        self.disk.crash()
        self.disk.clean_epoch = clean_epoch
        for log in self.disk.logs.values():
            log.synced(log.log_end_offset)
        self._network.reset_all(self.broker_id, silent=False)
        self._observer.process_ended(self, "closed")

    def shut_down(self) -> None:
        """Begin a controlled shutdown; the process is closed when the controller agrees."""
        if self.node is not None and not self.stopping:
            self.stopping = True
            self._do(self._take_shutdown)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Go on with what has arrived meanwhile; timers that are due may come first."""
        if not self.paused:
            return
        self.paused = False
        if self.node is None:
            return
        if self._stream.chance(0.5):
            self._tick()
        while self._inbox and not self.paused and self.node is not None:
            act, arguments = self._inbox.popleft()
            if act == self._take_request and self._inbox and self._inbox[0][0] == act:
                self._take_request(*arguments, more=True)
                continue
            act(*arguments)
            self._after()
        self._tick()

    def _end(self) -> None:
        self.node = None
        self.flushes = None
        self.paused = False
        self.stopping = False
        self._inbox.clear()
        self._asked.clear()
        self._asking.clear()
        self._armed_us = None

    def request_arrived(self, connection: Connection, request_id: int, request: Any) -> None:
        if self.node is None:
            self._network.refuse(connection, silent=not self.powered)
        elif self.paused:
            self._inbox.append((self._take_request, (connection, request_id, request)))
        else:
            self._take_request(connection, request_id, request)
            self._after()

    def response_arrived(self, connection: Connection, request_id: int, response: Any) -> None:
        if self.paused:
            self._inbox.append((self._take_response, (connection, request_id, response)))
        elif self.node is not None:
            self._take_response(connection, request_id, response)
            self._after()

    def connection_lost(self, connection: Connection) -> None:
        if self.paused:
            self._inbox.append((self._take_loss, (connection,)))
        elif self.node is not None:
            self._take_loss(connection)
            self._after()

    def send_to_broker(self, request_id: int, to: int, request: PartitionRequest) -> None:
        self._send(request_id, to, request)

    def send_to_controller(self, request_id: int, request: ControllerRequest) -> None:
        self._send(request_id, CONTROLLER, request)

    def _send(self, request_id: int, to: int, request: Any) -> None:
        connection = self._network.request(self.broker_id, to, request_id, request)
        asking = self._asking.get(connection)
        if asking is None:
            asking = self._asking[connection] = {}
        asking[request_id] = None
        self._observer.broker_sent(self, to, request)

    def respond(self, request_id: int, response: PartitionResponse) -> None:
        asked = self._asked.pop(request_id, None)
        if asked is not None:
            connection, asked_id, request = asked
            self._observer.broker_answered(self, request, response)
            self._network.respond(connection, asked_id, response)

    def _do(self, act: Callable[..., None], *arguments: Any) -> None:
        """Let the process do something: now, or when it is not paused any more."""
        if self.paused:
            self._inbox.append((act, arguments))
        else:
            act(*arguments)
            self._after()

    def _take_start(self) -> None:
        assert self.node is not None
        self.node.start(self.now_ms)

    def _take_shutdown(self) -> None:
        if self.node is not None:
            self.node.shut_down(self.now_ms)

    def _take_request(
        self, connection: Connection, request_id: int, request: Any, *, more: bool = False
    ) -> None:
        assert self.node is not None
        self._next_request_id += 1
        own_id = self._next_request_id
        self._asked[own_id] = (connection, request_id, request)
        self._observer.broker_received(self, request)
        self.node.receive_request(own_id, request, self.now_ms, more=more)
        self._observer.broker_received(self, None)

    def _take_response(self, connection: Connection, request_id: int, response: Any) -> None:
        asking = self._asking.get(connection)
        if asking is None or request_id not in asking or self.node is None:
            return
        del asking[request_id]
        node = self.node
        node.receive_response(request_id, response, self.now_ms)
        if type(response) is MetadataFetchResponse:
            self._observer.broker_told(self, response.deltas, node.session.version)

    def _take_loss(self, connection: Connection) -> None:
        if self.node is None:
            return
        if connection.server == self.broker_id:
            gone = [own for own, asked in self._asked.items() if asked[0] is connection]
            for own_id in gone:
                if self._asked.pop(own_id, None) is not None:
                    self.node.requester_gone(own_id, self.now_ms)
            return
        for request_id in self._asking.pop(connection, {}):
            self.node.request_failed(request_id, self.now_ms)

    def _take_flush(
        self, topic_partition: TopicPartition, log: ReplicatedLog, error: ReplogError | None
    ) -> None:
        if self.node is not None:
            self.node.flush_completed(topic_partition, log, self.now_ms, error)

    def _after(self) -> None:
        """Obey an ended session, and see that the timer is set."""
        node = self.node
        if node is None:
            return
        if node.ended is not None:
            if node.ended.error is ErrorCode.NONE:
                self.close()
            else:
                self.kill()
            return
        deadline = node.next_deadline_ms
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
        node = self.node
        if node is None:
            return
        deadline = node.next_deadline_ms
        if deadline is not None and deadline <= self.now_ms:
            node.tick(self.now_ms)
        self._after()
