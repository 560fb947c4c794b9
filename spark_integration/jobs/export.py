"""Segments to Parquet, partitioned by topic and date, from where the last run ended.

Every row below the high watermark (or the last stable offset) of each partition is in exactly one
file, with its offset, leader epoch, timestamp and headers, so that `restore` can put the log back.
A run that was killed is taken up where it was, with the same ranges, so the files are those of a
run that was not. `export_state` says how files become visible; `dated_files` what is in them.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replog.errors import LogTruncatedError, UsageError
from replog.reader import (
    AbortedRange,
    PartitionReader,
    SplitRange,
    choose_replica,
    read_split,
)
from replog.types import Isolation, TopicPartition
from spark_integration.jobs.dated_files import DECODED, DatedFiles
from spark_integration.jobs.durable_files import read_json, replace_json
from spark_integration.jobs.engine import Engine, Progress, no_progress
from spark_integration.jobs.export_state import ExportedRange, ExportState, open_state
from spark_integration.jobs.partitions import replicas

FILE_BYTES = 256 * 1024 * 1024
Readers = Mapping[TopicPartition, PartitionReader]
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclasses.dataclass(frozen=True, slots=True)
class ExportTask:
    """A range to write. splits: where it is. record: where to write down that it is done."""

    exported: ExportedRange
    splits: tuple[SplitRange, ...]
    aborted: tuple[AbortedRange, ...]
    directory: str
    record: str
    compression: str


@dataclasses.dataclass(frozen=True, slots=True)
class ExportReport:
    """What a run did. resumed: it took up a run that was killed. seconds: without Spark's start."""

    directory: str
    engine: str
    partitions: int
    records: int
    files: int
    segment_bytes: int
    file_bytes: int
    resumed: bool
    seconds: float


def export(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    engine: Engine,
    *,
    topics: Sequence[str] = (),
    isolation: Isolation = Isolation.HIGH_WATERMARK,
    compression: str = "zstd",
    file_bytes: int = FILE_BYTES,
    allow_loss: bool = False,
    progress: Progress = no_progress,
) -> ExportReport:
    """Export what is new under `paths` since the last run to `output`; nothing new is no run.

    paths: log or partition directories, several replicas of a partition count once. file_bytes:
    about how much of a segment goes into a file. allow_loss: go on where retention took records
    that were not exported yet, instead of raising LogTruncatedError. Raises UsageError for what
    cannot be exported, CorruptBatchError for damage; then nothing of the run is visible.
    """
    if compression not in COMPRESSIONS:
        raise UsageError(
            f"expected a compression out of {', '.join(COMPRESSIONS)}, found {compression!r}"
        )
    started = time.monotonic()
    readers = {key: choose_replica(found) for key, found in replicas(paths, topics).items()}
    with open_state(os.fspath(output)) as state:
        run = state.settle()
        if run is not None and not _still_there(run, readers, allow_loss=allow_loss):
            state.drop_plan()
            run = None
        resumed = run is not None
        if run is None:
            settings = {"isolation": isolation.value, "compression": compression}
            _check_settings(state, settings)
            ranges = list(_new_ranges(state, readers, isolation, file_bytes, allow_loss=allow_loss))
            run = state.begin(ranges, settings) if ranges else None
        if run is not None:
            run = _carry_out(state, run, readers, engine, progress)
            state.commit(run)
    run = run or {"ranges": [], "files": []}
    return ExportReport(
        directory=os.fspath(output),
        engine=engine.name,
        partitions=len({one.topic_partition for one in run["ranges"]}),
        records=sum(file["records"] for file in run["files"]),
        files=len(run["files"]),
        segment_bytes=sum(one.size_bytes for one in run["ranges"]),
        file_bytes=sum(file["size_bytes"] for file in run["files"]),
        resumed=resumed,
        seconds=round(time.monotonic() - started, 3),
    )


def advice(report: ExportReport, engine: Engine) -> str:
    """Which engine is the faster one for such a run, and why, as a sentence.

    Both write the same files by the same code, at about 1 GB of segments a minute and core with
    zstd; Spark adds 6 to 10 s of start and 50 ms a task, and takes cores of other machines.
    """
    if engine.machines > 1:
        return f"Spark was the right engine: {engine.machines} machines shared the work"
    if report.engine == "pyarrow":
        return (
            "without Spark is the faster way on one machine; Spark pays where executors on "
            "several machines see the same directories"
        )
    return (
        "on one machine the run is faster without Spark (--no-spark): the same files, no start "
        "of a JVM; Spark pays where executors on several machines see the same directories"
    )


def _check_settings(state: ExportState, settings: dict[str, Any]) -> None:
    for run in state.runs()[-1:]:
        before = run["settings"]["isolation"]
        if before != settings["isolation"]:
            raise UsageError(
                f"expected the isolation {before} of the earlier runs to {state.directory}, found "
                f"{settings['isolation']}; export to another directory",
                path=state.directory,
            )


def _still_there(run: Any, readers: Readers, *, allow_loss: bool) -> bool:
    """Whether the ranges of an unfinished run can still be read; if not, whether that is allowed.

    Raises LogTruncatedError, UsageError for a partition that is not under the paths.
    """
    for one in run["ranges"]:
        reader = readers.get(one.topic_partition)
        if reader is None:
            raise UsageError(
                f"expected {one.topic_partition} of the unfinished run among the paths and topics, "
                f"found it missing; give those of the run that was broken off"
            )
        if not reader.log_start_offset <= one.start_offset <= one.end_offset <= reader.end_offset:
            if not allow_loss:
                raise _lost(reader, one.start_offset, one.end_offset)
            return False
    return True


def _lost(reader: PartitionReader, start_offset: int, end_offset: int) -> LogTruncatedError:
    return LogTruncatedError(
        f"expected the offsets [{start_offset}, {end_offset}) of {reader.topic_partition}, which "
        f"are to be exported, found [{reader.log_start_offset}, {reader.end_offset}) in "
        f"{reader.path}; let the export go on from there with allow_loss, or use a new directory",
        path=reader.path,
        offset=start_offset,
        topic_partition=str(reader.topic_partition),
    )


def _new_ranges(
    state: ExportState,
    readers: Readers,
    isolation: Isolation,
    file_bytes: int,
    *,
    allow_loss: bool,
) -> Iterator[ExportedRange]:
    exported = state.exported()
    for (topic, partition), reader in readers.items():
        end = reader.bound(isolation)
        before = exported.get(reader.topic_partition)
        start = reader.log_start_offset if before is None else before.end_offset
        if before is not None:
            _check_same_log(reader, before)
        if start > end or start < reader.log_start_offset:
            if not allow_loss or start > end:
                raise _lost(reader, start, max(start, end))
            start = reader.log_start_offset
        splits = reader.split_points(file_bytes, start, end) if start < end else []
        for low, high, size_bytes in _merged(splits, file_bytes):
            yield ExportedRange(topic, partition, low, high, size_bytes)


def _merged(splits: Sequence[SplitRange], file_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Neighbouring splits together until they make about file_bytes: [start, end) and bytes."""
    size = 0
    start: int | None = None
    for split, following in itertools.zip_longest(splits, splits[1:]):
        start = split.start_offset if start is None else start
        size += split.size_bytes
        if following is None or size + following.size_bytes > file_bytes:
            yield start, split.end_offset, size
            size, start = 0, None


def _check_same_log(reader: PartitionReader, before: ExportedRange) -> None:
    """The log must still hold what was exported last, or have let it go from its start."""
    last = before.last_offset
    if last is None or not reader.log_start_offset <= last < reader.end_offset:
        return
    for headers in reader.headers(last, last + 1):
        base, found = int(headers["base_offset"][0]), int(headers["leader_epoch"][0])
        if base <= last and found != before.last_epoch:
            raise UsageError(
                f"expected {reader.topic_partition} in {reader.path} to hold the exported record "
                f"{last} of leader epoch {before.last_epoch}, found epoch {found}: it is another "
                f"log of that name; export it to a new directory",
                path=reader.path,
                offset=last,
            )


def _carry_out(
    state: ExportState, run: Any, readers: Readers, engine: Engine, progress: Progress
) -> Any:
    """Do the tasks that have no record yet; the run with its files and the epochs reached."""
    compression = run["settings"]["compression"]
    level = Isolation(run["settings"]["isolation"])
    tasks = []
    for number, one in enumerate(run["ranges"]):
        if read_json(state.task_record(number)) is not None:
            continue
        reader = readers[one.topic_partition]
        extent = one.start_offset, one.end_offset
        aborted = reader.aborted_transactions(*extent) if level is Isolation.TXN_COMMITTED else ()
        tasks.append(
            ExportTask(
                one,
                tuple(reader.split_points(2**62, *extent)),
                tuple(aborted),
                state.staging,
                state.task_record(number),
                compression,
            )
        )
    done = len(run["ranges"]) - len(tasks)
    total = len(run["ranges"])
    for _ in engine.run(write_range, tasks, lambda now, _: progress(done + now, total)):
        pass
    records = [read_json(state.task_record(number)) for number in range(total)]
    return {
        **run,
        "ranges": [
            one._replace(last_offset=record["last_offset"], last_epoch=record["last_epoch"])
            for one, record in zip(run["ranges"], records, strict=True)
        ],
        "files": [file for record in records for file in record["files"]],
    }


def write_range(task: ExportTask) -> int:
    """Write one range into staging and then its record; returns how many rows. Durable."""
    one = task.exported
    files = DatedFiles(task.directory, one.topic, one.partition, task.compression)
    last_offset = last_epoch = None
    try:
        for split in task.splits:
            for records in read_split(split, columns=DECODED, aborted=task.aborted):
                files.add(records)
                last_offset = records.column("offset")[-1].as_py()
                last_epoch = records.column("leader_epoch")[-1].as_py()
        files.close()
    except BaseException:
        files.abandon()
        raise
    # Last: what has a record is whole.
    replace_json(
        task.record,
        {"files": files.facts, "last_offset": last_offset, "last_epoch": last_epoch},
    )
    return sum(file["records"] for file in files.facts)
