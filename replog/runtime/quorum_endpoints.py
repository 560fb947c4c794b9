"""Members of the quorum on the memory transport: controllers, and brokers' observers.

A broker's observer has an address of its own beside the broker's, since it asks others than the
broker does, and under other ids; the two live and die together.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, get_args

from replog.controller.controller import Controller
from replog.controller.quorum.messages import QuorumRequest
from replog.errors import ReplogError
from replog.runtime.controller_node import ControllerNode
from replog.runtime.group_flush import GroupFlush
from replog.runtime.journal import Journal
from replog.runtime.memory_transport import (
    CLIENT,
    controller_address,
    node_at,
    observer_address,
)
from replog.runtime.metadata_follower import MetadataFollower
from replog.runtime.quorum_node import QuorumNode, QuorumPorts
from replog.storage.metadata_log import METADATA_PARTITION

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from replog.config import ControllerOptions, QuorumOptions
    from replog.runtime.cluster_nodes import OpenedNode
    from replog.runtime.cluster_pump import ClusterPump
    from replog.types import TopicPartition

logger = logging.getLogger(__name__)

_QUORUM_REQUESTS = frozenset(get_args(QuorumRequest))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """What all members of one quorum have in common."""

    voters: tuple[int, ...]
    quorum: QuorumOptions
    controller: ControllerOptions
    cluster_id: str
    new_id: Callable[[], uuid.UUID]
    """Ids never given before: of topics, and of brokers' runs."""
    draw_below: Callable[[int], int]
    """Chance, for the lengths of timeouts."""
    flushes: Callable[[Any, Callable[..., None]], Any] = GroupFlush
    """Makes what syncs a member's log, of the loop and of what to call when it is done."""


class MemberEndpoint:
    """What a controller and an observer share: a member's log, its syncs and its mailbox."""

    def __init__(
        self, pump: ClusterPump, address: int, opened: OpenedNode, settings: QuorumSettings
    ) -> None:
        self.address = address
        self.node_id = node_at(address)
        self.paused = False
        self.log = opened.log
        self._directory = opened.directory
        self._pump = pump
        self._transport = pump.transport
        self._now_ms = pump.clock.monotonic_ms
        self._flushes = settings.flushes(pump.loop, self._flush_completed)
        self._completed: list[ReplogError | None] = []
        self.ports = QuorumPorts(
            log=self.log,
            network=self,
            flush=lambda log: self._flushes.flush(METADATA_PARTITION, log),
            wall_ms=pump.clock.wall_ms,
        )

    @property
    def quorum(self) -> QuorumNode:
        """The member."""
        raise NotImplementedError

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` is due."""
        return self.quorum.next_deadline_ms

    def tick(self, now_ms: int) -> None:
        """Do what is due by now."""
        self.quorum.tick(now_ms)
        self._stepped()

    # -- the network, as the node uses it

    def send_to_member(self, request_id: int, member_id: int, request: Any) -> None:
        self._transport.request(self.address, controller_address(member_id), request_id, request)

    def respond_to_member(self, request_id: int, response: Any) -> None:
        self._transport.respond(request_id, response)

    # -- what arrives

    def receive_request(self, request_id: int, sender: int, request: Any, *, more: bool) -> None:
        if type(request) in _QUORUM_REQUESTS:
            self.quorum.receive_request(request_id, request, self._now_ms())
            self._stepped()

    def receive_response(self, request_id: int, response: Any) -> None:
        self.quorum.receive_response(request_id, response, self._now_ms())
        self._stepped()

    def request_failed(self, request_id: int) -> None:
        self.quorum.request_failed(request_id, self._now_ms())
        self._stepped()

    def requester_gone(self, request_id: int) -> None:
        """Its answer goes nowhere; nobody need know."""

    def connection_lost(self, peer: int) -> None:
        self.quorum.connection_lost(node_at(peer), self._now_ms())
        self._stepped()

    def _stepped(self) -> None:
        """Something has moved; a member that can keep no promise any more is dropped, soon."""
        if self.quorum.failed is not None:
            logger.error("node %d stopped: %s", self.node_id, self.quorum.failed)
            self._pump.loop.call_soon(self._drop)

    def _drop(self) -> None:
        if self._pump.members.get(self.address) is self:
            self._pump.node_lost(self.node_id)

    # -- life

    def resume(self) -> None:
        """Take in what happened while the process stood still."""
        self.paused = False
        completed, self._completed = self._completed, []
        for error in completed:
            self._flush_completed(METADATA_PARTITION, self.log, error)

    def stop_flushes(self) -> None:
        """Hear of no sync any more, and write no snapshot."""
        self._flushes.close()
        self.leave_snapshot()

    def leave_snapshot(self) -> None:
        """What is being written will not be finished."""

    def close(self) -> None:
        """Flush and close the log, and mark it clean. Raises StorageError."""
        self.log.close(flush=not self.log.failed)
        if self._directory is not None:
            self._directory.close()

    def abandon(self) -> None:
        """Let go of the log as the death of the process would."""
        self.log.close(flush=False)
        if self._directory is not None:
            self._directory.abandon()

    def _flush_completed(
        self, topic_partition: TopicPartition, log: Any, error: ReplogError | None
    ) -> None:
        if self.paused:
            self._completed.append(error)
        else:
            self._pump.call(self.address, self._flushed, error)

    def _flushed(self, error: ReplogError | None) -> None:
        self.quorum.flush_completed(error, self._now_ms())
        self._stepped()


class ControllerEndpoint(MemberEndpoint):
    """A controller, alone in its process or beside a broker."""

    def __init__(
        self,
        pump: ClusterPump,
        node_id: int,
        opened: OpenedNode,
        settings: QuorumSettings,
        journal: Journal,
        changed: Callable[[ControllerEndpoint], None],
    ) -> None:
        """changed(self) is called when its metadata, or who leads the quorum, may have changed."""
        super().__init__(pump, controller_address(node_id), opened, settings)
        self._changed = changed
        self._is_full = False
        """Clients wait with further commands."""
        self.journal = journal
        self.node = ControllerNode(
            node_id,
            settings.voters,
            Controller(settings.controller, settings.new_id, cluster_id=settings.cluster_id),
            self.ports,
            self,
            journal,
            settings.draw_below,
            settings.quorum,
            has_forgotten=opened.has_forgotten,
            directory_id=opened.directory_id,
        )

    @property
    def quorum(self) -> QuorumNode:
        return self.node.quorum

    @property
    def next_deadline_ms(self) -> int | None:
        return self.node.next_deadline_ms

    def tick(self, now_ms: int) -> None:
        self.node.tick(now_ms)
        self._stepped()

    def start(self, follower: MetadataFollower | None, now_ms: int) -> None:
        """Begin; `follower` is that of a broker in the same process."""
        self.node.follower = follower
        self.node.start(now_ms)
        self._changed(self)

    def leave_snapshot(self) -> None:
        self.node.replay.leave_snapshot()

    def respond(self, request_id: int, response: Any) -> None:
        self._transport.respond(request_id, response)

    def receive_request(self, request_id: int, sender: int, request: Any, *, more: bool) -> None:
        if sender == CLIENT and self.node.put_off(request_id, request):
            if self.node.is_full:
                self._is_full = True
                self._transport.hold_clients(self.address)
            return
        if type(request) in _QUORUM_REQUESTS:
            self.node.receive_member_request(request_id, request, self._now_ms())
        else:
            asker = None if sender == CLIENT else sender
            self.node.receive_request(request_id, asker, request, self._now_ms())
        self._stepped()

    def connection_lost(self, peer: int) -> None:
        if peer >= 0:
            self.node.broker_lost(peer, self._now_ms())
            self._stepped()
        else:
            super().connection_lost(peer)

    def _stepped(self) -> None:
        super()._stepped()
        if self._is_full and not self.node.is_full:
            self._is_full = False
            self._transport.let_clients(self.address)
        self._changed(self)


class ObserverEndpoint(MemberEndpoint):
    """A broker's own follower of the metadata log."""

    def __init__(
        self, pump: ClusterPump, node_id: int, opened: OpenedNode, settings: QuorumSettings
    ) -> None:
        super().__init__(pump, observer_address(node_id), opened, settings)
        self._settings = settings
        self._member: QuorumNode | None = None
        self._follower: MetadataFollower | None = None

    @property
    def quorum(self) -> QuorumNode:
        assert self._member is not None, "started"
        return self._member

    @property
    def next_deadline_ms(self) -> int | None:
        quorum = super().next_deadline_ms
        follower = None if self._follower is None else self._follower.next_deadline_ms
        if quorum is None or follower is None:
            return follower if quorum is None else quorum
        return min(quorum, follower)

    def tick(self, now_ms: int) -> None:
        super().tick(now_ms)
        if self._follower is not None:
            try:
                self._follower.tick(now_ms)
            except ReplogError as error:
                self.quorum.flush_completed(error, now_ms)
                self._stepped()

    def leave_snapshot(self) -> None:
        if self._follower is not None:
            self._follower.leave_snapshot()

    def start(self, follower: MetadataFollower, now_ms: int) -> None:
        """Begin to fetch for `follower`."""
        self._follower = follower
        self._member = QuorumNode(
            self.node_id,
            self._settings.voters,
            self.ports,
            follower,
            self._settings.draw_below,
            self._settings.quorum,
        )
        self._member.start(now_ms)
