"""PartitionReader over every directory that a real Kafka wrote, against that Kafka's answers."""

from __future__ import annotations

import itertools
import json

import pytest

from replog.cli.record_json import record_rows
from replog.errors import CorruptBatchError
from replog.reader import PartitionReader, read_split
from tests.fixtures import cases
from tests.fixtures.cases import Partition, Row
from tests.reader.consumed import Consumed, consumed

EVERY = list(consumed())


def read_rows(
    reader: PartitionReader, isolation: str
) -> tuple[list[Row], CorruptBatchError | None]:
    rows: list[Row] = []
    try:
        for records in reader.record_batches(isolation=isolation):
            rows += record_rows(reader.topic_partition, records)
    except CorruptBatchError as error:
        return rows, error
    return rows, None


@pytest.mark.parametrize("told", EVERY, ids=str)
def test_reader_gives_the_rows_that_kafkas_consumer_read(told: Consumed) -> None:
    expected = told.rows()
    for partition in told.partitions():
        rows, problem = read_rows(PartitionReader(partition.path), told.isolation)
        assert rows == expected[partition.name], partition
        broke_off = "error" in told.counts().get(partition.name, {})
        assert problem is None or broke_off, f"{partition}: {problem}"


@pytest.mark.parametrize("partition", list(cases.partitions_with("log_state.json")), ids=str)
def test_extent_and_last_stable_offset_are_those_of_kafkas_log(partition: Partition) -> None:
    """Kafka's high watermark stood at the end when it was asked for the last stable offset."""
    state = partition.answers("log_state.json")
    reader = PartitionReader(partition.path)
    if reader.end_offset != reader.log_end_offset or partition.damage is not None:
        pytest.skip("Kafka cut what it recovered; the reader's bound is lower than Kafka's")
    assert reader.log_start_offset == state["log_start_offset"]
    assert reader.log_end_offset == state["log_end_offset"]
    assert reader.last_stable_offset == state["last_stable_offset"]


def times_told() -> list[tuple[Partition, str, list[Row]]]:
    told = []
    for one in EVERY:
        path = cases.ROOT / one.case / "offsets_for_times.json"
        if (
            one.isolation != "read_uncommitted"
            or not path.exists()
            or "." in one.file.split("exp")[0]
        ):
            continue
        for name, by_isolation in json.loads(path.read_text()).items():
            partition = Partition(one.case, one.stage, name)
            if partition.path.is_dir():
                told += [(partition, level, queries) for level, queries in by_isolation.items()]
    return told


@pytest.mark.parametrize(("partition", "isolation", "queries"), times_told(), ids=str)
def test_offset_for_timestamp_is_what_the_broker_answered(
    partition: Partition, isolation: str, queries: list[Row]
) -> None:
    if partition.stage.startswith("recovered"):
        pytest.skip("the times were asked before the crash")
    reader = PartitionReader(partition.path)
    for query in queries:
        if query["query"] < 0 or "error" in query:
            continue
        found = reader.offset_for_timestamp(query["query"], isolation=isolation)
        answer = (
            (-1, -1, -1) if found is None else (found.offset, found.timestamp, found.leader_epoch)
        )
        assert answer == (query["offset"], query["timestamp"], query["leader_epoch"]), query


@pytest.mark.parametrize("target_bytes", [1, 2000, 10**9])
def test_splits_cover_a_partition_without_gap_or_overlap(target_bytes: int) -> None:
    for told in EVERY:
        for partition in told.partitions():
            if partition.damage is not None:
                continue
            reader = PartitionReader(partition.path)
            splits = reader.split_points(target_bytes)
            edges = [(one.start_offset, one.end_offset) for one in splits]
            assert all(low < high for low, high in edges)
            assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))
            whole = [x for one in reader.record_batches(columns=["offset"]) for x in one["offset"]]
            parts = [
                x
                for s in splits
                for one in read_split(s, columns=["offset"])
                for x in one["offset"]
            ]
            assert parts == whole, partition
