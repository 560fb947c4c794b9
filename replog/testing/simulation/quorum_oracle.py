"""Hears all that happens in the controllers' quorum, keeps its truth, and asks its checkers.

What is committed goes on to the oracle of the cluster as what is registered.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any, cast

from replog.controller.effects import ControllerEffect
from replog.controller.events import ControllerEvent
from replog.controller.quorum.election_state import ElectionState
from replog.controller.quorum.messages import QuorumRequest, QuorumResponse
from replog.runtime.journal import JournalEntry
from replog.testing.simulation.batches import StoredBatch
from replog.testing.simulation.oracle import Oracle
from replog.testing.simulation.quorum_truth import QuorumTruth
from replog.testing.simulation.sim_controller import SimController
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.sim_metadata_log import SimMetadataLog

QUORUM_EVENTS = (
    "metadata_appended",
    "epoch_begun",
    "metadata_cut",
    "metadata_committed",
    "metadata_known",
    "promised",
    "member_sent",
    "member_answered",
    "controller_stepped",
    "controller_started",
    "controller_ended",
)


class QuorumOracle:
    """Satisfies MetadataLogObserver and ControllerObserver."""

    def __init__(self, truth: QuorumTruth, checkers: Sequence[object], cluster: Oracle) -> None:
        self.truth = truth
        self._cluster = cluster
        self._hears: dict[str, tuple[Callable[..., None], ...]] = {
            name: tuple(getattr(one, name) for one in checkers if hasattr(one, name))
            for name in QUORUM_EVENTS
        }
        self._on_member_sent = self._hears["member_sent"]
        self._on_member_answered = self._hears["member_answered"]

    def _tell(self, event: str, *arguments: Any) -> None:
        for hear in self._hears[event]:
            hear(*arguments)

    # -- logs

    def leader_appended(self, log: SimLog, batch: StoredBatch) -> None:
        self._cluster.io_event(log)
        ours = cast("SimMetadataLog", log)
        truth = self.truth
        epoch = batch.leader_epoch
        run = (log.broker_id, truth.controllers[log.broker_id].incarnation)
        if epoch not in truth.leader_of_epoch:
            truth.leader_of_epoch[epoch] = run
            truth.latest_epoch = max(truth.latest_epoch, epoch)
            self._cluster.note(f"controller {log.broker_id} leads epoch {epoch}")
            self._tell("epoch_begun", ours, epoch)
        self._tell("metadata_appended", ours, (batch,), run)

    def follower_appended(self, log: SimLog, batches: tuple[StoredBatch, ...]) -> None:
        self._cluster.io_event(log)
        self._tell("metadata_appended", log, batches, None)

    def truncated(self, log: SimLog, old_end_offset: int, high_watermark: int) -> None:
        self._cluster.io_event(log)
        self._cluster.note(f"{log} was cut from {old_end_offset}")
        if log.log_end_offset < old_end_offset:
            self._cluster.marks.hit("metadata log truncated")
        if not log.batches and log.log_start_offset:
            self._cluster.marks.hit("snapshot of the metadata fetched")
        self._tell("metadata_cut", log, old_end_offset, high_watermark)

    def high_watermark_set(self, log: SimLog, old: int) -> None:
        truth = self.truth
        if log.high_watermark > truth.end_offset:
            first = bisect.bisect_left(log.base_offsets, truth.end_offset)
            end = bisect.bisect_left(log.base_offsets, log.high_watermark)
            fresh = log.batches[first:end]
            for delta in truth.commit(fresh):
                self._cluster.metadata_changed(delta)
            self._tell("metadata_committed", log, fresh)
        self._tell("metadata_known", log, old)

    def log_start_moved(self, log: SimLog, old: int) -> None:
        self._cluster.marks.hit("metadata log cut behind a snapshot")

    def promised(self, log: SimMetadataLog, before: ElectionState) -> None:
        self._tell("promised", log, before)

    def epoch_assigned(self, log: SimLog, leader_epoch: int, start_offset: int) -> None:
        """Epochs of the metadata log come with records."""

    def batch_repeated(self, log: SimLog, batch: StoredBatch) -> None:
        """Nobody repeats metadata."""

    def created(self, log: SimLog) -> None:
        """Of a copy of the metadata a node has one, from the start."""

    def set_aside(self, log: SimLog) -> None:
        """Nobody sets metadata aside."""

    def impossible_order(self, log: SimLog, order: str, offset: int) -> None:
        """The log refuses it by itself."""

    # -- controllers

    def controller_started(self, machine: SimController) -> None:
        self._cluster.note(f"{machine} starts as incarnation {machine.incarnation}")
        self._tell("controller_started", machine)

    def controller_ended(self, machine: SimController, how: str) -> None:
        self._cluster.note(f"{machine} {how}")
        self._tell("controller_ended", machine, how)

    def controller_stepped(
        self, machine: SimController, event: ControllerEvent, effects: list[ControllerEffect]
    ) -> None:
        self._tell("controller_stepped", machine, event, effects)

    def member_sent(self, machine: SimController, to: int, request: QuorumRequest) -> None:
        for hear in self._on_member_sent:
            hear(machine, to, request)

    def member_answered(
        self, machine: SimController, request: Any, response: QuorumResponse
    ) -> None:
        for hear in self._on_member_answered:
            hear(machine, request, response)

    def controller_incident(self, entry: JournalEntry) -> None:
        self._cluster.controller_reported(entry.incident)
