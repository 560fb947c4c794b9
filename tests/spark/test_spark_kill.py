"""Exactly once into files, however often the driver is killed.

Method: a driver process streams a growing log into Parquet; it is killed with SIGKILL, JVM and all,
at a random moment of a random batch, again and again; the last one may finish. The sink's log of
files then holds each record once. REPLOG_SPARK_KILLS says how often (2), REPLOG_SPARK_SEED repeats
the draws.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")

from replog import LogConfig
from replog.storage.partition_log import PartitionLog
from spark_integration.session import missing
from tests.spark.in_process import written

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "stream_to_files.py"
KILLS = int(os.environ.get("REPLOG_SPARK_KILLS", "2"))
BATCHES_MAX = 4
BATCH_SECONDS = 1.5  # from one commit to some moment of the next batches


def start(directory: Path, output: Path, offsets: int) -> subprocess.Popen[str]:
    with (output / "driver.log").open("a") as errors:
        driver = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(directory), str(output), str(offsets)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=output,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "started\n", (output / "driver.log").read_text()[-3000:]
    return driver


def pause(driver: subprocess.Popen[str], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(timeout=seconds)


def committed(output: Path) -> int:
    """How many batches the query has finished, restarts included."""
    commits = (output / "checkpoint" / "commits").glob("*")
    return max((int(path.name) + 1 for path in commits if path.name.isdecimal()), default=0)


def delivered(output: Path) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of all files that the sink committed."""
    files: dict[str, None] = {}
    batches = list((output / "out" / "_spark_metadata").iterdir())
    # A compacted entry repeats what the earlier ones say; names are unique.
    for path in batches:
        if path.name.startswith(".") or path.suffix == ".tmp":
            continue
        for line in path.read_text().splitlines()[1:]:
            files[json.loads(line)["path"].removeprefix("file://")] = None
    rows = []
    for path in files:
        table = pq.read_table(path, columns=["partition", "offset", "value"])
        rows += list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(rows)


def append(directory: Path, records: int) -> None:
    with PartitionLog.open(
        directory, LogConfig(segment_bytes=4000, index_interval_bytes=300)
    ) as log:
        for _ in range(records // 10):
            first = log.log_end_offset
            log.append([b"record %d" % n for n in range(first, first + 10)])


@pytest.mark.timeout(600 + 300 * KILLS)  # a driver alone may take a minute on a crowded machine
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_each_record_is_delivered_once_however_the_driver_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("REPLOG_SPARK_SEED", time.time_ns() % 1_000_000))
    chance = random.Random(seed)
    print(f"REPLOG_SPARK_SEED={seed}")
    logs = [written(tmp_path / "data" / f"orders-{n}", 600) for n in range(2)]
    output = tmp_path / "output"
    output.mkdir()
    for _ in range(KILLS):
        with start(tmp_path / "data", output, 40) as driver:
            wanted = committed(output) + chance.randrange(BATCHES_MAX)
            deadline = time.monotonic() + 180
            while committed(output) < wanted and driver.poll() is None:
                assert time.monotonic() < deadline, (output / "driver.log").read_text()[-3000:]
                pause(driver, 0.02)
            pause(driver, chance.uniform(0, BATCH_SECONDS))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
        append(logs[0], 200)
        append(logs[1], 100)
    with start(tmp_path / "data", output, 100_000) as driver:
        assert driver.wait(timeout=180) == 0
    expected = [
        (partition, offset, b"record %d" % offset)
        for partition, added in ((0, 200), (1, 100))
        for offset in range(600 + added * KILLS)
    ]
    assert delivered(output) == expected
