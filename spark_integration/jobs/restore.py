"""Partitions back into a log directory: from copies of log directories, or from an export.

Copied segments come back byte for byte. An export comes back record for record: offsets, leader
epochs, timestamps, keys, values and headers, in batches of its own; producers and transactions are
no part of it. A partition that is there already is never touched; a restore that was killed is run
again and goes on. Tasks write into the target, so it must be visible wherever they run.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from replog.errors import CorruptFileError, UsageError
from replog.reader import choose_replica
from replog.restore import PartitionWriter, RestoreTarget, StagedPartition, copy_partition
from replog.types import Codec, TopicPartition
from spark_integration.jobs.engine import Engine, Progress, no_progress
from spark_integration.jobs.export_state import ExportedRange, ExportState
from spark_integration.jobs.partitions import matching, replicas

WRITTEN = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestampType": "timestamp_type",
    "headers": "headers",
    "leaderEpoch": "leader_epoch",
}


@dataclasses.dataclass(frozen=True, slots=True)
class CopyTask:
    """Copy the files of one partition directory."""

    topic_partition: TopicPartition
    source: str
    staging: str


@dataclasses.dataclass(frozen=True, slots=True)
class ExportedFiles:
    """The files of one exported range, a date each, with how many records each must have."""

    exported: ExportedRange
    paths: tuple[str, ...]
    records: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WriteTask:
    """Write one partition from its exported ranges, in order."""

    topic_partition: TopicPartition
    ranges: tuple[ExportedFiles, ...]
    staging: str
    codec: Codec


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did. kind: `segments` or `export`. skipped: done by a run that was killed."""

    target: str
    kind: str
    engine: str
    partitions: int
    skipped: int
    records: int | None
    size_bytes: int
    seconds: float


def restore(
    sources: Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    engine: Engine,
    *,
    topics: Sequence[str] = (),
    codec: Codec = Codec.NONE,
    progress: Progress = no_progress,
) -> RestoreReport:
    """Restore the partitions under `sources` into the log directory `target`, made if missing.

    sources: log or partition directories, of several replicas the furthest is taken; or one export
    directory. codec: for batches of an export. Raises UsageError if one of the partitions is there
    or `target` is no log directory, LogDirectoryLockedError if it is in use; then nothing was done.
    """
    started = time.monotonic()
    paths = [os.path.abspath(path) for path in sources]
    exports = [path for path in paths if ExportState(path).is_there()]
    if exports and len(paths) > 1:
        raise UsageError(
            f"expected one export directory or directories of segments, found {exports[0]} among "
            f"{len(paths)} sources; restore them one after the other"
        )
    tasks: list[CopyTask] | list[WriteTask]
    tasks = _write_tasks(paths[0], topics, codec) if exports else _copy_tasks(paths, topics)
    homes = {os.path.dirname(one.source) for one in tasks if isinstance(one, CopyTask)}
    like = next(iter(homes)) if len(homes) == 1 else None
    with RestoreTarget.open(target, ",".join(paths), like) as held:
        missing = set(held.missing([one.topic_partition for one in tasks]))
        staged = [
            dataclasses.replace(one, staging=held.staging(one.topic_partition))
            for one in tasks
            if one.topic_partition in missing
        ]
        done: list[StagedPartition] = []
        for one in engine.run(restore_partition, staged, progress):
            held.publish(one)
            done.append(one)
        held.finish()
    return RestoreReport(
        target=os.fspath(target),
        kind="export" if exports else "segments",
        engine=engine.name,
        partitions=len(done),
        skipped=len(tasks) - len(done),
        records=sum(one.records or 0 for one in done) if exports else None,
        size_bytes=sum(one.size_bytes for one in done),
        seconds=round(time.monotonic() - started, 3),
    )


def _copy_tasks(paths: Sequence[str], topics: Sequence[str]) -> list[CopyTask]:
    return [
        CopyTask(key, os.path.abspath(choose_replica(readers).path), "")
        for key, readers in replicas(paths, topics).items()
    ]


def _write_tasks(path: str, topics: Sequence[str], codec: Codec) -> list[WriteTask]:
    by_partition: dict[TopicPartition, list[ExportedFiles]] = {}
    chosen: set[str] | None = None
    state = ExportState(path)
    runs = state.runs()
    if topics:
        chosen = matching({one.topic for run in runs for one in run["ranges"]}, topics, [path])
    for run in runs:
        for one in run["ranges"]:
            if chosen is None or one.topic in chosen:
                files = _files_of(state, run, one)
                by_partition.setdefault(one.topic_partition, []).append(files)
    return [
        WriteTask(key, tuple(ranges), "", codec) for key, ranges in sorted(by_partition.items())
    ]


def _files_of(state: ExportState, run: Any, one: ExportedRange) -> ExportedFiles:
    mine = [
        file
        for file in run["files"]
        if (file["topic"], file["partition"]) == one.topic_partition
        and one.start_offset <= file["first_offset"] < one.end_offset
    ]
    return ExportedFiles(
        one,
        tuple(state.place_of(file["path"]) for file in mine),
        tuple(file["records"] for file in mine),
    )


def restore_partition(task: CopyTask | WriteTask) -> StagedPartition:
    """Put one partition together in its staging place; durable on return."""
    if isinstance(task, CopyTask):
        return copy_partition(task.source, task.staging)
    with PartitionWriter(task.staging, task.ranges[0].exported.start_offset, task.codec) as writer:
        for files in task.ranges:
            for rows in _rows(files):
                writer.append(rows)
        return writer.finish(task.ranges[-1].exported.end_offset)


def _rows(files: ExportedFiles) -> Iterator[pa.RecordBatch]:
    """The records of a range by offset, as PartitionWriter takes them. Raises CorruptFileError."""
    opened = [
        _opened(path, records) for path, records in zip(files.paths, files.records, strict=True)
    ]
    if len(opened) == 1:
        batches: Iterable[pa.RecordBatch] = opened[0].iter_batches()
    else:
        # Each date has its file, and dates may come by turns: one range is put in order in memory.
        tables = [_with_millis(pa.Table.from_batches(one.iter_batches())) for one in opened]
        batches = pa.concat_tables(tables).sort_by("offset").to_batches() if tables else ()
    for batch in batches:
        if batch.num_rows:
            yield _decoded(batch)


def _opened(path: str, records: int) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise CorruptFileError(
            f"expected the exported file {path}, found {error}; restore it, or the segments from "
            f"another copy",
            path=path,
        ) from error
    if file.metadata.num_rows != records:
        raise CorruptFileError(
            f"expected {records} records in the exported file {path}, found "
            f"{file.metadata.num_rows}; restore it, or the segments from another copy",
            path=path,
        )
    return file


def _millis(batch: pa.RecordBatch | pa.Table) -> Any:
    stamps = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000)
    if "timestampMillis" not in batch.schema.names:
        return stamps
    return pc.coalesce(batch.column("timestampMillis"), stamps)


def _with_millis(table: pa.Table) -> pa.Table:
    columns = [name for name in table.schema.names if name in {*WRITTEN, "timestamp"}]
    return table.select(columns).append_column("timestampMillis", _millis(table))


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [batch.column(name) for name in WRITTEN]
    return pa.RecordBatch.from_arrays(
        [*arrays, _millis(batch)], names=[*WRITTEN.values(), "timestamp"]
    )
