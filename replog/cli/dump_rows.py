"""Rows of `replog dump --json --batches`, `--records` and `--isolation`, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator

from replog.cli.record_json import CONTROL_BIT, Row, batch_row, control_name, record_rows
from replog.errors import CorruptBatchError, UsageError
from replog.reader import PartitionReader, partition_paths
from replog.reader.listing import list_segments
from replog.reader.names import SegmentName, kind_of, topic_partition_of
from replog.reader.raw import RawBatches, base_offset_of, walk_file
from replog.types import Isolation, TopicPartition


def record_files(path: str) -> list[SegmentName]:
    """Files of batches that `path` stands for: itself, or each segment of each partition."""
    kind = kind_of(path)
    if kind == "side file":
        raise UsageError(
            f"expected a directory or a file of batches (.log, .checkpoint) at {path}, found a "
            f"side file, which has no batches; dump it without --batches and --records"
        )
    if kind == "records":
        return [SegmentName(base_offset_of(path), path)]
    return [segment for one in partition_paths(path) for segment in list_segments(one)]


def place_of(path: str) -> TopicPartition:
    """The partition of a file; a file outside any partition directory counts as metadata."""
    try:
        return topic_partition_of(path)
    except UsageError:
        return TopicPartition("__cluster_metadata", 0)


def batch_rows(path: str, *, explain: bool = False) -> Iterator[Row]:
    """A row a batch, as in `batches.jsonl.gz`; a file that cannot be walked on ends in `error`.

    explain: say in `problem` what was found there and where.
    """
    for file in record_files(path):
        place, segment = place_of(file.path), file.base_offset
        try:
            for run in walk_file(file):
                for header in run.chunk.headers:
                    yield batch_row(place, segment, header, valid=run.valid)
        except CorruptBatchError as error:
            # The name of Kafka's exception: the rows are compared with Kafka's own.
            row = {"topic": place.topic, "partition": place.partition, "segment": segment}
            row["error"] = "CorruptRecordException"
            yield row | {"problem": str(error)} if explain else row


def file_record_rows(path: str) -> Iterator[Row]:
    """A row a record of the files, as in `filerecords.jsonl.gz`: control and aborted ones too."""
    for file in record_files(path):
        place = place_of(file.path)
        try:
            for run in walk_file(file):
                if run.valid:
                    yield from _run_rows(place, run)
        except CorruptBatchError as error:
            if error.offset is None:
                raise  # a CRC-correct batch whose records cannot be decoded


def _run_rows(place: TopicPartition, run: RawBatches) -> Iterator[Row]:
    headers = run.chunk.headers
    controls = headers[(headers["attributes"] & CONTROL_BIT) != 0]
    spans = [(int(header["base_offset"]), int(header["last_offset"])) for header in controls]
    at = 0
    for row in record_rows(place, run.records()):
        while at < len(spans) and spans[at][1] < row["offset"]:
            at += 1
        if at < len(spans) and spans[at][0] <= row["offset"]:
            row["control"] = control_name(row["key"])
        yield row


def visible_rows(path: str, isolation: Isolation) -> Iterator[Row]:
    """A row a record that a consumer sees, as `expected.jsonl.gz` has them.

    All partitions are read before the first damage that was met is raised.
    """
    problem: CorruptBatchError | None = None
    for directory in partition_paths(path):
        reader = PartitionReader(directory)
        try:
            for records in reader.record_batches(isolation=isolation):
                yield from record_rows(reader.topic_partition, records)
        except CorruptBatchError as error:
            problem = problem or error
    if problem is not None:
        raise problem
