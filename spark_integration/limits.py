"""Where a read starts and ends, as the options of Spark's Kafka source say it.

Three ways to say it, the first that is given wins: one timestamp for all partitions, a timestamp a
partition, offsets. A timestamp chooses an offset, that of the first record at or after it: it does
not filter rows. What a limit means for a partition is found out when a read is planned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from replog.config import LONG_MAX
from replog.errors import UsageError
from replog.types import TopicPartition

EARLIEST = -2
LATEST = -1
WORDS = {"earliest": EARLIEST, "latest": LATEST}

Side = Literal["starting", "ending"]
ByPartition = Mapping[TopicPartition, int]


class Everywhere(NamedTuple):
    """EARLIEST or LATEST, in every partition."""

    offset: int


class AtOffsets(NamedTuple):
    """An offset for each partition, EARLIEST and LATEST among them."""

    offsets: ByPartition


class AtTimestamp(NamedTuple):
    """The first record at or after `timestamp` ms, in every partition."""

    timestamp: int


class AtTimestamps(NamedTuple):
    """The first record at or after each partition's timestamp in ms."""

    timestamps: ByPartition


Limit = Everywhere | AtOffsets | AtTimestamp | AtTimestamps


def parse_limit(given: Mapping[str, str], side: Side, default: str) -> Limit:
    """The limit that `given` (names in lower case) sets for this side. Raises UsageError."""
    if (name := f"{side}Timestamp").lower() in given:
        return AtTimestamp(_timestamp(name, given[name.lower()].strip()))
    if (name := f"{side}OffsetsByTimestamp").lower() in given:
        found = parse_partition_numbers(name, given[name.lower()])
        return AtTimestamps({key: _timestamp(name, ms) for key, ms in found.items()})
    name = f"{side}Offsets"
    text = given.get(name.lower(), default).strip()
    if text.lower() in WORDS:
        return Everywhere(WORDS[text.lower()])
    if not text.startswith("{"):
        raise UsageError(
            f'expected {name} to be earliest, latest or JSON such as {{"topic":{{"0":23}}}}, found '
            f"{text!r}"
        )
    offsets = parse_partition_numbers(name, text)
    for key, offset in offsets.items():
        if not EARLIEST <= offset <= LONG_MAX:
            raise UsageError(
                f"expected {name} of {key} to be an offset >= 0, {LATEST} (latest) or {EARLIEST} "
                f"(earliest), found {offset}"
            )
    return AtOffsets(offsets)


def parse_partition_numbers(name: str, text: str) -> dict[TopicPartition, int]:
    """JSON such as {"topic":{"0":23}} by partition. Raises UsageError."""

    def refuse() -> UsageError:
        return UsageError(
            f'expected {name} to be JSON such as {{"topic":{{"0":23}}}}, found {text!r}'
        )

    topics = parse_json(name, text)
    if not isinstance(topics, dict):
        raise refuse()
    found: dict[TopicPartition, int] = {}
    for topic, numbers in topics.items():
        if not isinstance(numbers, dict):
            raise refuse()
        for partition, number in numbers.items():
            if not partition.isdecimal() or type(number) is not int:
                raise refuse()
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_json(name: str, text: str) -> Any:
    """The value of a JSON option. Raises UsageError."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"expected {name} to be JSON, found {text!r}: {error}") from error


def _timestamp(name: str, text: str | int) -> int:
    if isinstance(text, int) or text.isdecimal():
        timestamp = int(text)
        if 0 <= timestamp <= LONG_MAX:
            return timestamp
    raise UsageError(
        f"expected {name} in milliseconds since 1970, such as 1700000000000, found {text!r}"
    )


def check_batch_limits(start: Limit, end: Limit) -> None:
    """Refuse what a batch query cannot mean. Raises UsageError, naming the partition."""
    _check_side("startingOffsets", start, LATEST, "latest")
    _check_side("endingOffsets", end, EARLIEST, "earliest")
    match start, end:
        case AtOffsets(starts), AtOffsets(ends):
            _check_pairs("Offsets", starts, ends)
        case AtTimestamps(starts), AtTimestamps(ends):
            _check_pairs("OffsetsByTimestamp", starts, ends)
        case AtTimestamp(first), AtTimestamp(last) if first > last:
            raise UsageError(
                f"expected startingTimestamp <= endingTimestamp, found {first} > {last}"
            )


def _check_side(name: str, limit: Limit, refused: int, word: str) -> None:
    sentence = (
        f"expected {name} of a batch query not to be {word} ({refused}), which would read nothing"
    )
    match limit:
        case Everywhere(offset) if offset == refused:
            raise UsageError(f"{sentence}; leave the option out")
        case AtOffsets(offsets):
            for key, offset in offsets.items():
                if offset == refused:
                    raise UsageError(f"{sentence}, found it for {key}")


def _check_pairs(name: str, starts: ByPartition, ends: ByPartition) -> None:
    if starts.keys() != ends.keys():
        only = ", ".join(str(key) for key in sorted(starts.keys() ^ ends.keys()))
        raise UsageError(
            f"expected starting{name} and ending{name} to name the same partitions, found {only} "
            f"in one of them only"
        )
    for key, start in starts.items():
        if start >= 0 and 0 <= ends[key] < start:
            raise UsageError(
                f"expected starting{name} <= ending{name} of {key}, found {start} > {ends[key]}"
            )
