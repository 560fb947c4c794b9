"""Names of the directories inside a log directory, and what each one says (Kafka's LocalLog).

    orders-0                                             a partition
    orders-0.f2ecfdd17b9d4b81901566eb3d2984ec-delete     deleted; its files are still to be removed
    orders-0.f2ecfdd17b9d4b81901566eb3d2984ec-stray      of a topic that the cluster does not know
    orders-0.f2ecfdd17b9d4b81901566eb3d2984ec-future     being moved here from another directory
    remote-log-index-cache                               Kafka's cache for tiered storage

Anything else does not belong there: opening says so, since it may be a partition with a wrong name.
"""

from __future__ import annotations

import enum
import re
import uuid

from replog.types import TopicPartition

NAME_LENGTH_MAX = 255
REMOTE_INDEX_CACHE = "remote-log-index-cache"
METADATA_TOPIC = "__cluster_metadata"

_MOVED = re.compile(r"(?P<name>\S+-[0-9]+)\.(?P<id>[0-9a-f]{32})-(?P<kind>delete|stray|future)\Z")


class DirectoryKind(enum.Enum):
    """What a directory inside a log directory is."""

    PARTITION = "partition"
    DELETED = "delete"
    STRAY = "stray"
    FUTURE = "future"
    REMOTE_INDEX_CACHE = "remote index cache"


def kind_of(name: str) -> DirectoryKind:
    """What the directory called `name` is. Raises UsageError for a name that Kafka never gives."""
    if name == REMOTE_INDEX_CACHE:
        return DirectoryKind.REMOTE_INDEX_CACHE
    moved = _MOVED.match(name)
    if moved is not None:
        return DirectoryKind(moved["kind"])
    TopicPartition.parse(name)
    return DirectoryKind.PARTITION


def deleted_name(topic_partition: TopicPartition) -> str:
    """A new name for a partition's directory that is to be deleted; long topics are cut."""
    return _moved_name(topic_partition, DirectoryKind.DELETED)


def is_deleted_name(name: str, topic_partition: TopicPartition) -> bool:
    """Whether `name` is what `deleted_name` may have given."""
    moved = _MOVED.match(name)
    if moved is None or moved["kind"] != DirectoryKind.DELETED.value:
        return False
    return name == _moved_name(topic_partition, DirectoryKind.DELETED, moved["id"])


def stray_name(topic_partition: TopicPartition) -> str:
    """A new name for a partition's directory that is to be kept, but not to be opened again."""
    return _moved_name(topic_partition, DirectoryKind.STRAY)


def _moved_name(topic_partition: TopicPartition, kind: DirectoryKind, unique: str = "") -> str:
    suffix = f"-{topic_partition.partition}.{unique or uuid.uuid4().hex}-{kind.value}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(suffix)] + suffix
