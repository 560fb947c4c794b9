"""Drives the nodes of an in-process cluster from one asyncio loop: messages, timers, flushes.

There is no task per message and none per node. Whatever is on its way is handed over in one call of
the loop, up to a budget, so that clients get their turn; one timer stands for the earliest deadline
of all. A node that breaks an invariant is dropped as if its process had died, and the error is kept
for the cluster's owner.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from replog.controller import events as controller_ev
from replog.controller.effects import Report, Respond
from replog.runtime.broker_node import BrokerNode
from replog.runtime.group_flush import GroupFlush
from replog.runtime.journal import Journal
from replog.runtime.memory_transport import CLIENT, CONTROLLER, MemoryTransport
from replog.runtime.ports import Ports

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from replog.config import ControllerOptions, ReplicationOptions
    from replog.controller.effects import ControllerEffect
    from replog.controller.events import ControllerEvent
    from replog.controller.model_controller import ModelController
    from replog.errors import ReplogError
    from replog.messages import ControllerRequest, PartitionRequest, Request
    from replog.runtime.clock import Clock
    from replog.runtime.log_store import DirectoryLogStore
    from replog.runtime.replica_log import ReplicaLog
    from replog.types import TopicPartition

MESSAGES_PER_TURN = 256
MESSAGES_BEFORE_VERDICT = 100_000

logger = logging.getLogger(__name__)


class BrokerEndpoint:
    """A BrokerNode on the memory transport: its network port, and its mailbox."""

    def __init__(
        self,
        pump: ClusterPump,
        store: DirectoryLogStore,
        broker_id: int,
        incarnation_id: str,
        *,
        replication: ReplicationOptions,
        controller: ControllerOptions,
        rack: str | None,
        journal: Journal,
    ) -> None:
        self.broker_id = broker_id
        self.store = store
        self.paused = False
        self._pump = pump
        self._transport = pump.transport
        self.respond = pump.transport.respond
        self._now_ms = pump.clock.monotonic_ms
        self._flushes = GroupFlush(pump.loop, self._flush_completed)
        self._completed: list[tuple[TopicPartition, ReplicaLog, ReplogError | None]] = []
        self._when_ended: list[Callable[[], None]] = []
        self.node = BrokerNode(
            broker_id,
            incarnation_id,
            Ports(store=store, network=self, flushes=self._flushes),
            replication=replication,
            controller=controller,
            rack=rack,
            journal=journal,
        )

    def send_to_broker(self, request_id: int, to: int, request: PartitionRequest) -> None:
        self._transport.request(self.broker_id, to, request_id, request)

    def send_to_controller(self, request_id: int, request: ControllerRequest) -> None:
        self._transport.request(self.broker_id, CONTROLLER, request_id, request)

    def receive_request(self, request_id: int, sender: int, request: Any, *, more: bool) -> None:
        self.node.receive_request(request_id, request, self._now_ms(), more=more)

    def requester_gone(self, request_id: int) -> None:
        self.node.requester_gone(request_id, self._now_ms())

    def receive_response(self, request_id: int, response: Any) -> None:
        self.node.receive_response(request_id, response, self._now_ms())

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call when the broker has nothing more to do; see `BrokerNode.ended`."""
        self._when_ended.append(call)

    def tell_ended(self) -> None:
        """Make those calls."""
        for call in self._when_ended:
            call()

    def request_failed(self, request_id: int) -> None:
        self.node.request_failed(request_id, self._now_ms())

    def connection_lost(self, peer: int) -> None:
        """Told to the controller alone."""

    def tick(self, now_ms: int) -> None:
        deadline = self.node.next_deadline_ms
        if deadline is not None and deadline <= now_ms:
            self.node.tick(now_ms)

    def resume(self) -> None:
        """Take in what happened while the broker stood still."""
        self.paused = False
        completed, self._completed = self._completed, []
        for completion in completed:
            self._flush_completed(*completion)

    def stop_flushes(self) -> None:
        """Hear of no sync any more."""
        self._flushes.close()

    def _flush_completed(
        self, topic_partition: TopicPartition, log: ReplicaLog, error: ReplogError | None
    ) -> None:
        if self.paused:
            self._completed.append((topic_partition, log, error))
            return
        self._pump.run(self, self.node.flush_completed, topic_partition, log, self._now_ms(), error)


class ControllerEndpoint:
    """The controller on the memory transport."""

    def __init__(self, pump: ClusterPump, controller: ModelController) -> None:
        self.controller = controller
        self.journal = Journal()
        self._transport = pump.transport
        self._now_ms = pump.clock.monotonic_ms
        self._changed = pump.metadata_changed
        self._version = controller.version

    def receive_request(self, request_id: int, sender: int, request: Any, *, more: bool) -> None:
        self._step(
            controller_ev.RequestReceived(
                request_id=request_id, sender=None if sender == CLIENT else sender, request=request
            )
        )

    def connection_lost(self, peer: int) -> None:
        self._step(controller_ev.ConnectionLost(broker_id=peer))

    def requester_gone(self, request_id: int) -> None:
        """Its answer goes nowhere; the controller need not know."""

    def receive_response(self, request_id: int, response: Any) -> None:
        """The controller asks nobody."""

    def request_failed(self, request_id: int) -> None:
        """The controller asks nobody."""

    def tick(self, now_ms: int) -> None:
        deadline = self.controller.next_deadline_ms
        if deadline is not None and deadline <= now_ms:
            self._step(controller_ev.Tick())

    def _step(self, event: ControllerEvent) -> None:
        now_ms = self._now_ms()
        effects: list[ControllerEffect] = self.controller.step(event, now_ms)
        for effect in effects:
            if type(effect) is Respond:
                self._transport.respond(effect.request_id, effect.response)
            elif type(effect) is Report:
                self.journal.add(effect.incident, now_ms)
        if self.controller.version != self._version:
            self._version = self.controller.version
            self._changed()


class ClientEndpoint:
    """All clients of the cluster; each request has a function that takes its answer."""

    def __init__(self, pump: ClusterPump) -> None:
        self._transport = pump.transport
        self._next_request_id = 0
        self._waiting: dict[int, Callable[[Any], None]] = {}

    def ask(self, receiver: int, request: Request, answered: Callable[[Any], None]) -> int:
        """Send a request and return its id; `answered` gets the response, None if none comes."""
        self._next_request_id += 1
        self._waiting[self._next_request_id] = answered
        self._transport.request(CLIENT, receiver, self._next_request_id, request)
        return self._next_request_id

    def tell(self, receiver: int, request: Request) -> None:
        """Send what is never answered (acks=0)."""
        self._transport.request(CLIENT, receiver, 0, request, answered=False)

    def give_up(self, request_id: int) -> None:
        """Wait for an answer no longer; whoever works on it is told."""
        if self._waiting.pop(request_id, None) is not None:
            self._transport.forget(CLIENT, request_id)

    def close(self) -> None:
        """Break all connections."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for answered in waiting:
            answered(None)

    def receive_response(self, request_id: int, response: Any) -> None:
        answered = self._waiting.pop(request_id, None)
        if answered is not None:
            answered(response)

    def request_failed(self, request_id: int) -> None:
        self.receive_response(request_id, None)

    def receive_request(self, request_id: int, sender: int, request: Any, *, more: bool) -> None:
        """Nobody asks a client."""

    def requester_gone(self, request_id: int) -> None:
        """Nobody asks a client."""

    def connection_lost(self, peer: int) -> None:
        """Told to the controller alone."""


class ClusterPump:
    """See the module. Not for use outside its loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, metadata_changed: Callable[[], None]
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.metadata_changed = metadata_changed
        self.transport = MemoryTransport(self._wake)
        self.brokers: dict[int, BrokerEndpoint] = {}
        self.crashes: list[tuple[int, Exception]] = []
        """Nodes that broke an invariant, each with the error."""
        self.after_turn: tuple[Callable[[], None], ...] = ()
        """Called at the end of each turn."""
        self._controller: ControllerEndpoint | None = None
        self._is_awake = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._looked_at_ms = -1
        self._closed = False

    def add_controller(self, endpoint: ControllerEndpoint) -> None:
        self._controller = endpoint
        self.transport.attach(CONTROLLER, endpoint)

    def add_broker(self, endpoint: BrokerEndpoint) -> None:
        """Attach a broker and let it register."""
        self.transport.attach(endpoint.broker_id, endpoint)
        self.brokers[endpoint.broker_id] = endpoint
        self.run(endpoint, endpoint.node.start, self.clock.monotonic_ms())

    def drop_broker(self, broker_id: int) -> None:
        """Let a broker die: its connections are reset, and nothing of it is closed or written."""
        endpoint = self.brokers.pop(broker_id)
        endpoint.stop_flushes()
        endpoint.store.abandon()
        self.transport.detach(broker_id)

    def remove_broker(self, broker_id: int) -> BrokerEndpoint:
        """Take a broker off the network, for its owner to close."""
        endpoint = self.brokers.pop(broker_id)
        endpoint.stop_flushes()
        self.transport.detach(broker_id)
        return endpoint

    def pause(self, broker_id: int) -> None:
        self.brokers[broker_id].paused = True
        self.transport.pause(broker_id)

    def resume(self, broker_id: int) -> None:
        self.brokers[broker_id].resume()
        self.transport.resume(broker_id)
        self._wake()

    def run(self, endpoint: BrokerEndpoint, call: Callable[..., None], *arguments: Any) -> None:
        """Call into a broker from outside a delivery; what follows is delivered soon."""
        self._safely(endpoint.broker_id, call, *arguments)
        self._wake()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        if not self._is_awake and not self._closed:
            self._is_awake = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Deliver, tick what is due, and see that the next turn comes in time."""
        if self._closed:
            return
        self._is_awake = False
        self._safely(None, self.transport.deliver, MESSAGES_PER_TURN)
        more = len(self.transport) > 0
        now_ms = self.clock.monotonic_ms()
        if now_ms != self._looked_at_ms:
            self._looked_at_ms = now_ms
            deadline = self._deadline_ms()
            if deadline is not None and deadline <= now_ms:
                self._tick(now_ms)
                more = len(self.transport) > 0
                deadline = self._deadline_ms()
            if deadline is not None:
                self._arm(deadline, now_ms)
        else:
            # Deadlines were looked at in this very millisecond; what is new is due after it.
            self._arm(now_ms + 1, now_ms)
        for endpoint in list(self.brokers.values()):
            if endpoint.node.ended is not None:
                endpoint.tell_ended()
        for call in self.after_turn:
            call()
        if more:
            self._wake()

    def _tick(self, now_ms: int) -> None:
        for endpoint in list(self.brokers.values()):
            if not endpoint.paused:
                self._safely(endpoint.broker_id, endpoint.tick, now_ms)
        controller = self._controller
        if controller is None:
            return
        deadline = controller.controller.next_deadline_ms
        if deadline is not None and deadline <= now_ms:
            # The loop may have stood still, and all brokers with it: their heartbeats come first,
            # or each would be taken for dead.
            self._safely(None, self.transport.deliver, MESSAGES_BEFORE_VERDICT)
            self._safely(CONTROLLER, controller.tick, now_ms)

    def _deadline_ms(self) -> int | None:
        earliest = None
        if self._controller is not None:
            earliest = self._controller.controller.next_deadline_ms
        for endpoint in self.brokers.values():
            if not endpoint.paused:
                deadline = endpoint.node.next_deadline_ms
                if deadline is not None and (earliest is None or deadline < earliest):
                    earliest = deadline
        return earliest

    def _arm(self, deadline_ms: int, now_ms: int) -> None:
        """See that a turn comes at the deadline; an earlier one that is set already stays."""
        timer = self._timer
        if timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self.loop.call_later(max(deadline_ms - now_ms, 0) / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._wake()

    def _safely(self, address: int | None, call: Callable[..., object], *arguments: Any) -> None:
        """Call; a node that breaks an invariant (None: who had the latest message) is dropped."""
        try:
            call(*arguments)
        except Exception as error:
            self._crashed(self.transport.receiver if address is None else address, error)

    def _crashed(self, address: int, error: Exception) -> None:
        """Drop a node that cannot be trusted any more; the controller itself cannot be dropped."""
        logger.error("node %d broke an invariant and was stopped", address, exc_info=error)
        self.crashes.append((address, error))
        if address in self.brokers:
            self.drop_broker(address)
