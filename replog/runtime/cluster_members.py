"""The nodes of an in-process cluster: started, killed, paused, cut off, stopped, restarted.

What has happened to whom is kept here; misuse is told as such, naming what the node is doing.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import os
import time
from typing import TYPE_CHECKING, cast

from replog.errors import MissingLogError, RequestTimedOutError, UsageError
from replog.messages import ErrorCode
from replog.runtime.cluster_nodes import OpenedNode, open_node
from replog.runtime.cluster_pump import BrokerEndpoint, ClusterPump
from replog.runtime.failover_watch import FailoverWatch
from replog.runtime.journal import Journal, JournalEntry
from replog.runtime.memory_transport import controller_address, observer_address
from replog.runtime.metadata_follower import MetadataFollower
from replog.runtime.node_files import NodeFiles, close_all
from replog.runtime.quorum_endpoints import ControllerEndpoint, ObserverEndpoint, QuorumSettings
from replog.storage.kafka_uuid import format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replog.config import ReplicationOptions
    from replog.controller.quorum.incidents import OlderMetadataRefused
    from replog.replication.replica_host import ReplicaHost
    from replog.runtime.broker_node import BrokerNode
    from replog.runtime.cluster_nodes import ClusterLayout
    from replog.runtime.cluster_view import ClusterView
    from replog.runtime.failover_watch import Fault
    from replog.types import TopicPartition

logger = logging.getLogger(__name__)

STOP_TIMEOUT_MS = 30_000
"""How long a broker that is to stop may take to hand its leaderships on."""


class MemberState(enum.Enum):
    """What a node is doing."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"


class ClusterMembers:
    """All nodes of one cluster. Not for use outside the pump's thread."""

    def __init__(
        self,
        pump: ClusterPump,
        view: ClusterView,
        directory: str,
        layout: ClusterLayout,
        settings: QuorumSettings,
        *,
        racks: Mapping[int, str],
        replication: ReplicationOptions,
    ) -> None:
        self.layout = layout
        self.directory = directory
        self.states = dict.fromkeys(layout.nodes, MemberState.STOPPED)
        self.watch = FailoverWatch(view.partition, self.is_leading, time.perf_counter)
        self._pump = pump
        self._view = view
        self._settings = settings
        self._racks = dict(racks)
        self._replication = replication
        wall_ms = pump.clock.wall_ms
        self._journals = {id_: Journal(id_, wall_ms=wall_ms) for id_ in layout.brokers}
        self._controller_journals = {id_: Journal(wall_ms=wall_ms) for id_ in layout.controllers}
        self._cuts: set[frozenset[int]] = set()
        self.refusal: str | None = None
        """Why the latest broker to do so follows no controller."""
        self._stops: dict[int, asyncio.Task[None]] = {}
        """Of nodes that are stopping."""
        self.files = NodeFiles(self._open)
        pump.after_turn += (self.watch.look,)
        pump.node_lost = self._died

    def node(self, broker_id: int) -> BrokerNode:
        """A broker that runs or is paused. Raises UsageError for any other."""
        self.check_broker(broker_id)
        endpoint = self._pump.brokers.get(broker_id)
        if endpoint is None:
            raise UsageError(
                f"expected a running broker, found {broker_id} {self.states[broker_id].value}; "
                f"restart it first"
            )
        return endpoint.node

    def host(self, broker_id: int | None) -> ReplicaHost | None:
        """A broker's replicas; None while it does not run."""
        endpoint = None if broker_id is None else self._pump.brokers.get(broker_id)
        return None if endpoint is None else endpoint.node.host

    def log_directory(self, node_id: int) -> str:
        """Where a node keeps its logs, also while it does not run."""
        self.check_id(node_id)
        return os.path.join(self.directory, self.layout.directory_name(node_id))

    def journal(self, broker_id: int) -> Journal:
        """Incidents of all runs of a broker."""
        return self._journals[broker_id]

    def entries(self, topic_partition: TopicPartition | None) -> list[JournalEntry]:
        """Incidents of all brokers and controllers, by time."""
        journals = itertools.chain(self._journals.values(), self._controller_journals.values())
        found = [entry for journal in journals for entry in journal.incidents(topic_partition)]
        return sorted(found, key=lambda entry: entry.at_ms)

    def is_leading(self, broker_id: int, topic_partition: TopicPartition, epoch: int) -> bool:
        """Whether a broker takes requests as the partition's leader in this epoch."""
        endpoint = self._pump.brokers.get(broker_id)
        if endpoint is None or endpoint.paused:
            return False
        leader = endpoint.node.host.leader(topic_partition)
        return leader is not None and leader.leader_epoch >= epoch

    def is_ready(self, node_id: int) -> bool:
        """Whether the controller lets a broker lead; whether a lone controller runs."""
        if node_id not in self.layout.brokers:
            return self._pump.runs(node_id)
        registered = self._view.broker(node_id)
        endpoint = self._pump.brokers.get(node_id)
        return (
            registered is not None
            and endpoint is not None
            and registered.eligible
            and registered.broker_epoch == endpoint.node.broker_epoch
        )

    def are_ready(self) -> bool:
        """Whether all brokers are. Raises MissingLogError for controllers with older metadata."""
        if self.refusal is not None:
            raise MissingLogError(self.refusal)
        return all(map(self.is_ready, self.layout.brokers))

    def what_is_missing(self) -> str:
        """Which brokers are not ready, and what was noted last: for an error's sentence."""
        waiting = [broker_id for broker_id in self.layout.brokers if not self.is_ready(broker_id)]
        noted = [f"{entry.incident}" for entry in self.entries(None)[-3:]]
        return (
            f"that the controllers let the brokers {waiting} not lead yet; the latest incidents: "
            f"{', '.join(noted) or 'none'}"
        )

    def open_new(self, node_id: int) -> None:
        """Start a node on this thread: quick in a new directory."""
        self._add(node_id, self._open(node_id))

    async def start(self, node_id: int) -> None:
        """Start a node that does not run; its recovery runs in a thread."""
        self.check_id(node_id)
        before = self.states[node_id]
        if before not in {MemberState.STOPPED, MemberState.KILLED}:
            raise UsageError(
                f"expected a node that does not run, found {node_id} {before.value}; kill or stop "
                f"it first"
            )
        self.states[node_id] = MemberState.STARTING
        try:
            opened = await self.files.open(node_id)
        except BaseException:
            if self.states[node_id] is MemberState.STARTING:
                self.states[node_id] = before
            raise
        self._add(node_id, opened)

    def kill(self, node_id: int) -> None:
        """Let a node die as its process would."""
        self._expect(node_id, MemberState.RUNNING, MemberState.PAUSED, MemberState.STOPPING)
        self._lose(node_id, "killed")
        self._died(node_id)

    def pause(self, node_id: int) -> None:
        """Let a node stand still; nobody is told."""
        self._expect(node_id, MemberState.RUNNING)
        self._lose(node_id, "paused")
        self._pump.pause(node_id)
        self.states[node_id] = MemberState.PAUSED

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self._expect(node_id, MemberState.PAUSED)
        self.watch.returned(node_id)
        self.states[node_id] = MemberState.RUNNING
        self._pump.resume(node_id)

    async def stop(self, node_id: int) -> None:
        """Stop a node cleanly: leaderships moved away, logs flushed, closed and marked clean.

        Once begun it cannot be taken back, since the controllers have been told: whether the
        caller waits or is called off, the node stops. Who asks again waits for the same.
        """
        self._expect(node_id, MemberState.RUNNING, MemberState.STOPPING)
        if node_id not in self._stops:
            self.states[node_id] = MemberState.STOPPING
            self._lose(node_id, "stopped")
            endpoint = self._pump.brokers.get(node_id)
            self._stops[node_id] = asyncio.ensure_future(self._stop(node_id, endpoint))
        stopping = self._stops[node_id]
        try:
            await asyncio.wait_for(asyncio.shield(stopping), STOP_TIMEOUT_MS / 1000)
        except TimeoutError:
            raise RequestTimedOutError(
                f"expected node {node_id} to hand its leaderships on within "
                f"{STOP_TIMEOUT_MS} ms, found no controller that took them; it stops as soon as "
                f"one does: heal or restart the controllers, or kill it"
            ) from None

    async def _stop(self, node_id: int, endpoint: BrokerEndpoint | None) -> None:
        try:
            if endpoint is not None:
                ended: asyncio.Future[None] = self._pump.loop.create_future()
                endpoint.when_ended(lambda: None if ended.done() else ended.set_result(None))
                now_ms = self._pump.clock.monotonic_ms()
                self._pump.call(node_id, endpoint.node.shut_down, now_ms)
                await ended
            if self.states[node_id] is not MemberState.STOPPING:
                return  # killed meanwhile, or all of the cluster closed
            left = MemberState.KILLED
            try:
                await self.files.close(node_id, self._remove(node_id))
                left = MemberState.STOPPED
            finally:
                # What could not be closed is as a crash would have left it.
                if self.states[node_id] is MemberState.STOPPING:
                    self.states[node_id] = left
        finally:
            if self._stops.get(node_id) is asyncio.current_task():
                del self._stops[node_id]

    def close_all(self, *, keep_files: bool) -> None:
        """Take all nodes off; close their logs cleanly only if the files are to be kept.

        `files.drained` is to follow: threads may be at the files of a node. Raises the first
        StorageError; all are closed nevertheless.
        """
        endpoints = [found for node_id in self.layout.nodes for found in self._remove(node_id)]
        self.states = dict.fromkeys(self.layout.nodes, MemberState.STOPPED)
        try:
            if keep_files:
                close_all(endpoints)
            else:
                for endpoint in endpoints:
                    endpoint.abandon()
        finally:
            for endpoint in endpoints:
                if isinstance(endpoint, BrokerEndpoint):
                    endpoint.tell_ended()

    def cut(self, one: int, other: int) -> None:
        """Let nothing through between two nodes."""
        for pair in itertools.product(_addresses(one), _addresses(other)):
            self._pump.transport.cut(*pair)
        self._cuts.add(frozenset((one, other)))
        for node_id, peer in ((one, other), (other, one)):
            if peer in self.layout.controllers and node_id in self.layout.brokers:
                self._lose(node_id, "partitioned")

    def join(self, one: int, other: int) -> None:
        """Undo one `cut`."""
        self._cuts.discard(frozenset((one, other)))
        for pair in itertools.product(_addresses(one), _addresses(other)):
            self._pump.transport.join(*pair)
        for node_id in {one, other} & set(self.layout.brokers):
            self.watch.returned(node_id)

    def join_all(self) -> None:
        """Undo every `cut`."""
        for pair in list(self._cuts):
            self.join(min(pair), max(pair))

    def check_id(self, node_id: int) -> None:
        """Raise UsageError unless the cluster has such a node."""
        if node_id not in self.layout.nodes:
            raise UsageError(f"expected one of the nodes {list(self.states)}, found {node_id!r}")

    def check_broker(self, broker_id: int) -> None:
        """Raise UsageError unless the cluster has such a broker."""
        if broker_id not in self.layout.brokers:
            raise UsageError(
                f"expected one of the brokers {list(self.layout.brokers)}, found {broker_id!r}"
            )

    def _expect(self, node_id: int, *states: MemberState) -> None:
        self.check_id(node_id)
        if self.states[node_id] not in states:
            raise UsageError(
                f"expected node {node_id} to be {states[0].value}, found it "
                f"{self.states[node_id].value}"
            )

    def _lose(self, node_id: int, fault: Fault) -> None:
        led = [
            name
            for topic in self._view.topics()
            for name in self._view.partitions_of(topic)
            if (held := self._view.partition(name)) is not None and held.leader_id == node_id
        ]
        self.watch.lost(node_id, fault, led)

    def _died(self, node_id: int) -> None:
        endpoints = self._remove(node_id)
        self._stops.pop(node_id, None)
        for endpoint in endpoints:
            endpoint.abandon()
        self.states[node_id] = MemberState.KILLED
        for endpoint in endpoints:
            if isinstance(endpoint, BrokerEndpoint):
                endpoint.tell_ended()  # to a `stop` that waits for it

    def _remove(self, node_id: int) -> list[BrokerEndpoint | ControllerEndpoint | ObserverEndpoint]:
        endpoints = self._pump.remove(node_id)
        for endpoint in endpoints:
            if isinstance(endpoint, ControllerEndpoint):
                self._view.lose(endpoint)
        return cast("list[BrokerEndpoint | ControllerEndpoint | ObserverEndpoint]", endpoints)

    def _open(self, node_id: int) -> OpenedNode:
        return open_node(
            self.log_directory(node_id),
            node_id,
            self._settings.cluster_id,
            self._pump.clock.wall_ms,
            self.layout,
        )

    def _add(self, node_id: int, opened: OpenedNode) -> None:
        """Put a node's parts on the network, then let them begin: a broker hears, then asks."""
        self.states[node_id] = MemberState.RUNNING
        member: ControllerEndpoint | ObserverEndpoint
        if node_id in self.layout.controllers:
            journal = self._controller_journals[node_id]
            member = ControllerEndpoint(
                self._pump, node_id, opened, self._settings, journal, self._view.look
            )
        else:
            member = ObserverEndpoint(self._pump, node_id, opened, self._settings)
        self._pump.add_member(member)
        follower = None
        if opened.store is not None:
            follower = self._add_broker(node_id, opened, member)
        self._pump.call(member.address, member.start, follower, self._pump.clock.monotonic_ms())

    def _add_broker(
        self, node_id: int, opened: OpenedNode, member: ControllerEndpoint | ObserverEndpoint
    ) -> MetadataFollower:
        assert opened.store is not None
        endpoint = BrokerEndpoint(
            self._pump,
            opened.store,
            node_id,
            incarnation_id=format_uuid(self._settings.new_id()),
            replication=self._replication,
            controller=self._settings.controller,
            rack=self._racks.get(node_id),
            journal=self._journals[node_id],
        )
        endpoint.node.obeyed.update(opened.obeyed)
        endpoint.when_ended(lambda: self._ended(endpoint))
        self._pump.add_broker(endpoint)
        follower = MetadataFollower(
            member.log,
            self._pump.clock.wall_ms,
            deliver=endpoint.follow_metadata,
            leader_changed=endpoint.follow_leader,
            owns_log=isinstance(member, ObserverEndpoint),
            snapshot_interval_bytes=self._settings.quorum.snapshot_interval_bytes,
            refused=lambda incident, now_ms: self._refused(node_id, incident, now_ms),
        )
        now_ms = self._pump.clock.monotonic_ms()
        self._pump.call(node_id, endpoint.node.start, now_ms)
        follower.start(now_ms)
        return follower

    def _refused(self, broker_id: int, incident: OlderMetadataRefused, now_ms: int) -> None:
        """A broker goes on with the metadata that it has, and follows no controller."""
        logger.error("broker %d: %s", broker_id, incident.message)
        self._journals[broker_id].add(incident, now_ms)
        self.refusal = incident.message

    def _ended(self, endpoint: BrokerEndpoint) -> None:
        """A broker that the controller has refused for good must not go on."""
        ended = endpoint.node.ended
        if self._pump.brokers.get(endpoint.broker_id) is not endpoint or ended is None:
            return
        if ended.error is not ErrorCode.NONE:
            logger.error("broker %d stopped: %s", endpoint.broker_id, ended.message)
            self._died(endpoint.broker_id)


def _addresses(node_id: int) -> Iterable[int]:
    """Every address that a node may have."""
    return (node_id, controller_address(node_id), observer_address(node_id))
