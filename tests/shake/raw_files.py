"""Kafka's partition directories read in plain Python, with nothing of replog's: the judge's eyes.

    broker-N/partition.metadata, TOPIC-P/*.log, log-start-offset-checkpoint

Only what the checker of `make shake` asks: which topic id a directory has, where its log starts,
and which batch stands at which offset. Uncompressed batches of magic 2.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
BEFORE_LENGTH_ENDS = 12
CRC_FROM = 21
CONTROL = 0x20


@dataclasses.dataclass
class RawBatch:
    """One batch as it stands: offsets [base, last], `values` by offset."""

    base: int
    last: int
    epoch: int
    crc: int
    values: dict[int, bytes | None]


@dataclasses.dataclass
class RawCopy:
    """One broker's directory of one partition."""

    path: Path
    broker: int
    topic_id: str
    topic: str
    partition: int
    start: int = 0
    batches: list[RawBatch] = dataclasses.field(default_factory=list)
    problem: str | None = None
    """What is wrong before the end of the last segment; a torn end is none."""
    torn: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else self.start

    def values(self) -> dict[int, bytes | None]:
        """Records at or above the log start."""
        found: dict[int, bytes | None] = {}
        for batch in self.batches:
            found.update(batch.values)
        return {offset: value for offset, value in found.items() if offset >= self.start}


def varint(content: bytes, at: int) -> tuple[int, int]:
    folded = shift = 0
    while True:
        byte = content[at]
        at += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (folded >> 1) ^ -(folded & 1), at
        shift += 7


def values_of(base: int, count: int, payload: bytes) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    at = 0
    for _ in range(count):
        size, at = varint(payload, at)
        end = at + size
        at += 1  # attributes
        _, at = varint(payload, at)
        delta, at = varint(payload, at)
        key_size, at = varint(payload, at)
        at += max(key_size, 0)
        value_size, at = varint(payload, at)
        found[base + delta] = payload[at : at + value_size] if value_size >= 0 else None
        at = end
    return found


def batches_of(content: bytes) -> tuple[list[RawBatch], int]:
    """The whole batches that `content` begins with, and where they end."""
    found: list[RawBatch] = []
    at = 0
    while len(content) - at >= HEADER.size:
        fields = HEADER.unpack_from(content, at)
        base, length, epoch, magic, crc, attributes, delta = fields[:7]
        count = fields[-1]
        end = at + BEFORE_LENGTH_ENDS + length
        if length < HEADER.size - BEFORE_LENGTH_ENDS or end > len(content) or magic != 2:
            break
        if crc32c(content[at + CRC_FROM : end]) != crc:
            break
        if attributes & 7:
            raise ValueError(f"batch {base} is compressed: the shake sends none such")
        plain = (
            {} if attributes & CONTROL else values_of(base, count, content[at + HEADER.size : end])
        )
        found.append(RawBatch(base, base + delta, epoch, crc, plain))
        at = end
    return found, at


def read_copy(path: Path, broker: int, starts: dict[str, int]) -> RawCopy | None:
    """A partition's directory; None for one without an id: nothing was ever appended to it."""
    metadata = path / "partition.metadata"
    if not metadata.exists():
        return None
    topic, _, partition = path.name.rpartition("-")
    topic_id = metadata.read_text().split("topic_id:")[1].strip()
    copy = RawCopy(path, broker, topic_id, topic, int(partition))
    segments = sorted(path.glob("*.log"))
    copy.start = max(starts.get(path.name, 0), int(segments[0].stem) if segments else 0)
    expected = None
    for segment in segments:
        content = segment.read_bytes()
        batches, end = batches_of(content)
        is_last = segment is segments[-1]
        if expected is not None and int(segment.stem) != expected:
            copy.problem = f"{segment} begins where {expected} was expected"
        for batch in batches:
            if expected is not None and batch.base != expected:
                copy.problem = f"{segment} has offset {batch.base} where {expected} was expected"
            expected = batch.last + 1
        copy.batches += batches
        expected = int(segment.stem) if expected is None else expected
        if end < len(content):
            copy.torn = is_last
            if not is_last:
                copy.problem = f"{segment} ends in no whole batch at byte {end} of {len(content)}"
    return copy


def log_starts(broker_directory: Path) -> dict[str, int]:
    """Directory name to offset, of the checkpoint of log starts."""
    path = broker_directory / "log-start-offset-checkpoint"
    if not path.exists():
        return {}
    starts = {}
    for line in path.read_text().splitlines()[2:]:
        topic, partition, offset = line.split()
        starts[f"{topic}-{partition}"] = int(offset)
    return starts


def is_partition(path: Path) -> bool:
    name = path.name
    return (
        path.is_dir()
        and name.rpartition("-")[2].isdigit()
        and not name.startswith("__cluster_metadata")
    )


def read_cluster(
    directory: Path, names: Mapping[str, str] = MappingProxyType({})
) -> dict[tuple[str, int], dict[int, RawCopy]]:
    """(topic id, partition) to broker to its copy, of a cluster that stands still.

    names: of topics, by id. What lies in the directory of another name is no copy.
    """
    found: dict[tuple[str, int], dict[int, RawCopy]] = {}
    for broker_directory in sorted(directory.glob("broker-*")):
        broker = int(broker_directory.name.removeprefix("broker-"))
        starts = log_starts(broker_directory)
        for path in filter(is_partition, sorted(broker_directory.iterdir())):
            copy = read_copy(path, broker, starts)
            if copy is not None and names.get(copy.topic_id, copy.topic) == copy.topic:
                found.setdefault((copy.topic_id, copy.partition), {})[broker] = copy
    return found
