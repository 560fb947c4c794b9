"""Spark over segments against Spark over Parquet: same rows, same session, by turns, CRC checked.

Both read from the page cache. `_projected` reads only the column that the query needs, which must
be said in the schema, as PySpark's data sources have no other way; Parquet prunes by itself. The
pyarrow figures beside the bars do the same without Spark, on threads of this process.
"""

from __future__ import annotations

import shutil
import statistics
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pyarrow.compute as pc
import pytest

from bench.pairs import TINY, measure, sized, timed
from bench.processor_time import Clock
from bench.spark_files import write_segments
from replog.reader import open_partitions, read_split
from spark_integration.jobs.engine import LocalEngine
from spark_integration.jobs.export import export
from spark_integration.session import local_session, missing

pytestmark = [pytest.mark.spark, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

ROWS = sized(10_000_000, 20_000)
PAIRS = 5
FIVE = "key binary, value binary, partition int, offset bigint, timestamp timestamp"
SEVEN = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
EXTRA_TASKS = sized(200, 4)


@pytest.fixture(scope="session")
def spark():
    session = local_session("replog bench", memory="6g")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def segments(folder):
    path = folder / "spark-segments"
    write_segments(path, ROWS)
    return path


@pytest.fixture(scope="session")
def parquet(spark, folder, segments):
    """The same rows as Parquet, and a check that they are the same."""
    path = folder / "spark-parquet"
    frame = spark.read.format("replog").schema(FIVE).load(str(segments))
    frame.write.option("compression", "none").mode("overwrite").parquet(str(path))
    written = spark.read.parquet(str(path))
    hashed = "sum(xxhash64(key, value, partition, offset, timestamp) % 1000003)"
    assert written.selectExpr(hashed).first() == frame.selectExpr(hashed).first()
    return path


def count(frame):
    return frame.count()


def total(frame):
    return frame.selectExpr("sum(octet_length(value))").first()[0]


def groups(frame):
    counted = frame.selectExpr("hash(key) % 1024 as place").groupBy("place").count().collect()
    return zlib.crc32(repr(sorted((row.place, row["count"]) for row in counted)).encode())


def noop(frame):
    frame.write.format("noop").mode("overwrite").save()
    return ROWS


def reading(spark, segments, columns):
    """A frame that is planned anew each time, so that planning is part of the figure."""
    return lambda: spark.read.format("replog").schema(columns).load(str(segments))


def compared(benchmark, bar, must_be, query, ours, theirs):
    """Measure `query` over both; seconds of warm-up are not counted."""
    sides = [lambda frame=frame: timed(lambda: query(frame())) for frame in (ours, theirs)]
    assert sides[0]()[1] == sides[1]()[1]
    clock = Clock()
    measure(benchmark, bar, must_be, *sides, share=False, pairs=PAIRS)
    spent = clock.spent()
    benchmark.extra_info.update(
        rows=ROWS,
        rows_per_second=round(ROWS / benchmark.extra_info["ours_s"]),
        jvm_s_of_both=round(spent.jvm, 2),
        python_s=round(spent.python, 2),
    )
    print(benchmark.extra_info)


QUERIES = [
    ("count", "<= 20", count, FIVE),
    ("count_projected", "<= 7", count, "partition int"),
    ("count_seven", "<= 26", count, SEVEN),
    ("sum", "<= 4.5", total, FIVE),
    ("sum_projected", "<= 3.5", total, "value binary"),
    ("sum_seven", "<= 5.7", total, SEVEN),
    ("group", "<= 3.8", groups, FIVE),
    ("group_projected", "<= 2.6", groups, "key binary"),
    ("group_seven", "<= 4.8", groups, SEVEN),
    ("noop", "<= 2.3", noop, FIVE),
    ("noop_seven", "<= 3", noop, SEVEN),
][: 2 if TINY else None]


@pytest.mark.parametrize(
    ("bar", "must_be", "query", "columns"), QUERIES, ids=[one[0] for one in QUERIES]
)
def test_query_against_parquet(benchmark, spark, segments, parquet, bar, must_be, query, columns):
    ours = reading(spark, segments, columns)
    compared(benchmark, bar, must_be, query, ours, lambda: spark.read.parquet(str(parquet)))
    without = WITHOUT_SPARK.get(query)
    if without is not None and columns != SEVEN:
        seconds = statistics.median(timed(lambda: without(segments))[0] for _ in range(PAIRS))
        benchmark.extra_info.update(
            pyarrow_s=seconds, pyarrow_ratio=round(seconds / benchmark.extra_info["theirs_s"], 3)
        )


def test_parquet_write(benchmark, spark, segments, parquet, folder):
    output = folder / "spark-written"

    def written(frame):
        shutil.rmtree(output, ignore_errors=True)
        frame.write.option("compression", "none").parquet(str(output))
        return ROWS

    compared(
        benchmark, "parquet_write", "<= 1.35", written,
        reading(spark, segments, FIVE), lambda: spark.read.parquet(str(parquet)),
    )  # fmt: skip
    shutil.rmtree(output, ignore_errors=True)
    seconds = []
    for _ in range(PAIRS if not TINY else 1):
        began = time.perf_counter()
        assert export([segments], output, LocalEngine(2), compression="none").records == ROWS
        seconds.append(time.perf_counter() - began)
        shutil.rmtree(output)
    median = statistics.median(seconds)
    benchmark.extra_info.update(
        pyarrow_s=median, pyarrow_ratio=round(median / benchmark.extra_info["theirs_s"], 3)
    )


def alone(benchmark, bar, must_be, measured):
    """A bar on a figure of ours, the median of PAIRS."""
    found = []
    benchmark.pedantic(lambda: found.append(measured()), rounds=1 if TINY else PAIRS, iterations=1)
    figure = statistics.median(found)
    kind, limit = must_be.split()
    benchmark.extra_info.update(
        bar=bar, ratio=round(figure, 4), must_be=must_be, ours_s=benchmark_seconds(benchmark),
        holds=figure >= float(limit) if kind == ">=" else figure <= float(limit),
        ratio_range=[round(min(found), 4), round(max(found), 4)], theirs_s=0.0,
    )  # fmt: skip
    print(benchmark.extra_info)


def benchmark_seconds(benchmark):
    return benchmark.stats.stats.median if benchmark.stats else 0.0


def test_python_share_of_processor_time(benchmark, spark, segments):
    frame = reading(spark, segments, FIVE)
    total(frame())

    def share():
        clock = Clock()
        total(frame())
        spent = clock.spent()
        return spent.python / max(spent.python + spent.jvm, 1e-9)

    alone(benchmark, "python_cpu_share", "<= 0.25", share)


def test_rows_a_second(benchmark, spark, segments):
    frame = reading(spark, segments, FIVE)
    total(frame())
    alone(benchmark, "rows_per_second", ">= 3e6", lambda: ROWS / timed(lambda: total(frame()))[0])


def test_processor_time_of_an_extra_task(benchmark, spark, folder):
    """Many Spark partitions against few, over the same few rows."""
    path = folder / "spark-few-rows"
    write_segments(path, sized(200_000, 2_000))

    def spent(tasks):
        frame = spark.read.format("replog").schema("offset bigint").option("minPartitions", tasks)
        clock = Clock()
        frame.load(str(path)).count()
        return sum(clock.spent())

    spent(EXTRA_TASKS)
    alone(
        benchmark, "task_core_ms", "<= 60",
        lambda: 1000 * (spent(EXTRA_TASKS) - spent(2)) / (EXTRA_TASKS - 2),
    )  # fmt: skip
    shutil.rmtree(path)


def on_threads(segments, columns, work):
    """work(batch) of every decoded batch, on two threads."""

    def one(split):
        return [work(batch) for batch in read_split(split, columns=columns)]

    splits = [
        split
        for reader in open_partitions(segments)
        for split in reader.split_points(64 << 20, None, None)
    ]
    with ThreadPoolExecutor(2) as pool:
        return [result for results in pool.map(one, splits) for result in results]


def count_without_spark(segments):
    assert sum(on_threads(segments, ["offset"], lambda batch: batch.num_rows)) == ROWS


def sum_without_spark(segments):
    sizes = on_threads(
        segments, ["value"], lambda batch: pc.sum(pc.binary_length(batch.column(0))).as_py()
    )
    assert sum(sizes) == ROWS * 100


def group_without_spark(segments):
    """By the key's last three digits, as pyarrow has no hash to group by: as many groups."""
    digits = on_threads(
        segments, ["key"], lambda batch: pc.value_counts(pc.binary_slice(batch.column(0), 13, 16))
    )
    assert sum(pc.sum(pc.struct_field(one, "counts")).as_py() for one in digits) == ROWS


WITHOUT_SPARK = {count: count_without_spark, total: sum_without_spark, groups: group_without_spark}
