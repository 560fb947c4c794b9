"""Cutting the tail of a large segment: a constant cost, whatever the log holds below."""

from __future__ import annotations

import replog
from bench.conftest import fill
from bench.pairs import measure, sized, timed
from replog.storage.partition_log import PartitionLog


def test_truncate(benchmark, floors, folder, gibibyte):
    scratch = folder / "like"
    small = folder / "small"
    with PartitionLog.open(gibibyte, replog.LogConfig(segment_bytes=2**31 - 1)) as log:
        end_offset = log.log_end_offset
        batches = end_offset // 1000
        kept = batches * 95 // 100
        cut_bytes = log.size_bytes - log.read(kept * 1000).position
        chunk = b"\x5a" * sized(1 << 20, 4096)
        count = log.size_bytes // len(chunk)
        floors.pwrite_growing(str(scratch), chunk, count)

        def ours():
            seconds, _ = timed(lambda: log.truncate_to(kept * 1000))
            left = log.log_end_offset
            fill(log, kept, cut_bytes)
            assert log.log_end_offset == end_offset
            return seconds, left

        def theirs():
            with open(scratch, "r+b") as file:
                file.seek((count - cut_bytes // len(chunk)) * len(chunk))
                file.writelines([chunk] * (cut_bytes // len(chunk)))
            length = (count - cut_bytes // len(chunk)) * len(chunk)
            content = b"0\n1\n0 0\n"
            return (
                floors.cut_and_replace(str(scratch), length, str(small), str(folder), content),
                None,
            )

        measure(benchmark, "truncate", "<= 2", ours, theirs, share=False)
    scratch.unlink()
