"""Plans and tasks beside a process that appends, rolls, truncates, rewrites and trims the log.

Each record says its offset and the generation that wrote it; a generation begins with a cut. What a
job reads must be the log as it was at one moment: once a record of generation g is seen, nothing
at or behind g's cut may be older than g. A plan that is read again later gives the same records.
Anything else must be an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from pyspark.sql.datasource import InputPartition

from replog.errors import LogTruncatedError, OffsetOutOfRangeError
from replog.reader import PartitionReader
from spark_integration.reader import ReplogReader
from tests.spark.in_process import read_partition, reader_of

WRITER = """
import json, sys
from replog import LogConfig
from replog.storage.partition_log import PartitionLog

path, rounds = sys.argv[1], int(sys.argv[2])
cuts = {}
with PartitionLog.open(path, LogConfig(segment_bytes=20000, index_interval_bytes=500)) as log:
    print("open", flush=True)
    generation = 0
    for turn in range(rounds):
        start = log.log_end_offset
        values = [b"%d %d" % (offset, generation) for offset in range(start, start + 17)]
        log.append(values, leader_epoch=generation)
        if turn % 40 == 39:
            generation += 1
            cuts[generation] = log.log_end_offset - 17 * (20 + turn % 7)
            log.truncate_to(cuts[generation])
        if turn % 100 == 99:
            log.truncate_prefix_to(log.log_end_offset - 800)
        if turn % 10 == 0:
            log.flush()
print(json.dumps(cuts), flush=True)
"""


def values_of(reader: ReplogReader, planned: Sequence[InputPartition]) -> list[bytes]:
    batches = [one for part in planned for one in read_partition(reader, part)]
    offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert offsets == sorted(set(offsets))
    return [value for batch in batches for value in batch["value"].to_pylist()]


@pytest.mark.slow
def test_what_a_job_reads_is_the_log_at_one_moment_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "live-0"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), "6000"], stdout=subprocess.PIPE, text=True
    )
    reads: list[list[bytes]] = []
    repeats = errors = 0
    # Old enough for a cut to have been overgrown, young enough not to have been trimmed away.
    earlier: deque[tuple[ReplogReader, Sequence[InputPartition], list[bytes]]] = deque(maxlen=4)
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        while writer.poll() is None:
            reader = reader_of(path, "offset", "value", maxPartitionBytes="30k")
            try:
                planned = reader.partitions()
                reads.append(values_of(reader, planned))
            except (LogTruncatedError, OffsetOutOfRangeError):
                continue
            if len(earlier) == earlier.maxlen:
                try:
                    assert values_of(*earlier[0][:2]) == earlier[0][2]
                    repeats += 1
                except LogTruncatedError:
                    errors += 1
            earlier.append((reader, planned, reads[-1]))
        cuts = {int(name): cut for name, cut in json.loads(writer.stdout.readline()).items()}
    assert writer.returncode == 0
    print(f"{len(reads)} reads; read again: {repeats} the same, {errors} errors")
    assert len(reads) > 3
    for values in reads:
        last: dict[int, int] = {}  # offset that a generation was seen at
        for offset, generation in (map(int, value.split()) for value in values):
            last[generation] = max(offset, last.get(generation, 0))
        newest = max(last, default=0)
        for generation, offset in last.items():
            older = [
                one for one, cut in cuts.items() if generation < one <= newest and cut <= offset
            ]
            assert not older, f"offset {offset} of generation {generation} beside {newest}"
    final = PartitionReader(path)
    assert final.end_offset > final.log_start_offset
