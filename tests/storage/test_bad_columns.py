"""Columns and options of an append that cannot be taken: typed, by name, nothing appended."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import replog
from replog._native import record_encoder
from replog.errors import ReplogError, UsageError
from replog.storage.partition_log import PartitionLog
from tests.parameter_names import named

NOW_MS = 1_700_000_000_000


class Failing:
    """An object whose every conversion fails in its own way."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        raise KeyError("no array here")

    def __index__(self) -> int:
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise OSError("no repr either")


BAD: dict[str, tuple[Any, ...]] = {
    "values": (
        [], (), pa.array([], pa.binary()), np.array([], "S4"), pa.chunked_array([], pa.binary()),
        None, 5, "text", b"bytes", {}, {b"a": b"b"}, object(), Failing(), iter([b"a"]), ["text"],
        [1], [[b"a"]], [bytearray(b"a")], np.array([1.5]), np.array(b"one"), np.array(["u"]),
        np.zeros((2, 2, 2), np.uint8), pa.array([1, 2]), pa.array([[b"a"]]), pa.Array,
        np.ma.array([[1, 2]], mask=[[True, False]], dtype=np.uint8),
    ),
    "keys": (5, "text", [], [b"a"], [b"a", b"b", b"c"], [1, 2], pa.array([b"a"]), Failing()),
    "timestamps": (
        True, 1.5, "now", b"1", 2**63, -(2**63) - 1, 2**80, -2, [1], [1, 2, 3], [1.0, 2.0],
        ["1", "2"], [None, 1], [True, False], [2**70, 1], [[1], [2, 3]], [[1, 2]], -5, {},
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC), np.datetime64("NaT"),
        np.array(["NaT", "2024-01-01"], "datetime64[ms]"), np.array([1, 2], "datetime64[ns]"),
        np.array([2**62, 1], "datetime64[s]"), np.array([1, 2], "timedelta64[ms]"),
        np.array([1, 2], np.uint64), np.ma.array([1, 2], mask=[True, False]), pa.array([1, None]),
        pa.array([1, 2], pa.date64()), pa.array([1, 2], pa.timestamp("us")), Failing(),
        [Failing(), Failing()],
    ),
    "headers": (
        5, "text", [1, 2], [[], 1], [["x"], []], [[("k", b"v", b"w")], []], [[(b"k", b"v")], []],
        [[("k", "v")], []], [[("\ud800", b"v")], []], [[]], [[], [], []], np.array([[], []]),
        [np.array([("k", b"v")]), []], pa.array([1, 2]), pa.array([[1], [2]]), {}, Failing(),
        [{"k": 1}, {}], [{1: b"v"}, {}], [[(None, b"v")], []], [iter([("k", b"v")]), []],
    ),
    "codec": ("brotli", "", b"gzip", -1, 5, 99, 2**40, 1.0, True, object(), [], Failing()),
}  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartitionLog]:
    path = tmp_path_factory.mktemp("columns") / "orders-0"
    with PartitionLog.open(path, now_ms=lambda: NOW_MS) as log:
        yield log
        assert log.append([b"next"]).base_offset == 0


@pytest.mark.parametrize(
    ("argument", "bad"),
    [(argument, bad) for argument, values in BAD.items() for bad in values],
    ids=named,
)
def test_a_column_that_cannot_be_taken_is_refused_by_name(
    kept: PartitionLog, argument: str, bad: Any
) -> None:
    arguments: dict[str, Any] = {"values": [b"a", b"b"], argument: bad}
    with pytest.raises(UsageError) as caught:
        kept.append(**arguments)
    message = str(caught.value)
    assert argument.removesuffix("s") in message
    assert message.startswith("expected")
    assert "found" in message
    assert kept.log_end_offset == 0
    assert kept.size_bytes == 0


@pytest.mark.parametrize("name", ["gzip", "GZIP", "Gzip", 1, replog.Codec.GZIP])
def test_a_codec_is_taken_by_name_and_number(tmp_path: Path, name: Any) -> None:
    with PartitionLog.open(tmp_path / "orders-0") as log:
        log.append([b"a" * 500], codec=name)
        assert bytes(log.read(0))[22] & 7 == 1
        assert [record.value for record in log] == [b"a" * 500]


def taken(tmp_path: Path, **columns: Any) -> list[replog.Record]:
    with PartitionLog.open(tmp_path / "orders-0", now_ms=lambda: NOW_MS) as log:
        log.append(**columns)
        return list(log)


def test_what_is_masked_is_null(tmp_path: Path) -> None:
    values = np.ma.array([b"a", b"b", b"c"], mask=[False, True, False])
    keys = np.ma.array(values.data.astype(object), mask=[True, False, False])
    records = taken(tmp_path, values=values, keys=keys)
    assert [record.value for record in records] == [b"a", None, b"c"]
    assert [record.key for record in records] == [None, b"b", b"c"]


@pytest.mark.parametrize(
    "stamps",
    [
        np.array([1000, 2000], "datetime64[ms]"),
        np.array([1, 2], "datetime64[s]"),
        np.array([1_000_000, 2_000_000], "datetime64[us]"),
        np.array([10**9, 2 * 10**9], "datetime64[ns]"),
        pa.array([1, 2], pa.timestamp("s")),
        pa.array([1000, 2000], pa.timestamp("ms", "Europe/Berlin")),
        pa.array([0, 10**9, 2 * 10**9], pa.timestamp("ns")).slice(1),
        pa.chunked_array([[1000], [2000]]),
        [np.datetime64(1, "s"), np.datetime64(2, "s")],
        np.ma.array([1000, 2000]),
        np.array([1000, 2000], np.int16),
        (1000, 2000),
    ],
    ids=lambda stamps: f"{type(stamps).__name__} {getattr(stamps, 'dtype', '')}",
)
def test_moments_of_whole_milliseconds_are_taken(tmp_path: Path, stamps: Any) -> None:
    records = taken(tmp_path, values=[b"a", b"b"], timestamps=stamps)
    assert [record.timestamp for record in records] == [1000, 2000]


@pytest.mark.parametrize("stamp", [1000, np.int32(1000), np.datetime64(1, "s")])
def test_one_moment_stands_for_all_records(tmp_path: Path, stamp: Any) -> None:
    records = taken(tmp_path, values=[b"a", b"b"], timestamps=stamp)
    assert [record.timestamp for record in records] == [1000, 1000]


@pytest.mark.parametrize(
    "columns",
    [
        1,
        "key",
        b"key",
        ["nope"],
        ["key", "key"],
        [1],
        [["key"]],
        object(),
        Failing(),
        [None],
        np.array([["key"]]),
    ],
    ids=named,
)
def test_columns_that_are_not_there_are_refused(kept: PartitionLog, columns: Any) -> None:
    with pytest.raises(UsageError, match="columns"):
        kept.to_arrow(columns=columns)


@pytest.mark.parametrize("isolation", ["none", 1, None, b"read_committed", [], object()], ids=named)
def test_another_isolation_is_refused(kept: PartitionLog, isolation: Any) -> None:
    with pytest.raises(UsageError, match="isolation"):
        kept.to_arrow(isolation=isolation)
    with pytest.raises(UsageError, match="isolation"):
        kept.records(isolation=isolation)


BATCH = record_encoder.encode([b"a"], now_ms=NOW_MS)
NO_BATCHES = (
    None, "text", 5, [BATCH], object(), memoryview(BATCH + BATCH)[::2], Failing(), b"",
)  # fmt: skip


@pytest.mark.parametrize("batches", [*NO_BATCHES, BATCH[:-1], b"x", bytes(100)], ids=named)
def test_a_leader_takes_whole_batches_only(kept: PartitionLog, batches: Any) -> None:
    with pytest.raises(ReplogError, match="expected"):
        kept.append_as_leader(batches, 0)
    assert kept.size_bytes == 0


@pytest.mark.parametrize("batches", [*NO_BATCHES[:-1], BATCH[:-1], b"x", BATCH[:12]], ids=named)
def test_a_follower_takes_at_least_one_whole_batch(kept: PartitionLog, batches: Any) -> None:
    with pytest.raises(UsageError, match="batch"):
        kept.append_as_follower(batches)
    assert kept.size_bytes == 0


def test_a_fetch_may_be_empty_or_end_inside_a_batch(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "orders-0") as log:
        assert log.append_as_follower(b"").last_offset == -1
        batch = record_encoder.encode([b"a"], now_ms=NOW_MS, leader_epoch=0)
        assert log.append_as_follower(batch + BATCH[:20]).last_offset == 0
        assert [record.value for record in log] == [b"a"]
