"""What the controller decides and leaders propose: I5 (epochs), I12 in part, I14, I15."""

from __future__ import annotations

from replog.messages import AlterPartitionRequest
from replog.registrations import BrokerRegistration, PartitionRegistration
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.truth import PartitionTruth, Truth
from replog.testing.simulation.violation import Violation


class EpochsOnlyGrow:
    """I5: leader, partition and broker epochs never go back, and name one leader each."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def registered(self, truth: PartitionTruth, before: PartitionRegistration | None) -> None:
        after = truth.registration
        if not after.isr or not set(after.isr) <= set(after.replicas):
            raise Violation("I12", f"the in-sync set is no part of the replicas: {after}")
        if after.leader_id is not None and after.leader_id not in after.isr:
            raise Violation("I12", f"the leader is not in sync: {after}")
        elected = truth.leader_of_epoch.setdefault(after.leader_epoch, after.leader_id)
        if elected != after.leader_id:
            raise Violation("I5", f"{elected} was elected for this epoch before: {after}")
        if before is None:
            return
        if after.partition_epoch <= before.partition_epoch:
            raise Violation("I5", f"the partition epoch did not grow: {before}, then {after}")
        grown = after.leader_epoch > before.leader_epoch
        if after.leader_epoch < before.leader_epoch or (
            after.leader_id != before.leader_id and not grown
        ):
            raise Violation("I5", f"the leader epoch did not grow: {before}, then {after}")

    def broker_registered(
        self, registration: BrokerRegistration, before: BrokerRegistration | None
    ) -> None:
        if before is not None and registration.broker_epoch < before.broker_epoch:
            raise Violation("I5", f"the broker epoch fell: {before}, then {registration}")


class JoinersAreEligible:
    """I14: who joins an in-sync set is alive and has reached watermark and start of the epoch."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def registered(self, truth: PartitionTruth, before: PartitionRegistration | None) -> None:
        after = truth.registration
        if before is None or after.leader_id is None:
            return
        for broker_id in after.isr:
            if broker_id in before.isr:
                continue
            registration = self.truth.registered.get(broker_id)
            if registration is None or not registration.eligible:
                raise Violation("I14", f"{registration} joined {before}, which became {after}")

    def broker_sent(self, broker: SimBroker, to: int, request: object) -> None:
        if not isinstance(request, AlterPartitionRequest):
            return
        for proposal in request.proposals:
            name = proposal.topic_partition
            truth = self.truth.partitions.get(name)
            told = self.truth.told.get((broker.broker_id, name))
            if truth is None or told is None or truth.registration.topic_id != proposal.topic_id:
                continue
            if not told.leader_epoch == proposal.leader_epoch == truth.registration.leader_epoch:
                continue  # followers may have turned to another leader; it will be refused
            log = self.truth.log_of(broker.broker_id, name)
            begun = truth.epoch_starts.get(proposal.leader_epoch)
            for broker_id, broker_epoch in proposal.isr:
                if broker_id in told.isr or log is None:
                    continue
                if not self.truth.vouches(broker_id, name):
                    continue
                registered = self.truth.registered.get(broker_id)
                if registered is None or broker_epoch < registered.broker_epoch:
                    continue  # another incarnation has registered since: it will be refused
                other = self.truth.log_of(broker_id, name)
                end = -1 if other is None else other.log_end_offset
                if end < log.high_watermark or (begun is not None and end < begun):
                    raise Violation(
                        "I14",
                        f"{log} wants {broker_id} in sync, whose log ends at {end}; its epoch "
                        f"{proposal.leader_epoch} began at {begun}",
                    )


class UncleanLeavesTheIsr:
    """I15: back from an unclean stop, a broker leads nothing and is in sync beside nobody."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def unclean_registered(self, broker_id: int) -> None:
        """The controller has just registered a broker that stopped uncleanly."""
        for truth in self.truth.partitions.values():
            registration = truth.registration
            if broker_id not in registration.isr or registration.leader_id is None:
                continue
            if registration.leader_id == broker_id and len(registration.isr) == 1:
                continue  # the longest of enough replicas, or the only one there is
            raise Violation(
                "I15",
                f"broker {broker_id} is back from an unclean stop and in sync: {registration}",
            )
