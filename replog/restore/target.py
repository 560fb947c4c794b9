"""A log directory that takes in restored partitions, each whole or not at all.

    TARGET/.lock                                 held, so that no broker or log has it open
    TARGET/.replog-restore.json                  there while a restore is unfinished
    TARGET/TOPIC-N.<hex>-delete/TOPIC-N/         a partition being put together
    TARGET/TOPIC-N/                              published

The staging name is that of a deleted partition: whoever opens the directory after a crash removes
it. What is published is written down before its rename, so the restore can be run again after a
crash at any point: it goes on with what is missing and never touches a partition that it did not
make. The checkpoint entries come before the rename: entries without a directory are dropped when
the directory is opened. The clean-shutdown marker goes first of all, because a copied partition may
have a torn tail that only recovery cuts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from replog._native.mapped_file import FileLock, fsync_dir, make_dir, rename, replace_file
from replog.errors import CorruptFileError, UsageError
from replog.storage.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from replog.storage.clean_shutdown import remove_clean_shutdown
from replog.storage.kafka_uuid import format_uuid, random_uuid
from replog.storage.log_checkpoints import LOCK_FILE
from replog.storage.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from replog.types import TopicPartition

JOURNAL = ".replog-restore.json"
# Always the same, so that a later run finds what an earlier one left: "replog-restore" in hex.
STAGED_SUFFIX = f".{b'replog-restore'.hex():0<32}-delete"
NODE_ID = 1


@dataclasses.dataclass(frozen=True, slots=True)
class StagedPartition:
    """A partition that is whole in its staging place.

    high_watermark: None if the source had none. cleaned_offset: how far the cleaner was, None for a
    log that is not compacted. records: how many, None if nobody counted.
    """

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int | None
    recovery_point: int
    cleaned_offset: int | None
    size_bytes: int
    records: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class RestoreTarget:
    """The directory, its lock and its journal. Use `open`."""

    def __init__(self, path: str, published: Iterable[str]) -> None:
        """For `open` only."""
        self.path = path
        self._published = set(published)
        self._source = ""

    @classmethod
    @contextmanager
    def open(
        cls, path: str | os.PathLike[str], source: str, like: str | None = None
    ) -> Iterator[RestoreTarget]:
        """Hold the log directory at `path`, made if it is missing, to restore from `source`.

        like: a log directory whose ids a new one gets. Raises LogDirectoryLockedError, and
        UsageError for a directory that is no log directory or has another restore under way.
        """
        directory = os.path.abspath(path)
        if not os.path.isdir(directory):
            os.makedirs(os.path.dirname(directory), exist_ok=True)
            make_dir(directory)
            fsync_dir(os.path.dirname(directory))
        lock = FileLock(os.path.join(directory, LOCK_FILE))
        try:
            target = cls(directory, cls._settle_journal(directory, source))
            target._source = source
            target._settle_ids(like)
            remove_clean_shutdown(directory)
            target._remove_staged()
            yield target
        finally:
            lock.release()

    @staticmethod
    def _settle_journal(directory: str, source: str) -> list[str]:
        journal = os.path.join(directory, JOURNAL)
        if not os.path.exists(journal):
            return []
        with open(journal, encoding="utf-8") as file:
            try:
                held: Any = json.load(file)
                other, published = held["source"], [str(name) for name in held["published"]]
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptFileError(
                    f"expected the record of an unfinished restore in {journal}, found {error}; "
                    f"remove the partitions that it made, and the file, and restore again",
                    path=journal,
                ) from error
        if other != source:
            raise UsageError(
                f"expected the unfinished restore into {directory} to go on, which is from "
                f"{other}, found one from {source}; finish that one first, or remove {JOURNAL}",
                path=journal,
            )
        return published

    def _settle_ids(self, like: str | None) -> None:
        path = os.path.join(self.path, META_PROPERTIES_FILE)
        if read_meta_properties(path) is not None:
            return
        strangers = sorted(set(os.listdir(self.path)) - {LOCK_FILE, JOURNAL, f"{JOURNAL}.tmp"})
        if strangers:
            raise UsageError(
                f"expected a log directory or an empty one at {self.path}, found {strangers[0]!r} "
                f"and no {META_PROPERTIES_FILE}; give another directory",
                path=self.path,
            )
        found = (
            None if like is None else read_meta_properties(os.path.join(like, META_PROPERTIES_FILE))
        )
        write_meta_properties(
            path,
            found
            or MetaProperties(
                cluster_id=format_uuid(random_uuid()), node_id=NODE_ID, directory_id=random_uuid()
            ),
        )

    def _remove_staged(self) -> None:
        for name in os.listdir(self.path):
            if name.endswith(STAGED_SUFFIX):
                shutil.rmtree(os.path.join(self.path, name))

    def missing(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that are still to be restored. Raises UsageError for one that was here before."""
        there = []
        for topic_partition in wanted:
            name = str(topic_partition)
            if not os.path.lexists(os.path.join(self.path, name)):
                continue
            if name not in self._published:
                raise UsageError(
                    f"expected no partition {name} in {self.path}, found it: a restore overwrites "
                    f"nothing; restore into another directory, or leave it out",
                    path=os.path.join(self.path, name),
                    topic_partition=name,
                )
            there.append(topic_partition)
        return [one for one in wanted if one not in there]

    def staging(self, topic_partition: TopicPartition) -> str:
        """Where to put the partition together; nothing is there now."""
        name = str(topic_partition)
        # A directory's name has 255 bytes; a long topic is cut, as Kafka does for deleted ones.
        outer = f"{name[: 255 - len(STAGED_SUFFIX)]}{STAGED_SUFFIX}"
        return os.path.join(self.path, outer, name)

    def publish(self, staged: StagedPartition) -> None:
        """Make a whole staged partition visible; durable on return."""
        topic_partition = staged.topic_partition
        name = str(topic_partition)
        self._published.add(name)
        self._write_journal()
        for file, offset in (
            (RECOVERY_POINT_CHECKPOINT, staged.recovery_point),
            (LOG_START_OFFSET_CHECKPOINT, staged.log_start_offset),
            (HIGH_WATERMARK_CHECKPOINT, staged.high_watermark),
            (CLEANER_OFFSET_CHECKPOINT, staged.cleaned_offset),
        ):
            if offset is not None:
                path = os.path.join(self.path, file)
                held = read_offset_checkpoint(path) or {}
                write_offset_checkpoint(path, {**held, topic_partition: offset})
        place = self.staging(topic_partition)
        rename(place, os.path.join(self.path, name))
        fsync_dir(self.path)
        os.rmdir(os.path.dirname(place))

    def _write_journal(self) -> None:
        content = {"source": self._source, "published": sorted(self._published)}
        replace_file(os.path.join(self.path, JOURNAL), json.dumps(content).encode())

    def finish(self) -> None:
        """Everything is restored; a later restore starts anew."""
        if os.path.exists(os.path.join(self.path, JOURNAL)):
            os.remove(os.path.join(self.path, JOURNAL))
            fsync_dir(self.path)
