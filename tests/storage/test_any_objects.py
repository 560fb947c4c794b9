"""Any Python object as any argument: a typed error or a right answer, never anything else."""

import datetime as dt
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import replog
from replog.errors import ReplogError, shown
from replog.storage.partition_log import PartitionLog

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-4, 8), st.floats(), st.complex_numbers(),
    st.text(st.characters()), st.binary(), st.decimals(), st.fractions(), st.uuids(),
    st.datetimes(timezones=st.just(dt.UTC)), st.sampled_from(replog.Codec),
    st.sampled_from([
        object(), int, print, ..., NotImplemented, "\ud800", range(3), np.int64(2), np.bool_(True),
        np.array([1, 2]), np.array([b"a"]), np.array(5), np.datetime64("NaT"), np.zeros((2, 0)),
        np.ma.masked, np.array([(1, b"a")], "i8, S1"), pa.array([b"a", None]), pa.scalar(1),
        pa.array([[1]]), pa.array([1], pa.timestamp("us")), pa.table({"a": [1]}), bytearray(b"x"),
        memoryview(b"abcd")[::2], dt.timedelta(1), replog.Isolation.LOG_END,
    ]),
)  # fmt: skip
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=2)
    ),
    max_leaves=5,
)
CALLS = (
    "append", "append_as_leader", "append_as_follower", "read", "to_arrow", "records",
    "truncate_to", "truncate_prefix_to", "truncate_fully_and_start_at", "set_high_watermark",
    "assign_epoch", "end_offset_for_epoch", "epoch_for_offset", "offset_for_timestamp",
    "aborted_transactions", "commit", "roll", "apply_retention",
)  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartitionLog]:
    with PartitionLog.open(tmp_path_factory.mktemp("any") / "orders-0") as opened:
        yield opened


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=st.data())
def test_a_call_answers_or_raises_a_typed_error(
    log: PartitionLog, name: str, drawn: st.DataObject
) -> None:
    call = getattr(log, name)
    arguments = {}
    for parameter in inspect.signature(call).parameters.values():
        if parameter.default is parameter.empty or drawn.draw(st.booleans()):
            arguments[parameter.name] = drawn.draw(ANYTHING)
    before = log.log_end_offset
    try:
        answer = call(**arguments)
        if name == "records":
            list(answer)
    except ReplogError as error:
        refused = str(error)
    else:
        refused = "expected"
        before = log.log_end_offset
    assert refused.startswith("expected")
    assert log.log_end_offset == before
    assert not log.failed


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(list(replog.LogConfig.__dataclass_fields__)), value=ANYTHING)
def test_an_option_is_taken_or_refused(name: str, value: Any) -> None:
    try:
        replog.LogConfig(**{name: value})
    except ReplogError as error:
        found = error
    else:
        return
    assert name in str(found)


@given(ANYTHING)
def test_anything_can_be_shown_on_one_line(value: Any) -> None:
    assert "\n" not in shown(value)


@settings(max_examples=100, deadline=None)
@given(path=ANYTHING.filter(lambda found: not isinstance(found, (str, Path))))
def test_what_is_no_path_opens_nothing(path: Any) -> None:
    for opened in (PartitionLog, replog.LogDirectory):
        with pytest.raises(ReplogError, match="path"):
            opened.open(path)
