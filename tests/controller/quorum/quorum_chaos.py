"""A seed's life of a quorum: turns of faults and proposals, then a calm in which it recovers."""

from __future__ import annotations

import random

from tests.controller.quorum.quorum_world import Faults, World

CALM_MS = 20_000


def drawn_faults(draw: random.Random, seed: int) -> Faults:
    return Faults(
        loss=draw.choice([0, 0.02, 0.1]),
        repeat=draw.choice([0, 0.1]),
        slow=draw.choice([0, 0.05, 0.2]),
        crash=draw.choice([0, 0.001, 0.005]),
        refuse=draw.choice([0, 0, 0.02]),
        full=0.3 if seed % 4 == 1 else 0,
    )


def turn(world: World, draw: random.Random, pace_ms: int) -> None:
    """One fault, or the end of some, after up to `pace_ms` of whatever goes on."""
    world.run_for(draw.randint(1, pace_ms))
    for member in world.leaders:
        if draw.random() < 0.7:
            world.propose(member, draw.randint(1, 3))
    everybody = list(world.members)
    fault = draw.random()
    if fault < 0.15:
        world.isolate(*draw.sample(everybody, draw.randint(1, max(1, len(everybody) - 1))))
    elif fault < 0.25:
        world.cut.add((draw.choice(everybody), draw.choice(everybody)))
    elif fault < 0.4:
        world.heal()
    elif fault < 0.5:
        world.kill(draw.choice(everybody))
    elif fault < 0.6:
        bounced = draw.choice(everybody)
        world.kill(bounced)
        start_all(world)
    elif fault < 0.85:
        start_all(world)
    elif fault < 0.9:
        for member in world.leaders:
            world.resign(member)
    elif fault < 0.96:
        world.members[draw.choice(everybody)].log.take_snapshot()
    else:
        world.wipe(draw.choice(everybody))


def start_all(world: World) -> None:
    for member in world.members.values():
        if member.quorum is None:
            world.start(member.id)


def live(seed: int, voters: int) -> World:
    """Raises Violation or InvariantViolation at the first step that breaks a rule."""
    draw = random.Random(seed * 2 + 1)
    world = World(voters, draw.choice([0, 1]), seed, drawn_faults(draw, seed))
    pace_ms = draw.choice([400, 200, 30])
    for _ in range(draw.randint(20, 60)):
        turn(world, draw, pace_ms)
    recover(world)
    return world


def recover(world: World) -> None:
    """No more faults: one leader is found, and everybody comes to have and know its whole log."""
    world.faults = Faults()
    world.heal()
    start_all(world)
    assert world.run_for(CALM_MS, until=lambda: bool(world.leaders)), "no leader was found"
    world.propose(world.leader)
    assert world.run_for(CALM_MS, until=world.level), "the members did not become level"
    for member in world.members.values():
        assert member.log.entries[: len(world.checkers.committed)] == world.checkers.committed
