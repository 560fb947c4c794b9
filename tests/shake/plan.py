"""What a story is drawn from: the cluster, its topics, which kinds of trouble it gets.

Drawn: 1 to 5 brokers, 1 or 3 controllers, alone or beside brokers; lives that end by os._exit or by
a clean close; kills, pauses, cuts, stops, reassignments, partitions added; and by story, each or
not: topics deleted and created again, records deleted, directories wiped, aged or swapped, unclean
elections. Not drawn: power loss and failing disks (`make faults` has them), rot, retention, and
controllers without their directories.
"""

from __future__ import annotations

import dataclasses
import random

KNOWN_FINDINGS: dict[str, str] = {}
"""Kinds of trouble that are left out until what they have found is mended, with what that is.
`make shake KNOWN=all` plays them nevertheless. Empty is what this should be."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """One story's; drawn from its seed alone."""

    seed: int
    brokers: int
    controllers: int
    combined: bool
    lives: int
    life_s: float
    clients: int
    flush_commit: bool
    unclean: bool
    recreates: bool
    deletes: bool
    tampers: bool


TROUBLES = ("recreates", "deletes", "tampers")


def draw(seed: int, known: str = "") -> Plan:
    """known: kinds of trouble that every story gets, known findings or not, with commas between;
    or `all`: any may be drawn.
    """
    forced = set(known.split(",")) & set(TROUBLES)
    chance = random.Random(seed)
    brokers = chance.choice((1, 2, 3, 3, 3, 3, 4, 5))
    controllers = chance.choice((1, 1, 3))
    combined = controllers <= brokers and chance.random() < 0.3
    troubles = {
        "recreates": chance.random() < 0.5,
        "deletes": chance.random() < 0.4,
        "tampers": chance.random() < 0.5,
    }
    return Plan(
        seed=seed,
        brokers=brokers,
        controllers=controllers,
        combined=combined,
        lives=chance.randrange(2, 6),
        life_s=chance.uniform(0.8, 3.0),
        clients=chance.randrange(2, 6),
        flush_commit=chance.random() < 0.15,
        unclean=chance.random() < 0.1,
        **{
            name: name in forced or (drawn and (known == "all" or name not in KNOWN_FINDINGS))
            for name, drawn in troubles.items()
        },
    )
