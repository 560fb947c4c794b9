"""Requests that come late, as the simulator makes them."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

from replog.messages import AlterPartitionRequest, IsrProposal
from replog.registrations import PartitionRegistration
from replog.testing.simulation.held_requests import hold_next
from replog.types import TopicPartition

KNOWN, DELETED = TopicPartition("known", 0), TopicPartition("deleted", 0)


def proposal(name: TopicPartition) -> IsrProposal:
    return IsrProposal(
        topic_partition=name,
        topic_id=uuid.UUID(int=1),
        leader_epoch=1,
        partition_epoch=1,
        isr=((1, 10), (2, 20)),
    )


def test_who_would_join_is_cut_off_also_where_another_topic_is_gone_meanwhile() -> None:
    registration = PartitionRegistration(
        topic_partition=KNOWN, topic_id=uuid.UUID(int=1), replicas=(1, 2), isr=(1,), leader_id=1
    )
    truth = SimpleNamespace(partitions={KNOWN: SimpleNamespace(registration=registration)})
    breaks: list = []
    world = SimpleNamespace(
        brokers={1: None, 2: None},
        oracle=SimpleNamespace(truth=truth),
        network=SimpleNamespace(break_under=lambda *how: breaks.append(how)),
    )
    told: list = []
    hold_next(world, 1, 9, 100, told.append)
    ((source, target, kind, held_us, broken),) = breaks
    assert (source, target, kind, held_us) == (1, 9, AlterPartitionRequest, 100_000)
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=10, proposals=(proposal(KNOWN), proposal(DELETED))
    )
    broken(request)
    assert told == [[2]]
