"""The data source without a JVM: planning, batches, projection."""

from __future__ import annotations

import gc
import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from replog.errors import CorruptBatchError, LogTruncatedError, UsageError
from tests.reader.consumed import consumed

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from spark_integration.reader import ReplogReader
from spark_integration.source import ReplogDataSource
from tests.spark.in_process import (
    EVERY,
    GOLDEN,
    MANY_SEGMENTS,
    read,
    reader_of,
)


def test_batches_have_exactly_the_schema_that_spark_wants() -> None:
    for told in consumed():
        reader = reader_of(told.directory, *EVERY.names)
        for partition in reader.partitions():
            for batch in told_rows(reader, partition):
                assert batch.schema.equals(to_arrow_schema(EVERY, timezone="UTC"))
                assert batch.num_rows > 0


def told_rows(reader: ReplogReader, partition: object) -> list[pa.RecordBatch]:
    batches = []
    try:
        for batch in reader.read(partition):  # type: ignore[arg-type]
            batches.append(batch)  # noqa: PERF402 - what came before the damage counts
    except CorruptBatchError:
        pass
    return batches


def test_a_schema_picks_columns_in_its_order() -> None:
    whole = read(reader_of(MANY_SEGMENTS))
    picked = read(reader_of(MANY_SEGMENTS, "offset", "topic", "value"))
    assert picked.schema.names == ["offset", "topic", "value"]
    assert picked.equals(whole.select(["offset", "topic", "value"]))
    constants = read(reader_of(MANY_SEGMENTS, "partition"))
    assert constants.num_rows == whole.num_rows


def test_small_limits_change_the_cut_and_not_the_rows() -> None:
    whole = read(reader_of(MANY_SEGMENTS))
    reader = reader_of(MANY_SEGMENTS, maxPartitionBytes="300000", batchRows="7")
    reader_parts = reader.partitions()
    assert all(batch.num_rows <= 7 for part in reader_parts for batch in reader.read(part))
    assert read(reader).equals(whole)


def test_several_paths_come_as_a_json_list() -> None:
    others = [MANY_SEGMENTS, GOLDEN / "segments" / "data" / "time-roll-0"]
    assert set(read(reader_of(others))["topic"].to_pylist()) == {"falling-time", "time-roll"}


def test_a_directory_without_records_plans_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "meta.properties").touch()
    reader = reader_of(tmp_path)
    assert reader.partitions() == []
    assert list(reader.read(None)) == []


def test_a_plan_is_frozen_and_a_segment_deleted_since_is_named(tmp_path: Path) -> None:
    shutil.copytree(MANY_SEGMENTS, tmp_path / "kept-0")
    reader = reader_of(tmp_path)
    planned = reader.partitions()
    gone = min((tmp_path / "kept-0").glob("*.log"))
    gone.unlink()
    with pytest.raises(LogTruncatedError, match=gone.name):
        [batch for part in planned for batch in reader.read(part)]


@pytest.mark.parametrize(
    "field",
    [
        StructField("offsets", LongType()),
        StructField("offset", IntegerType()),
        StructField("offset", LongType(), nullable=False),
    ],
)
def test_a_schema_that_is_no_projection_is_refused(field: StructField) -> None:
    with pytest.raises(UsageError, match="expected column"):
        ReplogDataSource({"path": str(MANY_SEGMENTS)}).reader(StructType([field]))


def test_a_timestamp_beyond_sparks_range_is_null() -> None:
    from spark_integration.schema import _microseconds

    stamps = pa.array([-1, 0, 2**62, None], pa.timestamp("ms", tz="UTC"))
    assert _microseconds(stamps).cast(pa.int64()).to_pylist() == [-1000, 0, None, None]


def test_a_worker_process_sets_its_modules_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's daemon collects garbage after each task; a process of the user's is left alone."""
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(frozen))
    read(reader_of(MANY_SEGMENTS, "offset"))
    assert frozen == []
    worker = ModuleType("__main__")
    worker.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", worker)
    read(reader_of(MANY_SEGMENTS, "offset"))
    read(reader_of(MANY_SEGMENTS, "offset"))
    assert frozen == [True]
