"""Makes a failing run small: shorter, fewer faults, fewer clients, the same invariant broken.

Works on a recorded schedule, so nothing is drawn anew: what is left out is simply not done, and all
else stays as it was as far as it can.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from replog.testing.simulation.faults import Action
from replog.testing.simulation.options import RunOptions
from replog.testing.simulation.run import Outcome, Schedule, replay, simulate


def record(seed: int, options: RunOptions | None = None) -> Schedule:
    """Play a seed and keep all that is drawn."""
    outcome = simulate(seed, options, record=True)
    return Schedule(
        seed=seed, options=outcome.options, actions=outcome.actions, draws=outcome.recorded
    )


def shrink(schedule: Schedule, time_left: Callable[[], bool]) -> tuple[Schedule, Outcome]:
    """The smallest failing schedule found while there is time, and what becomes of it.

    Raises ValueError if the schedule does not fail.
    """
    outcome = replay(schedule)
    if outcome.failure is None:
        raise ValueError(f"expected the schedule of seed {schedule.seed} to fail, it passes")
    invariant = outcome.failure.invariant

    def fails(candidate: Schedule) -> bool:
        failure = replay(candidate).failure
        return failure is not None and failure.invariant == invariant

    smaller = _shorter(schedule, outcome, fails)
    smaller = _fewer_faults(smaller, fails, time_left)
    smaller = _fewer_clients(smaller, fails, time_left)
    return smaller, replay(smaller)


def _shorter(schedule: Schedule, outcome: Outcome, fails: Callable[[Schedule], bool]) -> Schedule:
    """End the faults right before the run failed, and leave out those that came later."""
    ended_us = outcome.simulated_s * 1_000_000
    actions = [action for action in schedule.actions if action.at_us <= ended_us]
    candidate = dataclasses.replace(schedule, actions=actions)
    return candidate if fails(candidate) else schedule


def _fewer_faults(
    schedule: Schedule, fails: Callable[[Schedule], bool], time_left: Callable[[], bool]
) -> Schedule:
    """Delta debugging: leave out ever smaller parts of what is left."""
    part = max(len(schedule.actions) // 2, 1)
    while time_left() and schedule.actions:
        left_out = False
        start = 0
        while start < len(schedule.actions) and time_left():
            kept = schedule.actions[:start] + schedule.actions[start + part :]
            candidate = dataclasses.replace(schedule, actions=kept)
            if fails(candidate):
                schedule, left_out = candidate, True
            else:
                start += part
        if part == 1 and not left_out:
            break
        part = max(part // 2, 1)
    return schedule


def _fewer_clients(
    schedule: Schedule, fails: Callable[[Schedule], bool], time_left: Callable[[], bool]
) -> Schedule:
    for name in ("consumers", "producers"):
        while time_left() and getattr(schedule.options, name) > 1:
            fewer = {name: getattr(schedule.options, name) - 1}
            options = dataclasses.replace(schedule.options, **fewer)
            candidate = dataclasses.replace(schedule, options=options)
            if not fails(candidate):
                break
            schedule = candidate
    return schedule


def to_json(schedule: Schedule) -> str:
    """A schedule as text, to be kept with the failure it shows."""
    return json.dumps(
        {
            "seed": schedule.seed,
            "options": dataclasses.asdict(schedule.options),
            "actions": [list(action) for action in schedule.actions],
            "draws": schedule.draws,
        }
    )


def from_json(text: str) -> Schedule:
    """What `to_json` wrote."""
    found = json.loads(text)
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found["options"].items()
    }
    return Schedule(
        seed=found["seed"],
        options=RunOptions(**options),
        actions=_actions(found["actions"]),
        draws=found["draws"],
    )


def _actions(rows: Sequence[Sequence[object]]) -> list[Action]:
    return [Action(row[0], row[1], tuple(row[2]), row[3]) for row in rows]  # type: ignore[arg-type]
