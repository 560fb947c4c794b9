"""What controllers know is what the log says: I12, I16, I31, and controller epochs of I5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from replog.controller.controller import Controller
from replog.controller.metadata_image import MetadataImage
from replog.registrations import BrokerRegistration, MetadataDelta, PartitionRegistration
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.truth import PartitionTruth, Truth
from replog.testing.simulation.violation import Violation
from replog.types import TopicPartition

COMPARED_EVERY = 100
"""Steps of a controller between two comparisons with its log: they cost as much as a replay."""


class StateIsTheLog:
    """I31: a controller's image is what a replay of its log gives; brokers obey committed parts."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._epoch = 0
        self._log: Sequence[Any] = ()
        self._version = 0
        self._steps = 0
        self._committed: dict[TopicPartition, dict[tuple[Any, int], PartitionRegistration]] = {}

    def controller_changed(self, controller: Controller, epoch: int, log: Sequence[Any]) -> None:
        if epoch <= self._epoch:
            raise Violation("I5", f"the controller epoch {self._epoch} is followed by {epoch}")
        if len(log) < self._version:
            raise Violation(
                "I31", f"{self._version} records were committed, {len(log)} are in the log"
            )
        self._epoch, self._log = epoch, log
        self._compare(controller)

    def controller_stepped(self, controller: Controller) -> None:
        self._steps += 1
        if controller.version < self._version:
            raise Violation("I31", f"version {self._version} went back to {controller.version}")
        self._version = controller.version
        if self._steps % COMPARED_EVERY == 0:
            self._compare(controller)

    def registered(self, truth: PartitionTruth, before: PartitionRegistration | None) -> None:
        now = truth.registration
        of_name = self._committed.setdefault(now.topic_partition, {})
        of_name[now.topic_id, now.partition_epoch] = now

    def broker_told(self, broker: SimBroker, deltas: tuple[MetadataDelta, ...]) -> None:
        for delta in deltas:
            for told in delta.partitions:
                known = self._committed.get(told.topic_partition, {})
                if known.get((told.topic_id, told.partition_epoch)) != told:
                    raise Violation("I31", f"{broker} was told what was never committed: {told}")

    def _compare(self, controller: Controller) -> None:
        image = MetadataImage(tracks_changes=False)
        for offset, record in enumerate(self._log):
            image.apply(record, offset)
        ours, theirs = image.snapshot_records(), controller.known_records()
        for expected, found in zip(ours, theirs, strict=True):
            if expected != found:
                raise Violation("I31", f"the log says {expected}, the controller knows {found}")


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
        if len(isr) > 1 and not all(map(image.is_live, isr)):
            raise Violation("I12", f"{partition.records()}: in sync although fenced or leaving")
        for broker_id in elr:
            self._check(truth, broker_id)
        if before is not None and set(truth.registration.replicas) < set(before.replicas):
            gone = set(before.replicas) - set(truth.registration.replicas)
            self._check_copies(truth, isr | elr | suspects, gone)

    def _check_copies(self, truth: PartitionTruth, holders: set[int], gone: set[int]) -> None:
        """Replicas have gone, one of them with a copy of what is committed: enough of those that
        stay must hold it, or have lost it to a fault.
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
