"""The records and batches that benchmarks work on: JSON-like text, no keys, the same every time."""

from __future__ import annotations

import functools
import random
import struct
import time
from collections.abc import Sequence

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from replog._native.crc32c import checksum

BASE_OFFSET = struct.Struct(">q")
LEADER_EPOCH = struct.Struct(">i")


@functools.cache
def values(count: int, size: int) -> tuple[bytes, ...]:
    """`count` different values of `size` bytes."""
    draw = random.Random(7)
    made = []
    for number in range(count):
        words = "".join(draw.choices('abcdefghij ",:{}', k=size))
        made.append(f'{{"n":{number},{words}'.encode()[:size])
    return tuple(made)


@functools.cache
def arrow_values(count: int, size: int) -> pa.Array:
    return pa.array(values(count, size), pa.binary())


@functools.cache
def timestamps(count: int) -> pa.Array:
    now_ms = time.time_ns() // 1_000_000
    return pa.array([now_ms + number // 100 for number in range(count)], pa.int64())


def aiokafka_batch(listed: Sequence[bytes], stamps: Sequence[int]) -> bytes:
    """A batch as aiokafka's Cython builder makes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for number, value in enumerate(listed):
        builder.append(number, stamps[number], None, value, [])
    return bytes(builder.build())


@functools.cache
def ready_batch(count: int, size: int) -> bytes:
    """A produced batch, as a client sends it."""
    return aiokafka_batch(values(count, size), timestamps(count).to_pylist())


def produced(count: int, size: int, producer_id: int, base_sequence: int) -> bytearray:
    """The same batch from an idempotent producer."""
    batch = bytearray(ready_batch(count, size))
    struct.pack_into(">qhi", batch, 43, producer_id, 0, base_sequence)
    struct.pack_into(">I", batch, 17, checksum(memoryview(batch)[21:]))
    return batch


def at_offset(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Place a batch in a leader's log, in its bytes; neither field is under the checksum."""
    BASE_OFFSET.pack_into(batch, 0, base_offset)
    LEADER_EPOCH.pack_into(batch, 12, leader_epoch)
