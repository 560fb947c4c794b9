"""One controller machine: a voter of the quorum that runs production code, with a disk of its own.

The observer hears of each event that its controller takes and of what came of it, and of what it
says to the other members.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, get_args

from replog.config import QuorumOptions
from replog.controller.controller import Controller
from replog.controller.effects import ControllerEffect
from replog.controller.events import ControllerEvent
from replog.controller.quorum.messages import QuorumRequest, QuorumResponse
from replog.errors import ReplogError
from replog.runtime.controller_node import ControllerNode
from replog.runtime.journal import Journal, JournalEntry
from replog.runtime.quorum_node import QuorumPorts
from replog.testing.simulation.disk import SimDisk, SimFlushes
from replog.testing.simulation.network import Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS, Scheduler
from replog.testing.simulation.sim_broker import CLIENTS_FROM, CONTROLLERS_FROM
from replog.testing.simulation.sim_machine import SimMachine
from replog.testing.simulation.sim_metadata_log import METADATA_PARTITION

_QUORUM_REQUESTS = frozenset(get_args(QuorumRequest))


class ControllerObserver(Protocol):
    """Who is told what controllers do and say."""

    def controller_started(self, machine: SimController) -> None: ...

    def controller_ended(self, machine: SimController, how: str) -> None:
        """`how`: killed or power lost."""

    def controller_stepped(
        self, machine: SimController, event: ControllerEvent, effects: list[ControllerEffect]
    ) -> None:
        """Its controller has taken an event; the effects are not carried out yet."""

    def member_sent(self, machine: SimController, to: int, request: QuorumRequest) -> None: ...

    def member_answered(
        self, machine: SimController, request: Any, response: QuorumResponse
    ) -> None: ...

    def controller_incident(self, entry: JournalEntry) -> None:
        """It has reported something."""


class WatchedController(Controller):
    """The production controller; somebody looks at every step."""

    watch: Callable[[ControllerEvent, list[ControllerEffect]], None]

    def step(self, event: ControllerEvent, now_ms: int) -> list[ControllerEffect]:
        effects = super().step(event, now_ms)
        self.watch(event, effects)
        return effects


class SimController(SimMachine):
    """See the module; also the network of its quorum member and of its controller."""

    def __init__(
        self,
        node_id: int,
        scheduler: Scheduler,
        network: Network,
        observer: ControllerObserver,
        disk: SimDisk,
        stream: Stream,
        *,
        voters: tuple[int, ...],
        make: Callable[[], WatchedController],
        quorum: QuorumOptions,
        sync_mean_us: int = 500,
        resets_fence: Callable[[], bool] = lambda: True,
    ) -> None:
        """make() gives a controller that knows nothing.

        resets_fence(): whether a broken connection is taken for a dead peer this time.
        """
        super().__init__(node_id, scheduler, network, stream)
        self.disk = disk
        self.node: ControllerNode | None = None
        self.flushes: SimFlushes | None = None
        self._observer = observer
        self._voters = voters
        self._make = make
        self._options = quorum
        self._sync_mean_us = sync_mean_us
        self._resets_fence = resets_fence

    @property
    def running(self) -> bool:
        return self.node is not None

    @property
    def controller(self) -> WatchedController | None:
        """What decides, or stands by; None while the process is down."""
        node = self.node
        return None if node is None else node.controller  # type: ignore[return-value]

    @property
    def is_active(self) -> bool:
        """Whether it decides, or believes so."""
        return self.node is not None and self.node.is_active

    def start(self) -> None:
        """Start a process on the disk as it is; nothing happens where one runs."""
        if self.node is not None:
            return
        self.incarnation += 1
        self.powered = True
        incarnation = self.incarnation

        def flushed(_: Any, __: Any, error: ReplogError | None) -> None:
            if self.incarnation == incarnation and self.node is not None:
                self._do(self._take_flush, error)

        flushes = SimFlushes(self._scheduler, self._stream, self._sync_mean_us, flushed)
        self.flushes = flushes
        controller = self._make()
        controller.watch = self._watch
        journal = Journal()
        journal.listener = self._observer.controller_incident
        ports = QuorumPorts(
            log=self.disk.metadata,  # type: ignore[arg-type] # it does what the real one does
            network=self,
            flush=lambda log: flushes.flush(METADATA_PARTITION, log),
            wall_ms=lambda: self._scheduler.now_us // MICROSECONDS_PER_MS,
        )
        self.node = ControllerNode(
            self.address,
            self._voters,
            controller,
            ports,
            self,
            journal,
            self._stream.below,
            self._options,
        )
        self._observer.controller_started(self)
        self._do(self._take_start)

    def kill(self, power: Stream | None = None) -> None:
        """End the process; with `power`, what was not synced is at risk."""
        if self.node is None:
            return
        self._end()
        self.disk.crash(power)
        self.powered = power is None
        self._network.reset_all(self.address, silent=power is not None)
        self._observer.controller_ended(self, "killed" if power is None else "power lost")

    # -- the networks of member and controller

    def send_to_member(self, request_id: int, member_id: int, request: QuorumRequest) -> None:
        self._observer.member_sent(self, member_id, request)
        self._send(request_id, member_id, request)

    def respond_to_member(self, request_id: int, response: QuorumResponse) -> None:
        asked = self._asked.get(request_id)
        if asked is not None:
            self._observer.member_answered(self, asked[2], response)
            self._answer(request_id, response)

    def respond(self, request_id: int, response: Any) -> None:
        self._answer(request_id, response)

    # -- the process

    @property
    def deadline_ms(self) -> int | None:
        assert self.node is not None
        return self.node.next_deadline_ms

    def tick(self) -> None:
        assert self.node is not None
        self.node.tick(self.now_ms)

    def take_request(self, own_id: int, sender: int, request: Any, *, more: bool) -> None:
        assert self.node is not None
        if type(request) in _QUORUM_REQUESTS:
            self.node.receive_member_request(own_id, request, self.now_ms)
        else:
            asker = sender if sender < CLIENTS_FROM else None
            self.node.receive_request(own_id, asker, request, self.now_ms)

    def take_response(self, request_id: int, response: Any) -> None:
        assert self.node is not None
        self.node.quorum.receive_response(request_id, response, self.now_ms)

    def request_failed(self, request_id: int) -> None:
        assert self.node is not None
        self.node.quorum.request_failed(request_id, self.now_ms)

    def peer_lost(self, address: int) -> None:
        assert self.node is not None
        if address >= CLIENTS_FROM or not self._resets_fence():
            return
        if address < CONTROLLERS_FROM:
            self.node.broker_lost(address, self.now_ms)
        self.node.quorum.connection_lost(address, self.now_ms)

    def has_ended(self) -> bool:
        assert self.node is not None
        if self.node.quorum.failed is None:
            return False
        self.kill()
        return True

    def _end(self) -> None:
        super()._end()
        self.node = None
        self.flushes = None

    def _take_start(self) -> None:
        assert self.node is not None
        self.node.start(self.now_ms)

    def _take_flush(self, error: ReplogError | None) -> None:
        if self.node is not None:
            self.node.quorum.flush_completed(error, self.now_ms)

    def _watch(self, event: ControllerEvent, effects: list[ControllerEffect]) -> None:
        self._observer.controller_stepped(self, event, effects)
