"""The options of Spark's Kafka source and of this one: defaults, precedence, refusals.

Method: readers are planned in process; what is compared is which offsets they would read.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from replog.errors import OffsetOutOfRangeError, UsageError
from replog.reader import PartitionReader
from spark_integration.options import NAMES, SourceOptions
from spark_integration.source import ReplogDataSource
from tests.spark.in_process import (
    GOLDEN,
    MANY_SEGMENTS,
    SCHEMA,
    offsets,
    read,
    reader_of,
    retain_from,
    schema_of,
    time_of,
    written,
)

LEADERS = GOLDEN / "leader_changes" / "broker-1"
SEGMENTS = GOLDEN / "segments" / "data"
README = Path(__file__).parents[2] / "spark_integration" / "README.md"
END = 10**12
NAME = "orders"


def extent(log: Path, **options: str) -> tuple[int, int]:
    """First and last offset that would be read of a partition."""
    found = offsets(reader_of(log, "topic", "partition", "offset", **options))
    return found[f"{NAME}-0"][0], found[f"{NAME}-0"][-1]


def at(offset: int, topic: str = NAME) -> str:
    return json.dumps({topic: {"0": offset}})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("options") / "orders-0", RECORDS)


RECORDS = 400
LAST = RECORDS - 1
PEAK = 211  # a record with the largest time so far, so that its time chooses it


def test_defaults_read_everything_that_is_committed(log: Path) -> None:
    assert extent(log) == (0, LAST)
    assert ReplogDataSource({"path": "x"}).schema() == ", ".join(
        f"{field.name} {field.dataType.simpleString()}" for field in SCHEMA.fields
    )


def test_headers_and_leader_epoch_are_columns_when_asked_for() -> None:
    asked = ReplogDataSource({"IncludeHeaders": "TRUE", "includeleaderepoch": "true"}).schema()
    assert asked.endswith(
        "timestampType int, headers array<struct<key: string, value: binary>>, leaderEpoch int"
    )
    epochs = read(reader_of(LEADERS, "leaderEpoch", subscribe="moves"))["leaderEpoch"].to_pylist()
    assert len(set(epochs)) > 1


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 0, LAST),
        ({"startingOffsets": " Earliest "}, 0, LAST),
        ({"startingOffsets": at(-2), "endingOffsets": at(-1)}, 0, LAST),
        ({"STARTINGOFFSETS": at(7), "endingoffsets": at(30)}, 7, 29),
        ({"startingTimestamp": str(time_of(PEAK))}, PEAK, LAST),
        ({"startingTimestamp": "0"}, 0, LAST),
        ({"startingOffsetsByTimestamp": at(time_of(PEAK))}, PEAK, LAST),
        ({"endingTimestamp": str(time_of(PEAK))}, 0, PEAK - 1),
        ({"endingOffsetsByTimestamp": at(time_of(PEAK))}, 0, PEAK - 1),
        ({"endingTimestamp": str(END * 100)}, 0, LAST),
        # The first that is given of timestamp, by-timestamp and offsets wins.
        (
            {"startingOffsets": at(3), "startingOffsetsByTimestamp": at(time_of(PEAK))},
            PEAK,
            LAST,
        ),
        (
            {"startingTimestamp": "0", "startingOffsetsByTimestamp": at(time_of(PEAK))},
            0,
            LAST,
        ),
        (
            {"endingOffsets": at(5), "endingTimestamp": str(time_of(PEAK))},
            0,
            PEAK - 1,
        ),
        ({"endingOffsets": at(5), "endingOffsetsByTimestamp": at(time_of(PEAK))}, 0, PEAK - 1),
    ],
    ids=str,
)
def test_limits_choose_offsets(log: Path, options: dict[str, str], first: int, last: int) -> None:
    assert extent(log, **options) == (first, last)


def test_a_timestamp_chooses_an_offset_and_filters_no_row(log: Path) -> None:
    """Timestamps fall along this log: rows behind the chosen offset are older and are read."""
    first, last = extent(log, startingTimestamp=str(time_of(PEAK)))
    assert min(map(time_of, range(first, last + 1))) < time_of(PEAK)


def test_no_record_as_late_as_a_starting_timestamp_is_an_error_or_the_end(log: Path) -> None:
    late = {"startingTimestamp": str(END * 100)}
    with pytest.raises(UsageError, match="at or after the timestamp"):
        extent(log, **late)
    reader = reader_of(log, startingOffsetsByTimestampStrategy="latest", **late)
    assert reader.partitions() == []


REFUSED = [
    ({"startingOffsets": "latest"}, "startingOffsets of a batch query not to be latest"),
    ({"startingOffsets": at(-1)}, "not to be latest"),
    ({"endingOffsets": "earliest"}, "endingOffsets of a batch query not to be earliest"),
    ({"endingOffsets": at(-2)}, "not to be earliest"),
    ({"startingOffsets": at(-3)}, "an offset >= 0"),
    ({"startingOffsets": "first"}, "startingOffsets to be earliest, latest or JSON"),
    ({"startingOffsets": "{"}, "to be JSON"),
    ({"startingOffsets": '{"t":[1]}'}, "JSON such as"),
    ({"startingOffsets": at(1, "other")}, "every partition that is read and no other"),
    ({"endingOffsets": at(1, "other")}, "every partition that is read and no other"),
    ({"startingOffsetsByTimestamp": at(1, "other")}, "every partition that is read"),
    ({"startingOffsets": at(1), "endingOffsets": at(1, "other")}, "name the same partitions"),
    ({"startingOffsets": at(9), "endingOffsets": at(8)}, "9 > 8"),
    ({"startingTimestamp": "9", "endingTimestamp": "8"}, "9 > 8"),
    ({"startingOffsetsByTimestamp": at(9), "endingOffsetsByTimestamp": at(8)}, "9 > 8"),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp in milliseconds since 1970"),
    ({"startingTimestamp": "-1"}, "milliseconds since 1970"),
    ({"startingOffsetsByTimestampStrategy": "earliest"}, "error, latest"),
    ({"subscribe": NAME, "assign": at(0)}, "one of subscribe, subscribePattern and assign"),
    ({"subscribe": " , "}, "topics with commas"),
    ({"subscribe": "absent"}, "the topic 'absent' under the paths given, found orders"),
    ({"subscribePattern": "("}, "regular expression"),
    ({"subscribePattern": ""}, "regular expression"),
    ({"assign": at(0)}, '{"topic":[0,1]}'),
    ({"assign": json.dumps({NAME: [1]})}, "the partition orders-1"),
    ({"minPartitions": "0"}, "a number > 0 for minPartitions"),
    ({"maxRecordsPerPartition": "-1"}, "a number > 0 for maxRecordsPerPartition"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9 > 8"),
    ({"maxTriggerDelay": "soon"}, "a duration > 0 such as 15m"),
    ({"failOnDataLoss": "maybe"}, "true or false for failOnDataLoss"),
    ({"kafka.isolation.level": "serial"}, "read_uncommitted, read_committed"),
    ({"kafka.isolation.level": "log_end"}, "read_uncommitted, read_committed"),
    ({"replicas": "all"}, "highest, verify"),
    ({"mode": "RELAXED"}, "FAILFAST, PERMISSIVE, DROPMALFORMED"),
    ({"snapshot": "{}"}, "expected a snapshot"),
    ({"snapshot": "{}", "endingOffsets": "latest"}, "beside snapshot"),
    ({"highWatermarks": at(1, "other")}, "highWatermarks to name partitions under the paths"),
    ({"maxPartitionBytes": "much"}, "a size > 0 such as 128m for maxPartitionBytes"),
    ({"batchRows": "0"}, "a number > 0 for batchRows"),
    ({"checkCrcs": "perhaps"}, "checkCrcs"),
    ({"startingOfsets": "earliest"}, "found 'startingofsets'"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=str)
def test_what_cannot_be_meant_is_refused_on_the_driver(
    log: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        reader_of(log, **options).partitions()


def test_no_path_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="expected a path"):
        ReplogDataSource({}).reader(schema_of())


def test_a_misspelt_option_is_refused_when_the_frame_is_made() -> None:
    with pytest.raises(UsageError, match="subscribes"):
        ReplogDataSource({"path": "x", "subscribes": "t"}).schema()


def test_what_steers_a_kafka_client_is_accepted_and_ignored(log: Path) -> None:
    ignored = {
        "kafka.bootstrap.servers": "host:9092",
        "kafka.group.id": "g",
        "groupIdPrefix": "p",
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
        "kafkaConsumer.pollTimeoutMs": "512",
    }
    assert extent(log, **ignored) == (0, LAST)


def test_limits_of_triggers_are_ignored_in_a_batch_with_a_warning(
    log: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert extent(log, maxOffsetsPerTrigger="1", maxTriggerDelay="1s") == (0, LAST)
    assert "maxOffsetsPerTrigger is ignored" in caplog.text


def test_topics_are_chosen_by_list_pattern_and_partition() -> None:
    def topics(**options: str) -> set[str]:
        return set(offsets(reader_of(LEADERS, "topic", "partition", "offset", **options)))

    everything = topics()
    assert topics(subscribe=" moves , ") == {one for one in everything if one.startswith("moves-")
                                             and one.rpartition("-")[0] == "moves"}  # fmt: skip
    assert topics(subscribePattern="mov.*") == everything
    assert topics(subscribePattern="mov") == set()
    assert topics(assign='{"moves":[0]}') == {"moves-0"}
    assert topics(subscribe="moves,moves-zstd") == everything


def test_an_offset_outside_the_log_is_data_loss(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beyond = {"endingOffsets": at(LAST + 5)}
    with pytest.raises(OffsetOutOfRangeError, match=f"end offset {LAST + 5} of orders-0"):
        extent(log, **beyond)
    with caplog.at_level(logging.WARNING):
        assert extent(log, failOnDataLoss="false", **beyond) == (0, LAST)
    assert "committed" in caplog.text


def test_retention_before_the_start_is_data_loss_or_where_the_log_starts(
    log: Path, tmp_path: Path
) -> None:
    copy = tmp_path / f"{NAME}-0"
    shutil.copytree(log, copy)
    retain_from(copy, 200)
    start = PartitionReader(copy).log_start_offset
    assert start > 3
    with pytest.raises(OffsetOutOfRangeError, match="start offset 3"):
        reader_of(copy, startingOffsets=at(3)).partitions()
    kept = offsets(reader_of(copy, startingOffsets=at(3), failOnDataLoss="false"))
    assert kept[f"{NAME}-0"][0] == start


def test_partitions_keep_to_records_and_number_asked_for(log: Path) -> None:
    reader = reader_of(log, maxRecordsPerPartition="100")
    planned = reader.partitions()
    assert all(sum(one.offsets for one in part.ranges) <= 100 for part in planned)
    assert read(reader).equals(read(reader_of(log)))
    many = reader_of(log, minPartitions="13")
    assert len(many.partitions()) >= 13
    assert read(many).equals(read(reader_of(log)))


def test_a_given_high_watermark_takes_the_checkpoints_place(log: Path) -> None:
    marks = json.dumps({NAME: {"0": 11}})
    assert extent(log, highWatermarks=marks) == (0, 10)


@pytest.mark.parametrize(
    "path",
    [
        f"{SEGMENTS}/falling-time-0,{SEGMENTS}/time-roll-0",
        f"{SEGMENTS}/*-time-0,file://{SEGMENTS}/time-roll-0",
        json.dumps([f"{SEGMENTS}/falling-time-0", f"{SEGMENTS}/time-r*l-0"]),
    ],
)
def test_a_path_may_be_a_list_or_a_glob(path: str) -> None:
    reader = ReplogDataSource({"path": path}).reader(schema_of())
    assert {"falling-time-0", "time-roll-0"} <= set(offsets(reader))


def test_a_partition_given_twice_is_read_once(log: Path) -> None:
    twice = reader_of([SEGMENTS, MANY_SEGMENTS], subscribe="falling-time")
    assert offsets(twice) == offsets(reader_of(MANY_SEGMENTS))


def test_a_glob_or_directory_that_is_not_there_is_named() -> None:
    for path, said in (("*-nothing", "directories that match"), ("absent", "a directory at")):
        with pytest.raises(UsageError, match=said):
            reader_of(SEGMENTS / path).partitions()


def test_streams_have_other_defaults_and_no_end() -> None:
    assert SourceOptions.stream({"path": "x"}).start == (-1,)
    assert SourceOptions.stream({"path": "x", "startingOffsets": at(-1)})
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "snapshot"):
        with pytest.raises(UsageError, match="streaming query"):
            SourceOptions.stream({"path": "x", name: "1"})
    stream = SourceOptions.stream(
        {"path": "x", "maxTriggerDelay": "2min", "minOffsetsPerTrigger": "5"}
    )
    assert (stream.trigger_delay_ms_max, stream.trigger_offsets_min) == (120_000, 5)
    assert SourceOptions.stream({"path": "x"}).trigger_delay_ms_max == 15 * 60_000


def test_the_options_of_the_documentation_are_the_options() -> None:
    rows = re.findall(r"^- (`[^:(]*?)(?: \(|:)", README.read_text(), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert set(NAMES.values()) <= told
