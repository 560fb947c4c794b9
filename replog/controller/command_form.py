"""Whether what a command carries is what its fields are declared to hold.

Commands are values that somebody's code has made; nothing has looked at the types before. What is
wrong here is refused with a sentence before anything is decided, and never reaches the log.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from replog.registrations import TopicConfig
from replog.types import TopicPartition

_INT_BITS_MAX = 63
"""Beside the sign."""
_NAMES = {"Mapping": Mapping, "TopicConfig": TopicConfig, "TopicPartition": TopicPartition}
"""What declarations name that is imported for type checkers alone."""

_Check: TypeAlias = Callable[[str, Any], str | None]
"""Field and found value to what is wrong."""


def not_a_command(found: object) -> str:
    """What to say of a value that is none."""
    return f"expected a command of replog.admin_messages, found {_shown(found)}"


def fault_of(command: Any) -> str | None:
    """The first field that is not as declared, as a sentence; None: all are."""
    kind: Any = type(command)
    return _of_dataclass(kind)("", command)


@functools.cache
def _of_dataclass(kind: type) -> _Check:
    hints = typing.get_type_hints(kind, localns=_NAMES)
    checks = [(field.name, _check_of(hints[field.name])) for field in dataclasses.fields(kind)]

    def check(name: str, found: Any) -> str | None:
        if not isinstance(found, kind):
            return _expected(name, f"a {kind.__name__}", found)
        path = name + "." if name else ""
        faults = (check(path + field, getattr(found, field)) for field, check in checks)
        return next(filter(None, faults), None)

    return check


def _check_of(declared: Any) -> _Check:
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin in {typing.Union, types.UnionType}:
        return _optional(*(_check_of(one) for one in arguments if one is not types.NoneType))
    if origin is tuple:
        return _sequence(arguments)
    if origin is Mapping:
        return _mapping(*map(_check_of, arguments))
    if declared is int:
        return _integer
    if declared is str:
        return _text
    if declared is TopicPartition:
        return _topic_partition
    if dataclasses.is_dataclass(declared) and declared is not TopicConfig:
        return _of_dataclass(typing.cast(type, declared))
    return functools.partial(_instance, declared)


def _optional(check: _Check) -> _Check:
    return lambda name, found: None if found is None else check(name, found)


def _sequence(declared: tuple[Any, ...]) -> _Check:
    """`tuple[X, ...]`, or `tuple[X, Y]` of that length."""
    checks = [_check_of(one) for one in declared if one is not Ellipsis]

    def check(name: str, found: Any) -> str | None:
        if not isinstance(found, tuple | list):
            return _expected(name, "a tuple", found)
        if declared[-1] is not Ellipsis and len(found) != len(checks):
            return _expected(name, f"a tuple of {len(checks)}", found)
        faults = (checks[at % len(checks)](f"{name}[{at}]", one) for at, one in enumerate(found))
        return next(filter(None, faults), None)

    return check


def _mapping(key_check: _Check, value_check: _Check) -> _Check:
    def check(name: str, found: Any) -> str | None:
        if not isinstance(found, Mapping):
            return _expected(name, "a mapping", found)
        faults = (
            key_check(f"a key of {name}", key) or value_check(f"{name}[{key!r}]", value)
            for key, value in found.items()
        )
        return next(filter(None, faults), None)

    return check


def _integer(name: str, found: Any) -> str | None:
    if isinstance(found, bool) or not isinstance(found, numbers.Integral):
        return _expected(name, "an integer", found)
    bits = int(found).bit_length()
    if bits > _INT_BITS_MAX:
        return f"expected {name} to be an integer of 64 bits, found one of {bits}"
    return None


def _text(name: str, found: Any) -> str | None:
    if not isinstance(found, str):
        return _expected(name, "a text", found)
    try:
        found.encode()
    except UnicodeEncodeError:
        return _expected(name, "a text that UTF-8 can hold", found)
    return None


def _topic_partition(name: str, found: Any) -> str | None:
    if not isinstance(found, TopicPartition):
        return _expected(name, "a TopicPartition", found)
    topic_fault = _text(f"{name}.topic", found.topic)
    return topic_fault or _integer(f"{name}.partition", found.partition)


def _instance(declared: type, name: str, found: Any) -> str | None:
    if isinstance(found, declared):
        return None
    if issubclass(declared, enum.Enum):
        known = ", ".join(f"{declared.__name__}.{one.name}" for one in declared)
        return _expected(name, f"one of {known}", found)
    return _expected(name, f"a {declared.__name__}", found)


def _expected(name: str, what: str, found: Any) -> str:
    return f"expected {name} to be {what}, found {_shown(found)}"


def _shown(found: object) -> str:
    text = ascii(found)
    if len(text) > 80:
        text = text[:80] + "..."
    return f"{text} of type {type(found).__name__}"
