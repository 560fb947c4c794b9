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
    a path that is none and for a topic that is nowhere.
    """
    found: dict[TopicPartition, list[PartitionReader]] = {}
    unmatched = set(topics)
    checkpoints = Checkpoints()
    for directory in expand_paths([os.fspath(path) for path in paths]):
        topic_partition = topic_partition_of(directory)
        name = topic_partition.topic
        matching = {pattern for pattern in topics if fnmatch.fnmatchcase(name, pattern)}
        unmatched -= matching
        if matching or (not topics and name != METADATA_TOPIC):
            reader = PartitionReader(directory, checkpoints=checkpoints)
            found.setdefault(topic_partition, []).append(reader)
    if unmatched:
        raise UsageError(
            f"expected partitions of the topic {min(unmatched)!r} under "
            f"{', '.join(str(path) for path in paths)}, found none; check the topics and the paths"
        )
    return dict(sorted(found.items()))
