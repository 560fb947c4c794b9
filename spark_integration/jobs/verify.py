"""Are the replicas of each partition the same, byte for byte, as far as both have committed?

Of each partition the replica with the highest high watermark is held against every other one. The
range that both have committed is cut into pieces; a task reads a piece of both, checks each batch
against its own checksum, and joins the batches by their place in the log: base offset, size, leader
epoch and checksum must be equal, which makes all bytes equal. Replicas of a compacted topic are
compacted each by itself and may differ. Directories may be live.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence

from replog.errors import CorruptBatchError, UsageError
from replog.reader import PartitionReader, choose_replica, first_difference
from replog.types import TopicPartition
from spark_integration.jobs.engine import Engine, Progress, no_progress
from spark_integration.jobs.partitions import replicas

PIECE_BYTES = 128 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class VerifyTask:
    """Offsets [start_offset, end_offset) of two directories of one partition."""

    paths: tuple[str, str]
    start_offset: int
    end_offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """Where two replicas part first.

    offset: the first record that may differ. paths: the files; of a damaged batch its file alone.
    positions: the first byte that differs in each, None where a replica has no such batch.
    sentence: all of it in words.
    """

    topic: str
    partition: int
    offset: int
    paths: tuple[str, ...]
    positions: tuple[int | None, ...]
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """One replica held against the furthest one.

    [start_offset, end_offset): what was compared; empty if they have no range in common.
    """

    topic: str
    partition: int
    reference: str
    replica: str
    start_offset: int
    end_offset: int
    difference: Difference | None


@dataclasses.dataclass(frozen=True, slots=True)
class VerifyReport:
    """comparisons: every pair. single: partitions that have one replica under the paths."""

    comparisons: tuple[Comparison, ...]
    single: tuple[TopicPartition, ...]
    engine: str
    seconds: float

    @property
    def differences(self) -> list[Difference]:
        """The first difference of each pair that has one."""
        return [one.difference for one in self.comparisons if one.difference is not None]


def verify(
    paths: Sequence[str | os.PathLike[str]],
    engine: Engine,
    *,
    topics: Sequence[str] = (),
    piece_bytes: int = PIECE_BYTES,
    progress: Progress = no_progress,
) -> VerifyReport:
    """Compare the replicas under `paths`, log or partition directories.

    Raises UsageError if no partition is there twice, LogTruncatedError if retention or truncation
    took what was being compared (verify again).
    """
    started = time.monotonic()
    found = replicas(paths, topics)
    if all(len(readers) < 2 for readers in found.values()):
        raise UsageError(
            f"expected at least two replicas of a partition under "
            f"{', '.join(str(path) for path in paths)}, found {len(found)} partitions with one "
            f"each; give the log directories of several brokers"
        )
    pairs = [
        pair for readers in found.values() if len(readers) > 1 for pair in _pairs(choose(readers))
    ]
    tasks = [task for pair in pairs for task in _pieces(*pair, piece_bytes)]
    first: dict[tuple[str, str], Difference] = {}
    for paths_of, difference in engine.run(compare_piece, tasks, progress):
        if difference is not None:
            first[paths_of] = min(
                difference, first.get(paths_of, difference), key=lambda one: one.offset
            )
    return VerifyReport(
        comparisons=tuple(
            Comparison(
                *one.topic_partition,
                one.path,
                other.path,
                *_in_both(one, other),
                first.get((one.path, other.path)),
            )
            for one, other in pairs
        ),
        single=tuple(key for key, readers in found.items() if len(readers) == 1),
        engine=engine.name,
        seconds=round(time.monotonic() - started, 3),
    )


def choose(readers: Sequence[PartitionReader]) -> list[PartitionReader]:
    """The replica to hold the others against, then the others."""
    reference = choose_replica(readers)
    return [reference, *(one for one in readers if one is not reference)]


def _pairs(
    readers: Sequence[PartitionReader],
) -> Iterator[tuple[PartitionReader, PartitionReader]]:
    for other in readers[1:]:
        yield readers[0], other


def _in_both(one: PartitionReader, other: PartitionReader) -> tuple[int, int]:
    """The range [start, end) that both have committed."""
    start = max(one.log_start_offset, other.log_start_offset)
    return start, max(start, min(one.end_offset, other.end_offset))


def _pieces(one: PartitionReader, other: PartitionReader, piece_bytes: int) -> Iterator[VerifyTask]:
    start, end = _in_both(one, other)
    if start < end:
        for split in one.split_points(piece_bytes, start, end):
            yield VerifyTask((one.path, other.path), split.start_offset, split.end_offset)


def compare_piece(task: VerifyTask) -> tuple[tuple[str, str], Difference | None]:
    """Where the two directories of a task part first inside its range, None if nowhere."""
    one, other = (PartitionReader(path) for path in task.paths)
    topic, partition = one.topic_partition
    try:
        found = first_difference(one, other, task.start_offset, task.end_offset)
    except CorruptBatchError as error:
        # A replica that contradicts its own checksum differs, whatever the other one holds.
        offset = task.start_offset if error.offset is None else error.offset
        paths = () if error.path is None else (error.path,)
        return task.paths, Difference(
            topic, partition, offset, paths, (error.position,), str(error)
        )
    if found is None:
        return task.paths, None
    return task.paths, Difference(
        topic, partition, found.offset, found.paths, found.positions, str(found)
    )
