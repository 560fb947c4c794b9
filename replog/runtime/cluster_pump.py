"""Drives the nodes of an in-process cluster from one asyncio loop: messages, timers, flushes.

There is no task per message and none per node. Whatever is on its way is handed over in one call of
the loop, up to a budget, so that clients get their turn; one timer stands for the earliest deadline
of all. A node that breaks an invariant is dropped as if its process had died, and the error is kept
for the cluster's owner.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from replog.runtime.broker_node import BrokerNode
from replog.runtime.group_flush import GroupFlush
from replog.runtime.memory_transport import (
    CLIENT,
    NOWHERE,
    MemoryTransport,
    controller_address,
    is_controller,
    node_at,
)
from replog.runtime.ports import Ports

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from replog.config import ControllerOptions, ReplicationOptions
    from replog.errors import ReplogError
    from replog.messages import ControllerRequest, PartitionRequest, Request
    from replog.registrations import MetadataDelta
    from replog.runtime.clock import Clock
    from replog.runtime.journal import Journal
    from replog.runtime.log_store import DirectoryLogStore
    from replog.runtime.quorum_endpoints import MemberEndpoint
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
        self.broker_id = self.address = broker_id
        self.store = store
        self.paused = False
        self._pump = pump
        self._transport = pump.transport
        self.respond = pump.transport.respond
        self._now_ms = pump.clock.monotonic_ms
        self._flushes = GroupFlush(pump.loop, self._flush_completed)
        self._completed: list[tuple[TopicPartition, ReplicaLog, ReplogError | None]] = []
        self._when_ended: list[Callable[[], None]] = []
        self._controller_at = NOWHERE
        """Where the controller is that leads the quorum, as far as this broker knows."""
        self.node = BrokerNode(
            broker_id,
            incarnation_id,
            Ports(store=store, network=self, flushes=self._flushes),
            replication=replication,
            controller=controller,
            rack=rack,
            journal=journal,
        )

    def follow_metadata(self, delta: MetadataDelta, now_ms: int) -> None:
        """The broker's copy of the metadata log has gone on."""
        self._pump.call(self.broker_id, self.node.follow_metadata, delta, now_ms)

    def follow_leader(self, leader_id: int | None, now_ms: int) -> None:
        """The quorum has another leader; None: nobody that is known of."""
        self._controller_at = NOWHERE if leader_id is None else controller_address(leader_id)
        if leader_id is not None:
            self._pump.call(self.broker_id, self.node.controller_found, now_ms)

    def send_to_broker(self, request_id: int, to: int, request: PartitionRequest) -> None:
        self._transport.request(self.broker_id, to, request_id, request)

    def send_to_controller(self, request_id: int, request: ControllerRequest) -> None:
        self._transport.request(self.broker_id, self._controller_at, request_id, request)

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
        """Told to controllers alone."""

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

    def close(self) -> None:
        """Flush and close the logs, and mark the directory clean. Raises StorageError."""
        self.node.close()

    def abandon(self) -> None:
        """Let go of the logs as the death of the process would."""
        self.store.abandon()

    def _flush_completed(
        self, topic_partition: TopicPartition, log: ReplicaLog, error: ReplogError | None
    ) -> None:
        if self.paused:
            self._completed.append((topic_partition, log, error))
            return
        self._pump.call(
            self.broker_id, self.node.flush_completed, topic_partition, log, self._now_ms(), error
        )


class ClientEndpoint:
    """All clients of the cluster; each request has a function that takes its answer."""

    def __init__(self, pump: ClusterPump) -> None:
        self._transport = pump.transport
        self._next_request_id = 0
        self._waiting: dict[int, Callable[[Any], None]] = {}

    def reaches(self, receiver: int) -> bool:
        """Whether anybody is at the address."""
        return receiver in self._transport

    def ask(self, receiver: int, request: Any, answered: Callable[[Any], None]) -> int:
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
        """Told to controllers alone."""


class ClusterPump:
    """See the module. Not for use outside its loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self.clock = clock
        self.transport = MemoryTransport(self._wake)
        self.brokers: dict[int, BrokerEndpoint] = {}
        self.members: dict[int, MemberEndpoint] = {}
        """Controllers, and the observers of brokers, by address."""
        self.node_lost: Callable[[int], None] = self.drop
        """Called for a node that has broken an invariant, or can keep no promise any more."""
        self.crashes: list[tuple[int, Exception]] = []
        """Nodes that broke an invariant, each with the error."""
        self.after_turn: tuple[Callable[[], None], ...] = ()
        """Called at the end of each turn."""
        self._is_awake = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._looked_at_ms = -1
        self._closed = False

    def add_member(self, endpoint: MemberEndpoint) -> None:
        """Attach a controller or an observer, for its owner to start."""
        address = endpoint.address
        self.transport.attach(address, endpoint, watches=is_controller(address))
        self.members[address] = endpoint

    def add_broker(self, endpoint: BrokerEndpoint) -> None:
        """Attach a broker, for its owner to start."""
        self.transport.attach(endpoint.broker_id, endpoint)
        self.brokers[endpoint.broker_id] = endpoint

    def runs(self, node_id: int) -> bool:
        """Whether anything of a node is there."""
        return bool(self.endpoints_of(node_id))

    def endpoints_of(self, node_id: int) -> list[BrokerEndpoint | MemberEndpoint]:
        """A node's broker, and its controller or observer: what there is of it."""
        found: list[BrokerEndpoint | MemberEndpoint] = [
            member for member in self.members.values() if member.node_id == node_id
        ]
        if node_id in self.brokers:
            found.insert(0, self.brokers[node_id])
        return found

    def drop(self, node_id: int) -> None:
        """Let a node die: its connections are reset, and nothing of it is closed or written."""
        for endpoint in self.remove(node_id):
            endpoint.abandon()

    def remove(self, node_id: int) -> list[BrokerEndpoint | MemberEndpoint]:
        """Take a node off the network, for its owner to close."""
        endpoints = self.endpoints_of(node_id)
        for endpoint in endpoints:
            endpoint.stop_flushes()
            self.brokers.pop(endpoint.address, None)
            self.members.pop(endpoint.address, None)
            self.transport.detach(endpoint.address)
        return endpoints

    def pause(self, node_id: int) -> None:
        """Let all of a node stand still."""
        for endpoint in self.endpoints_of(node_id):
            endpoint.paused = True
            self.transport.pause(endpoint.address)

    def resume(self, node_id: int) -> None:
        """Let it go on."""
        for endpoint in self.endpoints_of(node_id):
            endpoint.resume()
            self.transport.resume(endpoint.address)
        self._wake()

    def call(self, address: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call into a node from outside a delivery to it; what follows is delivered soon."""
        self._safely(address, call, *arguments)
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
        more = bool(self.transport)
        now_ms = self.clock.monotonic_ms()
        if now_ms != self._looked_at_ms:
            self._looked_at_ms = now_ms
            deadline = self._deadline_ms()
            if deadline is not None and deadline <= now_ms:
                self._tick(now_ms)
                more = bool(self.transport)
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
        due = [member for member in self.members.values() if _is_due(member, now_ms)]
        if not due:
            return
        # The loop may have stood still, and all nodes with it: their heartbeats and fetches come
        # first, or each would be taken for dead.
        self._safely(None, self.transport.deliver, MESSAGES_BEFORE_VERDICT)
        for member in due:
            if self.members.get(member.address) is member and _is_due(member, now_ms):
                self._safely(member.address, member.tick, now_ms)

    def _deadline_ms(self) -> int | None:
        earliest = None
        for member in self.members.values():
            if not member.paused:
                deadline = member.next_deadline_ms
                if deadline is not None and (earliest is None or deadline < earliest):
                    earliest = deadline
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
        """Drop a node that cannot be trusted any more."""
        node_id = node_at(address)
        logger.error("node %d broke an invariant and was stopped", node_id, exc_info=error)
        self.crashes.append((node_id, error))
        if address != CLIENT and self.runs(node_id):
            self.node_lost(node_id)


def _is_due(member: MemberEndpoint, now_ms: int) -> bool:
    deadline = member.next_deadline_ms
    return not member.paused and deadline is not None and deadline <= now_ms
