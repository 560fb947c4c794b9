"""What an export directory remembers, and how a run of files becomes visible at once or not at all.

    OUT/topic=T/date=D/PARTITION-OFFSET.parquet  what readers see
    OUT/_replog/lock                             held while an export runs
    OUT/_replog/plan.json                        the run under way: its ranges, fixed
    OUT/_replog/staging/task-N.json, topic=...   what the run has written so far
    OUT/_replog/committed/N.json                 each finished run: ranges and files

A run writes its plan, then files and a record of each finished task into staging, all synced; the
file in `committed` is the moment it counts. Then its files are renamed to their places. Killed

1. before the plan: nothing happened;
2. before the commit: the next run takes up the same plan and does the tasks that have no record;
3. after the commit: the next run, or the next look at the state, finishes the renames.

Spark and pyarrow pass over names that begin with an underscore. Only local or mounted file systems
with atomic rename are fit for it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from replog.errors import CorruptFileError, LogDirectoryLockedError, UsageError
from replog.types import TopicPartition
from spark_integration.jobs.durable_files import (
    make_directories,
    read_json,
    replace_json,
    sync_path,
)

HOME = "_replog"
VERSION = 1


class ExportedRange(NamedTuple):
    """Offsets [start_offset, end_offset) of a partition, and the last record that was there.

    size_bytes: about how much of segment files it fills. last_offset, last_epoch: of the last
    record, None if there was none.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int = 0
    last_offset: int | None = None
    last_epoch: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ExportState:
    """The bookkeeping of one export directory, held under its lock."""

    def __init__(self, directory: str) -> None:
        """For `open_state` and readers of committed runs."""
        self.directory = os.path.abspath(directory)
        self.home = os.path.join(self.directory, HOME)
        self.staging = os.path.join(self.home, "staging")
        self._plan = os.path.join(self.home, "plan.json")
        self._committed = os.path.join(self.home, "committed")

    def is_there(self) -> bool:
        """Whether the directory is an export."""
        return os.path.isdir(self.home)

    def place_of(self, path: str) -> str:
        """Where the file of a committed run is now: at its place, or staged if its run was killed.

        Raises CorruptFileError if it is at neither.
        """
        for place in (os.path.join(self.directory, path), os.path.join(self.staging, path)):
            if os.path.exists(place):
                return place
        raise CorruptFileError(
            f"expected the exported file {path} in {self.directory}, found none; restore it",
            path=os.path.join(self.directory, path),
        )

    def runs(self) -> list[Any]:
        """Every committed run, oldest first. Raises CorruptFileError."""
        if not os.path.isdir(self._committed):
            return []
        names = sorted(name for name in os.listdir(self._committed) if name.endswith(".json"))
        runs = [self._checked(os.path.join(self._committed, name)) for name in names]
        for number, (name, run) in enumerate(zip(names, runs, strict=True), start=1):
            if run["number"] != number:
                raise CorruptFileError(
                    f"expected the runs 1, 2, 3, ... without a hole in {self._committed}, found "
                    f"{name} at place {number}; restore the missing file",
                    path=os.path.join(self._committed, name),
                )
        return runs

    def _checked(self, path: str) -> Any:
        problem: object = None
        content: Any = None
        try:
            content = read_json(path)
            problem = f"version {content['version']}" if content["version"] != VERSION else None
            content["ranges"] = [ExportedRange(*one) for one in content["ranges"]]
        except (ValueError, KeyError, TypeError) as error:
            problem = problem or repr(error)
        if problem is not None:
            raise CorruptFileError(
                f"expected an export's record of version {VERSION} at {path}, found {problem}; "
                f"restore the file, or export to a new directory",
                path=path,
            )
        return content

    def exported(self) -> dict[TopicPartition, ExportedRange]:
        """By partition: from its first exported offset to the end of its last exported range."""
        ends: dict[TopicPartition, ExportedRange] = {}
        for run in self.runs():
            for one in run["ranges"]:
                before = ends.get(one.topic_partition, one)
                last = before if one.last_offset is None else one
                ends[one.topic_partition] = one._replace(
                    start_offset=before.start_offset,
                    last_offset=last.last_offset,
                    last_epoch=last.last_epoch,
                )
        return ends

    def plan(self) -> Any | None:
        """The run under way; None if there is none."""
        return self._checked(self._plan) if os.path.exists(self._plan) else None

    def begin(self, ranges: Sequence[ExportedRange], settings: Mapping[str, Any]) -> Any:
        """Write down the next run, durable on return; staging is empty then."""
        self._remove_staging()
        make_directories(self._committed)
        make_directories(self.staging)
        run = {
            "version": VERSION,
            "number": len(self.runs()) + 1,
            "settings": dict(settings),
            "ranges": list(ranges),
        }
        replace_json(self._plan, run)
        return run

    def drop_plan(self) -> None:
        """Forget the run under way and what it wrote."""
        if os.path.exists(self._plan):
            os.remove(self._plan)
            sync_path(self.home)
        self._remove_staging()

    def _remove_staging(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)

    def task_record(self, number: int) -> str:
        """Where the record of a finished task stands."""
        return os.path.join(self.staging, f"task-{number:06d}.json")

    def commit(self, run: Mapping[str, Any]) -> None:
        """Make the run count, and its files visible; durable on return."""
        replace_json(os.path.join(self._committed, f"{run['number']:08d}.json"), dict(run))
        self.publish(run)

    def publish(self, run: Mapping[str, Any]) -> None:
        """Rename what is still staged of a committed run to its place; once more does nothing."""
        for file in run["files"]:
            place = os.path.join(self.directory, file["path"])
            staged = os.path.join(self.staging, file["path"])
            if os.path.exists(staged):
                make_directories(os.path.dirname(place))
                os.replace(staged, place)
                sync_path(os.path.dirname(place))
            elif not os.path.exists(place):
                raise CorruptFileError(
                    f"expected the exported file {place}, found neither it nor its staged copy; "
                    f"restore it, or export to a new directory",
                    path=place,
                )
        self.drop_plan()

    def settle(self) -> Any | None:
        """Finish a run that was committed; answers one that was planned and not committed."""
        run = self.plan()
        if run is None:
            self._remove_staging()
            return None
        committed = self.runs()
        if len(committed) >= run["number"]:
            self.publish(committed[-1])
            return None
        return run


@contextmanager
def open_state(directory: str) -> Iterator[ExportState]:
    """The state of an export directory, made if it is new, while nobody else exports there.

    Raises LogDirectoryLockedError, and UsageError for a directory of other files.
    """
    state = ExportState(directory)
    if not os.path.isdir(state.home):
        if os.path.isdir(state.directory) and os.listdir(state.directory):
            raise UsageError(
                f"expected a new or empty directory or an earlier export at {directory}, found "
                f"other files; give another directory",
                path=directory,
            )
        make_directories(state.home)
    with open(os.path.join(state.home, "lock"), "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LogDirectoryLockedError(
                f"expected no other export to {directory}, found one running; wait for its end",
                path=directory,
            ) from None
        yield state
