"""L1: once faults are gone, everything ends: requests, catching up, elections, fencing."""

from __future__ import annotations

from collections.abc import Iterator

from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_controller import SimController
from replog.testing.simulation.truth import PartitionTruth
from replog.testing.simulation.violation import Violation
from replog.testing.simulation.world import World

PATIENCE_MS = 90_000
"""Beside the time for the longest log to be fetched anew."""
STEP_MS = 500
PRODUCE_ON_MS = 2000


def demand_liveness(world: World) -> None:
    """Run the healed world until it has converged. Raises Violation if it takes too long."""
    scheduler = world.scheduler
    scheduler.run_until(scheduler.now_us + PRODUCE_ON_MS * MICROSECONDS_PER_MS)
    world.stop_clients()
    patience_ms = PATIENCE_MS + _refetch_ms(world)
    ends_us = scheduler.now_us + patience_ms * MICROSECONDS_PER_MS
    while (reason := next(unfinished(world), None)) is not None:
        if scheduler.now_us >= ends_us:
            raise Violation("L1", f"{patience_ms} ms after the last fault {reason}")
        scheduler.run_until(scheduler.now_us + STEP_MS * MICROSECONDS_PER_MS)
    check_acknowledged(world)
    world.losses.check(world.quorum.truth.image)


def _refetch_ms(world: World) -> int:
    """How long a follower without records may need for the longest log, with twice the time that an
    answer and its sync take on average; a batch an answer where fetches are that small.
    """
    options = world.options
    answers = 0
    for broker in world.brokers.values():
        for log in broker.disk.logs.values():
            size_bytes = sum([batch.size_bytes for batch in log.batches])
            answers = max(answers, min(len(log.batches), size_bytes // options.fetch_bytes + 1))
    return answers * 2 * (2 * options.latency_us + options.sync_us) // MICROSECONDS_PER_MS


def unfinished(world: World) -> Iterator[str]:
    """What has still to happen."""
    for broker in world.brokers.values():
        registration = world.truth.registered.get(broker.broker_id)
        if not broker.running:
            yield f"{broker} does not run"
        elif registration is None or not registration.eligible:
            yield f"{broker} takes no part: {registration}"
    yield from _behind(world)
    for partition in world.quorum.truth.image.reassigning:
        yield f"a reassignment goes on: {partition.registration}"
    for truth in world.truth.partitions.values():
        yield from _unlike(world, truth)
    for producer in world.producers:
        if not producer.settled:
            yield f"producer {producer.address} waits for an answer"
    for consumer in world.consumers:
        known = world.truth.partitions.get(consumer.partition)
        wanted = 0 if known is None else known.high_watermark
        if consumer.position < wanted:
            yield f"consumer {consumer.address} is at {consumer.position}, not at {wanted}"


def _behind(world: World) -> Iterator[str]:
    """How the copies of the metadata log differ from that of the active controller."""
    active = world.quorum.active
    if active is None:
        yield "no controller is active"
        return
    end = active.disk.metadata.log_end_offset
    nodes: list[SimController | SimBroker] = [
        *world.quorum.controllers.values(),
        *world.brokers.values(),
    ]
    for node in nodes:
        log = node.disk.metadata
        if not node.running or (log.log_end_offset, log.high_watermark) != (end, end):
            yield f"{node} has {log} of the metadata, {active} has {end} records"


def _unlike(world: World, truth: PartitionTruth) -> Iterator[str]:
    """How the replicas of a partition differ from the leader, or the in-sync set from all."""
    registration = truth.registration
    if registration.leader_id is None:
        if not _waits_for_what_is_gone(world, truth):
            yield f"nobody leads: {registration}"
        return
    if sorted(registration.isr) != sorted(registration.replicas):
        yield f"not all are in sync: {registration}"
    leader = world.truth.log_of(registration.leader_id, truth.name)
    if leader is None:
        yield f"the leader has no log: {registration}"
        return
    if leader.high_watermark != leader.log_end_offset:
        yield f"{leader} has not committed all, in {registration}"
    for broker_id in registration.replicas:
        log = world.truth.log_of(broker_id, truth.name)
        if log is None:
            yield f"broker {broker_id} has no log of {truth.name}"
        elif (log.high_watermark, log.log_end_offset) != (
            leader.high_watermark,
            leader.log_end_offset,
        ):
            yield f"{log} is not as {leader}"


def _waits_for_what_is_gone(world: World, truth: PartitionTruth) -> bool:
    """Whether it was begun by brokers whose disks were gone already, though nobody knew yet.

    Nothing was ever committed in it. Only people can say that nothing is missing.
    """
    partition = world.quorum.truth.image.partition(truth.name)
    if partition is None or truth.high_watermark:
        return False
    return set(partition.isr) <= set(partition.lost)


def check_acknowledged(world: World) -> None:
    """I3, I4: every replica has every record that was acknowledged, at its offset."""
    for truth in world.truth.partitions.values():
        if truth.may_lose:
            continue
        for broker_id in truth.registration.replicas:
            log = world.truth.log_of(broker_id, truth.name)
            assert log is not None
            for batch in log.batches:
                if batch != truth.committed_at(batch.base_offset):
                    raise Violation("I4", f"{log} has {batch}, which is not what was committed")
    for producer in world.all_producers:
        for name, topic_id, content, offset in producer.acknowledged:
            known = world.truth.partitions.get(name)
            if known is None or known.registration.topic_id != topic_id or known.may_lose:
                continue
            found = known.committed_at(offset)
            if found is None or found.content != content:
                raise Violation(
                    "I3", f"{content} was acknowledged at {offset} of {name}, where {found} is"
                )
