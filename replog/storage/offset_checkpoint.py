"""One offset checkpoint of a log directory: an offset for each of its partitions, in one file.

The file is replaced whole, one write at a time, so what a write costs beyond the bytes must not
grow with the partitions that it does not change: their lines are kept as they are on disk.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from replog._native.mapped_file import replace_file
from replog.errors import CorruptFileError, NoSpaceError
from replog.storage.checkpoint_files import (
    offset_checkpoint_text,
    offset_line,
    read_offset_checkpoint,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping

    from replog.types import TopicPartition


class OffsetCheckpoint:
    """See the module. `offsets` is the content on disk, if that is not `uncertain`, less what is
    `forgotten`.
    """

    def __init__(self, path: str, lock: threading.RLock) -> None:
        self.path = path
        self.problem: str | None = None
        self.uncertain = False
        """A write has failed half-way: the disk has the old content or another."""
        self.forgotten: frozenset[TopicPartition] = frozenset()
        """Partitions that are gone, whose entries go with the next write."""
        self._lock = lock
        try:
            found = read_offset_checkpoint(path)
        except CorruptFileError as error:
            self.problem = str(error)
            found = None
        self._missing = found is None
        self.offsets: dict[TopicPartition, int] = found or {}
        self._keys = sorted(self.offsets)
        self._lines = [offset_line(key, self.offsets[key]) for key in self._keys]

    def replace(self, offsets: dict[TopicPartition, int]) -> None:
        """Make `offsets` the content; durable on return. Nothing is written if it is already."""
        with self._lock:
            gone = self.offsets.keys() - offsets.keys()
            self._write(offsets, gone)

    def update(self, read: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Replace the entries that `read` gives; it runs while no other write can."""
        with self._lock:
            self._write(read(), ())

    def set(self, topic_partition: TopicPartition, offset: int) -> None:
        """Replace one entry."""
        with self._lock:
            self._write({topic_partition: offset}, ())

    def drop(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Remove entries, if they are there; durable on return."""
        with self._lock:
            gone = set(topic_partitions)
            if self.uncertain or gone & (self.offsets.keys() | self.forgotten):
                self._write({}, gone & self.offsets.keys())

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove an entry, on disk with the next write: `settle` sees that there is one."""
        with self._lock:
            if topic_partition in self.offsets:
                self._remove([topic_partition])
                self.forgotten |= {topic_partition}

    def settle(self) -> None:
        """Write what was forgotten; durable on return."""
        with self._lock:
            if self.forgotten:
                self._write({}, ())

    def _write(self, offsets: Mapping[TopicPartition, int], gone: Iterable[TopicPartition]) -> None:
        """Enter `offsets` and remove `gone`; memory follows the disk."""
        held = self.offsets
        changed = {key: at for key, at in offsets.items() if held.get(key) != at}
        gone = list(gone)
        if not (changed or gone or self._missing or self.uncertain or self.forgotten):
            return
        before = self.offsets, self._keys, self._lines
        self.offsets = dict(held)
        self._keys, self._lines = self._keys.copy(), self._lines.copy()
        self._remove(gone)
        self._enter(changed)
        try:
            replace_file(self.path, offset_checkpoint_text(self._lines))
        except BaseException as error:
            self.offsets, self._keys, self._lines = before
            # With no space the old content is there.
            self.uncertain = self.uncertain or not isinstance(error, NoSpaceError)
            raise
        self._missing = self.uncertain = False
        self.forgotten = frozenset()

    def _enter(self, changed: Mapping[TopicPartition, int]) -> None:
        self.offsets.update(changed)
        if len(changed) > len(self._keys) // 8:
            self._keys = sorted(self.offsets)
            self._lines = [offset_line(key, self.offsets[key]) for key in self._keys]
            return
        for key, offset in changed.items():
            place = bisect.bisect_left(self._keys, key)
            if place == len(self._keys) or self._keys[place] != key:
                self._keys.insert(place, key)
                self._lines.insert(place, b"")
            self._lines[place] = offset_line(key, offset)

    def _remove(self, gone: list[TopicPartition]) -> None:
        for key in gone:
            del self.offsets[key]
            place = bisect.bisect_left(self._keys, key)
            del self._keys[place], self._lines[place]
