"""Whether a leader's proposal for its in-sync set is granted (KIP-497); the order is Kafka's."""

from __future__ import annotations

from collections.abc import Callable

from replog.messages import ErrorCode, IsrProposal
from replog.registrations import NO_BROKER_EPOCH, BrokerRegistration, PartitionRegistration


def check_proposal(
    proposal: IsrProposal,
    sender: int,
    registered: PartitionRegistration,
    broker_of: Callable[[int], BrokerRegistration | None],
) -> ErrorCode:
    """NONE if it may be registered, else what the leader must hear.

    The topic id has been found and `registered` is its partition; the sender's broker epoch has
    been checked.
    """
    if (
        proposal.leader_epoch > registered.leader_epoch
        or proposal.partition_epoch > registered.partition_epoch
    ):
        # The sender knows more than this controller: another one must have been elected.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < registered.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != registered.leader_id:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < registered.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [broker_id for broker_id, _ in proposal.isr]
    if (
        len(set(members)) != len(members)
        or sender not in members
        or not set(members) <= set(registered.replicas)
    ):
        return ErrorCode.INVALID_REQUEST
    if proposal.recovering and (len(members) > 1 or not registered.unclean):
        # Nobody joins a leader that recovers, and one that has recovered does not go back to that.
        return ErrorCode.INVALID_REQUEST
    for broker_id, broker_epoch in proposal.isr:
        broker = broker_of(broker_id)
        if (
            broker is None
            or not broker.eligible
            or broker_epoch not in {NO_BROKER_EPOCH, broker.broker_epoch}
        ):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
