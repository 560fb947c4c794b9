"""A broker's logs on disk: `storage.LogDirectory` as a LogStore.

What a crash leaves is the directory's business. Here is what a replica adds: logs are created and
deleted by topic id, a damaged one is set aside with its files kept (C4), a topic's flush mode is
left to the flush scheduler, and the clean-shutdown marker tells which incarnation stopped.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from typing import TYPE_CHECKING, Self

from replog.config import LogConfig
from replog.errors import (
    CorruptFileError,
    MissingLogError,
    NoSpaceError,
    OutOfDescriptorsError,
    ReplogError,
)
from replog.messages import ReplicaState
from replog.registrations import NO_BROKER_EPOCH
from replog.runtime.log_settler import LogSettler
from replog.runtime.replica_log import ReplicaLog
from replog.storage.broker_epoch import (
    read_broker_epoch,
    remove_broker_epoch,
    write_broker_epoch,
)
from replog.storage.log_directory import LogDirectory
from replog.storage.partition_log import wall_clock_ms
from replog.storage.partition_metadata import PARTITION_METADATA_FILE, read_topic_id
from replog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from replog.messages import RawBatches
    from replog.registrations import PartitionRegistration
    from replog.types import TopicPartition

NO_TOPIC_ID = uuid.UUID(int=0)
"""Of a damaged log whose own id cannot be read: no topic has it."""


class DirectoryLogStore:
    """The logs in one log directory; see `ports.LogStore` for the methods' contract."""

    def __init__(self, directory: LogDirectory) -> None:
        """Take over an open directory, opened with `replicated=True`."""
        self.directory = directory
        self._topic_ids: dict[TopicPartition, uuid.UUID | None] = {}
        self._settler = LogSettler()
        settle_soon = self._settler.settle_soon
        self._logs = {
            key: ReplicaLog(directory.partition_log(key), settle_soon) for key in directory
        }
        self.get = self._logs.get
        """The open log; None where there is none that can be used."""
        self._misplaced: dict[TopicPartition, MissingLogError] = {}
        """Where the log of another topic was found, with what is to be said of it."""
        self._states = tuple(
            [self._found(key) for key in self._logs]
            + [self._found_damaged(key) for key in directory.refused]
        )

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str],
        broker_id: int,
        cluster_id: str,
        configs: Mapping[str, LogConfig] | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> Self:
        """Open (or create) the log directory at `path`; raises what LogDirectory.open raises."""
        return cls(
            LogDirectory.open(
                path,
                # Whoever still reads a deleted log holds its files by their mapping, not by name.
                LogConfig(file_delete_delay_ms=0),
                configs={
                    topic: _without_commit(config) for topic, config in (configs or {}).items()
                },
                cluster_id=cluster_id,
                node_id=broker_id,
                replicated=True,
                now_ms=now_ms,
            )
        )

    @property
    def previous_broker_epoch(self) -> int:
        last = self.directory.last_shutdown
        if last is None or last.broker_epoch is None:
            return NO_BROKER_EPOCH
        return last.broker_epoch

    @property
    def last_broker_epoch(self) -> int:
        noted = read_broker_epoch(self.directory.path)
        return NO_BROKER_EPOCH if noted is None else noted

    @property
    def directory_id(self) -> uuid.UUID | None:
        return self.directory.meta_properties.directory_id

    def missing(self, topics: Mapping[uuid.UUID, str]) -> Collection[TopicPartition]:
        for key, topic_id in self._topic_ids.items():
            owner = key.topic if topic_id is None else topics.get(topic_id, key.topic)
            if owner != key.topic:
                self._misplaced[key] = MissingLogError(
                    f"expected the log of {key} in {self.directory.path}, found one of the topic "
                    f"{owner} (id {topic_id}) in its place; give the directories their names back "
                    f"and start the broker again, or let another replica lead",
                    topic_partition=str(key),
                )
                self._logs.pop(key, None)
                # What is written of it under this name would be wrong of its own log.
                self.directory.refuse(key, self._misplaced[key])
        return self._misplaced.keys() | self.directory.missing

    def note_broker_epoch(self, broker_epoch: int) -> None:
        try:
            write_broker_epoch(self.directory.path, broker_epoch)
        except (NoSpaceError, OutOfDescriptorsError):
            # Better no note than an old one, by which the directory would be taken for a copy.
            remove_broker_epoch(self.directory.path)

    def replica_states(self) -> tuple[ReplicaState, ...]:
        return self._states

    def topic_id(self, topic_partition: TopicPartition) -> uuid.UUID | None:
        return self._topic_ids.get(topic_partition)

    def open(self, registration: PartitionRegistration) -> ReplicaLog:
        topic_partition, topic_id = registration.topic_partition, registration.topic_id
        held_id = self._topic_ids.get(topic_partition)
        log = self._logs.get(topic_partition)
        if log is not None and held_id == topic_id:
            return log
        error = self.directory.refused.get(topic_partition)
        if error is not None and held_id in (None, topic_id):
            # Without a readable id it may well be this topic's, and is kept as if it were.
            self._topic_ids[topic_partition] = topic_id
            raise error
        if registration.leader_id is None:
            self._check_found(topic_partition)
        if self._misplaced.pop(topic_partition, None):
            self.directory.set_aside(topic_partition)
        else:
            # The name was given to another topic while this broker was away.
            self.delete(topic_partition)
        return self._create(topic_partition, topic_id, registration.config.log)

    def _check_found(self, topic_partition: TopicPartition) -> None:
        """Raise MissingLogError where the log is gone, or another topic's lies in its place."""
        if topic_partition in self._misplaced:
            raise self._misplaced[topic_partition]
        if topic_partition in self.directory.missing:
            raise MissingLogError(
                f"expected the log of {topic_partition} in {self.directory.path}, whose "
                f"checkpoints say that it held records, found none; put it back and start the "
                f"broker again, or let another replica lead",
                topic_partition=str(topic_partition),
            )

    def set_aside(self, topic_partition: TopicPartition) -> ReplicaLog:
        self._logs.pop(topic_partition, None)
        self.directory.set_aside(topic_partition)
        return self._create(topic_partition, self._topic_ids[topic_partition], None)

    def delete(self, topic_partition: TopicPartition) -> None:
        log = self._logs.pop(topic_partition, None)
        if log is not None or topic_partition in self.directory.refused:
            self._topic_ids.pop(topic_partition, None)
            self.directory.delete_partition(topic_partition)

    def set_aside_strays(self, held: Callable[[TopicPartition], bool]) -> None:
        for topic_partition in [*self._logs, *self.directory.refused]:
            if not held(topic_partition):
                self._logs.pop(topic_partition, None)
                self.directory.set_aside(topic_partition)

    def checkpoint_high_watermarks(self) -> None:
        self.directory.checkpoint_high_watermarks()
        self.directory.remove_deleted()

    def settle_ahead(self, appends: Sequence[tuple[TopicPartition, RawBatches]]) -> None:
        lacking = []
        for topic_partition, batches in appends:
            log = self._logs.get(topic_partition)
            if log is not None and log.lacks_for(batches):
                try:
                    log.expect(batches)
                except ReplogError:
                    continue  # its append hears it, too
                lacking.append(log.log)
        if len(lacking) > 1:
            self._settler.settle_all(lacking)

    def close(self, broker_epoch: int) -> None:
        self._settler.close()
        self._logs.clear()
        self.directory.close(broker_epoch)

    def abandon(self) -> None:
        """Let go of all files as the death of the process would: nothing is synced or written."""
        self._settler.close()
        self._logs.clear()
        self.directory.abandon()

    def _create(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig | None
    ) -> ReplicaLog:
        created = self.directory.create_log(
            topic_partition.topic,
            topic_partition.partition,
            topic_id,
            None if config is None else _without_commit(config),
            durable=False,
        )
        log = ReplicaLog(created, self._settler.settle_soon)
        self._logs[topic_partition] = log
        self._topic_ids[topic_partition] = created.topic_id
        return log

    def _found(self, topic_partition: TopicPartition) -> ReplicaState:
        log = self._logs[topic_partition]
        self._topic_ids[topic_partition] = log.topic_id
        return ReplicaState(
            topic_partition=topic_partition,
            topic_id=log.topic_id,
            latest_epoch=log.latest_epoch,
            log_end_offset=log.log_end_offset,
        )

    def _found_damaged(self, topic_partition: TopicPartition) -> ReplicaState:
        path = os.path.join(self.directory.path, str(topic_partition), PARTITION_METADATA_FILE)
        try:
            topic_id = read_topic_id(path)
        except CorruptFileError:
            topic_id = None
        self._topic_ids[topic_partition] = topic_id
        return ReplicaState(
            topic_partition=topic_partition,
            topic_id=topic_id or NO_TOPIC_ID,
            latest_epoch=NO_LEADER_EPOCH,
            log_end_offset=0,
            damaged=True,
        )


def _without_commit(config: LogConfig) -> LogConfig:
    """The topic's options with syncs left to the flush scheduler; see `replica_log`."""
    if config.flush_mode != "commit":
        return config
    return dataclasses.replace(config, flush_mode="os")
