"""Frozen values that every layer shares: names of partitions, codecs, offsets with their epochs."""

from __future__ import annotations

import dataclasses
import enum
import re
import uuid
from typing import NamedTuple, TypeVar, dataclass_transform

from replog.errors import UsageError, shown

UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_LEADER_EPOCH = -1

_PARTITION = re.compile(r"[0-9]{1,10}\Z")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")

_Kind = TypeVar("_Kind")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(kind: type[_Kind]) -> type[_Kind]:
    """A dataclass that never changes, with slots, made by keyword.

    The type checker sees to that it never does. A guard at run time would make each of these values
    three times as expensive to build, and nothing is built more often.
    """
    return dataclasses.dataclass(slots=True, kw_only=True, unsafe_hash=True)(kind)


@dataclass_transform(frozen_default=True)
def frozen_positional(kind: type[_Kind]) -> type[_Kind]:
    """Likewise, made by position or keyword: for values of few fields."""
    return dataclasses.dataclass(slots=True, unsafe_hash=True)(kind)


class Codec(enum.IntEnum):
    """Compression of a batch: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, found: Codec | str | int) -> Codec:
        """The codec itself, or that of a name (in any case) or number. Raises UsageError."""
        if isinstance(found, cls):
            return found
        if isinstance(found, str) and found.upper() in cls.__members__:
            return cls[found.upper()]
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= cls.ZSTD:
            return cls(found)
        names = ", ".join(f"{codec.name.lower()!r} ({codec})" for codec in cls)
        raise UsageError(
            f"expected codec to be a replog.Codec or one of {names}, found {shown(found)}",
            argument="codec",
        )


class TimestampType(enum.IntEnum):
    """Who set a record's timestamp: bit 3 of the batch's attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Isolation(enum.Enum):
    """How far a read may go."""

    LOG_END = "log_end"
    HIGH_WATERMARK = "read_uncommitted"
    TXN_COMMITTED = "read_committed"

    @classmethod
    def of(cls, found: Isolation | str) -> Isolation:
        """The level itself, or that of its value. Raises UsageError."""
        if isinstance(found, cls):
            return found
        for level in cls:
            if isinstance(found, str) and level.value == found:
                return level
        names = ", ".join(repr(level.value) for level in cls)
        raise UsageError(
            f"expected isolation to be a replog.Isolation or one of {names}, found {shown(found)}",
            argument="isolation",
        )


class TopicPartition(NamedTuple):
    """A partition's name; its directory is `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def of(cls, found: object) -> TopicPartition:
        """A (topic, partition) pair whose directory name reads back as itself, else UsageError."""
        if isinstance(found, tuple) and len(found) == 2:
            topic, partition = found
            if (
                isinstance(topic, str)
                and isinstance(partition, int)
                and not isinstance(partition, bool)
                and 0 <= partition < 2**31
            ):
                return cls.parse(f"{topic}-{partition}")
        raise UsageError(
            f"expected topic_partition to be a TopicPartition or a pair of a topic (str) and a "
            f"partition number from 0 to {2**31 - 1}, found {shown(found)}",
            argument="topic_partition",
        )

    @classmethod
    def parse(cls, directory_name: str) -> TopicPartition:
        """Split a directory name at its last '-'. Raises UsageError if it is not TOPIC-N."""
        topic, dash, number = directory_name.rpartition("-")
        if (
            not dash
            or not _PARTITION.match(number)
            or int(number) > 2**31 - 1
            or not _TOPIC.match(topic)
            or topic in {".", ".."}
        ):
            raise UsageError(
                f"expected a partition directory named TOPIC-N (1 to 249 of a-z A-Z 0-9 . _ - "
                f"and a number), found {directory_name!r}; rename it or give another path"
            )
        return cls(topic, int(number))


def topic_id_of(raw: bytes) -> uuid.UUID:
    """A topic's id from the 16 bytes that stand for it in records and messages."""
    return uuid.UUID(bytes=raw)


class EpochEndOffset(NamedTuple):
    """The largest leader epoch <= the one asked for, and its exclusive end; (-1, -1) if unknown."""

    leader_epoch: int
    end_offset: int


class EpochRange(NamedTuple):
    """Offsets [start_offset, end_offset) that the leader of one epoch wrote."""

    epoch: int
    start_offset: int
    end_offset: int


@frozen
class LostRecords:
    """What a replica has cut off its log because of an unclean election."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    unclean_epoch: int
    """The leader epoch that began with that election."""
    ranges: tuple[EpochRange, ...]
    committed_end_offset: int
    """What the replica knew as committed: offsets below it were."""


class SnapshotId(NamedTuple):
    """What a snapshot stands for: all records below `end_offset`, the last of `epoch`."""

    end_offset: int
    epoch: int


class TimestampedOffset(NamedTuple):
    """The first record at or after a timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class Record(NamedTuple):
    """One record as a consumer sees it; `timestamp` in ms since the epoch, -1 for none."""

    offset: int
    timestamp: int
    timestamp_type: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
