"""What a log costs beside its files: anonymous memory and descriptors."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import replog
from replog._native import mapped_file

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024

# In a process of its own: what earlier tests left in the allocator must not hide growth.
READ_THROUGH = """
import sys
import replog

def anonymous_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

with replog.Log.open(sys.argv[1], replog.LogConfig(segment_bytes=64 << 20)) as log:
    log.to_arrow(0, 1000)
    before = highest = anonymous_bytes()
    records = 0
    for offset in range(0, log.log_end_offset, 100_000):
        records += log.to_arrow(offset, offset + 100_000).num_rows
        highest = max(highest, anonymous_bytes())
    for offset in range(0, log.log_end_offset, 100_000):
        records += sum(1 for _ in log.records(offset, offset + 500))
    highest = max(highest, anonymous_bytes())
    assert records > log.log_end_offset, records
    print(highest - before)
"""


def test_reading_a_log_through_keeps_to_64_mib_beyond_the_mapped_pages(tmp_path: Path) -> None:
    path = tmp_path / "large-0"
    with replog.Log.open(path, replog.LogConfig(segment_bytes=64 * MIB)) as log:
        values = [b"%099d" % number for number in range(10_000)]
        while log.size_bytes < 300 * MIB:
            log.append(values)
    growth = subprocess.run(
        [sys.executable, "-c", READ_THROUGH, str(path)], capture_output=True, text=True, check=False
    )
    assert growth.returncode == 0, growth.stderr
    assert int(growth.stdout) < 64 * MIB


def test_many_partitions_share_a_bounded_number_of_descriptors(tmp_path: Path) -> None:
    before = mapped_file.limit_descriptors(64)
    try:
        with contextlib.ExitStack() as stack:
            logs = [
                stack.enter_context(replog.Log.open(tmp_path / f"many-{number}"))
                for number in range(100)
            ]
            for turn in range(2):
                for number, log in enumerate(logs):
                    log.append([b"%d" % number])
                    assert mapped_file.open_descriptor_count() <= 64
                    assert log.log_end_offset == turn + 1
            assert [next(iter(log)).value for log in logs] == [
                b"%d" % number for number in range(100)
            ]
    finally:
        mapped_file.limit_descriptors(before)
