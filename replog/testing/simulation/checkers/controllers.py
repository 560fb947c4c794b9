"""What controllers know and say is what the log says: I12, I16, I31, and broker epochs of I5."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, cast

from replog.controller.effects import AppendRecords, ControllerEffect, Respond
from replog.controller.events import (
    ControllerEvent,
    LeadershipGained,
    LeadershipLost,
    RequestReceived,
)
from replog.controller.metadata_image import MetadataImage
from replog.messages import ErrorCode
from replog.registrations import BrokerRegistration, MetadataDelta, PartitionRegistration
from replog.testing.simulation.quorum_truth import QuorumTruth, Run
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_controller import SimController
from replog.testing.simulation.sim_metadata_log import Messages
from replog.testing.simulation.truth import PartitionTruth, Truth
from replog.testing.simulation.violation import Violation
from replog.types import TopicPartition

COMPARED_EVERY = 100
"""Steps of controllers between two comparisons with the log: they cost as much as a snapshot."""


class StateIsTheLog:
    """I31: a controller's image is what a replay of the log gives; brokers obey committed parts."""

    def __init__(self, truth: Truth, quorum: QuorumTruth) -> None:
        self.truth = truth
        self.quorum = quorum
        self._steps = 0
        self._committed: dict[TopicPartition, dict[tuple[Any, int], PartitionRegistration]] = {}

    def controller_stepped(
        self, machine: SimController, event: ControllerEvent, effects: list[ControllerEffect]
    ) -> None:
        self._steps += 1
        if self._steps % COMPARED_EVERY and not isinstance(event, LeadershipGained):
            return
        controller = machine.controller
        committed = self.quorum.image
        if controller is None:
            return
        known = (controller.version, controller.uncommitted_end_offset)
        if known != (committed.end_offset, committed.end_offset):
            return  # it knows less, or has decided more: it alone, if another leads by now
        ours, theirs = committed.snapshot_records(), controller.known_records()
        for expected, found in zip(ours, theirs, strict=True):
            if expected != found:
                raise Violation("I31", f"the log says {expected}, {machine} knows {found}")

    def registered(self, truth: PartitionTruth, before: PartitionRegistration | None) -> None:
        now = truth.registration
        of_name = self._committed.setdefault(now.topic_partition, {})
        of_name[now.topic_id, now.partition_epoch] = now

    def broker_told(self, broker: SimBroker, delta: MetadataDelta) -> None:
        for told in delta.partitions:
            known = self._committed.get(told.topic_partition, {})
            if known.get((told.topic_id, told.partition_epoch)) != told:
                raise Violation("I31", f"{broker} was told what was never committed: {told}")


class CommandsEndOnce:
    """I31: a command is answered once; as done only if all that was decided up to it is committed,
    as it was decided. Whoever led before and has not heard of it yet can call nothing done.
    """

    def __init__(self, quorum: QuorumTruth) -> None:
        self.quorum = quorum
        self._open: dict[Run, dict[int, int]] = {}
        """Requests without an answer -> the end of what was decided up to them."""
        self._decided: dict[Run, dict[int, tuple[Any, ...]]] = {}
        """What was appended, by base offset, since all before it was committed."""

    def controller_stepped(
        self, machine: SimController, event: ControllerEvent, effects: list[ControllerEffect]
    ) -> None:
        run = (machine.address, machine.incarnation)
        waiting = self._open.setdefault(run, {})
        decided = self._decided.setdefault(run, {})
        controller = machine.controller
        assert controller is not None
        for effect in effects:
            if isinstance(effect, AppendRecords):
                decided[effect.base_offset] = effect.records
        if isinstance(event, RequestReceived):
            if event.request_id in waiting:
                raise Violation("I31", f"{machine} was asked twice under one id: {event}")
            waiting[event.request_id] = controller.uncommitted_end_offset
        for effect in effects:
            if isinstance(effect, Respond):
                self._check(machine, effect, waiting, decided)
        if isinstance(event, LeadershipLost):
            if waiting:
                raise Violation("I31", f"{machine} leads no more and leaves {waiting} unanswered")
            decided.clear()

    def _check(
        self,
        machine: SimController,
        answer: Respond,
        waiting: dict[int, int],
        decided: dict[int, tuple[Any, ...]],
    ) -> None:
        end = waiting.pop(answer.request_id, None)
        if end is None:
            raise Violation("I31", f"{machine} answers again: {answer}")
        if getattr(answer.response, "error", None) is ErrorCode.NOT_CONTROLLER:
            return
        if end > self.quorum.end_offset:
            raise Violation("I31", f"{machine} answers {answer} before offset {end} is committed")
        for base in [base for base in decided if base < end]:
            records = decided.pop(base)
            batch = self.quorum.committed_at(base)
            if batch is None or cast("Messages", batch.content).messages != records:
                raise Violation(
                    "I31", f"{machine} answers {answer} after {records}, committed is {batch}"
                )


class IncarnationsHaveEpochs:
    """I5: no two incarnations of a broker are registered under one epoch."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        """image() is what is committed."""
        self._image = image
        self._known: dict[int, tuple[int, bytes]] = {}

    def broker_registered(
        self, registration: BrokerRegistration, before: BrokerRegistration | None
    ) -> None:
        incarnation = self._image().brokers[registration.broker_id].incarnation
        epoch, known = self._known.get(registration.broker_id, (-1, incarnation))
        if incarnation != known and registration.broker_epoch <= epoch:
            raise Violation("I5", f"another incarnation is registered as it was: {registration}")
        self._known[registration.broker_id] = (registration.broker_epoch, incarnation)


class VouchersAreWhatTheySay:
    """I12: who is in sync, eligible or suspect, and that they are different ones. I16: each
    replica that vouches below the floor holds all that is committed.
    """

    def __init__(self, truth: Truth, image: Callable[[], MetadataImage]) -> None:
        """image() is what is committed."""
        self.truth = truth
        self._image = image
        self._vouched: dict[tuple[uuid.UUID, int], set[int]] = {}
        """By topic id and partition: who did by the latest registration."""

    def registered(self, truth: PartitionTruth, before: PartitionRegistration | None) -> None:
        image = self._image()
        partition = image.partition(truth.name)
        if partition is None:
            return
        isr, elr = set(partition.isr), set(partition.elr)
        suspects = set(partition.last_known_elr)
        if not isr | elr | suspects <= set(partition.replicas):
            raise Violation("I12", f"{partition.records()} vouch without being replicas")
        if isr & elr or elr & suspects:
            raise Violation("I12", f"{partition.records()}: one vouches in two ways")
        if elr and len(isr) >= partition.min_insync_replicas:
            raise Violation("I12", f"{partition.records()}: eligible although enough are in sync")
        if partition.leader_id is not None and not all(map(image.is_live, isr)):
            raise Violation("I12", f"{partition.records()}: in sync although fenced or leaving")
        for broker_id in elr:
            self._check(truth, broker_id)
        key = (truth.registration.topic_id, truth.name.partition)
        vouched, self._vouched[key] = self._vouched.get(key, set()), isr | elr | suspects
        if before is not None and set(truth.registration.replicas) < set(before.replicas):
            gone = vouched - set(truth.registration.replicas)
            self._check_copies(truth, isr | elr | suspects, gone)

    def _check_copies(self, truth: PartitionTruth, holders: set[int], gone: set[int]) -> None:
        """Replicas have gone, one of them vouched for a copy of what is committed: enough of those
        that stay must hold it, or have lost it to a fault.
        """
        if truth.high_watermark <= truth.log_start or not truth.had_enough_in_sync:
            return
        if not any(
            self._holds(truth, broker_id) and (broker_id, truth.name) not in self.truth.incomplete
            for broker_id in gone
        ):
            return
        copies = sum(
            (broker_id, truth.name) in self.truth.incomplete
            or not self.truth.vouches(broker_id, truth.name)
            or self._holds(truth, broker_id)
            for broker_id in holders
        )
        if copies < truth.registration.min_insync_replicas:
            raise Violation(
                "I16",
                f"only {copies} of the replicas that stay hold what is committed up to "
                f"{truth.high_watermark}: {truth.registration}",
            )

    def _holds(self, truth: PartitionTruth, broker_id: int) -> bool:
        log = self.truth.log_of(broker_id, truth.name)
        return log is not None and truth.holds_committed(log)

    def _check(self, truth: PartitionTruth, broker_id: int) -> None:
        key = (broker_id, truth.name)
        if key in self.truth.incomplete or not self.truth.vouches(broker_id, truth.name):
            return
        log = self.truth.log_of(broker_id, truth.name)
        if log is None:
            return  # its directory was replaced; it will tell so when it registers
        if self.truth.truth_of(log) is truth and not truth.holds_committed(log):
            raise Violation(
                "I16",
                f"{log} is eligible and does not hold all that is committed up to "
                f"{truth.high_watermark}: {truth.registration}",
            )
