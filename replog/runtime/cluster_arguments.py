"""What a user of a local cluster gives it, held against what it can do."""

from __future__ import annotations

from typing import TypeVar

from replog.errors import UsageError, shown

T = TypeVar("T")


def options_of(name: str, given: T | None, kind: type[T]) -> T:
    """What was given, or the defaults if that is None. Raises UsageError for another kind."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise UsageError(
            f"expected {name} to be a replog.{kind.__name__} or None, found {shown(given)}",
            argument=name,
        )
    return given


def check_reachable(
    min_insync_replicas: object, replication_factor: object, assignment: object
) -> None:
    """Refuse a number of replicas in sync that a new topic never has.

    A controller takes it, as Kafka's does: more replicas may be on their way. What is no number or
    no list is left to the controller, too. Raises UsageError.
    """
    found: object = replication_factor
    if isinstance(assignment, (list, tuple)):
        found = min((len(r) for r in assignment if isinstance(r, (list, tuple))), default=None)
    wanted = min_insync_replicas
    if isinstance(wanted, int) and isinstance(found, int) and wanted > found > 0:
        raise UsageError(
            f"expected min_insync_replicas of at most {found}, the number of replicas, found "
            f'{wanted}: acks="all" would always be refused; ask for fewer, or for more replicas',
            argument="min_insync_replicas",
        )
