"""Requests that come late, and perhaps after others that were made since.

The connection breaks under the request; the client is told at once and asks again, the server finds
the first one later. A proposal of an in-sync set does most harm where the set has changed twice in
between under one leader: so whoever was to join is cut off from the leader, which takes it out
again, while all of them stay registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from replog.messages import AlterPartitionRequest, FetchRequest
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS
from replog.testing.simulation.truth import Truth
from replog.testing.simulation.world import World


def hold_next(
    world: World,
    source: int,
    target: int,
    held_ms: int,
    cut_off: Callable[[Sequence[int]], None],
) -> None:
    """Hold up the next fetch from `source` if `target` is a broker, else its next proposal.

    `cut_off` is told of the replicas that the proposal adds.
    """
    kind = FetchRequest if target in world.brokers else AlterPartitionRequest

    def broken(request: Any) -> None:
        if isinstance(request, AlterPartitionRequest):
            cut_off(_joining(request, world.oracle.truth))

    world.network.break_under(source, target, kind, held_ms * MICROSECONDS_PER_MS, broken)


def _joining(request: AlterPartitionRequest, truth: Truth) -> list[int]:
    joining: set[int] = set()
    for proposal in request.proposals:
        known = truth.partitions.get(proposal.topic_partition)
        if known is not None:  # else its topic was deleted, which the leader has not heard of yet
            members = {member for member, _ in proposal.isr}
            joining |= members.difference(known.registration.isr)
    return sorted(joining)
