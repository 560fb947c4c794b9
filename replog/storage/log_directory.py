"""A log directory: many partitions under one lock, with shared checkpoints, in Kafka's layout.

    .lock                              held while open (flock)
    meta.properties                    cluster, node and directory id
    .kafka_cleanshutdown               there only between a clean close and the next open
    .replog_open                       there from an open to the next clean close
    *-offset-checkpoint                recovery points, log starts, high watermarks
    TOPIC-N/                           a partition
    TOPIC-N.<hex>-delete/              deleted, files still to be unlinked

Order matters three times. The marker goes before any log loads, so that a crash while loading is an
unclean stop; it comes back as the very last write of a close. A partition is renamed before its
checkpoint entries go, and these go, with those of others, before a new partition can take the name
and before its files go. A partition that cannot be trusted is refused on its own: the others serve,
and the directory is not marked clean.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Self

from replog._native.arguments import integer
from replog._native.mapped_file import FileLock, fsync_dir, make_dir
from replog.config import LogConfig
from replog.errors import LogClosedError, StorageError, UsageError
from replog.storage import directory_access
from replog.storage.clean_shutdown import (
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from replog.storage.directory_checkpoints import DirectoryCheckpoints, PartitionCheckpoints
from replog.storage.directory_names import METADATA_TOPIC
from replog.storage.kafka_uuid import random_uuid
from replog.storage.log import Log
from replog.storage.log_checkpoints import LOCK_FILE, CheckpointedOffsets
from replog.storage.log_closing import close_all
from replog.storage.meta_properties import settle_ids
from replog.storage.open_mark import LastStop, OpenMarkKeeper
from replog.storage.parallel_opening import open_in_threads
from replog.storage.partition_log import PartitionLog, wall_clock_ms
from replog.storage.partition_metadata import PARTITION_METADATA_FILE, write_topic_id
from replog.storage.retired_partitions import RetiredPartitions, not_there
from replog.storage.unfinished_creations import UnfinishedCreations
from replog.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterator, Mapping

UNKNOWN_BROKER_EPOCH = -1


class LogDirectory:
    """The partitions of one log directory. Use `open`, as a context manager.

    Any thread may call any method. `refused` holds, per partition that could not be opened, the
    error that says why; `problems` what else was found wrong and done without; `missing` names
    partitions that held records, and have no directory.
    """

    def __init__(
        self,
        path: str,
        lock: FileLock,
        *,
        config: LogConfig,
        configs: Mapping[str, LogConfig],
        replicated: bool,
        now_ms: Callable[[], int],
    ) -> None:
        """For `open` only, which holds the lock."""
        self.path = path
        self.refused: dict[TopicPartition, StorageError] = {}
        self.problems: list[str] = []
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.closed = False
        self._lock = lock
        self._config = config
        self._configs = dict(configs)
        self._replicated = replicated
        self._now_ms = now_ms
        self._changes = threading.RLock()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._faces: dict[TopicPartition, Log] = {}
        """Of the logs that somebody has asked for: who follows one must hear of all appends."""
        self._members: dict[TopicPartition, PartitionCheckpoints] = {}
        self._retired = RetiredPartitions(path)
        self._unfinished = UnfinishedCreations(path, replicated=replicated)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: LogConfig | None = None,
        *,
        configs: Mapping[str, LogConfig] | None = None,
        cluster_id: str | None = None,
        node_id: int | None = None,
        replicated: bool = False,
        recovery_threads: int = 2,
        now_ms: Callable[[], int] = wall_clock_ms,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Open the log directory at `path` and every partition in it; created if missing.

        configs: options by topic, `config` for the others. cluster_id, node_id: must be those of an
        existing directory; a new one gets them, or fresh ones. replicated: a partition without a
        checkpointed high watermark has committed nothing yet (otherwise: all it holds).
        on_progress(done, total) counts partitions, called from this thread. Raises UsageError for
        other ids, a strange name or a bad argument, LogDirectoryLockedError, CorruptFileError for
        meta.properties, LogFailedError, NoSpaceError. A damaged partition is in `refused`.
        """
        directory = directory_access.absolute_path(path)
        directory_access.check_calls(now_ms, on_progress)
        directory_access.check_directory_options(
            config, configs, cluster_id, node_id, replicated, recovery_threads
        )
        directory_access.make_directory(directory)
        lock = FileLock(os.path.join(directory, LOCK_FILE))
        opened = cls(
            directory,
            lock,
            config=directory_access.check_config(config),
            configs=configs or {},
            replicated=replicated,
            now_ms=now_ms,
        )
        try:
            opened._load(cluster_id, node_id, recovery_threads, on_progress)
        except BaseException:
            opened.abandon()
            raise
        return opened

    def _load(
        self,
        cluster_id: str | None,
        node_id: int | None,
        recovery_threads: int,
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        found = self._retired.scan(self._now_ms() + self._config.file_delete_delay_ms)
        self.meta_properties = settle_ids(self.path, cluster_id, node_id)
        self.last_shutdown = read_clean_shutdown(self.path)
        self._checkpoints = DirectoryCheckpoints(self.path, self._now_ms, self._recovery_points)
        self.problems += self._checkpoints.problems
        self._mark = OpenMarkKeeper(self.path, clean=self.last_shutdown is not None)
        self._mark.opening(str(key) for key in found if not self._is_known(key))
        # From here on a crash leaves an unclean directory, until close() says otherwise.
        remove_clean_shutdown(self.path)
        if self.last_shutdown is None:
            fsync_dir(self.path)  # a process that died may have synced no name of its last ones
        points = self._checkpoints.recovery_points.offsets
        found = [k for k in found if not self._unfinished.remove_torn(k, points.get(k, 0))]
        self.refused |= open_in_threads(found, self._open_partition, recovery_threads, on_progress)
        self._drop_missing(set(found))
        self._mark.opened(str(key) for key in self.refused)

    def _is_known(self, topic_partition: TopicPartition) -> bool:
        """Whether it was there at the last clean stop, which has entered a recovery point."""
        return topic_partition in self._checkpoints.recovery_points.offsets

    def _open_partition(self, topic_partition: TopicPartition) -> PartitionLog:
        offsets = CheckpointedOffsets(
            last_stop=self._mark.last_stop(
                str(topic_partition), known=self._is_known(topic_partition)
            ),
            compacted=topic_partition in self._checkpoints.cleaner_offsets.offsets,
            recovery_point=self._checkpoints.recovery_points.offsets.get(topic_partition, 0),
            log_start_offset=self._checkpoints.log_start_offsets.offsets.get(topic_partition),
            high_watermark=self._checkpoints.high_watermarks.offsets.get(
                topic_partition, 0 if self._replicated else None
            ),
        )
        return self._make_log(topic_partition, offsets)

    def _make_log(
        self,
        topic_partition: TopicPartition,
        offsets: CheckpointedOffsets,
        *,
        new_topic_id: uuid.UUID | None = None,
    ) -> PartitionLog:
        member = PartitionCheckpoints(self._checkpoints, topic_partition)
        log = PartitionLog(
            self._directory(topic_partition),
            self._configs.get(topic_partition.topic, self._config),
            member,
            offsets,
            now_ms=self._now_ms,
            new_topic_id=new_topic_id,
        )
        with self._changes:
            self._logs[topic_partition] = log
            self._members[topic_partition] = member
        return log

    def _drop_missing(self, found: set[TopicPartition]) -> None:
        """Forget the offsets of partitions that are gone. Those of a replica that held records go
        when another is made in its place: until then they say that it is missing.
        """
        gone = {key for key in self._checkpoints.partitions - found if key.topic != METADATA_TOPIC}
        had = filter(self._checkpoints.had_records, gone)
        self.missing = frozenset(key for key in had if not self._retired.is_deleted(key))
        self.problems += map(not_there, map(self._directory, sorted(self.missing)))
        self._checkpoints.drop(gone - self.missing if self._replicated else gone)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LogDirectory {self.path} of {len(self._logs)} partitions>"

    def __iter__(self) -> Iterator[TopicPartition]:
        """The partitions that are open, sorted."""
        return iter(sorted(self._logs.copy()))

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, topic_partition: object) -> bool:
        with contextlib.suppress(TypeError):  # what cannot be hashed is no partition's name
            return topic_partition in self._logs
        return False

    def __getitem__(self, topic_partition: TopicPartition | tuple[str, int]) -> Log:
        """The partition's log. Raises the error of a refused one, UsageError for an unknown one."""
        return self._face_of(self.partition_log(topic_partition))

    def _face_of(self, log: PartitionLog) -> Log:
        with self._changes:
            if self._logs.get(log.topic_partition) is not log:
                return Log(log)  # another has taken its name since: this one is closed
            return self._faces.setdefault(log.topic_partition, Log(log))

    def partition_log(self, topic_partition: TopicPartition | tuple[str, int]) -> PartitionLog:
        """The partition's log with the verbs of replicas. Raises as `[]` does."""
        topic_partition = TopicPartition.of(topic_partition)
        with self._changes:
            self._check_open()
            if topic_partition in self.refused:
                raise self.refused[topic_partition]
            if topic_partition in self._logs:
                return self._logs[topic_partition]
        raise UsageError(
            f"expected a partition of {self.path}, found no {topic_partition}; create it first",
            topic_partition=str(topic_partition),
        )

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """The partitions that are open, sorted."""
        return list(self)

    @property
    def failed(self) -> bool:
        """Whether an I/O error has made a log of the directory unfit: it should go offline."""
        return any(log.failed for log in list(self._logs.values()))

    def create_partition(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID | None = None,
        config: LogConfig | None = None,
    ) -> Log:
        """Create and open an empty partition; durable on return. A fresh topic id if none is given.

        config: the topic's options from here on, if they are not as `open` was told. Raises
        UsageError for a bad name or one that is taken, NoSpaceError, StorageError.
        """
        return self._face_of(self.create_log(topic, partition, topic_id, config))

    def create_log(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID | None = None,
        config: LogConfig | None = None,
        *,
        durable: bool = True,
    ) -> PartitionLog:
        """As create_partition, but the log with the verbs of replicas.

        durable=False: for an owner that creates it again after a crash, and settles it before the
        first append (`LogKeeper.settle`); what a crash leaves of it is removed at the next open.
        """
        topic_partition = TopicPartition.of((topic, partition))
        directory_access.check_topic_id(topic_id)
        with self._changes:
            self._check_open()
            directory = self._directory(topic_partition)
            self._unfinished.begin(topic_partition)
            if topic_partition in self._logs or os.path.exists(directory):
                self._unfinished.end(topic_partition)
                raise UsageError(
                    f"expected a new partition, found {directory} to be there already",
                    topic_partition=str(topic_partition),
                )
            # Whatever held the name before: its offsets must be gone before this one can crash.
            self._checkpoints.drop([topic_partition])
            self.missing -= {topic_partition}
            self._retired.unlink_called(topic_partition)
            make_dir(directory)
            new_topic_id = topic_id or random_uuid()
            if durable:
                write_topic_id(os.path.join(directory, PARTITION_METADATA_FILE), new_topic_id)
                fsync_dir(self.path)
            if config is not None:
                self._configs[topic] = config
            committed = 0 if self._replicated else None
            offsets = CheckpointedOffsets(last_stop=LastStop.CLEAN, high_watermark=committed)
            new_id = None if durable else new_topic_id
            log = self._make_log(topic_partition, offsets, new_topic_id=new_id)
            self._unfinished.end(topic_partition)
            return log

    def delete_partition(self, topic_partition: TopicPartition | tuple[str, int]) -> None:
        """Close and delete a partition; durable on return. Views of its records stay readable.

        Its files go with the first remove_deleted() after file_delete_delay_ms, or when another of
        its name is created. A refused one can be deleted too. Raises UsageError for an unknown one.
        """
        topic_partition = TopicPartition.of(topic_partition)
        with self._changes:
            self._check_open()
            if topic_partition not in self.refused:
                self.partition_log(topic_partition).close(flush=False)
            delay_ms = self._config.file_delete_delay_ms
            try:
                self._retired.delete(topic_partition, self._now_ms() + delay_ms)
            finally:
                if not os.path.exists(self._directory(topic_partition)):
                    self._forget(topic_partition)

    def set_aside(self, topic_partition: TopicPartition | tuple[str, int]) -> str:
        """Take a partition out of use, damaged or not, and keep its files; durable on return.

        Returns the directory that they are in now: it will not be opened again, and its name is
        among `strays`. Raises UsageError for an unknown partition.
        """
        topic_partition = TopicPartition.of(topic_partition)
        with self._changes:
            self._check_open()
            if topic_partition not in self.refused:
                self.partition_log(topic_partition).close(flush=False)
            path = self._retired.set_aside(topic_partition)
            self._forget(topic_partition)
            self._checkpoints.settle()
            return path

    def refuse(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """Take a partition out of use as if `error` had come of opening it; nothing is written."""
        with self._changes:
            if topic_partition not in self.refused:
                self.partition_log(topic_partition).close(flush=False)
                del self._logs[topic_partition]
                self._members.pop(topic_partition)
                self._faces.pop(topic_partition, None)
            self.refused[topic_partition] = error

    def _forget(self, topic_partition: TopicPartition) -> None:
        self._logs.pop(topic_partition, None)
        self._faces.pop(topic_partition, None)
        self._members.pop(topic_partition, None)
        self.refused.pop(topic_partition, None)
        self._checkpoints.forget(topic_partition)
        self._mark.forget(str(topic_partition))

    @property
    def strays(self) -> list[str]:
        """Names of the directories that were set aside, by this process or an earlier one."""
        return list(self._retired.kept)

    def remove_deleted(self, now_ms: int | None = None) -> list[str]:
        """Unlink the deleted partitions whose delay is over at `now_ms`; returns their paths."""
        now = self._now_ms() if now_ms is None else integer(now_ms, "now_ms", self.path, low=-1)
        self._check_open()
        self._checkpoints.settle()
        return self._retired.unlink_due(now)

    def checkpoint_recovery_points(self) -> None:
        """Persist every log's recovery point, without flushing. Kafka does so every minute."""
        self._check_open()
        self._checkpoints.recovery_points.update(self._recovery_points)

    def _recovery_points(self) -> dict[TopicPartition, int]:
        """None while it closes: the close enters them all."""
        return {} if self.closed else {k: log.synced_end_offset for k, log in self._open_logs()}

    def checkpoint_log_start_offsets(self) -> None:
        """Persist the log starts that the first segment's name does not tell."""
        with self._checkpoints.lock:
            held = self._checkpoints.log_start_offsets.offsets
            # What a log says that has failed is perhaps not what is on its disk.
            logs = {key: log for key, log in self._open_logs() if not log.failed}
            # One that was written stays: the names of segments may not be on the disk yet.
            starts = {
                key: at
                for key, at in held.items()
                if key not in logs or at == logs[key].log_start_offset
            }
            starts |= {
                key: log.log_start_offset for key, log in logs.items() if _starts_inside(log)
            }
            self._checkpoints.log_start_offsets.replace(starts)

    def checkpoint_high_watermarks(self) -> None:
        """Persist the high watermarks that somebody has set. Kafka does so every 5 seconds."""
        self._checkpoints.high_watermarks.update(
            lambda: {
                key: log.high_watermark
                for key, log in self._open_logs()
                if log.follows_high_watermark
            }
        )

    def close(self, broker_epoch: int | None = None) -> None:
        """Flush and close every log, write the checkpoints and, if all went well, the clean marker.

        broker_epoch (default: the attribute) goes into the marker. The directory is unlocked in any
        case. Raises the first error that a log's close raised; the others are closed nevertheless.
        In a child that was forked, it leaves the directory to the parent.
        """
        epoch = self.broker_epoch if broker_epoch is None else broker_epoch
        integer(epoch, "broker_epoch", self.path, low=UNKNOWN_BROKER_EPOCH)
        with self._changes:
            if self.closed:
                return
            self.closed = True
            if self._lock.forked:
                return
            try:
                errors = close_all(self._logs.values())
                if not errors:
                    self._mark_clean(epoch)
            finally:
                self.abandon()  # no log may write once the lock is gone
        if errors:
            raise errors[0]

    def _mark_clean(self, broker_epoch: int) -> None:
        last = {
            key: member.last_offsets
            for key, member in self._members.items()
            if member.last_offsets is not None
        }
        held = self._checkpoints.log_start_offsets.offsets
        # Those of logs that were refused or have failed stay: what was deleted stays deleted.
        starts = {key: at for key, at in held.items() if key not in last}
        starts |= {key: at[1] for key, at in last.items() if _starts_inside(self._logs[key])}
        self._checkpoints.recovery_points.update(lambda: {key: at[0] for key, at in last.items()})
        self._checkpoints.log_start_offsets.replace(starts)
        self._checkpoints.high_watermarks.update(
            lambda: {key: at[2] for key, at in last.items() if at[2] is not None}
        )
        self._checkpoints.settle()
        # Last of all, and only if nothing is left that would have to be recovered.
        if len(last) == len(self._logs) and not self.refused:
            write_clean_shutdown(self.path, broker_epoch)
            self._mark.closed()

    def abandon(self) -> None:
        """Let go of everything as a crash would: nothing is synced, written or marked clean."""
        with self._changes:
            self.closed = True
            for log in self._logs.values():
                log.close(flush=False)
            self._lock.release()

    def _open_logs(self) -> list[tuple[TopicPartition, PartitionLog]]:
        self._check_open()
        return [(key, log) for key, log in list(self._logs.items()) if not log.closed]

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosedError(
                f"expected an open log directory, found {self.path} closed; open it again",
                path=self.path,
            )

    def _directory(self, topic_partition: TopicPartition) -> str:
        return os.path.join(self.path, str(topic_partition))


def _starts_inside(log: PartitionLog) -> bool:
    """Whether the name of the first segment does not tell the log start."""
    return log.log_start_offset > log.segments[0].base_offset
