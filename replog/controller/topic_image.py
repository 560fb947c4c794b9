"""One topic as the metadata log tells it: its identity, its options, its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.partition_image import PartitionImage
from replog.registrations import TopicConfig
from replog.types import TopicPartition, topic_id_of

if TYPE_CHECKING:
    import uuid


class TopicImage:
    """A topic: the same name created again has another id."""

    __slots__ = ("config", "name", "partitions", "raw_id", "topic_id")

    def __init__(self, name: str, raw_id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.raw_id = raw_id
        self.topic_id: uuid.UUID = topic_id_of(raw_id)
        self.config = config
        self.partitions: dict[int, PartitionImage] = {}
        """By number; without a gap once all records of a decision are replayed."""

    @property
    def names(self) -> tuple[TopicPartition, ...]:
        """The names of its partitions, in order."""
        return tuple(self.partitions[number].name for number in sorted(self.partitions))
