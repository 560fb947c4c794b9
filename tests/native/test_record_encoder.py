"""Batches from columns: equal to the obvious encoding, whatever the columns are made of."""

from __future__ import annotations

import random
import struct
import sys
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog._native import compression, record_batch, record_encoder
from replog._native.record_encoder import encode
from replog.errors import RecordBatchTooLargeError, UnknownCodecError, UsageError
from tests.native import dumb_encoder

NOW = 1_700_000_000_000
VALUES: list[bytes | None] = [
    b"hello",
    None,
    b"",
    b"x" * 63,
    b"y" * 64,
    b"z" * 9000,
    b"\0\0",
    b"tail",
]
GOLDEN_HEAD = "0000000000000000 0000004d ffffffff 02 0b51b6ec 0000 00000001 0000018bcfe56800 "
GOLDEN_TAIL = "0000018bcfe56805 ffffffffffffffff ffff ffffffff 00000002 "
GOLDEN_RECORDS = "1a000000046b310a68656c6c6f00 1a000a0201010402680278026e01"


def plain(values: list[bytes | None], **header: Any) -> bytes:
    count = len(values)
    payload = dumb_encoder.records(values, [None] * count, [NOW] * count, [()] * count)
    return dumb_encoder.batch(payload, count, NOW, NOW, **header)


def test_golden_batch_of_two_records_comes_out_byte_for_byte() -> None:
    found = encode(
        [b"hello", None],
        [b"k1", None],
        [NOW, NOW + 5],
        [(), [("h", b"x"), ("n", None)]],
        now_ms=0,
    )
    assert found == bytes.fromhex(GOLDEN_HEAD + GOLDEN_TAIL + GOLDEN_RECORDS)


def test_golden_commit_marker_comes_out_byte_for_byte() -> None:
    marker = record_encoder.encode_control(
        1,
        producer_id=9,
        producer_epoch=1,
        coordinator_epoch=3,
        timestamp=NOW,
        base_offset=100,
        leader_epoch=7,
    )
    assert len(marker) == 78
    assert struct.unpack_from(">I", marker, 17) == (0x3427FA0F,)
    assert marker[21:23] == b"\x00\x30"
    assert marker[61:] == bytes.fromhex("2000000008000000010c00000000000300")
    abort = record_encoder.encode_control(
        0, producer_id=9, producer_epoch=1, coordinator_epoch=3, timestamp=NOW
    )
    assert abort[61:] == bytes.fromhex("2000000008000000000c00000000000300")
    with pytest.raises(UsageError, match="found 2"):
        record_encoder.encode_control(
            2, producer_id=9, producer_epoch=1, coordinator_epoch=3, timestamp=NOW
        )


def arrow_forms(values: list[bytes | None]) -> dict[str, Any]:
    padded = [b"before", None, *values, b"after"]
    whole = pa.array(values, pa.binary())
    half = len(values) // 2
    return {
        "list": values,
        "tuple": tuple(values),
        "binary": whole,
        "large_binary": pa.array(values, pa.large_binary()),
        "binary_view": pa.array(values, pa.binary_view()),
        "sliced": pa.array(padded, pa.binary())[2:-1],
        "sliced-large": pa.array(padded, pa.large_binary())[2:-1],
        "sliced-view": pa.array(padded, pa.binary_view())[2:-1],
        "one-chunk": pa.chunked_array([whole]),
        "chunks": pa.chunked_array([whole[:half], whole[half:], whole[:0]]),
        "dictionary": whole.dictionary_encode(),
        "objects": np.array(values, dtype=object),
    }


@pytest.mark.parametrize("form", arrow_forms([b""]).keys())
def test_every_form_of_a_column_makes_the_same_batch(form: str) -> None:
    column = arrow_forms(VALUES)[form]
    assert encode(column, now_ms=NOW) == plain(VALUES)
    keyed = encode([b"v"] * len(VALUES), column, now_ms=NOW)
    count = len(VALUES)
    payload = dumb_encoder.records([b"v"] * count, VALUES, [NOW] * count, [()] * count)
    assert keyed == dumb_encoder.batch(payload, count, NOW, NOW)


def test_strings_are_taken_as_their_utf8_bytes() -> None:
    words = ["zwölf", None, "", "日本語" * 10]
    expected = plain(
        [word and word.encode() if word else (None, b"")[word == ""] for word in words]
    )
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert encode(pa.array(words, kind), now_ms=NOW) == expected


def test_rows_of_fixed_width_come_from_arrow_and_numpy() -> None:
    rows = [bytes([row]) * 16 for row in range(200)]
    expected = plain(list(rows))
    fixed = pa.array([b"-" * 16, *rows], pa.binary(16))[1:]
    area = np.frombuffer(b"".join(rows), np.uint8).reshape(200, 16)
    assert encode(fixed, now_ms=NOW) == expected
    assert encode(area, now_ms=NOW) == expected
    assert encode(np.asfortranarray(area), now_ms=NOW) == expected
    assert encode(np.repeat(area, 2, axis=0)[::2], now_ms=NOW) == expected
    assert encode(pa.array([None, b"ab"], pa.binary(2)), now_ms=NOW) == plain([None, b"ab"])


def test_numpy_strings_lose_the_zeros_at_their_end_as_in_numpy() -> None:
    words = np.array([b"abc", b"", b"a\0b", b"longest"])
    assert encode(words, now_ms=NOW) == plain([bytes(word) for word in words])


def test_null_arrays_are_all_null() -> None:
    assert encode(pa.nulls(3), now_ms=NOW) == plain([None] * 3)


def test_no_values_make_no_batch() -> None:
    for nothing in ([], (), pa.array([], pa.binary()), pa.chunked_array([], pa.binary())):
        assert encode(nothing, now_ms=NOW) == b""


@pytest.mark.parametrize(
    "timestamps",
    [
        [NOW + 3, NOW, NOW + 9],
        np.array([NOW + 3, NOW, NOW + 9]),
        np.array([NOW + 3, 0, NOW, 0, NOW + 9, 0])[::2],
        np.array([NOW + 3, NOW, NOW + 9]).astype("datetime64[ms]"),
        pa.array([NOW + 3, NOW, NOW + 9]),
        pa.array([7, NOW + 3, NOW, NOW + 9])[1:],
        pa.array([NOW + 3, NOW, NOW + 9], pa.timestamp("ms", "UTC")),
        pa.chunked_array([[NOW + 3], [NOW, NOW + 9]]),
    ],
)
def test_every_form_of_timestamps_makes_the_same_batch(timestamps: Any) -> None:
    stamps = [NOW + 3, NOW, NOW + 9]
    payload = dumb_encoder.records([b"a", b"b", b"c"], [None] * 3, stamps, [()] * 3)
    expected = dumb_encoder.batch(payload, 3, NOW + 3, NOW + 9)
    assert encode([b"a", b"b", b"c"], timestamps=timestamps, now_ms=0) == expected


def test_one_timestamp_serves_all_records() -> None:
    assert encode(VALUES, timestamps=NOW, now_ms=5) == plain(VALUES)
    assert struct.unpack_from(">qq", encode([b"a"], timestamps=-1, now_ms=5), 27) == (-1, -1)


def test_log_append_time_puts_the_clock_into_the_largest_timestamp() -> None:
    found = encode([b"a", b"b"], timestamps=[5, 9], now_ms=NOW, timestamp_type=1)
    assert found[22] == 8
    assert struct.unpack_from(">qq", found, 27) == (5, NOW)


def header_forms() -> list[Any]:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [
        [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
        None,
        [],
        [{"key": "", "value": b""}, {"key": "ключ", "value": b"v" * 100}],
    ]
    filler = [{"key": "filler", "value": b"filler"}]
    listed = [[("h", b"x"), ("h", None)], None, (), (("", b""), ["ключ", b"v" * 100])]
    with_entries_under_null = pa.ListArray.from_arrays(
        pa.array([0, 2, 3, 3, 5], pa.int32()),
        pa.array([*rows[0], *filler, *rows[3]], kind.value_type),
        mask=pa.array([False, True, False, False]),
    )
    mapped = [[("h", b"x"), ("h", None)], [], [], [("", b""), ("ключ", b"v" * 100)]]
    return [
        listed,
        pa.array(rows, kind),
        pa.array([filler, *rows, filler], kind)[1:-1],
        pa.array(rows, pa.large_list(kind.value_type)),
        pa.chunked_array([pa.array(rows[:1], kind), pa.array(rows[1:], kind)]),
        pa.array(mapped, pa.map_(pa.string(), pa.binary())),
        pa.array([filler and [("f", b"f")], *mapped], pa.map_(pa.string(), pa.binary()))[1:],
        with_entries_under_null,
    ]


@pytest.mark.parametrize("form", range(len(header_forms())))
def test_every_form_of_headers_makes_the_same_batch(form: int) -> None:
    headers = header_forms()
    rows = [tuple(of_record or ()) for of_record in headers[0]]
    payload = dumb_encoder.records([b"v"] * 4, [None] * 4, [NOW] * 4, rows)
    found = encode([b"v"] * 4, headers=headers[form], now_ms=NOW)
    assert found == dumb_encoder.batch(payload, 4, NOW, NOW)


def test_headers_may_be_dicts() -> None:
    assert encode([b"v"], headers=[{"a": b"1", "b": None}], now_ms=NOW) == encode(
        [b"v"], headers=[[("a", b"1"), ("b", None)]], now_ms=NOW
    )


contents = st.none() | st.binary(max_size=200)
record_rows = st.tuples(
    contents,
    contents,
    st.integers(-1, 2**62),
    st.lists(st.tuples(st.text(max_size=5), contents), max_size=3),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(record_rows, min_size=1, max_size=40))
def test_any_records_equal_the_obvious_encoding(
    rows: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
) -> None:
    values, keys, timestamps, headers = (list(column) for column in zip(*rows, strict=True))
    payload = dumb_encoder.records(values, keys, timestamps, headers)
    expected = dumb_encoder.batch(payload, len(rows), timestamps[0], max(timestamps))
    assert encode(values, keys, timestamps, headers, now_ms=0) == expected
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    structs = [[{"key": name, "value": content} for name, content in row] for row in headers]
    arrow = encode(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary_view()),
        np.array(timestamps),
        pa.array(structs, kind),
        now_ms=0,
    )
    assert arrow == expected


def test_fields_of_the_producer_go_into_the_header() -> None:
    fields = {"producer_id": 77, "producer_epoch": 3, "base_sequence": 12}
    places = {"base_offset": 1 << 40, "leader_epoch": 9}
    found = encode(VALUES, now_ms=NOW, transactional=True, **fields, **places)
    assert found == plain(VALUES, attributes=0x10, **fields, **places)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 5000])
def test_compressed_batches_hold_the_same_records(codec: int, count: int) -> None:
    values: list[bytes | None] = [b"value %d" % row for row in range(count)]
    batch = encode(pa.array(values), now_ms=NOW, codec=codec)
    payload = plain(values)[61:]
    assert bytes(compression.decompress(codec, batch[61:], len(payload))) == payload
    found = record_batch.scan(batch)
    assert (found.outcome, found.end) == (0, len(batch))
    assert found.headers["record_count"].tolist() == [count]
    assert found.headers["attributes"].tolist() == [codec]


def scanned(batches: bytes) -> Any:
    found = record_batch.scan(batches)
    assert (found.outcome, found.end) == (0, len(batches))
    return found.headers


def test_batches_are_split_at_the_limit_and_numbers_run_on() -> None:
    chance = random.Random(5)
    values = [chance.randbytes(chance.randrange(300)) for _ in range(1000)]
    batches = encode(
        values,
        now_ms=NOW,
        batch_bytes_max=4096,
        base_offset=50,
        producer_id=1,
        base_sequence=2**31 - 9,
    )
    headers = scanned(batches)
    assert headers["size_bytes"].max() <= 4096
    assert headers["size_bytes"][:-1].min() > 4096 - 330
    assert headers["record_count"].sum() == 1000
    starts = np.concatenate(([0], np.cumsum(headers["record_count"])))
    assert headers["base_offset"].tolist() == (50 + starts[:-1]).tolist()
    sequences = (2**31 - 9 + starts[:-1]) % 2**31
    assert headers["base_sequence"].tolist() == sequences.tolist()
    for place, begin, end in zip(headers["position"], starts[:-1], starts[1:], strict=True):
        expected = encode(
            values[begin:end],
            now_ms=NOW,
            base_offset=50 + int(begin),
            producer_id=1,
            base_sequence=(2**31 - 9 + int(begin)) % 2**31,
        )
        assert batches[place : place + len(expected)] == expected


def test_base_timestamp_of_each_batch_is_its_own_first() -> None:
    stamps = list(range(NOW, NOW + 100))
    headers = scanned(encode([b"x" * 50] * 100, timestamps=stamps, now_ms=0, batch_bytes_max=1000))
    starts = headers["base_offset"]
    assert headers["base_timestamp"].tolist() == [stamps[start] for start in starts]
    assert headers["max_timestamp"].tolist() == [stamps[end] for end in headers["last_offset"]]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_records_that_grow_by_compression_still_keep_the_limit(codec: int) -> None:
    noise = random.Random(6).randbytes(100_000)
    values = [noise[start : start + 10] for start in range(0, 100_000, 10)]
    headers = scanned(encode(values, now_ms=NOW, codec=codec, batch_bytes_max=2000))
    assert headers["size_bytes"].max() <= 2000
    assert headers["record_count"].sum() == 10_000


def test_a_record_that_fits_into_no_batch_is_refused() -> None:
    with pytest.raises(RecordBatchTooLargeError, match="row 1") as caught:
        encode([b"a", b"x" * 1000, b"b"], now_ms=NOW, batch_bytes_max=500)
    assert caught.value.size_bytes == 61 + 1009
    with pytest.raises(RecordBatchTooLargeError, match="row 0"):
        encode([random.Random(1).randbytes(1000)], now_ms=NOW, batch_bytes_max=500, codec=4)
    assert encode([bytes(1000)], now_ms=NOW, batch_bytes_max=500, codec=4)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"values": [b"a", "b"]}, r"values\[1\], found str"),
        ({"values": [bytearray(b"a")]}, "found bytearray"),
        ({"values": None}, "as values, found NoneType"),
        ({"values": "text"}, "as values, found str"),
        ({"values": {b"a": 1}}, "found dict"),
        ({"values": pa.array([1, 2])}, "found Int64Array of int64"),
        ({"values": np.zeros(3)}, "ndarray of float64"),
        ({"values": np.zeros((2, 2, 2), np.uint8)}, "3 dimensions"),
        ({"values": [b"a"], "keys": [b"k", b"l"]}, r"as many keys as values \(1\), found 2"),
        ({"values": [b"a"], "keys": pa.array([], pa.binary())}, "found 0"),
        ({"values": [b"a"], "timestamps": [1, 2]}, r"as many timestamps as values \(1\), found 2"),
        ({"values": [b"a"], "timestamps": [1.5]}, "float64"),
        ({"values": [b"a"], "timestamps": "now"}, "as timestamps, found str"),
        ({"values": [b"a"], "timestamps": True}, "timestamps to be an integer .* found True"),
        ({"values": [b"a"], "timestamps": 2**64}, "timestamps to be an integer from"),
        ({"values": [b"a"], "timestamps": -2}, "lower one in row 0"),
        ({"values": [b"a", b"b"], "timestamps": [5, -9]}, "lower one in row 1"),
        ({"values": [b"a"], "timestamps": pa.array([None], pa.int64())}, "without nulls"),
        ({"values": [b"a"], "timestamps": pa.array([1], pa.timestamp("us"))}, "timestamp"),
        ({"values": [b"a"], "headers": [(), ()]}, r"as many headers as values \(1\), found 2"),
        ({"values": [b"a"], "headers": [[("k",)]]}, r"headers\[0\], found tuple"),
        ({"values": [b"a"], "headers": [[(b"k", b"v")]]}, "header key"),
        ({"values": [b"a"], "headers": [[("k", "v")]]}, "header values"),
        ({"values": [b"a"], "headers": "k=v"}, "as headers, found str"),
        ({"values": [b"a"], "headers": pa.array([[1]])}, "as headers"),
    ],
)
def test_wrong_columns_are_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        encode(**wrong, now_ms=NOW)


def test_a_null_header_key_is_refused() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[], [{"key": None, "value": b"x"}]], kind)
    with pytest.raises(UsageError, match="null one in row 1"):
        encode([b"a", b"b"], headers=headers, now_ms=NOW)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7, 8])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(UnknownCodecError):
        encode([b"a"], now_ms=NOW, codec=codec)


@pytest.mark.parametrize("offsets", [[0, 5, 2], [0, 2, 99], [-4, 1, 2], [3, 1, 2]])
def test_damaged_arrow_offsets_are_refused_not_followed(offsets: list[int]) -> None:
    """Arrow checks the ends of offsets at most, and once; the encoder reads none outside, ever."""
    for width, kind in ((np.int32, pa.binary()), (np.int64, pa.large_binary())):
        places = np.array([0, 2, 4], width)
        array = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(places), pa.py_buffer(b"x" * 8)])
        places[:] = offsets
        with pytest.raises(UsageError, match="outside"):
            encode(array, now_ms=NOW)
        with pytest.raises(UsageError, match="outside"):
            encode([b"a", b"b"], array, now_ms=NOW)


@pytest.mark.parametrize(
    "view", [(20, 0, 1, 0), (20, 0, 0, 5), (20, 0, -1, 0), (20, 0, 0, -1), (-1, 0, 0, 0)]
)
def test_damaged_views_are_refused_not_followed(view: tuple[int, ...]) -> None:
    parts = [None, pa.py_buffer(struct.pack("<4i", *view)), pa.py_buffer(b"x" * 24)]
    array = pa.Array.from_buffers(pa.binary_view(), 1, parts)
    with pytest.raises(UsageError, match="outside"):
        encode(array, now_ms=NOW)


def test_threads_encode_beside_each_other() -> None:
    array = pa.array([b"v%d" % row for row in range(20_000)])
    expected = encode(array, now_ms=NOW)
    outcomes: list[bool] = []

    def work() -> None:
        outcomes.extend(encode(array, now_ms=NOW) == expected for _ in range(30))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 120


def test_encoding_leaves_the_references_of_its_input_alone() -> None:
    value = bytes(random.Random(1).randbytes(50))
    values = [value] * 10
    before = sys.getrefcount(value)
    for _ in range(100):
        encode(values, values, headers=[[("h", value)]] * 10, now_ms=NOW)
    assert sys.getrefcount(value) == before
