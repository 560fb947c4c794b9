"""All controllers of a run: one or three voters, their truth, and whom clients ask."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from replog.testing.simulation.disk import SimDisk
from replog.testing.simulation.network import Network
from replog.testing.simulation.oracle import Oracle
from replog.testing.simulation.prng import Stream, Streams
from replog.testing.simulation.quorum_oracle import QuorumOracle
from replog.testing.simulation.quorum_truth import QuorumTruth
from replog.testing.simulation.scheduler import Scheduler
from replog.testing.simulation.sim_controller import SimController, WatchedController

if TYPE_CHECKING:
    from replog.testing.simulation.options import RunOptions


class SimQuorum:
    """See the module. The controllers are started by `start`."""

    def __init__(
        self,
        truth: QuorumTruth,
        checkers: Sequence[object],
        scheduler: Scheduler,
        network: Network,
        streams: Streams,
        options: RunOptions,
        oracle: Oracle,
    ) -> None:
        self.truth = truth
        self.observer = QuorumOracle(truth, checkers, oracle)
        self.controllers = truth.controllers
        self._options = options
        self._ids = streams.stream("controller")
        for voter_id in truth.voters:
            stream = streams.stream(f"controller {voter_id}")
            self.controllers[voter_id] = SimController(
                voter_id,
                scheduler,
                network,
                self.observer,
                SimDisk(voter_id, oracle, self.observer),
                stream,
                voters=truth.voters,
                make=self._make,
                quorum=options.quorum,
                sync_mean_us=options.sync_us,
                resets_fence=self._resets_fence(stream),
            )

    def start(self) -> None:
        """Start whoever does not run."""
        for controller in self.controllers.values():
            controller.start()

    @property
    def addresses(self) -> tuple[int, ...]:
        return self.truth.voters

    def whom_to_ask(self, stream: Stream) -> int:
        """Whom a client takes for the active controller; not always the right one."""
        return stream.choice(self.addresses) if stream.chance(0.1) else self.truth.leader_id

    @property
    def active(self) -> SimController | None:
        """The active controller of the latest epoch."""
        found = self.controllers[self.truth.leader_id]
        return found if found.is_active else None

    def _make(self) -> WatchedController:
        stream = self._ids
        return WatchedController(
            self._options.controller,
            lambda: uuid.UUID(int=stream.below(1 << 52) << 64 | stream.below(1 << 52)),
        )

    def _resets_fence(self, stream: Stream) -> Callable[[], bool]:
        fence_all = self._options.resets_fence
        return lambda: fence_all or stream.chance(0.5)
