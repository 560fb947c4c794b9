"""A node's disk: its logs, checkpoints and clean-shutdown marker, over crashes and restarts.

Faults it has: loss of power (what was not synced is gone or cut short), no space, a disk that has
failed, bytes that rotted below the recovery point, syncs that take their time or stall. It follows
the real storage in what is durable when (see `sim_log`); names of logs, topic ids and the marker
are durable at once. Faults it does not have: a disk that forgets what it has synced.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from replog.errors import CorruptBatchError, LogFailedError, MissingLogError, ReplogError
from replog.messages import ReplicaState
from replog.registrations import NO_BROKER_EPOCH, PartitionRegistration
from replog.runtime.ports import ReplicatedLog
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import Scheduler
from replog.testing.simulation.sim_log import LogObserver, SimLog
from replog.testing.simulation.sim_metadata_log import (
    METADATA_PARTITION,
    MetadataLogObserver,
    SimMetadataLog,
)
from replog.types import NO_LEADER_EPOCH, TopicPartition


def damage_of(topic_partition: TopicPartition) -> CorruptBatchError:
    return CorruptBatchError(
        f"expected batches whose checksums hold in {topic_partition}, found a damaged one below "
        f"the recovery point",
        topic_partition=str(topic_partition),
    )


class SimDisk:
    """What outlives the process of one broker, or one controller."""

    def __init__(
        self, broker_id: int, observer: LogObserver, metadata_observer: MetadataLogObserver
    ) -> None:
        self.broker_id = broker_id
        self.observer = observer
        self._metadata_observer = metadata_observer
        self.metadata = self._empty_metadata_log()
        """The node's copy of the cluster's metadata."""
        self.logs: dict[TopicPartition, SimLog] = {}
        self.topic_ids: dict[TopicPartition, uuid.UUID] = {}
        self.damaged: set[TopicPartition] = set()
        """Partitions with rot below the recovery point; iterate sorted only."""
        self.set_aside: list[SimLog] = []
        self.checkpointed: dict[TopicPartition, int] = {}
        self.clean_epoch = NO_BROKER_EPOCH
        """In the clean-shutdown marker; NO_BROKER_EPOCH where there is none."""
        self.noted_epoch = NO_BROKER_EPOCH
        """The latest broker epoch noted on it."""
        self.missing: set[TopicPartition] = set()
        """Partitions that held records, and whose logs somebody has removed; never iterated but
        sorted."""
        self._directories = 0
        self.directory_id = self._new_directory()
        self.full = False
        self.failed = False

    def crash(self, power: Stream | None = None) -> None:
        """The process has died; with `power`, the machine has lost its power."""
        for topic_partition, log in self.logs.items():
            checkpointed = self.checkpointed.get(topic_partition, 0)
            self.logs[topic_partition] = log.crashed(checkpointed, _kept(log, power))
        metadata = self.metadata
        self.metadata = metadata.crashed(
            metadata.checkpointed_high_watermark, _kept(metadata, power)
        )

    def close(self) -> None:
        """The process has stopped cleanly: all that it had is synced."""
        self.metadata.checkpoint_high_watermark()
        self.metadata.recovery_point = self.metadata.log_end_offset
        self.crash()
        for log in (*self.logs.values(), self.metadata):
            log.synced(log.log_end_offset)

    def wipe(self) -> None:
        """The disk was replaced by an empty one."""
        self.logs.clear()
        self.topic_ids.clear()
        self.damaged.clear()
        self.checkpointed.clear()
        self.missing.clear()
        self.clean_epoch = self.noted_epoch = NO_BROKER_EPOCH
        self.directory_id = self._new_directory()
        self.metadata = self._empty_metadata_log()

    def _new_directory(self) -> uuid.UUID:
        self._directories += 1
        return uuid.UUID(int=self.broker_id << 64 | self._directories, version=4)

    def _empty_metadata_log(self) -> SimMetadataLog:
        return SimMetadataLog(self.broker_id, METADATA_PARTITION, self._metadata_observer)

    def _all(self) -> list[SimLog]:
        return [*self.logs.values(), self.metadata]

    def repair(self) -> None:
        """The disk works again, with space; who used it while it had failed must be restarted."""
        self.empty()
        self.failed = False
        for log in self._all():
            log.failed = False

    def empty(self) -> None:
        """A full disk has space again."""
        self.full = False
        for log in self._all():
            log.full = False

    def fill(self) -> None:
        """No append succeeds until `empty`."""
        self.full = True
        for log in self._all():
            log.full = True

    def fail(self) -> None:
        """Nothing that touches the disk succeeds until `repair`."""
        self.failed = True
        for log in self._all():
            log.failed = True

    def write_back(self) -> None:
        """The system writes all that the kernel holds, by itself."""
        for log in self._all():
            log.written_back(log.log_end_offset)


def _kept(log: SimLog, power: Stream | None) -> int:
    """Where a log ends after a crash; with `power`, what was not synced is drawn."""
    keep = log.log_end_offset
    if power is not None and log.durable_end_offset < keep:
        at_risk = keep - log.durable_end_offset
        keep -= power.choice((0, at_risk, at_risk, power.between(0, at_risk)))
    return keep


class SimStore:
    """A process's view of its disk; satisfies `runtime.ports.LogStore`."""

    def __init__(self, disk: SimDisk) -> None:
        """Take the disk over: the marker is removed before anything is loaded."""
        self._disk = disk
        self.previous_broker_epoch = disk.clean_epoch
        self.last_broker_epoch = disk.noted_epoch
        self.directory_id = disk.directory_id
        disk.clean_epoch = NO_BROKER_EPOCH
        self._states = tuple(self._found(key) for key in sorted(disk.logs))

    def _found(self, topic_partition: TopicPartition) -> ReplicaState:
        disk = self._disk
        log = disk.logs[topic_partition]
        damaged = topic_partition in disk.damaged
        return ReplicaState(
            topic_partition=topic_partition,
            topic_id=disk.topic_ids[topic_partition],
            latest_epoch=NO_LEADER_EPOCH if damaged else log.latest_epoch,
            log_end_offset=0 if damaged else log.log_end_offset,
            damaged=damaged,
        )

    def note_broker_epoch(self, broker_epoch: int) -> None:
        if self._disk.failed:
            raise LogFailedError("expected a working disk, found a failed one")
        self._disk.noted_epoch = NO_BROKER_EPOCH if self._disk.full else broker_epoch

    def missing(self, topics: Mapping[uuid.UUID, str]) -> frozenset[TopicPartition]:
        """No two directories change places here: `topics` would name no log that is misplaced."""
        return frozenset(self._disk.missing)

    def replica_states(self) -> tuple[ReplicaState, ...]:
        return self._states

    def get(self, topic_partition: TopicPartition) -> SimLog | None:
        if topic_partition in self._disk.damaged:
            return None
        return self._disk.logs.get(topic_partition)

    def topic_id(self, topic_partition: TopicPartition) -> uuid.UUID | None:
        return self._disk.topic_ids.get(topic_partition)

    def open(self, registration: PartitionRegistration) -> SimLog:
        disk, topic_partition = self._disk, registration.topic_partition
        log = disk.logs.get(topic_partition)
        if log is not None and disk.topic_ids[topic_partition] == registration.topic_id:
            if topic_partition in disk.damaged:
                raise damage_of(topic_partition)
            return log
        if topic_partition in disk.missing and registration.leader_id is None:
            raise MissingLogError(f"expected the log of {topic_partition}, found none")
        if log is not None:
            self.delete(topic_partition)
        return self._create(topic_partition, registration.topic_id)

    def _create(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> SimLog:
        disk = self._disk
        if disk.failed:
            raise LogFailedError(
                f"expected a working disk for {topic_partition}, found a failed one",
                topic_partition=str(topic_partition),
            )
        log = SimLog(disk.broker_id, topic_partition, disk.observer)
        log.full = disk.full
        disk.missing.discard(topic_partition)
        disk.logs[topic_partition] = log
        disk.topic_ids[topic_partition] = topic_id
        disk.observer.created(log)
        return log

    def settle_ahead(self, appends: Sequence[tuple[TopicPartition, Any]]) -> None:
        """An append here is one step."""

    def set_aside(self, topic_partition: TopicPartition) -> SimLog:
        disk = self._disk
        log = disk.logs.pop(topic_partition)
        disk.set_aside.append(log)
        disk.observer.set_aside(log)
        disk.damaged.discard(topic_partition)
        disk.checkpointed.pop(topic_partition, None)
        return self._create(topic_partition, disk.topic_ids[topic_partition])

    def delete(self, topic_partition: TopicPartition) -> None:
        disk = self._disk
        disk.logs.pop(topic_partition, None)
        disk.topic_ids.pop(topic_partition, None)
        disk.damaged.discard(topic_partition)
        disk.checkpointed.pop(topic_partition, None)

    def set_aside_strays(self, held: Callable[[TopicPartition], bool]) -> None:
        disk = self._disk
        for topic_partition in [key for key in disk.logs if not held(key)]:
            disk.set_aside.append(disk.logs[topic_partition])
            self.delete(topic_partition)

    def checkpoint_high_watermarks(self) -> None:
        for topic_partition, log in self._disk.logs.items():
            self._disk.checkpointed[topic_partition] = log.high_watermark

    def close(self, broker_epoch: int) -> None:
        self.checkpoint_high_watermarks()
        for log in self._disk.logs.values():
            log.synced(log.log_end_offset)
            log.recovery_point = log.log_end_offset
        self._disk.clean_epoch = broker_epoch


FlushCompleted = Callable[[TopicPartition, ReplicatedLog, ReplogError | None], None]


class SimFlushes:
    """Syncs that take a drawn time; satisfies `runtime.ports.FlushScheduler`."""

    def __init__(
        self, scheduler: Scheduler, stream: Stream, mean_us: int, completed: FlushCompleted
    ) -> None:
        """`completed` is called when a sync is done, unless its process has died."""
        self._scheduler = scheduler
        self._stream = stream
        self._mean_us = mean_us
        self._completed = completed
        self._under_way: dict[SimLog, tuple[int, int]] = {}
        """Its end and how often it had been cut when the sync began. Never iterated."""
        self._asked: set[SimLog] = set()
        """Asked for while a sync was under way: another one follows. Never iterated."""
        self.stalled_until_us = 0

    def flush(self, topic_partition: TopicPartition, log: Any) -> None:
        assert isinstance(log, SimLog)
        if log in self._under_way:
            self._asked.add(log)
            return
        self._begin(log)

    def _begin(self, log: SimLog) -> None:
        self._under_way[log] = (log.log_end_offset, log.cut_count)
        took = 50 + self._stream.exponential(self._mean_us)
        self._scheduler.at(
            max(self.stalled_until_us, self._scheduler.now_us + took), self._done, log
        )

    def _done(self, log: SimLog) -> None:
        end_offset, cut_count = self._under_way.pop(log)
        topic_partition = log.topic_partition
        if log.cut_count != cut_count and not log.failed:
            # What was synced may have been cut and written anew: it says nothing about the new.
            self._begin(log)
            return
        asked = log in self._asked
        self._asked.discard(log)
        error: ReplogError | None = None
        if log.failed:
            error = LogFailedError(f"expected a sync of {topic_partition}, found a failed disk")
        else:
            log.synced(end_offset)
            if asked:
                self._begin(log)
        self._completed(topic_partition, log, error)
