"""Every segment that a real Kafka wrote: the native decoders against the oracle, row by row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from replog._native.record_batch import scan
from replog._native.record_decoder import count_records, decode_arrow, iter_records
from replog.types import Record
from tests.fixtures.cases import ROOT
from tests.oracle import kafka_files

SEGMENTS = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.log") if path.stat().st_size)


def whole_prefix(content: bytes) -> bytes:
    """The bytes up to the first damage; what lies behind is the recovery's business."""
    return content[: scan(content).end]


@pytest.mark.parametrize("segment", SEGMENTS, ids=str)
def test_segment_decodes_as_the_oracle_decodes_it(segment):
    content = whole_prefix((ROOT / segment).read_bytes())
    expected = [
        Record(*record)
        for batch in kafka_files.batches(content, check_crc=False)  # scan() has checked it
        for record in kafka_files.records(batch)
    ]
    assert list(iter_records(content, include_control=True, record_type=Record)) == expected
    assert count_records(content, include_control=True) == len(expected)
    columns = decode_arrow(content, include_control=True)
    columns.validate(full=True)
    assert columns["offset"].to_pylist() == [row.offset for row in expected]
    assert columns["timestamp"].cast(pa.int64()).to_pylist() == [row.timestamp for row in expected]
    assert columns["timestamp_type"].to_pylist() == [row.timestamp_type for row in expected]
    assert columns["leader_epoch"].to_pylist() == [row.leader_epoch for row in expected]
    assert columns["key"].to_pylist() == [row.key for row in expected]
    assert columns["value"].to_pylist() == [row.value for row in expected]
    assert columns["headers"].to_pylist() == [
        [{"key": key, "value": value} for key, value in row.headers] for row in expected
    ]
    views = decode_arrow(content, include_control=True, zero_copy=True, columns=("value",))
    assert views["value"].cast(pa.binary()) == columns["value"]
