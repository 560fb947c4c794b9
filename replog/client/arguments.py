"""Arguments of producers and consumers: what fits, or a UsageError that names it.

A broker answers with a code; what is wrong, and with which argument, is known here.
"""

from __future__ import annotations

import numbers

from replog._native.arguments import integer
from replog.errors import UsageError, shown
from replog.messages import Acks
from replog.types import Isolation, TopicPartition

INT32_MAX = 2**31 - 1
ACKS: dict[object, Acks] = {0: Acks.NONE, 1: Acks.LEADER, "all": Acks.ALL, -1: Acks.ALL}


def partition_of(topic: object, partition: object) -> TopicPartition:
    """The partition's name. Raises UsageError; whether there is one is the cluster's to say."""
    if not isinstance(topic, str):
        raise UsageError(
            f"expected topic to be the name of a topic (str), found {shown(topic)}",
            argument="topic",
        )
    number = integer(partition, "partition", f"topic {topic!r}", high=INT32_MAX)
    return TopicPartition(topic, number)


def acks_of(found: object) -> Acks:
    """What 0, 1, "all" or -1 ask for. Raises UsageError."""
    could_be = isinstance(found, numbers.Integral | str) and not isinstance(found, bool)
    if not could_be or found not in ACKS:
        raise UsageError(f'expected acks 0, 1 or "all", found {shown(found)}', argument="acks")
    return ACKS[found]


def count_of(values: object) -> int:
    """How many records `values` are. Raises UsageError for none, and for what has no length."""
    if isinstance(values, (bytes, bytearray, str)):
        raise UsageError(
            f"expected a sequence of values, found one value of type {type(values).__name__}; "
            f"put it into a list",
            argument="values",
        )
    try:
        count = len(values)  # type: ignore[arg-type]
    except TypeError as error:
        raise UsageError(
            f"expected values to be a list or tuple of bytes, an Arrow array of binary or a numpy "
            f"array, found {shown(values)}; make a list of what has no length",
            argument="values",
        ) from error
    if not count:
        raise UsageError("expected at least one record, found none", argument="values")
    return count


def offset_or_name(found: object, name: str, names: tuple[str, ...], whose: str) -> int | str:
    """One of `names`, or an offset. Raises UsageError."""
    if isinstance(found, str):
        if found in names:
            return found
        known = " or ".join(f'"{known}"' for known in names)
        raise UsageError(
            f"expected {name} to be an offset or {known} for {whose}, found {shown(found)}",
            argument=name,
        )
    return integer(found, name, whose)


def consumers_isolation(isolation: Isolation | str) -> Isolation:
    """A level that consumers have: what is not committed is for nobody. Raises UsageError."""
    try:
        found = Isolation(isolation)
    except ValueError:
        found = Isolation.LOG_END
    if found is Isolation.LOG_END:
        raise UsageError(
            f"expected isolation read_uncommitted or read_committed, found {isolation!r}"
        )
    return found
