"""Opening a log after a clean stop and after a crash, and a process's first append."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import replog
from bench import workload
from bench.conftest import fill
from bench.floors_build import ROOT
from bench.pairs import measure, sized, timed
from replog.storage.partition_log import PartitionLog

SEGMENTS = sized(1000, 20)


def test_open_segments(benchmark, floors, folder):
    path = folder / "many-0"
    config = replog.LogConfig(segment_bytes=4096)
    with PartitionLog.open(path, config) as log:
        batch = workload.ready_batch(20, 100)
        while len(log.segments) < SEGMENTS:
            log.append_as_leader(batch, 0)
        end_offset = log.log_end_offset
    files = [entry.path for entry in os.scandir(path)]

    def ours():
        seconds, log = timed(lambda: PartitionLog.open(path, config))
        with log:
            assert len(log.segments) == SEGMENTS
            return seconds, log.log_end_offset

    assert ours()[1] == end_offset
    measure(
        benchmark, "open_segments", "<= 4", ours, lambda: floors.open_files(files), share=False
    )  # fmt: skip
    shutil.rmtree(path)


def crashed(path, config):
    """Open a log as after a crash that nothing was ever synced before; leaves it so."""
    (path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    seconds, log = timed(lambda: PartitionLog.open(path, config))
    report = log.recovery_report
    end_offset = log.log_end_offset
    log.close(flush=False)
    assert report.problem is None
    return seconds, (report.checked_bytes, end_offset)


def test_recover_one_segment(benchmark, floors, gibibyte):
    config = replog.LogConfig(segment_bytes=2**31 - 1)
    segment = str(gibibyte / "00000000000000000000.log")

    def ours():
        return crashed(gibibyte, config)

    assert ours()[1][0] == os.stat(segment).st_size
    measure(
        benchmark, "recover_one_segment", "<= 1.5", ours, lambda: floors.crc_of_file(segment),
        share=False,
    )  # fmt: skip


@pytest.fixture
def in_many(folder, gibibyte):
    """The records of `gibibyte` in about 1,000 segments."""
    path = folder / "split-0"
    size = (gibibyte / "00000000000000000000.log").stat().st_size
    config = replog.LogConfig(segment_bytes=size // SEGMENTS)
    with PartitionLog.open(path, config) as log:
        fill(log, 0, size)
    yield path, config
    shutil.rmtree(path)


def test_recover_many_segments(benchmark, gibibyte, in_many):
    path, config = in_many

    def ours():
        return crashed(path, config)

    def theirs():
        return crashed(gibibyte, replog.LogConfig(segment_bytes=2**31 - 1))

    measure(benchmark, "recover_many_segments", "<= 2", ours, theirs, share=False)


def test_import_and_append(benchmark, fresh):
    appending = (
        "import sys, replog\n"
        "with replog.Log.open(sys.argv[1]) as log:\n"
        "    log.append([b'hello'])\n"
    )

    def run(program, *arguments):
        command = [sys.executable, "-c", program, *arguments]
        return timed(lambda: subprocess.run(command, check=True, env=environment).returncode)

    # An installed package has its bytecode beside it, as numpy and pyarrow do: made by a first run.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    run(appending, str(fresh()))
    measure(
        benchmark, "import_and_append", "<= 1.3", lambda: run(appending, str(fresh())),
        lambda: run("import numpy, pyarrow"), share=False, pairs=15,
    )  # fmt: skip
