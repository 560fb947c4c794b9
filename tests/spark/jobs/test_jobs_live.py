"""Statistics and the compacted view beside a process that appends, cuts, rewrites and trims.

Each record says its offset and the generation that wrote it; a generation begins with a cut. Keys
go round, so that the view of any moment holds the last offsets, one a key, and the statistics of
any moment add up to its range of offsets. A job gives what was true at one moment, or an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from pyspark.errors import PySparkException

from replog.errors import LogTruncatedError, OffsetOutOfRangeError
from spark_integration.jobs.compact_view import compact_view
from spark_integration.jobs.stats import stats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS = 50
BATCH = 17
ROUNDS = 2
TRIES_MAX = 40
ALLOWED = ("LogTruncatedError", "OffsetOutOfRangeError")
# Cuts and trims come by turns, seldom enough for a job to be done between two of them.
WRITER = """
import json, select, sys, time
from replog import LogConfig
from replog.storage.partition_log import PartitionLog

path = sys.argv[1]
cuts = {}
generation, events, due = 0, 0, time.monotonic() + 2
with PartitionLog.open(path, LogConfig(segment_bytes=60000, index_interval_bytes=500)) as log:
    turn = 0
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        offsets = range(log.log_end_offset, log.log_end_offset + 17)
        log.append(
            [b"%d %d" % (offset, generation) for offset in offsets],
            keys=[b"%d" % (offset % 50) for offset in offsets],
            leader_epoch=generation,
        )
        turn += 1
        if turn == 300:
            print("begun", flush=True)
        if turn % 20 == 0:
            log.high_watermark = log.log_end_offset
        if time.monotonic() > due and turn > 300:
            due, events = time.monotonic() + 2, events + 1
            if events % 2:
                generation += 1
                cuts[generation] = log.log_end_offset - 17 * (40 + turn % 7)
                log.truncate_to(cuts[generation])
            else:
                log.high_watermark = log.log_end_offset
                log.truncate_prefix_to(log.log_end_offset - 4000)
print(json.dumps(cuts), flush=True)
"""


def check_view(spark: SparkSession, path: Path) -> list[tuple[int, int]]:
    """(offset, generation) of each row of the view."""
    view = compact_view(spark.read.format("replog").load(str(path)))
    rows = view.select("offset", "value").collect()
    seen = [tuple(map(int, bytes(row["value"]).split())) for row in rows]
    assert [offset for offset, _ in seen] == [row["offset"] for row in rows]
    last = max(offset for offset, _ in seen)
    assert sorted(offset for offset, _ in seen) == list(range(last - KEYS + 1, last + 1))
    return [(offset, generation) for offset, generation in seen]


def check_stats(spark: SparkSession, path: Path) -> list[tuple[int, int]]:
    report = stats(spark, [path])
    (one,) = report.partitions
    offsets = one.end_offset - one.start_offset
    assert sum(records * keys for records, keys in report.key_frequencies[one.topic]) == offsets
    # By headers, without the batch that the start of the log falls into.
    assert offsets - BATCH < one.records <= offsets
    assert (one.keys, one.without_key, one.tombstones) == (KEYS, 0, 0)
    assert one.largest_key_share == pytest.approx(1 / KEYS, rel=0.2)
    return []


@pytest.mark.parametrize("job", [check_view, check_stats])
def test_a_job_beside_a_writer_tells_one_moment_of_the_log_or_an_error(
    spark: SparkSession,
    tmp_path: Path,
    job: Callable[[SparkSession, Path], list[tuple[int, int]]],
) -> None:
    path = tmp_path / "live-0"
    found: list[list[tuple[int, int]]] = []
    errors = 0
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "begun\n"
        while len(found) < ROUNDS and errors < TRIES_MAX:
            try:
                found.append(job(spark, path))
            except (LogTruncatedError, OffsetOutOfRangeError):
                errors += 1
            except PySparkException as error:
                if not any(name in str(error) for name in ALLOWED):
                    raise
                errors += 1
        writer.stdin.write("stop\n")
        writer.stdin.close()
        cuts = {int(name): cut for name, cut in json.loads(writer.stdout.readline()).items()}
    assert writer.returncode == 0
    print(f"{len(found)} jobs done, {errors} told that the log was cut or trimmed")
    assert len(found) == ROUNDS
    for seen in found:
        newest = max((generation for _, generation in seen), default=0)
        for offset, generation in seen:
            older = [
                one for one, cut in cuts.items() if generation < one <= newest and cut <= offset
            ]
            assert not older, f"offset {offset} of generation {generation} beside {newest}"
