"""Which partitions a job works on: those under its paths, by topic, one replica of each."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Sequence

from replog.errors import UsageError
from replog.reader import Checkpoints, PartitionReader, expand_paths, topic_partition_of
from replog.types import TopicPartition

METADATA_TOPIC = "__cluster_metadata"


def replicas(
    paths: Iterable[str | os.PathLike[str]], topics: Sequence[str] = ()
) -> dict[TopicPartition, list[PartitionReader]]:
    """Readers of every partition directory under `paths`, by partition, in the paths' order.

    topics: names or shell patterns; none means all but the controller's log. Raises UsageError for
    a path that is none, for a topic that is nowhere and if there is no partition at all.
    """
    directories = [
        (topic_partition_of(path), path)
        for path in expand_paths([os.fspath(path) for path in paths])
    ]
    there = {key.topic for key, _ in directories}
    chosen = matching(there, topics, paths) if topics else there - {METADATA_TOPIC}
    if not chosen:
        raise UsageError(
            f"expected partition directories TOPIC-N under "
            f"{', '.join(str(path) for path in paths)}, found none; check the paths"
        )
    checkpoints = Checkpoints()
    found: dict[TopicPartition, list[PartitionReader]] = {}
    for key, directory in directories:
        if key.topic in chosen:
            found.setdefault(key, []).append(PartitionReader(directory, checkpoints=checkpoints))
    return dict(sorted(found.items()))


def matching(there: Iterable[str], topics: Sequence[str], paths: Iterable[object]) -> set[str]:
    """Those of the topics `there` that a name or pattern asks for. Raises UsageError."""
    names = set(there)
    chosen: set[str] = set()
    for pattern in topics:
        matched = {name for name in names if fnmatch.fnmatchcase(name, pattern)}
        if not matched:
            raise UsageError(
                f"expected partitions of the topic {pattern!r} under "
                f"{', '.join(str(path) for path in paths)}, found none; check topics and paths"
            )
        chosen |= matched
    return chosen
