"""One run: seed -> drawn options -> faults while clients work -> healing -> all must converge.

`simulate` plays it and returns an `Outcome`. Nothing of it depends on the machine, so a seed says
it all, for one commit: a change of the code under test changes what the same seed does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from replog.errors import InvariantViolation
from replog.runtime import garbage
from replog.testing.simulation.faults import Action, Faults
from replog.testing.simulation.liveness import demand_liveness
from replog.testing.simulation.options import RunOptions, draw_options
from replog.testing.simulation.prng import Streams
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS
from replog.testing.simulation.violation import Violation
from replog.testing.simulation.world import World

START_PATIENCE_MS = 60_000


@dataclasses.dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of a run. `failure` is None if nothing was found."""

    seed: int
    options: RunOptions
    digest: int
    events: int
    operations: int
    simulated_s: float
    leader_changes: int
    truncations: int
    faults: int
    marks: dict[str, int]
    failure: Violation | None
    actions: list[Action]
    recorded: dict[str, list[float]]


@dataclasses.dataclass(slots=True, kw_only=True)
class Schedule:
    """A run without chance: its options, its faults, and every other number that was drawn."""

    seed: int
    options: RunOptions
    actions: list[Action]
    draws: dict[str, list[float]]


def simulate(
    seed: int,
    options: RunOptions | None = None,
    *,
    record: bool = False,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Play the run of `seed`, with `options` in place of what the seed would draw.

    record: keep what was drawn, for `replay`. trace: is given a line for whatever matters.
    """
    streams = Streams(seed, record=record)
    if options is None:
        options = draw_options(streams.stream("options"))
    return _play(seed, options, streams, None, trace)


def replay(
    schedule: Schedule,
    actions: Sequence[Action] | None = None,
    *,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Play a recorded run again, with `actions` in place of its faults; no number is drawn."""
    streams = Streams(schedule.seed, replay=schedule.draws)
    chosen = schedule.actions if actions is None else actions
    return _play(schedule.seed, schedule.options, streams, list(chosen), trace)


def _play(
    seed: int,
    options: RunOptions,
    streams: Streams,
    actions: list[Action] | None,
    trace: Callable[[str], None] | None,
) -> Outcome:
    with garbage.put_off():  # the world of a run is one knot of references until it ends
        return _play_through(seed, options, streams, actions, trace)


def _play_through(
    seed: int,
    options: RunOptions,
    streams: Streams,
    actions: list[Action] | None,
    trace: Callable[[str], None] | None,
) -> Outcome:
    world = World(options, streams, trace)
    faults = Faults(world, streams.stream("faults"))
    failure: Violation | None = None
    try:
        _run(world, faults, actions)
    except Violation as found:
        failure = found
    except InvariantViolation as found:
        failure = Violation("A", f"the code itself found: {found}")
        failure.__cause__ = found
    return Outcome(
        seed=seed,
        options=options,
        digest=world.oracle.digest,
        events=world.oracle.events,
        operations=world.operations,
        simulated_s=world.scheduler.now_us / 1e6,
        leader_changes=world.oracle.leader_changes,
        truncations=world.oracle.truncations,
        faults=len(faults.performed),
        marks=world.marks.counts,
        failure=failure,
        actions=faults.performed,
        recorded=streams.recorded,
    )


def _run(world: World, faults: Faults, actions: list[Action] | None) -> None:
    scheduler = world.scheduler
    while not world.ready:
        if scheduler.now_us > START_PATIENCE_MS * MICROSECONDS_PER_MS:
            raise Violation("L1", "the cluster did not get ready")
        scheduler.run_until(scheduler.now_us + 100 * MICROSECONDS_PER_MS)
    if actions is None:
        faults.start()
    else:
        faults.play(actions)
    scheduler.run_until(scheduler.now_us + world.options.duration_s * 1_000_000)
    faults.heal()
    demand_liveness(world)
