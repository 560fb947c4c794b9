"""Arguments that no reader can take: a UsageError that names the argument."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import replog
from replog.errors import OffsetOutOfRangeError, UsageError
from replog.reader import PartitionReader, open_partitions, partition_paths
from tests.parameter_names import named

Call = Callable[[PartitionReader, Any], Any]
INTEGERS: dict[str, Call] = {
    "start_offset": lambda reader, bad: reader.to_arrow(bad),
    "end_offset": lambda reader, bad: reader.to_arrow(0, bad),
    "start_offset of chunks": lambda reader, bad: list(reader.chunks(bad)),
    "end_offset of headers": lambda reader, bad: list(reader.headers(0, bad)),
    "batch_rows": lambda reader, bad: list(reader.record_batches(batch_rows=bad)),
    "timestamp": lambda reader, bad: reader.offset_for_timestamp(bad),
    "target_bytes": lambda reader, bad: reader.split_points(bad),
    "end_offset of splits": lambda reader, bad: reader.split_points(100, 0, bad),
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> PartitionReader:
    path = tmp_path_factory.mktemp("reader") / "orders-0"
    with replog.Log.open(path) as log:
        log.append([b"a", b"b", b"c"])
    return PartitionReader(path)


@pytest.mark.parametrize("bad", [1.0, "1", True, b"1", 2**63, 2**80, [], object()], ids=named)
@pytest.mark.parametrize("name", INTEGERS)
def test_what_is_no_integer_is_refused_by_name(
    reader: PartitionReader, name: str, bad: Any
) -> None:
    with pytest.raises(UsageError, match=f"expected {name.split(maxsplit=1)[0]} to be an integer"):
        INTEGERS[name](reader, bad)


@pytest.mark.parametrize("isolation", ["all", 1, None, [], b"read_committed"], ids=named)
def test_another_isolation_is_refused(reader: PartitionReader, isolation: Any) -> None:
    for call in (reader.bound, lambda level: reader.to_arrow(isolation=level)):
        with pytest.raises(UsageError, match="isolation"):
            call(isolation)


@pytest.mark.parametrize("columns", ["key", 1, ["nope"], [None], ["key", "key"]], ids=named)
def test_columns_that_are_not_there_are_refused(reader: PartitionReader, columns: Any) -> None:
    with pytest.raises(UsageError, match="columns"):
        reader.to_arrow(columns=columns)


@pytest.mark.parametrize("path", [None, 5, b"orders-0", "", "a\0b-0", "\ud800-0"], ids=named)
def test_what_is_no_path_is_refused(path: Any) -> None:
    for call in (PartitionReader, partition_paths, lambda where: list(open_partitions(where))):
        with pytest.raises(UsageError, match="path"):
            call(path)


def test_numpys_integers_are_offsets(reader: PartitionReader) -> None:
    assert reader.to_arrow(np.int32(1), np.uint64(2))["value"].to_pylist() == [b"b"]
    with pytest.raises(OffsetOutOfRangeError, match="-1"):
        reader.to_arrow(-1)
