"""Arguments that no reader can take: a UsageError that names the argument."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replog
from replog.errors import LogTruncatedError, OffsetOutOfRangeError, StorageError, UsageError
from replog.reader import (
    BatchStamp,
    PartitionReader,
    SplitRange,
    names,
    open_partitions,
    partition_paths,
    read_past_damage,
    read_split,
)
from replog.reader.names import SegmentName
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
    "chunk_bytes": lambda reader, bad: list(reader.chunks(chunk_bytes=bad)),
    "high_watermark": lambda reader, bad: PartitionReader(reader.path, high_watermark=bad),
    "batch_rows of a split": lambda reader, bad: list(read_split(planned(reader), batch_rows=bad)),
    "position of a split": lambda reader, bad: list(read_split(planned(reader), position=bad)),
    "records_max": lambda reader, bad: list(planned(reader).divided(bad)),
}
FLAGS: dict[str, Call] = {
    "check_crc": lambda reader, bad: list(reader.record_batches(check_crc=bad)),
    "check_crc of chunks": lambda reader, bad: list(reader.chunks(check_crc=bad)),
    "check_crc of a split": lambda reader, bad: list(read_split(planned(reader), check_crc=bad)),
    "include_control": lambda reader, bad: list(reader.record_batches(include_control=bad)),
}
FIELDS: dict[str, dict[str, Any]] = {
    "segment": {"segment": ("0.log", 0)},
    "segment.path": {"segment": SegmentName(0, b"0.log")},  # type: ignore[arg-type]
    "segment.base_offset": {"segment": SegmentName(1.0, "0.log")},  # type: ignore[arg-type]
    "start_offset": {"start_offset": -1},
    "end_offset": {"start_offset": 2, "end_offset": 1},
    "size_seen": {"size_seen": None},
    "joined": {"joined": 1},
    "over_end": {"over_end": None},
    "stamps": {"stamps": [None]},
    "stamps of others": {"stamps": (None,)},
    "stamps.position": {"stamps": (BatchStamp(-1, 0, 0, 0),)},
}


def planned(reader: PartitionReader) -> SplitRange:
    return reader.split_points(10**6)[0]


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


@pytest.mark.parametrize("bad", [1, "yes", None, []], ids=named)
@pytest.mark.parametrize("name", FLAGS)
def test_what_is_no_bool_is_refused_by_name(reader: PartitionReader, name: str, bad: Any) -> None:
    with pytest.raises(UsageError, match=f"expected {name.split(maxsplit=1)[0]} to be True or"):
        FLAGS[name](reader, bad)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("read", [read_split, read_past_damage])
def test_a_range_that_was_never_planned_is_refused_by_the_field(
    reader: PartitionReader, field: str, read: Any
) -> None:
    bad = planned(reader)._replace(**FIELDS[field])
    with pytest.raises(UsageError, match=f"split.{field.split(maxsplit=1)[0]} to be"):
        list(read(bad))


@pytest.mark.parametrize("bad", [None, "split", ("a", 1), object()], ids=named)
def test_what_is_no_range_is_refused(bad: Any) -> None:
    with pytest.raises(UsageError, match="expected split to be a SplitRange"):
        list(read_split(bad))


@pytest.mark.parametrize("bad", [None, 5, [None], [(1, 2, 3, 4)]], ids=named)
def test_aborted_ranges_of_another_kind_are_refused(reader: PartitionReader, bad: Any) -> None:
    with pytest.raises(UsageError, match="expected aborted to be a sequence of AbortedRange"):
        list(read_split(planned(reader), aborted=bad))


def test_checkpoints_of_another_kind_are_refused(reader: PartitionReader) -> None:
    with pytest.raises(UsageError, match="expected checkpoints to be"):
        PartitionReader(reader.path, checkpoints={})  # type: ignore[arg-type]


def test_a_directory_that_goes_while_it_is_read_is_no_bare_system_error(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with replog.Log.open(path) as log:
        log.append([b"a", b"b", b"c"])
    reader = PartitionReader(path)
    shutil.rmtree(path)
    for read in (reader.refresh, reader.to_arrow, lambda: reader.size_bytes):
        with pytest.raises(LogTruncatedError, match=r"gone|no such file"):
            read()


def test_a_directory_that_cannot_be_listed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The super-user may list all, so the system's refusal is put in its place."""
    path = tmp_path / "orders-0"
    with replog.Log.open(path) as log:
        log.append([b"a"])
    reader = PartitionReader(path)

    def refuse(where: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", where)

    monkeypatch.setattr(names.os, "listdir", refuse)
    for read in (reader.refresh, lambda: partition_paths(tmp_path), lambda: PartitionReader(path)):
        with pytest.raises(StorageError, match="Permission denied") as refused:
            read()
        assert refused.value.path is not None


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
