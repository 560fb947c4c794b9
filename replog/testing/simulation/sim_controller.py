"""The controllers' machine: production code on a metadata log, behind one address.

The log is what a quorum makes of it: what is appended is committed after a while, and a controller
that crashes loses none of that, but may lose what it had not seen committed. Another one replays
the log, after the time that an election takes, and goes on; meanwhile nobody answers. It can be
paused, and cut off like any other address. The quorum itself is simulated elsewhere.

The observer hears of what is committed, batch by batch, from an image of its own.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, Protocol

from replog.controller.controller import Controller
from replog.controller.effects import AppendRecords, Report, Respond
from replog.controller.events import (
    Committed,
    ConnectionLost,
    ControllerEvent,
    LeadershipGained,
    RecordsAppended,
    RequestReceived,
    Tick,
)
from replog.controller.metadata_image import MetadataImage
from replog.registrations import MetadataDelta
from replog.testing.simulation.network import Connection, Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS, Scheduler
from replog.testing.simulation.sim_broker import CONTROLLER

CLIENTS_FROM = 1000
"""Addresses from here on are clients'; those below are brokers'."""

_TICK = Tick()


class ControllerObserver(Protocol):
    """Who is told what the controller decided, when it is committed and in order."""

    def metadata_changed(self, delta: MetadataDelta) -> None: ...

    def controller_changed(self, controller: Controller, epoch: int, log: list[Any]) -> None:
        """A controller has replayed the log and leads."""

    def controller_received(self, sender: int | None, request: Any) -> None:
        """A request is about to be handed to the controller."""

    def controller_stepped(self, controller: Controller) -> None:
        """The controller has taken an event."""

    def controller_reported(self, incident: Any) -> None: ...


class SimController:
    """See the module; satisfies `network.Node`."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        observer: ControllerObserver,
        make: Callable[[], Controller],
        stream: Stream,
        *,
        commit_mean_us: int = 0,
        resets_fence: Callable[[], bool] = lambda: True,
    ) -> None:
        """make() gives a controller that knows nothing.

        commit_mean_us: mean time until the quorum has committed; 0: at once. resets_fence():
        whether a broken connection is taken for a dead broker this time.
        """
        self.paused = False
        self.controller = make()
        self.epoch = 0
        self.log: list[Any] = []
        """All records, also those that may yet be lost."""
        self.image = MetadataImage()
        """What is committed."""
        self._ends: collections.deque[int] = collections.deque()
        """Where batches end that are not committed yet."""
        self._running = False
        self._make = make
        self._stream = stream
        self._commit_mean_us = commit_mean_us
        self._scheduler = scheduler
        self._network = network
        self._observer = observer
        self._resets_fence = resets_fence
        self._inbox: collections.deque[tuple[Callable[..., None], tuple[Any, ...]]] = (
            collections.deque()
        )
        self._armed_us: int | None = None
        self._next_request_id = 0
        self._asked: dict[int, tuple[Connection, int]] = {}
        network.nodes[CONTROLLER] = self
        self.start()

    @property
    def now_ms(self) -> int:
        return self._scheduler.now_us // MICROSECONDS_PER_MS

    @property
    def running(self) -> bool:
        return self._running

    def start(self) -> None:
        """Let a controller take over; nothing happens where one runs."""
        if self._running:
            return
        self._running = True
        self.epoch += 1
        for offset, record in enumerate(self.log):
            self.controller.apply(record, offset)
        self._observer.controller_changed(self.controller, self.epoch, self.log)
        gained = LeadershipGained(controller_epoch=self.epoch, end_offset=len(self.log))
        self._step(gained)

    def crash(self) -> None:
        """Let the controller die. What it had not seen committed may be committed or lost."""
        if not self._running:
            return
        self._running = False
        self.paused = False
        self._inbox.clear()
        self._asked.clear()
        self._armed_us = None
        kept = len(self._ends) and self._stream.below(len(self._ends) + 1)
        end = self._ends[kept - 1] if kept else self.image.end_offset
        del self.log[end:]
        self._take_commit(end)
        self._ends.clear()
        self.controller = self._make()
        self._network.reset_all(CONTROLLER, silent=False)

    def request_arrived(self, connection: Connection, request_id: int, request: Any) -> None:
        if not self._running:
            self._network.refuse(connection, silent=False)
        else:
            self._do(self._take_request, connection, request_id, request)

    def response_arrived(self, connection: Connection, request_id: int, response: Any) -> None:
        raise AssertionError("the controller asks nobody")

    def connection_lost(self, connection: Connection) -> None:
        if self._running:
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
        events = collections.deque([event])
        while events:
            for effect in self.controller.step(events.popleft(), self.now_ms):
                if isinstance(effect, Respond):
                    asked = self._asked.pop(effect.request_id, None)
                    if asked is not None:
                        self._network.respond(*asked, effect.response)
                elif isinstance(effect, Report):
                    self._observer.controller_reported(effect.incident)
                else:
                    assert isinstance(effect, AppendRecords)
                    events.extend(self._append(effect))
            self._observer.controller_stepped(self.controller)
        self._arm()

    def _append(self, effect: AppendRecords) -> list[ControllerEvent]:
        assert effect.base_offset == len(self.log)
        assert effect.controller_epoch == self.epoch
        self.log.extend(effect.records)
        end = len(self.log)
        self._ends.append(end)
        appended: list[ControllerEvent] = [RecordsAppended(end - 1)]
        if not self._commit_mean_us:
            self._take_commit(end)
            return [*appended, Committed(end)]
        after_us = self._stream.exponential(self._commit_mean_us)
        self._scheduler.after(after_us, self._commit, (self.epoch, end))
        return appended

    def _commit(self, argument: tuple[int, int]) -> None:
        epoch, end = argument
        if epoch == self.epoch and self._running and end > self.image.end_offset:
            self._do(self._committed, end)

    def _committed(self, end: int) -> None:
        if end > self.image.end_offset:
            self._take_commit(end)
            self._step(Committed(end))

    def _take_commit(self, end: int) -> None:
        """Replay up to there, and tell the observer batch by batch."""
        while self._ends and self._ends[0] <= end:
            for offset in range(self.image.end_offset, self._ends.popleft()):
                self.image.apply(self.log[offset], offset)
            delta = self.image.take_delta()
            if delta is not None:
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
        if due_us is None or due_us != self._armed_us or self.paused or not self._running:
            return
        self._armed_us = None
        deadline = self.controller.next_deadline_ms
        if deadline is not None and deadline <= self.now_ms:
            self._step(_TICK)
        else:
            self._arm()
