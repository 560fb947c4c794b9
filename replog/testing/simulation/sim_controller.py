"""The controller's machine: production code behind an address, and a reader of its metadata.

It never crashes (its state is in memory), but it can be paused, and cut off like any other address.
The observer learns of every version of the metadata by asking for it as a broker would.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, Protocol

from replog.controller.effects import Report, Respond
from replog.controller.events import ConnectionLost, ControllerEvent, RequestReceived, Tick
from replog.controller.model_controller import ModelController
from replog.messages import MetadataFetchRequest, MetadataFetchResponse
from replog.registrations import MetadataDelta
from replog.testing.simulation.network import Connection, Network
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS, Scheduler
from replog.testing.simulation.sim_broker import CONTROLLER

CLIENTS_FROM = 1000
"""Addresses from here on are clients'; those below are brokers'."""
_OBSERVER = -1
"""Id of the observer's requests, and the broker that it says it is: nobody else has it."""

_TICK = Tick()


class ControllerObserver(Protocol):
    """Who is told what the controller decided, at once and in order."""

    def metadata_changed(self, delta: MetadataDelta) -> None: ...

    def controller_received(self, sender: int | None, request: Any) -> None:
        """A request is about to be handed to the controller."""

    def controller_reported(self, incident: Any) -> None: ...


class SimController:
    """See the module; satisfies `network.Node`."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        observer: ControllerObserver,
        controller: ModelController,
        *,
        resets_fence: Callable[[], bool] = lambda: True,
    ) -> None:
        """resets_fence(): whether a broken connection is taken for a dead broker this time."""
        self.controller = controller
        self.paused = False
        self._scheduler = scheduler
        self._network = network
        self._observer = observer
        self._resets_fence = resets_fence
        self._version_seen = 0
        self._inbox: collections.deque[tuple[Callable[..., None], tuple[Any, ...]]] = (
            collections.deque()
        )
        self._armed_us: int | None = None
        self._next_request_id = 0
        self._asked: dict[int, tuple[Connection, int]] = {}
        network.nodes[CONTROLLER] = self

    @property
    def now_ms(self) -> int:
        return self._scheduler.now_us // MICROSECONDS_PER_MS

    def request_arrived(self, connection: Connection, request_id: int, request: Any) -> None:
        self._do(self._take_request, connection, request_id, request)

    def response_arrived(self, connection: Connection, request_id: int, response: Any) -> None:
        raise AssertionError("the controller asks nobody")

    def connection_lost(self, connection: Connection) -> None:
        self._do(self._take_loss, connection)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Go on with what has arrived meanwhile, the oldest first."""
        self.paused = False
        while self._inbox and not self.paused:
            act, arguments = self._inbox.popleft()
            act(*arguments)
        if not self.paused:
            self._timer(self._armed_us)

    def _do(self, act: Callable[..., None], *arguments: Any) -> None:
        if self.paused:
            self._inbox.append((act, arguments))
        else:
            act(*arguments)

    def _take_request(self, connection: Connection, request_id: int, request: Any) -> None:
        self._next_request_id += 1
        self._asked[self._next_request_id] = (connection, request_id)
        sender = connection.client if connection.client < CLIENTS_FROM else None
        self._observer.controller_received(sender, request)
        self._step(
            RequestReceived(request_id=self._next_request_id, sender=sender, request=request)
        )

    def _take_loss(self, connection: Connection) -> None:
        for own_id in [own for own, (asker, _) in self._asked.items() if asker is connection]:
            del self._asked[own_id]
        if connection.client < CLIENTS_FROM and self._resets_fence():
            self._step(ConnectionLost(broker_id=connection.client))

    def _step(self, event: ControllerEvent) -> None:
        for effect in self.controller.step(event, self.now_ms):
            if isinstance(effect, Respond):
                asked = self._asked.pop(effect.request_id, None)
                if asked is not None:
                    self._network.respond(*asked, effect.response)
            elif isinstance(effect, Report):
                self._observer.controller_reported(effect.incident)
        if self.controller.version != self._version_seen:
            self._read_metadata()
        self._arm()

    def _read_metadata(self) -> None:
        """Tell the observer of the versions that it has not seen."""
        request = MetadataFetchRequest(
            broker_id=_OBSERVER, version=self._version_seen, wait_ms_max=0
        )
        event = RequestReceived(request_id=_OBSERVER, sender=None, request=request)
        for effect in self.controller.step(event, self.now_ms):
            assert isinstance(effect, Respond)
            assert isinstance(effect.response, MetadataFetchResponse)
            for delta in effect.response.deltas:
                self._version_seen = delta.version
                self._observer.metadata_changed(delta)

    def _arm(self) -> None:
        deadline = self.controller.next_deadline_ms
        if deadline is None:
            return
        due_us = deadline * MICROSECONDS_PER_MS
        if self._armed_us is None or due_us < self._armed_us:
            self._armed_us = due_us
            self._scheduler.at(due_us, self._timer, due_us)

    def _timer(self, due_us: int | None) -> None:
        if due_us is None or due_us != self._armed_us or self.paused:
            return
        self._armed_us = None
        deadline = self.controller.next_deadline_ms
        if deadline is not None and deadline <= self.now_ms:
            self._step(_TICK)
        else:
            self._arm()
