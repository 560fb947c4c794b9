"""In-sync sets as leaders propose them (KIP-497)."""

from __future__ import annotations

from replog.controller.decision import Decision
from replog.controller.partition_control import PartitionControl
from replog.controller.partition_image import PartitionImage
from replog.controller.proposal_checks import check_proposal
from replog.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ErrorCode,
    IsrDecision,
    IsrProposal,
)
from replog.registrations import BrokerRegistration


class IsrControl:
    """Grants or refuses what leaders propose."""

    def __init__(self, decision: Decision, partitions: PartitionControl) -> None:
        self._decision = decision
        self._image = decision.image
        self._partitions = partitions

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """A decision for each proposal, or one error for all."""
        known = self._registration_of(request.broker_id)
        if known is None or known.broker_epoch != request.broker_epoch:
            return AlterPartitionResponse(error=ErrorCode.STALE_BROKER_EPOCH)
        return AlterPartitionResponse(
            decisions=tuple(
                self._decide(proposal, request.broker_id) for proposal in request.proposals
            )
        )

    def _decide(self, proposal: IsrProposal, sender: int) -> IsrDecision:
        name = proposal.topic_partition
        topic = self._image.topics.get(name.topic)
        if topic is None or topic.topic_id != proposal.topic_id:
            return IsrDecision(topic_partition=name, error=ErrorCode.UNKNOWN_TOPIC_ID)
        partition = topic.partitions.get(name.partition)
        if partition is None:
            return IsrDecision(topic_partition=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = check_proposal(proposal, sender, partition.registration, self._registration_of)
        proposed = {broker_id for broker_id, _ in proposal.isr}
        if error is ErrorCode.NONE and self._returns_to_be_removed(partition, proposed):
            error = ErrorCode.INELIGIBLE_REPLICA
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._decision.journal.ignored(
                partition, sender, proposal.leader_epoch, self._decision.now_ms
            )
        if error is not ErrorCode.NONE:
            return IsrDecision(topic_partition=name, error=error)
        recovers = partition.recovering and not proposal.recovering
        if proposed != set(partition.isr) or recovers:
            in_order = tuple(replica for replica in partition.replicas if replica in proposed)
            self._partitions.commit_isr(partition, in_order, sender, recovers=recovers)
        return IsrDecision(
            topic_partition=name,
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            partition_epoch=partition.partition_epoch,
            recovering=partition.recovering,
        )

    def _registration_of(self, broker_id: int) -> BrokerRegistration | None:
        broker = self._image.brokers.get(broker_id)
        return broker.registration if broker else None

    def _returns_to_be_removed(self, partition: PartitionImage, proposed: set[int]) -> bool:
        """Whether a replica joins that a reassignment is about to take away: its target is in sync,
        so that it would never end.
        """
        joining = proposed.difference(partition.isr)
        return bool(joining.intersection(partition.removing)) and set(partition.target) <= set(
            partition.isr
        )
