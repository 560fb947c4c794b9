"""Bytes to records and back: checksum, encoder and decoder against what Python has today."""

from __future__ import annotations

import crc32c as crc32c_wheel
from aiokafka.record.default_records import DefaultRecordBatch

from bench import workload
from bench.pairs import measure, sized, timed
from replog._native import crc32c, record_encoder
from replog._native.record_decoder import decode_arrow
from replog.storage.partition_log import PartitionLog

RECORDS = 1000
CALLS = sized(200, 2)
OURS = sized(5, 1)  # times as many calls on our side, so that both sides take alike long


def repeat(call, calls=CALLS):
    """Call it so many times; the last answer."""
    for _ in range(calls):
        answer = call()
    return answer


def test_crc32c(benchmark):
    content = b"".join(workload.values(1024, 100))
    calls = sized(5000, 5)

    def ours():
        return timed(lambda: [crc32c.checksum(content) for _ in range(calls)][-1])

    def theirs():
        return timed(lambda: [crc32c_wheel.crc32c(content) for _ in range(calls)][-1])

    assert ours()[1] == theirs()[1]
    fast = crc32c.implementation() == "vpclmulqdq"
    measure(benchmark, "crc32c", ">= 2" if fast else ">= 0.9", ours, theirs, share=True)


def test_encode_arrow_vs_aiokafka(benchmark):
    values = workload.values(RECORDS, 100)
    column, stamps = workload.arrow_values(RECORDS, 100), workload.timestamps(RECORDS)
    listed = stamps.to_pylist()
    build = workload.aiokafka_batch

    def encode():
        return record_encoder.encode(column, timestamps=stamps, now_ms=0)

    # Batches are dropped as they are made, on both sides: a sender keeps few.
    def ours():
        seconds, last = timed(lambda: repeat(encode, OURS * CALLS))
        return seconds, crc32c.checksum(last)

    def theirs():
        return timed(lambda: repeat(lambda: build(values, listed)))

    made = list(DefaultRecordBatch(bytes(encode())))
    assert [record.value for record in made] == list(values)
    measure(benchmark, "encode_arrow_vs_aiokafka", ">= 8", ours, theirs, share=True, scale=OURS)


def test_decode_arrow_vs_aiokafka(benchmark):
    batch = workload.ready_batch(RECORDS, 100)

    def decode_theirs():
        found = DefaultRecordBatch(batch)
        assert found.validate_crc()
        for record in found:
            last = record
        return last.value

    def ours():
        seconds, columns = timed(lambda: repeat(lambda: decode_arrow(batch), OURS * CALLS))
        return seconds, columns["value"][RECORDS - 1].as_py()

    def theirs():
        return timed(lambda: repeat(decode_theirs))

    assert ours()[1] == theirs()[1]
    measure(
        benchmark, "decode_arrow_vs_aiokafka", ">= 6", ours, theirs, share=True, scale=OURS
    )  # fmt: skip


def test_decode_view_1k(benchmark, floors, fresh):

    batch = workload.ready_batch(100, 1024)
    count = sized(640, 4)
    with PartitionLog.open(fresh()) as log:
        for _ in range(count):
            log.append_as_leader(batch, 0)
        piece = log.read(0, count * len(batch))

        def ours():
            seconds, columns = timed(lambda: decode_arrow(piece, zero_copy=True))
            return seconds, (columns.num_rows, columns["value"][-1].as_py())

        def theirs():
            return floors.crc_of_buffer(piece, len(batch))

        assert ours()[1] == (100 * count, workload.values(100, 1024)[99])
        measure(benchmark, "decode_view_1k", ">= 0.5", ours, theirs, share=True)
