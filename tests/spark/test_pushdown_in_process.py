"""Filters as a narrower plan: what each leaves, and when a reader takes any."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from spark_integration.pushdown import PUSHDOWN_WORKER, FilteredReader
from tests.spark.in_process import offsets, reader_of, rows, time_of, written

COLUMNS = ("topic", "partition", "offset", "timestamp")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs")
    for name in ("orders-0", "orders-1", "clicks-0"):
        written(directory / name)
    return directory


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in the process that Spark starts to push filters down."""
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, ModuleType(PUSHDOWN_WORKER))
    return


def filtered(logs: Path, *filters: Filter) -> FilteredReader:
    reader = reader_of(logs, *COLUMNS, pushdown="true")
    assert isinstance(reader, FilteredReader)
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return reader


def test_a_reader_takes_filters_only_where_option_and_setting_say_so(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not isinstance(reader_of(logs, pushdown="true"), FilteredReader)
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, ModuleType(PUSHDOWN_WORKER))
    assert isinstance(reader_of(logs, pushdown="true"), FilteredReader)
    assert not isinstance(reader_of(logs), FilteredReader)


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ([EqualTo(("topic",), "clicks")], {"clicks-0": (0, 399)}),
        ([In(("partition",), [1, 2])], {"orders-1": (0, 399)}),
        ([EqualNullSafe(("topic",), "orders"), EqualTo(("partition",), 0)], {"orders-0": (0, 399)}),
        ([EqualTo(("topic",), "clicks"), EqualTo(("topic",), "orders")], {}),
        (
            [EqualTo(("topic",), "clicks"), GreaterThanOrEqual(("offset",), 390)],
            {"clicks-0": (390, 399)},
        ),
        (
            [
                EqualTo(("topic",), "clicks"),
                LessThanOrEqual(("offset",), 10),
                LessThan(("offset",), 5),
            ],
            {"clicks-0": (0, 4)},
        ),
        ([EqualTo(("topic",), "clicks"), EqualTo(("offset",), 77)], {"clicks-0": (77, 77)}),
        ([EqualTo(("topic",), "clicks"), In(("offset",), [5, 9])], {"clicks-0": (5, 9)}),
        ([EqualTo(("topic",), "absent")], {}),
    ],
    ids=str,
)
def test_comparisons_narrow_what_is_planned(
    worker: None, logs: Path, filters: list[Filter], read: dict[str, tuple[int, int]]
) -> None:
    found = offsets(filtered(logs, *filters))
    assert {name: (min(them), max(them)) for name, them in found.items()} == read


@pytest.mark.parametrize(
    "one",
    [
        IsNotNull(("offset",)),
        Not(EqualTo(("topic",), "clicks")),
        StringStartsWith(("topic",), "cl"),
        EqualTo(("key",), b"k"),
        EqualTo(("topic",), None),
        EqualTo(("headers", "key"), "x"),
    ],
    ids=str,
)
def test_other_filters_are_left_to_spark(worker: None, logs: Path, one: Filter) -> None:
    assert offsets(filtered(logs, one)) == offsets(reader_of(logs, *COLUMNS))


@pytest.mark.parametrize("at", [0, 3, 211, 399])
@pytest.mark.parametrize("kind", [GreaterThan, GreaterThanOrEqual, EqualTo])
def test_a_lower_bound_of_time_loses_no_row(
    worker: None, logs: Path, kind: type[Any], at: int
) -> None:
    """Timestamps fall along the log: every row that passes the filter must still be there."""
    moment = dt.datetime.fromtimestamp(time_of(at) / 1000, dt.UTC)
    everything = rows(reader_of(logs, *COLUMNS))
    compare = {
        GreaterThan: lambda found: found > moment,
        GreaterThanOrEqual: lambda found: found >= moment,
        EqualTo: lambda found: found == moment,
    }[kind]
    wanted = [row for row in everything if compare(row["timestamp"])]
    narrowed = rows(filtered(logs, kind(("timestamp",), moment)))
    assert [row for row in narrowed if compare(row["timestamp"])] == wanted
    assert len(narrowed) < len(everything) or at in {0, 3}
