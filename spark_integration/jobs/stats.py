"""What is in the topics: counts, bytes, rates over time, skew and compression, by Spark.

Two passes. Batch headers alone tell batches, records, file bytes, codecs and rates (no record is
decoded); keys and values tell how often each key comes and how many bytes they are. Both read the
same cut of each log: one that was truncated and written anew in between is an error. Sizes of keys
are exact and may be many: they stay in Spark, and only sums, the largest keys and a histogram of
how often keys come are brought to the driver.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from replog.reader import PartitionReader, SplitRange, choose_replica, split_headers
from replog.types import Codec, Isolation, TopicPartition
from spark_integration.jobs.engine import Progress, SparkEngine, no_progress
from spark_integration.jobs.partitions import replicas
from spark_integration.snapshots import PartitionCut, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECE_BYTES = 256 * 1024 * 1024
BUCKET_MS = 60_000
BUCKETS_MAX = 120
CODEC_MASK = 0x07
CONTROL_BIT = 0x20


@dataclasses.dataclass(frozen=True, slots=True)
class HeaderTask:
    """A range of a partition, as it was planned."""

    topic_partition: TopicPartition
    split: SplitRange


@dataclasses.dataclass(slots=True)
class HeaderSums:
    """Sums over batch headers. rates: minute to (records, file bytes), by a batch's last time."""

    topic_partition: TopicPartition
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    codecs: Counter[str] = dataclasses.field(default_factory=Counter)
    rates: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def add(self, other: HeaderSums) -> None:
        """Take in the sums of another range of the partition."""
        self.batches += other.batches
        self.records += other.records
        self.size_bytes += other.size_bytes
        stamps = [self.min_timestamp, other.min_timestamp]
        self.min_timestamp = min((one for one in stamps if one is not None), default=None)
        stamps = [self.max_timestamp, other.max_timestamp]
        self.max_timestamp = max((one for one in stamps if one is not None), default=None)
        self.codecs.update(other.codecs)
        for minute, (records, size) in other.rates.items():
            before = self.rates.get(minute, (0, 0))
            self.rates[minute] = before[0] + records, before[1] + size


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionStats:
    """One partition. Bytes of the file, and of keys and values as they are without compression.

    compression_ratio: payload bytes to file bytes; above 1 where compression pays.
    records: of producers, from headers; control records are not counted. largest_key_share: of the
    records with a key, how many have the most frequent one.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    batches: int
    records: int
    size_bytes: int
    key_bytes: int
    value_bytes: int
    compression_ratio: float | None
    codecs: dict[str, int]
    keys: int
    without_key: int
    tombstones: int
    largest_key_share: float | None
    min_timestamp: int | None
    max_timestamp: int | None
    records_per_second: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class TopicStats:
    """Sums of a topic, and its skew: the largest partition to the mean, 1 where all are alike."""

    topic: str
    partitions: int
    records: int
    size_bytes: int
    compression_ratio: float | None
    record_skew: float | None
    byte_skew: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class KeyStats:
    """One of a topic's most frequent keys in a partition."""

    topic: str
    partition: int
    key: bytes
    records: int
    payload_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class RatePoint:
    """Records and file bytes of a topic in [start_ms, start_ms + seconds)."""

    topic: str
    start_ms: int
    seconds: int
    records: int
    size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class StatsReport:
    """key_frequencies: per topic (records of a key, how many keys have so many), rising."""

    topics: tuple[TopicStats, ...]
    partitions: tuple[PartitionStats, ...]
    keys: tuple[KeyStats, ...]
    rates: tuple[RatePoint, ...]
    key_frequencies: dict[str, list[tuple[int, int]]]
    seconds: float


def stats(
    session: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    *,
    topics: Sequence[str] = (),
    isolation: Isolation = Isolation.HIGH_WATERMARK,
    keys_max: int = 10,
    progress: Progress = no_progress,
) -> StatsReport:
    """Statistics of the partitions under `paths`, of several replicas the furthest.

    keys_max: how many of the most frequent keys of each topic are told. Raises UsageError,
    CorruptBatchError, LogTruncatedError.
    """
    started = time.monotonic()
    readers = {key: choose_replica(found) for key, found in replicas(paths, topics).items()}
    extents = {
        key: (reader.log_start_offset, reader.bound(isolation)) for key, reader in readers.items()
    }
    snapshot = Snapshot(
        {
            key: PartitionCut.of(reader, reader.log_start_offset, reader.end_offset)
            for key, reader in readers.items()
        }
    )
    tasks = [task for key, one in readers.items() for task in _pieces(one, *extents[key])]
    headers = {key: HeaderSums(key) for key in readers}
    for sums in SparkEngine(session).run(sum_headers, tasks, progress):
        headers[sums.topic_partition].add(sums)
    records = (
        session.read.format("replog")
        .schema("topic string, partition int, key binary, value binary")
        .option("kafka.isolation.level", isolation.value)
        .option("snapshot", str(snapshot))
        .load([reader.path for reader in readers.values()])
    )
    by_key = _by_key(records).persist()
    try:
        payloads = {TopicPartition(row.topic, row.partition): row for row in _payloads(by_key)}
        keys = tuple(_largest_keys(by_key, keys_max))
        frequencies = _frequencies(by_key)
    finally:
        by_key.unpersist()
    partitions = tuple(_partition(extents[key], headers[key], payloads.get(key)) for key in readers)
    return StatsReport(
        topics=tuple(_topics(partitions)),
        partitions=partitions,
        keys=keys,
        rates=tuple(_rates(headers)),
        key_frequencies=frequencies,
        seconds=round(time.monotonic() - started, 3),
    )


def _pieces(reader: PartitionReader, start: int, end: int) -> Iterator[HeaderTask]:
    if start < end:
        for split in reader.split_points(PIECE_BYTES, start, end):
            yield HeaderTask(reader.topic_partition, split)


def sum_headers(task: HeaderTask) -> HeaderSums:
    """Sums over the batches that begin in the range; no record is decoded."""
    sums = HeaderSums(task.topic_partition)
    for headers in split_headers(task.split):
        mine = headers[
            (headers["base_offset"] >= task.split.start_offset)
            & (headers["base_offset"] < task.split.end_offset)
            & (headers["attributes"] & CONTROL_BIT == 0)
            & (headers["record_count"] > 0)
        ]
        if not len(mine):
            continue
        sums.add(_summed(sums.topic_partition, mine))
    return sums


def _summed(topic_partition: TopicPartition, headers: Any) -> HeaderSums:
    codecs, counts = np.unique(headers["attributes"] & CODEC_MASK, return_counts=True)
    minutes, at = np.unique(headers["max_timestamp"] // BUCKET_MS, return_inverse=True)
    records = np.bincount(at, headers["record_count"])
    sizes = np.bincount(at, headers["size_bytes"])
    return HeaderSums(
        topic_partition,
        batches=len(headers),
        records=int(headers["record_count"].sum()),
        size_bytes=int(headers["size_bytes"].sum()),
        min_timestamp=int(headers["max_timestamp"].min()),
        max_timestamp=int(headers["max_timestamp"].max()),
        codecs=Counter(
            {
                Codec(code).name.lower(): count
                for code, count in zip(codecs.tolist(), counts.tolist(), strict=True)
            }
        ),
        rates={
            minute: (int(count), int(size))
            for minute, count, size in zip(minutes.tolist(), records, sizes, strict=True)
        },
    )


def _by_key(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    def length(name: str) -> Any:
        return functions.coalesce(functions.octet_length(name), functions.lit(0))

    return records.groupBy("topic", "partition", "key").agg(
        functions.count("*").alias("records"),
        functions.sum(length("key")).alias("key_bytes"),
        functions.sum(length("value")).alias("value_bytes"),
        functions.count_if(functions.col("value").isNull()).alias("tombstones"),
    )


def _payloads(by_key: DataFrame) -> list[Any]:
    from pyspark.sql import functions

    keyed = functions.col("key").isNotNull()
    return (
        by_key.groupBy("topic", "partition")
        .agg(
            functions.sum("key_bytes").alias("key_bytes"),
            functions.sum("value_bytes").alias("value_bytes"),
            functions.count_if(keyed).alias("keys"),
            functions.sum(functions.when(keyed, 0).otherwise(functions.col("records"))).alias(
                "without_key"
            ),
            functions.sum(functions.when(keyed, functions.col("records")).otherwise(0)).alias(
                "with_key"
            ),
            functions.max(functions.when(keyed, functions.col("records"))).alias("largest"),
            functions.sum("tombstones").alias("tombstones"),
        )
        .collect()
    )


def _largest_keys(by_key: DataFrame, keys_max: int) -> Iterator[KeyStats]:
    from pyspark.sql import Window, functions

    order = Window.partitionBy("topic").orderBy(functions.desc("records"), "partition", "key")
    rows = (
        by_key.where("key is not null")
        .withColumn("place", functions.row_number().over(order))
        .where(functions.col("place") <= keys_max)
        .orderBy("topic", "place")
        .collect()
    )
    for row in rows:
        payload = row.key_bytes + row.value_bytes
        yield KeyStats(row.topic, row.partition, bytes(row.key), row.records, payload)


def _frequencies(by_key: DataFrame) -> dict[str, list[tuple[int, int]]]:
    """Few rows however many keys there are: keys that come equally often count together."""
    rows = (
        by_key.where("key is not null")
        .groupBy("topic", "records")
        .count()
        .orderBy("topic", "records")
        .collect()
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        found.setdefault(row.topic, []).append((row.records, row["count"]))
    return found


def _partition(extent: tuple[int, int], sums: HeaderSums, payload: Any) -> PartitionStats:
    key_bytes = payload.key_bytes if payload else 0
    value_bytes = payload.value_bytes if payload else 0
    span_ms = (sums.max_timestamp or 0) - (sums.min_timestamp or 0)
    return PartitionStats(
        *sums.topic_partition,
        *extent,
        batches=sums.batches,
        records=sums.records,
        size_bytes=sums.size_bytes,
        key_bytes=key_bytes,
        value_bytes=value_bytes,
        compression_ratio=_ratio(key_bytes + value_bytes, sums.size_bytes),
        codecs=dict(sums.codecs),
        keys=payload.keys if payload else 0,
        without_key=payload.without_key if payload else 0,
        tombstones=payload.tombstones if payload else 0,
        largest_key_share=_ratio(payload.largest or 0, payload.with_key) if payload else None,
        min_timestamp=sums.min_timestamp,
        max_timestamp=sums.max_timestamp,
        records_per_second=_ratio(sums.records * 1000, span_ms),
    )


def _ratio(one: int, other: float) -> float | None:
    return round(one / other, 4) if other else None


def _topics(partitions: Sequence[PartitionStats]) -> Iterator[TopicStats]:
    for topic in sorted({one.topic for one in partitions}):
        mine = [one for one in partitions if one.topic == topic]
        records, sizes = [one.records for one in mine], [one.size_bytes for one in mine]
        payload = sum(one.key_bytes + one.value_bytes for one in mine)
        yield TopicStats(
            topic,
            len(mine),
            sum(records),
            sum(sizes),
            _ratio(payload, sum(sizes)),
            _ratio(max(records), sum(records) / len(mine)),
            _ratio(max(sizes), sum(sizes) / len(mine)),
        )


def _rates(headers: dict[TopicPartition, HeaderSums]) -> Iterator[RatePoint]:
    """Minutes of each topic, put together until there are at most BUCKETS_MAX."""
    by_topic: dict[str, HeaderSums] = {}
    for key, sums in headers.items():
        by_topic.setdefault(key.topic, HeaderSums(key)).add(sums)
    for topic, sums in by_topic.items():
        if not sums.rates:
            continue
        span = max(sums.rates) - min(sums.rates) + 1
        width = -(-span // BUCKETS_MAX)
        buckets: dict[int, tuple[int, int]] = {}
        for minute, (records, size) in sums.rates.items():
            before = buckets.get(minute // width, (0, 0))
            buckets[minute // width] = before[0] + records, before[1] + size
        for bucket in sorted(buckets):
            yield RatePoint(topic, bucket * width * BUCKET_MS, width * 60, *buckets[bucket])
