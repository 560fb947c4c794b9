"""Decoding batches: golden vectors, options, damage; and random batches held against the oracle."""

from __future__ import annotations

import gc
import struct
import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog._native import record_columns, record_decoder
from replog._native.crc32c import checksum
from replog._native.record_decoder import count_records, decode_arrow, iter_records
from replog.errors import (
    CorruptBatchError,
    DecompressionError,
    StorageError,
    UnknownCodecError,
    UsageError,
)
from replog.types import Record
from tests.oracle import kafka_files

# In the format of KIP-98, checked with an independent decoder.
PRODUCED = bytes.fromhex(
    "00000000000000000000004dffffffff020b51b6ec0000000000010000018bcfe568000000018bcfe56805"
    "ffffffffffffffffffffffffffff000000021a000000046b310a68656c6c6f001a000a0201010402680278026e01"
)
LED = bytes.fromhex("000000000000002a0000004d00000007") + PRODUCED[16:]
MARKER_RECORD = bytes.fromhex("200000000800000001" + "0c" + "00000000000300")


def varint(number: int) -> bytes:
    folded = (number << 1) ^ (number >> 63)
    out = bytearray()
    while folded >= 0x80:
        out.append((folded & 0x7F) | 0x80)
        folded >>= 7
    return bytes([*out, folded])


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record_bytes(timestamp_delta, offset_delta, key, value, headers) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
    body += varint(len(headers)) + b"".join(sized(k) + sized(v) for k, v in headers)
    return varint(len(body)) + body


def batch_bytes(
    payload: bytes, count: int, last_delta: int | None = None, *, base=0, epoch=3, attributes=0,
    timestamps=(1000, 2000), producer_id=-1,
) -> bytes:  # fmt: skip
    last_delta = max(count - 1, 0) if last_delta is None else last_delta
    covered = struct.pack(
        ">hiqqqhii", attributes, last_delta, *timestamps, producer_id, -1, -1, count
    )
    covered += payload
    crc = checksum(covered)
    return struct.pack(">qiibI", base, len(covered) + 9, epoch, 2, crc) + covered


def simple_batch(values, **fields) -> bytes:
    payload = b"".join(record_bytes(n, n, None, value, ()) for n, value in enumerate(values))
    return batch_bytes(payload, len(values), **fields)


def marker(base: int, producer_id: int, *, commit: bool, epoch: int = 3) -> bytes:
    key = struct.pack(">hh", 0, int(commit))
    payload = record_bytes(0, 0, key, bytes(6), ())
    return batch_bytes(payload, 1, base=base, epoch=epoch, attributes=0x30, producer_id=producer_id)


def rows(batch: pa.RecordBatch) -> list[Record]:
    batch.validate(full=True)
    columns = batch.set_column(3, "timestamp", batch.column(3).cast(pa.int64())).to_pydict()
    headers = [tuple((h["key"], h["value"]) for h in of_one) for of_one in columns["headers"]]
    return [
        Record(*fields)
        for fields in zip(
            columns["offset"], columns["timestamp"], columns["timestamp_type"],
            columns["leader_epoch"], columns["key"], columns["value"], headers, strict=True,
        )
    ]  # fmt: skip


def test_golden_batch_decodes_to_its_two_records():
    headers = (("h", b"x"), ("n", None))
    expected = [
        Record(42, 1700000000000, 0, 7, b"k1", b"hello", ()),
        Record(43, 1700000000005, 0, 7, None, None, headers),
    ]
    assert rows(decode_arrow(LED)) == expected
    assert rows(decode_arrow(LED, zero_copy=True)) == expected
    assert list(iter_records(LED, record_type=Record)) == expected
    assert type(next(iter_records(LED, record_type=Record))) is Record
    assert count_records(LED) == 2


def test_log_append_time_stands_for_every_record():
    stamped = bytearray(LED)
    stamped[17:23] = bytes.fromhex("faea5c530008")
    stamped[35:43] = (1700000009999).to_bytes(8, "big")
    assert [(row.timestamp, row.timestamp_type) for row in rows(decode_arrow(stamped))] == [
        (1700000009999, 1)
    ] * 2
    mixed = simple_batch([b"a"], base=0, epoch=7) + bytes(stamped)
    assert [row.timestamp_type for row in rows(decode_arrow(mixed))] == [0, 1, 1]


def test_control_records_show_only_on_request():
    log = simple_batch([b"a", b"b"]) + marker(2, 9, commit=True) + simple_batch([b"c"], base=3)
    assert [row.value for row in rows(decode_arrow(log))] == [b"a", b"b", b"c"]
    shown = rows(decode_arrow(log, include_control=True))
    assert [row.key for row in shown] == [None, None, b"\0\0\0\1", None]
    assert (count_records(log), count_records(log, include_control=True)) == (3, 4)


def test_aborted_transactions_are_left_out_up_to_their_marker():
    def batch(base, pid, flags=0x10):
        return simple_batch([b"%d" % base], base=base, attributes=flags, producer_id=pid)

    log = b"".join([
        batch(0, 9), batch(1, 8), batch(2, 9), marker(3, 9, commit=False), batch(4, 9),
        marker(5, 8, commit=True), batch(6, 9, flags=0), marker(7, 9, commit=True), batch(8, 8),
    ])  # fmt: skip
    for aborted in ([(9, 0)], [(9, 0, 3)], ((9, 0, 3), (7, 0, 100))):
        seen = rows(decode_arrow(log, aborted=aborted))
        assert [row.offset for row in seen] == [1, 4, 6, 8]
        assert [row[0] for row in iter_records(log, aborted=aborted)] == [1, 4, 6, 8]
        assert count_records(log, aborted=aborted) == 4
    # A slice behind the marker: only a range with its end tells that the abort is over.
    assert count_records(log, start_offset=4, aborted=[(9, 0, 3)]) == 3
    assert [r.offset for r in rows(decode_arrow(log, start_offset=4, aborted=[(9, 0)]))] == [
        4,
        6,
        8,
    ]
    tail = log[log.index(batch(4, 9)) :]
    assert [r.offset for r in rows(decode_arrow(tail, aborted=[(9, 0, 3)]))] == [4, 6, 8]


def test_offsets_bound_the_rows_and_a_partial_tail_is_ignored():
    log = simple_batch([b"%d" % n for n in range(10)]) + simple_batch([b"x"] * 10, base=10)
    for start, end in [(0, 20), (3, 7), (7, 12), (10, 11), (20, 30), (5, 5)]:
        expected = list(range(start, min(end, 20)))
        options = {"start_offset": start, "end_offset": end}
        for cut in (len(log), len(log) - 1):
            part = log[:cut]
            kept = [offset for offset in expected if cut == len(log) or offset < 10]
            assert decode_arrow(part, **options)["offset"].to_pylist() == kept
            assert [row[0] for row in iter_records(part, **options)] == kept
            assert count_records(part, **options) == len(kept)
    assert decode_arrow(b"").num_rows == 0
    assert decode_arrow(log[:40]).num_rows == 0


def test_batches_outside_the_asked_offsets_are_not_read():
    log = bytearray(simple_batch([b"a"]) + simple_batch([b"b"], base=1))
    log[66] ^= 1
    assert decode_arrow(log, start_offset=1)["value"].to_pylist() == [b"b"]
    with pytest.raises(CorruptBatchError):
        decode_arrow(log)


def test_columns_are_those_asked_for_in_their_order():
    batch = decode_arrow(LED, columns=["offset", "headers", "key"])
    assert batch.schema.names == ["offset", "headers", "key"]
    assert batch.schema == record_decoder.schema(["offset", "headers", "key"])
    assert batch["key"].to_pylist() == [b"k1", None]
    assert decode_arrow(LED, columns=()).num_columns == 0
    for wrong in (["offsets"], ["key", "key"]):
        with pytest.raises(UsageError, match="different names out of key, value"):
            decode_arrow(LED, columns=wrong)


def test_nulls_are_told_apart_from_empty_bytes_in_every_order():
    patterns = [[None], [b""], [None, b"", None], [b"a", None, b"b"], [None] * 9 + [b"z"] * 9]
    patterns.append([b"q"] * 17 + [None] * 3 + [b"r"])
    for one in patterns:
        for other in patterns:
            log = simple_batch(one) + simple_batch(other, base=len(one))
            for zero_copy in (False, True):
                batch = decode_arrow(log, zero_copy=zero_copy)
                batch.validate(full=True)
                assert batch["value"].to_pylist() == one + other
                assert batch["value"].null_count == (one + other).count(None)


def test_view_keeps_the_buffer_alive_and_points_into_it():
    source = bytearray(simple_batch([b"s" * 12, b"t" * 13, b"u" * 1000]))
    column = decode_arrow(source, zero_copy=True)["value"]
    address = column.buffers()[2].address
    assert address <= pa.py_buffer(source).address + len(source)
    with pytest.raises(BufferError):
        source.append(0)
    assert column.to_pylist() == [b"s" * 12, b"t" * 13, b"u" * 1000]
    del column
    gc.collect()
    source.append(0)


def test_header_key_that_is_not_utf8_reads_as_kafkas_clients_read_it():
    headers = [(b"\xffname", b"v"), ("ключ".encode(), None), (b"\xed\xa0\x80", b"")]
    log = batch_bytes(record_bytes(0, 0, None, None, headers), 1)
    expected = [
        Record(
            0,
            1000,
            0,
            3,
            None,
            None,
            kafka_files.records(next(kafka_files.batches(log)))[0].headers,
        )
    ]
    assert rows(decode_arrow(log)) == expected == list(iter_records(log, record_type=Record))


@pytest.mark.parametrize(
    ("payload", "count", "last_delta"),
    [
        (record_bytes(0, 0, None, b"v", ()), 2, 1),
        (record_bytes(0, 0, None, b"v", ()), 0, 0),
        (record_bytes(0, 0, None, b"v", ()) * 2, 2, 1),
        (record_bytes(0, 1, None, b"v", ()), 1, 0),
        (record_bytes(0, -1, None, b"v", ()), 1, 0),
        (record_bytes(0, 0, None, b"v", ()) + b"\0", 1, 0),
        (record_bytes(0, 0, None, b"v", ()), 2**31 - 1, 2**31 - 1),
        (b"\x02\0", 1, 0),
        (varint(20) + b"\0\0\0\x01\x01\0", 1, 0),
        (varint(6) + b"\0\0\0" + varint(2**31 - 1)[:3], 1, 0),
        (varint(8) + b"\0\0\0\x01\x01" + varint(-1) + b"\0\0", 1, 0),
        (varint(8) + b"\0\0\0\x01\x01" + varint(1) + varint(-1) + b"\x01", 1, 0),
        (b"\x80" * 6 + b"\0", 1, 0),
        (b"", 1, 0),
    ],
)
def test_records_that_do_not_add_up_are_corrupt_though_the_checksum_holds(
    payload, count, last_delta
):
    log = simple_batch([b"good"]) + batch_bytes(payload, count, last_delta, base=1)
    for read in (decode_arrow, lambda *a, **k: list(iter_records(*a, **k))):
        with pytest.raises(CorruptBatchError, match=r"at byte 1072 of some\.log") as caught:
            read(log, path="some.log", position=1000)
        assert (caught.value.path, caught.value.position) == ("some.log", 1072)
        assert caught.value.offset == 1


def test_batches_must_continue_one_another():
    first = simple_batch([b"a", b"b"], base=10, epoch=4)
    for second, words in [
        (simple_batch([b"c"], base=11, epoch=4), "do not continue"),
        (simple_batch([b"c"], base=12, epoch=3), "leader epoch is lower"),
    ]:
        with pytest.raises(CorruptBatchError, match=words):
            decode_arrow(first + second)
    with pytest.raises(CorruptBatchError, match="magic"):
        decode_arrow(first[:16] + b"\x42" + first[17:])
    assert decode_arrow(first + simple_batch([b"c"], base=99, epoch=9)).num_rows == 3


def test_every_single_byte_flip_is_detected_or_outside_the_checksum():
    log = simple_batch([b"one", None]) + LED
    clean = rows(decode_arrow(log))
    for place in range(len(log)):
        for bit in range(8):
            flipped = bytearray(log)
            flipped[place] ^= 1 << bit
            try:
                found = rows(decode_arrow(flipped))
            except CorruptBatchError:
                continue
            contents = [(row.key, row.value, row.headers) for row in found]
            of_clean = [(row.key, row.value, row.headers) for row in clean]
            assert contents in (of_clean, of_clean[:2], [])
            assert place % len(LED) < 17 or place >= 73


def test_compressed_batches_decode_and_bombs_do_not():
    from replog._native.compression import compress

    plain = b"".join(record_bytes(n, n, b"k", b"v" * 500, ((b"h", b"1"),)) for n in range(300))
    expected = rows(decode_arrow(batch_bytes(plain, 300)))
    for codec in (1, 2, 3, 4):
        packed = batch_bytes(bytes(compress(codec, plain)), 300, attributes=codec)
        log = packed + simple_batch([b"x" * 40], base=300) + marker(301, 5, commit=True)
        for zero_copy in (False, True):
            found = rows(decode_arrow(log, zero_copy=zero_copy))
            assert found[:300] == expected
            assert found[300].value == b"x" * 40
        assert list(iter_records(log, record_type=Record)) == found
        with pytest.raises(DecompressionError) as caught:
            decode_arrow(log, output_bytes_max=1000, path="p")
        assert (caught.value.path, caught.value.position, caught.value.offset) == ("p", 0, 0)
    with pytest.raises(UnknownCodecError):
        decode_arrow(batch_bytes(plain, 300, attributes=5))


def test_column_memory_is_recycled_and_bounded():
    log = b"".join(simple_batch([b"v" * 1000] * 100, base=n * 100) for n in range(30))
    kept = [decode_arrow(log) for _ in range(40)]
    assert len({batch["value"].buffers()[2].address for batch in kept}) == 40
    assert all(batch["value"][0].as_py() == b"v" * 1000 for batch in kept)
    del kept
    gc.collect()
    assert 0 < record_columns.kept_bytes() <= 64 << 20
    record_columns.drop_kept()
    assert record_columns.kept_bytes() == 0


def test_threads_decode_and_drop_batches_side_by_side():
    log = b"".join(simple_batch([b"%d" % n] * 50, base=n * 50) for n in range(20))
    expected = decode_arrow(log)
    failures = []

    def work():
        failures.append(sum(not decode_arrow(log).equals(expected) for _ in range(200)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [0] * 4


maybe_bytes = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=600)
header_lists = st.lists(st.tuples(st.text(max_size=5).map(str.encode), maybe_bytes), max_size=3)
record_fields = st.tuples(
    st.integers(-(2**40), 2**40), st.integers(1, 200), maybe_bytes, maybe_bytes,
    st.just([]) | header_lists,
)  # fmt: skip


@st.composite
def logs(draw) -> bytes:
    log, base, epoch = b"", draw(st.integers(0, 2**40)), draw(st.integers(-1, 5))
    for _ in range(draw(st.integers(0, 4))):
        payload, delta, count = b"", -1, 0
        for fields in draw(st.lists(record_fields, max_size=20)):
            delta, count = delta + fields[1], count + 1
            payload += record_bytes(fields[0], delta, *fields[2:])
        last = max(delta, 0) + draw(st.integers(0, 3))
        log += batch_bytes(
            payload, count, last, base=base, epoch=epoch,
            attributes=draw(st.sampled_from([0, 8, 16, 24, 64])),
            timestamps=(draw(st.integers(-1, 2**41)), draw(st.integers(-1, 2**41))),
        )  # fmt: skip
        base, epoch = base + last + draw(st.integers(1, 9)), epoch + draw(st.integers(0, 1))
    return log


@given(logs(), st.booleans())
@settings(deadline=None, max_examples=200)
def test_random_batches_decode_as_the_oracle_decodes_them(log, zero_copy):
    found = [record for batch in kafka_files.batches(log) for record in kafka_files.records(batch)]
    expected = [Record(*record) for record in found]
    assert rows(decode_arrow(log, zero_copy=zero_copy)) == expected
    assert list(iter_records(log, record_type=Record)) == expected
    assert count_records(log) == len(expected)
    if expected:
        middle = expected[len(expected) // 2].offset
        assert rows(decode_arrow(log, start_offset=middle)) == [
            row for row in expected if row.offset >= middle
        ]
        assert count_records(log, end_offset=middle) == sum(r.offset < middle for r in expected)


@given(logs(), st.data())
@settings(deadline=None, max_examples=200)
def test_damaged_records_give_the_oracles_rows_or_a_typed_error(log, random):
    """Bytes behind the header are changed and not checksummed, so only the parser stands guard."""
    if len(log) <= 61:
        return
    damaged = bytearray(log)
    for _ in range(random.draw(st.integers(1, 4))):
        damaged[random.draw(st.integers(57, len(log) - 1))] = random.draw(st.integers(0, 255))
    try:
        judged = [
            Record(*record)
            for batch in kafka_files.batches(bytes(damaged), check_crc=False)
            for record in kafka_files.records(batch)
            if not batch.attributes & 32
        ]
    except Exception:  # whatever the oracle's libraries raise
        judged = None
    try:
        found = list(iter_records(damaged, check_crc=False, record_type=Record))
    except StorageError:
        found = None
    try:
        columns = decode_arrow(damaged, check_crc=False)
    except StorageError:
        columns = None
    assert (found is None) == (columns is None)
    if found is not None:
        columns.validate(full=True)
        assert columns["value"].to_pylist() == [row.value for row in found]
        # The chain between batches is the decoder's own rule; without it, rows are the oracle's.
        assert judged is None or found == judged
