"""One broker machine: production code that follows the metadata log, and a disk that outlives it.

The process is a `BrokerNode` and an observer of the controllers' quorum, which fetches the metadata
log into a copy of the broker's own. It begins with what that copy holds, asks whom it takes for the
active controller, and comes back with the same disk.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, cast

from replog.config import ControllerOptions, QuorumOptions, ReplicationOptions
from replog.errors import ReplogError
from replog.messages import (
    ControllerRequest,
    ErrorCode,
    PartitionRequest,
    PartitionResponse,
    ProduceRequest,
)
from replog.registrations import MetadataDelta
from replog.runtime.broker_node import BrokerNode, obeyed_epochs
from replog.runtime.journal import JournalEntry
from replog.runtime.metadata_follower import MetadataFollower
from replog.runtime.metadata_state import read_whole
from replog.runtime.ports import Ports, ReplicatedLog
from replog.runtime.quorum_node import QuorumNode, QuorumPorts
from replog.testing.simulation.disk import SimDisk, SimFlushes, SimStore
from replog.testing.simulation.network import Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS, Scheduler
from replog.testing.simulation.sim_machine import SimMachine
from replog.testing.simulation.sim_metadata_log import METADATA_PARTITION
from replog.types import TopicPartition

CLIENTS_FROM = 1000
"""Addresses from here on are clients'."""
CONTROLLERS_FROM = 100
"""Addresses from here on are controllers'; those below are brokers'."""

_BROKER, _OBSERVER = 0, 1
"""Lowest bit of a request's id on the network: which of the two asked."""


class BrokerObserver(Protocol):
    """Who is told what brokers do and say."""

    def incident(self, entry: JournalEntry) -> None:
        """The broker reported something."""

    def process_started(self, broker: SimBroker) -> None: ...

    def process_ended(self, broker: SimBroker, how: str) -> None:
        """`how`: killed, power lost or closed."""

    def broker_sent(self, broker: SimBroker, to: int, request: Any) -> None: ...

    def broker_received(self, broker: SimBroker, request: Any) -> None:
        """A produce is about to be handed to the process; None: it has dealt with it."""

    def broker_answered(
        self, broker: SimBroker, request: Any, response: PartitionResponse
    ) -> None: ...

    def broker_told(self, broker: SimBroker, delta: MetadataDelta, version: int) -> None:
        """The process was given this, and has obeyed deltas up to `version`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What all brokers of a run have in common."""

    voters: tuple[int, ...]
    replication: ReplicationOptions
    controller: ControllerOptions
    quorum: QuorumOptions
    sync_mean_us: int = 500


class SimBroker(SimMachine):
    """See the module; also `runtime.ports.Network`, and the network of its observer."""

    def __init__(
        self,
        broker_id: int,
        scheduler: Scheduler,
        network: Network,
        observer: BrokerObserver,
        disk: SimDisk,
        stream: Stream,
        settings: BrokerSettings,
        *,
        rack: str | None = None,
    ) -> None:
        super().__init__(broker_id, scheduler, network, stream)
        self.broker_id = broker_id
        self.disk = disk
        self.node: BrokerNode | None = None
        self.stopping = False
        """A controlled shutdown is under way."""
        self.flushes: SimFlushes | None = None
        self._observer = observer
        self._settings = settings
        self._rack = rack
        self._member: QuorumNode | None = None
        self._follower: MetadataFollower | None = None
        self._controller_at: int | None = None
        """The controller that leads the quorum, as far as this broker knows."""

    @property
    def running(self) -> bool:
        return self.node is not None

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

        settings = self._settings
        self.flushes = SimFlushes(self._scheduler, self._stream, settings.sync_mean_us, flushed)
        self.node = BrokerNode(
            self.broker_id,
            f"{self.broker_id}-{self.incarnation}",
            Ports(SimStore(self.disk), self, self.flushes),
            replication=settings.replication,
            controller=settings.controller,
            rack=self._rack,
        )
        self.node.obeyed.update(obeyed_epochs(read_whole(cast("Any", self.disk.metadata))))
        self._follow()
        self.node.journal.listener = self._observer.incident
        self._observer.process_started(self)
        self._do(self._take_start)

    def _follow(self) -> None:
        """Make what follows the metadata log."""
        flushes, log = self.flushes, self.disk.metadata
        assert flushes is not None
        options = self._settings.quorum
        self._follower = MetadataFollower(
            log,  # type: ignore[arg-type] # it does what the real one does
            self._wall_ms,
            deliver=self._obey,
            leader_changed=self._turn_to,
            owns_log=True,
            snapshot_interval_bytes=options.snapshot_interval_bytes,
        )
        ports = QuorumPorts(
            log=log,  # type: ignore[arg-type] # likewise
            network=self,
            flush=lambda log: flushes.flush(METADATA_PARTITION, log),
            wall_ms=self._wall_ms,
        )
        self._member = QuorumNode(
            self.broker_id,
            self._settings.voters,
            ports,
            self._follower,
            self._stream.below,
            options,
        )

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
        self.disk.close()
        self.disk.clean_epoch = clean_epoch
        self._network.reset_all(self.broker_id, silent=False)
        self._observer.process_ended(self, "closed")

    def shut_down(self) -> None:
        """Begin a controlled shutdown; the process is closed when the controller agrees."""
        if self.node is not None and not self.stopping:
            self.stopping = True
            self._do(self._take_shutdown)

    # -- the networks of the two

    def send_to_broker(self, request_id: int, to: int, request: PartitionRequest) -> None:
        self._send(request_id << 1 | _BROKER, to, request)
        self._observer.broker_sent(self, to, request)

    def send_to_controller(self, request_id: int, request: ControllerRequest) -> None:
        to = self._controller_at
        if to is None:
            self._scheduler.after(1, self._nobody_to_ask, (self.incarnation, request_id))
            return
        self._send(request_id << 1 | _BROKER, to, request)
        self._observer.broker_sent(self, to, request)

    def send_to_member(self, request_id: int, member_id: int, request: Any) -> None:
        self._send(request_id << 1 | _OBSERVER, member_id, request)

    def respond(self, request_id: int, response: PartitionResponse) -> None:
        asked = self._asked.get(request_id)
        if asked is not None:
            self._observer.broker_answered(self, asked[2], response)
            self._answer(request_id, response)

    def respond_to_member(self, request_id: int, response: Any) -> None:
        raise AssertionError("nobody asks an observer")

    def _nobody_to_ask(self, asked: tuple[int, int]) -> None:
        incarnation, request_id = asked
        if incarnation == self.incarnation and self.running:
            self._do(self.request_failed, request_id << 1 | _BROKER)

    # -- told by the follower

    def _obey(self, delta: MetadataDelta, now_ms: int) -> None:
        node = self.node
        if node is not None:
            node.follow_metadata(delta, now_ms)
            self._observer.broker_told(self, delta, node.session.version)

    def _turn_to(self, leader_id: int | None, now_ms: int) -> None:
        self._controller_at = leader_id
        if leader_id is not None and self.node is not None:
            self.node.controller_found(now_ms)

    def _wall_ms(self) -> int:
        return self._scheduler.now_us // MICROSECONDS_PER_MS

    # -- the process

    @property
    def deadline_ms(self) -> int | None:
        assert self.node is not None
        assert self._member is not None
        assert self._follower is not None
        first_ms = self.node.next_deadline_ms
        due_ms = self._member.next_deadline_ms
        if due_ms is not None and (first_ms is None or due_ms < first_ms):
            first_ms = due_ms
        due_ms = self._follower.next_deadline_ms
        if due_ms is not None and (first_ms is None or due_ms < first_ms):
            first_ms = due_ms
        return first_ms

    def tick(self) -> None:
        now_ms = self.now_ms
        for one in (self.node, self._member):
            assert one is not None
            deadline = one.next_deadline_ms
            if deadline is not None and deadline <= now_ms:
                one.tick(now_ms)
        assert self._follower is not None
        assert self._member is not None
        try:
            self._follower.tick(now_ms)
        except ReplogError as error:
            self._member.flush_completed(error, now_ms)

    def take_request(self, own_id: int, sender: int, request: Any, *, more: bool) -> None:
        assert self.node is not None
        if type(request) is not ProduceRequest:
            self.node.receive_request(own_id, request, self.now_ms, more=more)
            return
        self._observer.broker_received(self, request)
        self.node.receive_request(own_id, request, self.now_ms, more=more)
        self._observer.broker_received(self, None)

    def take_response(self, request_id: int, response: Any) -> None:
        assert self.node is not None
        assert self._member is not None
        asker = self._member if request_id & 1 == _OBSERVER else self.node
        asker.receive_response(request_id >> 1, response, self.now_ms)

    def request_failed(self, request_id: int) -> None:
        assert self.node is not None
        assert self._member is not None
        asker = self._member if request_id & 1 == _OBSERVER else self.node
        asker.request_failed(request_id >> 1, self.now_ms)

    def requester_gone(self, own_id: int) -> None:
        assert self.node is not None
        self.node.requester_gone(own_id, self.now_ms)

    def has_ended(self) -> bool:
        assert self.node is not None
        assert self._member is not None
        ended = self.node.ended
        if ended is None and self._member.failed is None:
            return False
        if ended is not None and ended.error is ErrorCode.NONE:
            self.close()
        else:
            self.kill()
        return True

    def _end(self) -> None:
        super()._end()
        self.node = None
        self.flushes = None
        self.stopping = False
        self._member = None
        self._follower = None
        self._controller_at = None

    def _take_start(self) -> None:
        assert self.node is not None
        assert self._follower is not None
        assert self._member is not None
        now_ms = self.now_ms
        self.node.start(now_ms)
        self._follower.start(now_ms)
        self._member.start(now_ms)

    def _take_shutdown(self) -> None:
        if self.node is not None:
            self.node.shut_down(self.now_ms)

    def _take_flush(
        self, topic_partition: TopicPartition, log: ReplicatedLog, error: ReplogError | None
    ) -> None:
        if self.node is None or self._member is None:
            return
        if topic_partition is METADATA_PARTITION:
            self._member.flush_completed(error, self.now_ms)
        else:
            self.node.flush_completed(topic_partition, log, self.now_ms, error)
