"""The rows that the Spark benchmarks read: as segments, and as Parquet that Spark wrote from them.

Key of 16 bytes (a million different ones), value of 100 bytes (60 of text, 40 random), offset and
timestamp: 144 bytes a row in Arrow. Two partitions, batches of 16 KiB, not compressed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import replog
from replog._native import record_encoder

KEYS = 1_000_000
TEXT_BYTES = 60
RANDOM_BYTES = 40
PIECE_ROWS = 131_072
FIRST_MS = 1_700_000_000_000
BATCH_BYTES = 16_384


def write_segments(path: Path, rows: int, partitions: int = 2) -> None:
    """A log directory with `rows` records of the topic `bench`, all committed."""
    draw = np.random.default_rng(3)
    letters = np.frombuffer(b'abcdefghij ",:{}', np.uint8)
    text = draw.choice(letters, 1 << 20)
    with replog.LogDirectory.open(path) as directory:
        for partition in range(partitions):
            log = directory.create_log("bench", partition)
            count = rows // partitions
            for first in range(0, count, PIECE_ROWS):
                numbers = np.arange(first, min(first + PIECE_ROWS, count), dtype=np.int64)
                values = np.empty((len(numbers), TEXT_BYTES + RANDOM_BYTES), np.uint8)
                at = draw.integers(0, len(text) - TEXT_BYTES, len(numbers))
                values[:, :TEXT_BYTES] = text[at[:, None] + np.arange(TEXT_BYTES)]
                values[:, TEXT_BYTES:] = draw.integers(
                    0, 256, (len(numbers), RANDOM_BYTES), dtype=np.uint8
                )
                keys = np.char.mod("%016d", draw.integers(0, KEYS, len(numbers))).astype("S16")
                log.append_as_follower(
                    record_encoder.encode(
                        values,
                        keys,
                        FIRST_MS + numbers // 10,
                        now_ms=0,
                        base_offset=first,
                        leader_epoch=0,
                        batch_bytes_max=BATCH_BYTES,
                    )
                )
            log.high_watermark = log.log_end_offset
