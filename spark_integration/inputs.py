"""Which partition directories a read is about: paths expanded, topics selected, replicas chosen."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from replog.errors import CorruptBatchError, StorageError, UsageError
from replog.reader import (
    Checkpoints,
    PartitionReader,
    choose_replica,
    expand_paths,
    first_difference,
    topic_partition_of,
)
from replog.types import TopicPartition
from spark_integration.options import Assigned, Pattern, Selection, SourceOptions, Topics

Readers = dict[TopicPartition, PartitionReader]


@contextmanager
def one_sentence() -> Iterator[None]:
    """What the operating system refuses while a read is planned, as a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"expected to be able to read {error.filename or 'the directories given'}, found: "
            f"{error.strerror or error}; check the permissions of the user that runs Spark",
            path=error.filename,
        ) from error


def open_inputs(options: SourceOptions) -> Readers:
    """A reader of the chosen replica of each selected partition, by name.

    Raises UsageError, StorageError, and with replicas=verify CorruptBatchError.
    """
    directories: dict[TopicPartition, list[str]] = defaultdict(list)
    for path in expand_paths(options.paths):
        directories[topic_partition_of(path)].append(path)
    selected = _selected(directories.keys(), options.selection)
    unknown = options.high_watermarks.keys() - directories.keys()
    if unknown:
        raise UsageError(
            f"expected highWatermarks to name partitions under the paths, found {min(unknown)}"
        )
    checkpoints = Checkpoints()
    readers: Readers = {}
    for partition in sorted(selected):
        replicas = [
            PartitionReader(
                path,
                high_watermark=options.high_watermarks.get(partition),
                checkpoints=checkpoints,
            )
            for path in directories[partition]
        ]
        for replica in replicas:
            _check_readable(replica)
        chosen = choose_replica(replicas)
        if options.replicas == "verify":
            _verify(chosen, replicas)
        readers[partition] = chosen
    return readers


def _selected(
    present: Iterable[TopicPartition], selection: Selection | None
) -> set[TopicPartition]:
    there = set(present)
    topics = {one.topic for one in there}
    match selection:
        case None:
            return there
        case Topics(names):
            for name in names:
                if name not in topics:
                    raise UsageError(
                        f"expected the topic {name!r} under the paths given, found "
                        f"{_some(topics, 'no topic')}; check subscribe"
                    )
            return {one for one in there if one.topic in names}
        case Pattern(expression):
            return {one for one in there if re.fullmatch(expression, one.topic)}
        case Assigned(partitions):
            for partition in partitions:
                if partition not in there:
                    raise UsageError(
                        f"expected the partition {partition} under the paths given, found "
                        f"{_some(map(str, there), 'no partition')}; check assign"
                    )
            return set(partitions)


def _some(names: Iterable[str], nothing: str) -> str:
    listed = sorted(names)
    return ", ".join(listed[:10]) + (", ..." if len(listed) > 10 else "") or nothing


def _check_readable(reader: PartitionReader) -> None:
    """Find out on the driver what a task could not read. Raises PermissionError."""
    for segment in reader.segments:
        if os.path.exists(segment.path) and not os.access(segment.path, os.R_OK):
            raise PermissionError(13, "Permission denied", segment.path)


def _verify(chosen: PartitionReader, replicas: Iterable[PartitionReader]) -> None:
    for other in replicas:
        difference = first_difference(chosen, other) if other is not chosen else None
        if difference is not None:
            raise CorruptBatchError(
                f"expected the replicas of {chosen.topic_partition} to hold the same committed "
                f"bytes, found that {difference}; read one directory alone, or restore the other",
                path=difference.paths[1],
                position=difference.positions[1],
                offset=difference.offset,
                topic_partition=str(difference.topic_partition),
            )


def require_all(
    name: str, given: Mapping[TopicPartition, int], readers: Mapping[TopicPartition, object]
) -> None:
    """Raises UsageError unless an option names exactly the partitions that are read."""
    if given.keys() != readers.keys():
        unlike = sorted(given.keys() ^ readers.keys())
        raise UsageError(
            f"expected {name} to name every partition that is read and no other (-1 for latest, -2 "
            f"for earliest), found a difference in {', '.join(str(one) for one in unlike[:10])}"
        )
