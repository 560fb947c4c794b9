"""The streaming reader without a JVM: what Spark asks of it, in the order Spark asks."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from replog import LogConfig
from replog.errors import LogTruncatedError, OffsetOutOfRangeError
from replog.storage.partition_log import PartitionLog
from spark_integration.stream import ReplogStreamReader
from tests.spark.in_process import (
    GOLDEN,
    read_partition,
    retain_from,
    schema_of,
    source_of,
    written,
)

TRANSACTIONS = GOLDEN / "transactions" / "data"


class Query:
    """A streaming query's driver: batches run one after another; restart() is a new process."""

    def __init__(self, paths: Path | list[Path], **options: str) -> None:
        self.source = source_of(paths, **options)
        self.planned: list[tuple[Any, Any]] = []
        self.restart()
        self.at: Any = json.loads(json.dumps(self.reader.initialOffset()))

    def restart(self, *, available_now: bool = False) -> None:
        source = pickle.loads(pickle.dumps(self.source))
        reader = source.streamReader(schema_of("topic", "partition", "offset", "value"))
        assert isinstance(reader, ReplogStreamReader)
        self.reader = reader
        if available_now:
            reader.prepareForTriggerAvailableNow()

    def look(self, limit: ReadLimit | None = None) -> Any:
        wanted = limit or self.reader.getDefaultReadLimit()
        return json.loads(json.dumps(self.reader.latestOffset(self.at, wanted)))

    def read(self, start: Any, end: Any) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for part in self.reader.partitions(start, end):
            for batch in read_partition(self.reader, part):
                for row in batch.to_pylist():
                    found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
        return found

    def batch(self, limit: ReadLimit | None = None) -> dict[str, list[int]]:
        """One trigger; {} if there is nothing new."""
        end = self.look(limit)
        if json.dumps(end) == json.dumps(self.at):
            return {}
        found = self.read(self.at, end)
        self.planned.append((self.at, end))
        self.at = end
        return found


def append(log: Path, records: int, epoch: int | None = None) -> None:
    with PartitionLog.open(log, LogConfig(segment_bytes=4000, index_interval_bytes=300)) as opened:
        for _ in range(0, records, 10):
            opened.append([b"more"] * 10, leader_epoch=epoch)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "data" / "orders-0", 100)


def test_a_new_query_starts_at_the_end_or_where_it_is_told(log: Path) -> None:
    assert Query(log).at == {"orders": {"0": [100, 0]}}
    assert Query(log, startingOffsets="earliest").at == {"orders": {"0": [0, -1]}}
    assert Query(log, startingOffsets='{"orders":{"0":7}}').at == {"orders": {"0": [7, 0]}}


def test_each_trigger_takes_what_was_appended_since(log: Path) -> None:
    query = Query(log)
    assert query.batch() == {}
    append(log, 30)
    assert query.batch() == {"orders-0": list(range(100, 130))}
    assert query.batch() == {}
    append(log, 200)
    assert query.batch() == {"orders-0": list(range(130, 330))}


def test_a_batch_run_again_by_another_process_has_the_same_rows(log: Path) -> None:
    query = Query(log, startingOffsets="earliest")
    first = query.batch()
    append(log, 50)
    query.restart()
    assert query.read(*query.planned[0]) == first == {"orders-0": list(range(100))}


def test_new_partitions_and_topics_are_read_from_their_first_offset(log: Path) -> None:
    query = Query(log.parent, subscribePattern="o.*")
    written(log.parent / "orders-1", 20)
    written(log.parent / "others-0", 10)
    written(log.parent / "unwanted-0", 10)
    assert query.batch() == {"orders-1": list(range(20)), "others-0": list(range(10))}
    assert query.batch() == {}


def test_a_new_partition_whose_first_records_are_gone_is_data_loss(log: Path) -> None:
    strict, lenient = Query(log.parent), Query(log.parent, failOnDataLoss="false")
    added = written(log.parent / "orders-1", 300)
    retain_from(added, 205)
    with pytest.raises(OffsetOutOfRangeError, match="start offset 0 of orders-1"):
        strict.batch()
    assert lenient.batch() == {"orders-1": list(range(205, 300))}


def test_a_partition_that_is_gone_is_data_loss(log: Path) -> None:
    written(log.parent / "orders-1", 20)
    strict = Query(log.parent, startingOffsets="earliest")
    lenient = Query(log.parent, startingOffsets="earliest", failOnDataLoss="false")
    shutil.rmtree(log.parent / "orders-1")
    with pytest.raises(OffsetOutOfRangeError, match="partition orders-1 of the stream"):
        strict.batch()
    assert lenient.batch() == {"orders-0": list(range(100))}


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_partition_that_goes_while_a_query_ends_is_left_out(log: Path, limit: str) -> None:
    written(log.parent / "orders-1", 200)
    query = Query(log.parent, startingOffsets="earliest", failOnDataLoss="false", **{limit: "1000"})
    query.restart(available_now=True)
    query.batch()
    shutil.rmtree(log.parent / "orders-1")
    while query.batch():
        pass
    assert query.at == {"orders": {"0": [100, 0]}}


def test_retention_that_overtakes_the_reader_is_data_loss(log: Path) -> None:
    append(log, 300)
    strict = Query(log, startingOffsets='{"orders":{"0":7}}')
    lenient = Query(log, startingOffsets='{"orders":{"0":7}}', failOnDataLoss="false")
    retain_from(log, 205)
    with pytest.raises(OffsetOutOfRangeError, match="start offset 7 of orders-0"):
        strict.batch()
    assert lenient.batch() == {"orders-0": list(range(205, 400))}
    append(log, 10)
    assert lenient.batch() == {"orders-0": list(range(400, 410))}


def test_a_log_cut_below_what_was_read_is_data_loss(log: Path) -> None:
    strict = Query(log, startingOffsets="latest")
    lenient = Query(log, startingOffsets="latest", failOnDataLoss="false")
    with PartitionLog.open(log, LogConfig(segment_bytes=4000)) as opened:
        opened.truncate_to(80)
    with pytest.raises(OffsetOutOfRangeError, match=r"read already.*its end at 80"):
        strict.batch()
    assert lenient.batch() == {}
    append(log, 30, epoch=2)
    assert lenient.batch() == {"orders-0": list(range(80, 110))}


def test_a_log_written_anew_below_what_was_read_is_an_error(log: Path) -> None:
    strict = Query(log, startingOffsets="latest")
    lenient = Query(log, startingOffsets="latest", failOnDataLoss="false")
    with PartitionLog.open(log, LogConfig(segment_bytes=4000)) as opened:
        opened.truncate_to(80)
    append(log, 60, epoch=3)
    with pytest.raises(OffsetOutOfRangeError, match=r"leader epoch 0 below offset 100.*found 3"):
        strict.batch()
    assert lenient.batch() == {"orders-0": list(range(100, 140))}


def test_a_batch_whose_end_was_written_anew_is_not_run_again(log: Path) -> None:
    query = Query(log, startingOffsets="earliest")
    query.batch()
    with PartitionLog.open(log, LogConfig(segment_bytes=4000)) as opened:
        opened.truncate_to(80)
    append(log, 60, epoch=3)
    query.restart()
    with pytest.raises(LogTruncatedError, match="checkpoint"):
        query.read(*query.planned[0])


def test_a_watermark_that_stands_lower_for_a_while_means_waiting(tmp_path: Path) -> None:
    home = tmp_path / "broker-1"
    written(home / "orders-0", 100)
    (home / "meta.properties").write_text("version=1\n")

    def mark(offset: int) -> None:
        (home / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {offset}\n")

    mark(90)
    query = Query(home, startingOffsets="earliest")
    first = query.batch()
    assert first == {"orders-0": list(range(90))}
    mark(70)
    assert query.batch() == {}
    assert query.read(*query.planned[0]) == first
    mark(100)
    assert query.batch() == {"orders-0": list(range(90, 100))}


def test_read_committed_streams_stop_at_the_last_stable_offset() -> None:
    committed = Query(
        TRANSACTIONS,
        startingOffsets="earliest",
        subscribePattern="txn.*",
        **{"kafka.isolation.level": "read_committed"},
    )
    batch = source_of(
        TRANSACTIONS, subscribePattern="txn.*", **{"kafka.isolation.level": "read_committed"}
    ).reader(schema_of("topic", "partition", "offset", "value"))
    expected: dict[str, list[int]] = {}
    for part in batch.partitions():
        for records in read_partition(batch, part):
            for row in records.to_pylist():
                expected.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    assert committed.batch() == expected


# -- limits


def test_a_trigger_takes_no_more_offsets_than_allowed(log: Path) -> None:
    written(log.parent / "orders-1", 50)
    query = Query(log.parent, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(30)
    assert query.batch() == {"orders-0": list(range(20)), "orders-1": list(range(10))}
    seen = [sum(map(len, query.batch().values())) for _ in range(6)]
    assert sum(seen) == 120
    assert max(seen) <= 31  # a share below one record is rounded up
    assert query.batch() == {}


def test_all_that_is_there_overrides_the_limit(log: Path) -> None:
    query = Query(log, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert len(query.batch(ReadAllAvailable())["orders-0"]) == 100


def test_a_trigger_takes_about_as_many_bytes_as_allowed(log: Path) -> None:
    append(log, 900)
    query = Query(log, startingOffsets="earliest", maxBytesPerTrigger="2k")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(2048)
    found, rounds = [], 0
    while batch := query.batch():
        found += batch["orders-0"]
        rounds += 1
    assert found == list(range(1000))
    size = sum(path.stat().st_size for path in log.glob("*.log"))
    assert size / 2048 <= rounds <= 3 * size / 2048


def test_one_batch_is_taken_even_if_it_is_larger_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "large-0"
    with PartitionLog.open(path) as opened:
        for _ in range(3):
            opened.append([bytes(5000)] * 4)
    query = Query(path, startingOffsets="earliest", maxBytesPerTrigger="100")
    assert [len(query.batch()["large-0"]) for _ in range(3)] == [4, 4, 4]


def test_a_trigger_waits_for_enough_offsets_or_long_enough(log: Path) -> None:
    query = Query(
        log.parent, startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="10s"
    )
    assert query.reader.getDefaultReadLimit() == ReadMinRows(50)
    now = [1_000_000.0]
    query.reader._clock_ms = lambda: now[0]
    assert len(query.batch()["orders-0"]) == 100
    append(log, 20)
    assert query.batch() == {}
    written(log.parent / "orders-1", 5)  # a new partition waits as well
    now[0] += 9_999
    assert query.batch() == {}
    now[0] += 1
    assert {key: len(found) for key, found in query.batch().items()} == {
        "orders-0": 20,
        "orders-1": 5,
    }
    append(log, 50)
    assert len(query.batch()["orders-0"]) == 50


def test_minimum_and_maximum_work_together(log: Path) -> None:
    limits = {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "40"}
    query = Query(log, startingOffsets="earliest", **limits)
    assert [len(query.batch().get("orders-0", [])) for _ in range(4)] == [40, 40, 20, 0]


# -- Trigger.AvailableNow


def drain(query: Query) -> list[int]:
    found = []
    while batch := query.batch():
        found += [offset for offsets in batch.values() for offset in offsets]
    return found


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_available_now_reads_what_was_there_and_ends(log: Path, limit: str) -> None:
    query = Query(log, startingOffsets="earliest", **{limit: "30"})
    query.restart(available_now=True)
    first = query.batch()["orders-0"]
    append(log, 500)
    written(log.parent / "orders-1", 10)
    assert first + drain(query) == list(range(100))
    query.restart(available_now=True)
    assert drain(query) == list(range(100, 600))


def test_available_now_ends_after_a_restart_in_the_middle(log: Path) -> None:
    written(log.parent / "orders-1", 40)
    query = Query(log.parent, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    found = [offset for offsets in query.batch().values() for offset in offsets]
    query.restart(available_now=True)
    found += drain(query)
    assert sorted(found) == sorted([*range(100), *range(40)])
    assert query.reader.reportLatestOffset() == query.at


def test_a_stream_reader_is_pickled_without_its_state(log: Path) -> None:
    query = Query(log, startingOffsets="earliest")
    assert set(query.reader.__getstate__()) == {"settings"}
