"""The cluster as the metadata log tells it: what controllers decide from and brokers obey.

One record after the other is replayed, nothing else changes it, so that every controller and every
broker that has replayed the same records has the same image. What has changed since the last delta
was taken is gathered on the way. A record of a kind that says nothing here is kept as it is if a
snapshot must tell it again, and passed over otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from replog.controller.broker_image import BEGIN_SHUTDOWN, FENCE, UNFENCE, BrokerImage
from replog.controller.partition_image import PartitionImage
from replog.controller.topic_image import TopicImage
from replog.controller.topic_options import known_config_from
from replog.errors import MalformedMessageError
from replog.registrations import MetadataDelta
from replog.types import TopicPartition
from replog.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    import uuid

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
NOTES = "replog."
"""What the names of notes begin with: they stand beside a resource's options, and are none."""
CREATION_MARK = "replog.unfinished.creation"
"""Of a topic, while some of its replicas have yet to start: see `creation_waits`."""
EVERY_BROKER = ""
"""Name of the resource that holds the options of all brokers."""
THROTTLE_MARK = "replog.reassignment.throttle"
"""Beside the options of all brokers, while a reassignment limits them: see
`replication_throttle`."""


def note_of(topic: str, name: str, text: str | None) -> ConfigRecord:
    """The record that makes a note of a topic; None: that drops it."""
    return ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=text)


class MetadataImage:
    """Brokers, topics, partitions and options. Not copied, not locked: one owner.

    Invariant: `leaderless` holds exactly the partitions without a leader, `reassigning` those with
    a reassignment under way, `held_by[b]` those that name broker b among their replicas.
    """

    def __init__(self, *, tracks_changes: bool = True) -> None:
        """tracks_changes: whether `take_delta` will be called, now and then."""
        self.end_offset = 0
        """Every record below it has been replayed: the version of the metadata."""
        self.brokers: dict[int, BrokerImage] = {}
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.options: dict[tuple[int, str], dict[str, str]] = {}
        """By (resource type, resource name), under Kafka's names."""
        self.creations: dict[str, str] = {}
        """The marks of creations that have not come to their end, by topic."""
        self.notes: dict[str, dict[str, str]] = {}
        """Other notes of topics, by topic: what unclean elections have lost."""
        self.throttle_mark: str | None = None
        """The note of what reassignments limit brokers to."""
        self.leaderless: dict[PartitionImage, None] = {}
        self.reassigning: dict[PartitionImage, None] = {}
        self.held_by: dict[int, dict[PartitionImage, None]] = {}
        self._tracks = tracks_changes
        self._kept: dict[tuple[type, Any], Any] = {}
        self._changed_brokers: dict[int, None] = {}
        self._changed_partitions: dict[PartitionImage, None] = {}
        self._changed_options: dict[tuple[str, str], str | None] = {}
        self._removed: list[tuple[TopicPartition, uuid.UUID]] = []
        self._awaited = False
        """Whether the next delta is."""

    def apply(self, record: Any, offset: int) -> None:
        """Replay the record at this offset, which is the next one or lies behind a gap that
        control records left. Raises MalformedMessageError if it speaks of what is not there.
        """
        replay = self._replay.get(type(record))
        if replay is not None:
            replay(self, record)
        self.end_offset = offset + 1

    def pass_over(self, end_offset: int) -> None:
        """All below this offset has been replayed: what lies there was no record of metadata."""
        self.end_offset = end_offset

    def load(self, records: Iterable[Any], end_offset: int) -> None:
        """Begin anew from a snapshot of all below `end_offset`.

        The next delta holds everything, and the deletion of what was there and is not any more.
        """
        before = self.partitions() if self._tracks else ()
        old = {partition.name: partition.topic.topic_id for partition in before}
        removed = self._removed
        brokers = list(self.brokers)
        options = [
            (name, option)
            for (kind, name), known in self.options.items()
            if self._tracks and kind == BROKER_RESOURCE
            for option in known
        ]
        self.__init__(tracks_changes=self._tracks)  # type: ignore[misc]
        for record in records:
            self.apply(record, 0)
        self.end_offset = end_offset
        self._removed = removed
        for name, topic_id in old.items():
            now = self.partition(name)
            if now is None or now.topic.topic_id != topic_id:
                self._removed.append((name, topic_id))
        for broker_id in brokers:
            if broker_id not in self.brokers:
                self._changed_brokers[broker_id] = None
        for resource, option in options:
            if option not in self.options.get((BROKER_RESOURCE, resource), ()):
                self._changed_options[resource, option] = None

    def partition(self, name: TopicPartition) -> PartitionImage | None:
        """The partition of this name, if there is one."""
        topic = self.topics.get(name[0])
        return None if topic is None else topic.partitions.get(name[1])

    def partitions(self) -> Iterator[PartitionImage]:
        """All partitions, topic by topic."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def is_live(self, broker_id: int) -> bool:
        """Whether the broker's replicas may lead and be in sync."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.registration.eligible

    def take_delta(self) -> MetadataDelta | None:
        """What has changed since the last one; None if nothing that anybody is told has.

        Its version is `end_offset`.
        """
        if not (
            self._changed_partitions
            or self._changed_brokers
            or self._removed
            or self._changed_options
        ):
            return None
        known = [changed for changed in self._changed_brokers if changed in self.brokers]
        delta = MetadataDelta(
            version=self.end_offset,
            brokers=tuple(self.brokers[changed].registration for changed in known),
            partitions=tuple(changed.registration for changed in self._changed_partitions),
            removed_partitions=tuple(self._removed),
            removed_brokers=tuple(
                gone for gone in self._changed_brokers if gone not in self.brokers
            ),
            broker_options=tuple(
                (int(name) if name else None, option, text)
                for (name, option), text in self._changed_options.items()
            ),
            is_awaited=self._awaited,
        )
        self._awaited = False
        self._changed_partitions.clear()
        self._changed_brokers.clear()
        self._changed_options.clear()
        self._removed.clear()
        return delta

    def snapshot_records(self) -> Iterator[Any]:
        """The state as records: replayed from the beginning they give it again."""
        yield from self._kept.values()
        # Before the topics: each is told once then, not again for each of its options.
        for (kind, name), options in self.options.items():
            for option, text in options.items():
                yield ConfigRecord(resource_type=kind, resource_name=name, name=option, value=text)
        if self.throttle_mark is not None:
            yield ConfigRecord(
                resource_type=BROKER_RESOURCE,
                resource_name=EVERY_BROKER,
                name=THROTTLE_MARK,
                value=self.throttle_mark,
            )
        for topic_name, mark in self.creations.items():
            yield note_of(topic_name, CREATION_MARK, mark)
        for topic_name, notes in self.notes.items():
            for name, text in notes.items():
                yield note_of(topic_name, name, text)
        for broker_id in sorted(self.brokers):
            yield from self.brokers[broker_id].records()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.raw_id)
            for number in sorted(topic.partitions):
                yield from topic.partitions[number].records()

    def _register(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(record, self.brokers.get(record.broker_id))
        self._broker_changed(record.broker_id)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None or broker.registration.broker_epoch != record.broker_epoch:
            raise MalformedMessageError(
                f"expected a registered broker of epoch {record.broker_epoch}, found that the "
                f"metadata log changes broker {record.broker_id}, which has "
                f"{broker.registration.broker_epoch if broker else 'no registration'}"
            )
        broker.replay_change(record)
        self._broker_changed(record.broker_id)
        if record.in_controlled_shutdown == BEGIN_SHUTDOWN:
            self._awaited = True

    def _fence(self, record: FenceBrokerRecord) -> None:
        self._change_broker(
            BrokerRegistrationChangeRecord(
                broker_id=record.id, broker_epoch=record.epoch, fenced=FENCE
            )
        )

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        self._change_broker(
            BrokerRegistrationChangeRecord(
                broker_id=record.id, broker_epoch=record.epoch, fenced=UNFENCE
            )
        )

    def _unregister(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)
        self._broker_changed(record.broker_id)

    def _broker_changed(self, broker_id: int) -> None:
        if self._tracks:
            self._changed_brokers[broker_id] = None

    def _add_topic(self, record: TopicRecord) -> None:
        options = self.options.get((TOPIC_RESOURCE, record.name), {})
        topic = TopicImage(record.name, record.topic_id, known_config_from(options))
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        del self.topics_by_id[record.topic_id]
        del self.topics[topic.name]
        self.options.pop((TOPIC_RESOURCE, topic.name), None)
        self.creations.pop(topic.name, None)
        self.notes.pop(topic.name, None)
        for partition in topic.partitions.values():
            for replica in partition.replicas:
                del self.held_by[replica][partition]
            self.leaderless.pop(partition, None)
            self.reassigning.pop(partition, None)
            if self._tracks:
                self._changed_partitions.pop(partition, None)
                self._removed.append((partition.name, topic.topic_id))

    def _add_partition(self, record: PartitionRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            partition = PartitionImage(topic, record.partition_id)
            topic.partitions[record.partition_id] = partition
        before = partition.replicas
        partition.replay(record)
        self._place(partition, before)
        self._mark(partition)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        partition = topic.partitions.get(record.partition_id) if topic else None
        if partition is None:
            raise MalformedMessageError(
                f"expected a partition of the metadata, found a change of partition "
                f"{record.partition_id} of topic id {record.topic_id.hex()}, which is not there"
            )
        before = partition.replicas
        partition.replay_change(record, self.end_offset)
        if record.replicas is not None:
            self._place(partition, before)
        self._mark(partition)

    def _set_option(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.name.startswith(NOTES) and record.resource_type == TOPIC_RESOURCE:
            self._take_note(record)
            return
        if resource == (BROKER_RESOURCE, EVERY_BROKER) and record.name == THROTTLE_MARK:
            self.throttle_mark = record.value
            return
        options = self.options.setdefault(resource, {})
        if record.value is None:
            options.pop(record.name, None)
            if not options:
                del self.options[resource]
        else:
            options[record.name] = record.value
        if record.resource_type == TOPIC_RESOURCE:
            topic = self.topics.get(record.resource_name)
            if topic is not None:
                topic.config = known_config_from(options)
                for partition in topic.partitions.values():
                    partition.forget_registration()
                    self._mark(partition)
        elif record.resource_type == BROKER_RESOURCE and self._tracks:
            self._changed_options[record.resource_name, record.name] = record.value

    def _take_note(self, record: ConfigRecord) -> None:
        topic, name, text = record.resource_name, record.name, record.value
        if name == CREATION_MARK:
            notes, name = self.creations, topic
            self._awaited = self._awaited or text is not None
        else:
            notes = self.notes.setdefault(topic, {})
        if text is None:
            notes.pop(name, None)
        else:
            notes[name] = text
        if not self.notes.get(topic, True):
            del self.notes[topic]

    def _keep(self, record: FeatureLevelRecord | ProducerIdsRecord) -> None:
        self._kept[type(record), getattr(record, "name", None)] = record

    def _keep_controller(self, record: RegisterControllerRecord) -> None:
        self._kept[RegisterControllerRecord, record.controller_id] = record

    def _topic(self, raw_id: bytes) -> TopicImage:
        topic = self.topics_by_id.get(raw_id)
        if topic is None:
            raise MalformedMessageError(
                f"expected a topic of the metadata, found id {raw_id.hex()}, which is not there"
            )
        return topic

    def _place(self, partition: PartitionImage, before: tuple[int, ...]) -> None:
        for replica in before:
            if replica not in partition.replicas:
                del self.held_by[replica][partition]
        for replica in partition.replicas:
            if replica not in before:
                held = self.held_by.get(replica)
                if held is None:
                    held = self.held_by[replica] = {}
                held[partition] = None

    def _mark(self, partition: PartitionImage) -> None:
        if partition.leader_id is None:
            self.leaderless[partition] = None
        elif self.leaderless:
            self.leaderless.pop(partition, None)
        if partition.adding or partition.removing:
            self.reassigning[partition] = None
        elif self.reassigning:
            self.reassigning.pop(partition, None)
        if self._tracks:
            self._changed_partitions[partition] = None

    _replay: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        RegisterBrokerRecord: _register,
        BrokerRegistrationChangeRecord: _change_broker,
        FenceBrokerRecord: _fence,
        UnfenceBrokerRecord: _unfence,
        UnregisterBrokerRecord: _unregister,
        TopicRecord: _add_topic,
        RemoveTopicRecord: _remove_topic,
        PartitionRecord: _add_partition,
        PartitionChangeRecord: _change_partition,
        ConfigRecord: _set_option,
        FeatureLevelRecord: _keep,
        ProducerIdsRecord: _keep,
        RegisterControllerRecord: _keep_controller,
    }
