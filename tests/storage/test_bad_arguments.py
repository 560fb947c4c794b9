"""Arguments that no call can take: a UsageError that names the argument, and an unchanged log."""

import functools
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replog.errors import OffsetOutOfRangeError, ReplogError, UsageError
from replog.storage.partition_log import PartitionLog

NO_INTEGERS: tuple[Any, ...] = (
    1.0, float("nan"), "1", b"1", "x", True, np.bool_(True), np.float64(1), Decimal(1), [1], {},
    object(), np.array([1, 2]), 2**63, -(2**63) - 1, 2**80, -(2**80),
)  # fmt: skip
NEGATIVE = (-1, -(2**31), -(2**63))

Call = Callable[[PartitionLog, Any], Any]

# Call by "method argument" -> how to call it.
OFFSETS: dict[str, Call] = {
    "read end_offset": lambda log, bad: log.read(0, end_offset=bad),
    "read max_bytes": lambda log, bad: log.read(0, bad),
    "records end_offset": lambda log, bad: log.records(0, bad),
    "to_arrow end_offset": lambda log, bad: log.to_arrow(0, bad),
    "truncate_to offset": lambda log, bad: log.truncate_to(bad),
    "truncate_prefix_to offset": lambda log, bad: log.truncate_prefix_to(bad),
    "truncate_fully_and_start_at offset": lambda log, bad: log.truncate_fully_and_start_at(bad),
    "truncate_fully_and_start_at log_start_offset": (
        lambda log, bad: log.truncate_fully_and_start_at(9, log_start_offset=bad)
    ),
    "set_high_watermark high_watermark": lambda log, bad: log.set_high_watermark(bad),
    "setter high_watermark": lambda log, bad: setattr(log, "high_watermark", bad),
    "epoch_for_offset offset": lambda log, bad: log.epoch_for_offset(bad),
    "assign_epoch start_offset": lambda log, bad: log.assign_epoch(9, bad),
    "assign_epoch leader_epoch": lambda log, bad: log.assign_epoch(bad, 5),
    "commit end_offset": lambda log, bad: log.commit(bad),
    "aborted_transactions start_offset": lambda log, bad: log.aborted_transactions(bad, 5),
    "aborted_transactions end_offset": lambda log, bad: log.aborted_transactions(0, bad),
}
# Below zero is out of range, or a question with an answer.
SIGNED: dict[str, Call] = {
    "read start_offset": lambda log, bad: log.read(bad),
    "records start_offset": lambda log, bad: log.records(bad),
    "to_arrow start_offset": lambda log, bad: log.to_arrow(bad),
    "offset_for_timestamp timestamp": lambda log, bad: log.offset_for_timestamp(bad),
    "end_offset_for_epoch leader_epoch": lambda log, bad: log.end_offset_for_epoch(bad),
    "append_as_leader leader_epoch": lambda log, bad: log.append_as_leader(BATCH, bad),
    "append_as_leader now_ms": lambda log, bad: log.append_as_leader(BATCH, 0, now_ms=bad),
    "append_as_follower now_ms": lambda log, bad: log.append_as_follower(BATCH, now_ms=bad),
    "append leader_epoch": lambda log, bad: log.append([b"x"], leader_epoch=bad),
    "apply_retention now_ms": lambda log, bad: log.apply_retention(now_ms=bad),
    "roll now_ms": lambda log, bad: log.roll(now_ms=bad),
    "unlink_retired now_ms": lambda log, bad: log.unlink_retired(now_ms=bad),
}
MAY_BE_NONE = {
    "read end_offset", "records end_offset", "to_arrow end_offset", "records start_offset",
    "to_arrow start_offset", "truncate_fully_and_start_at log_start_offset",
    "append_as_leader now_ms", "append_as_follower now_ms", "append leader_epoch",
    "apply_retention now_ms", "roll now_ms", "unlink_retired now_ms",
}  # fmt: skip


def make_log(directory: Path) -> PartitionLog:
    log = PartitionLog.open(directory / "orders-0")
    log.append([b"a", b"b", b"c"], leader_epoch=0)
    log.append([b"d", b"e"], leader_epoch=2)
    log.high_watermark = 4
    return log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    with make_log(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartitionLog]:
    """One log for all tests that must not change it; it takes records after all of them."""
    with make_log(tmp_path_factory.mktemp("kept")) as opened:
        yield opened
        assert opened.append([b"next"]).base_offset == 5


BATCH = b"not looked at"


def state_of(log: PartitionLog) -> tuple[Any, ...]:
    """All that an append, a truncation or a new epoch would change."""
    files = {
        path.name: path.read_bytes() for path in Path(log.path).iterdir() if path.name != ".lock"
    }
    return (
        log.log_start_offset, log.log_end_offset, log.high_watermark, log.epochs,
        log.recovery_point, log.closed, log.failed, files,
    )  # fmt: skip


def refused(log: PartitionLog, call: Callable[[], Any], argument: str) -> None:
    """The call raises UsageError naming the argument, in one sentence, and changes nothing."""
    before = state_of(log)
    with pytest.raises(UsageError) as caught:
        call()
    message = str(caught.value)
    assert argument in message
    assert message.startswith("expected")
    assert "found" in message
    assert len(message) < 1000
    assert state_of(log) == before


@pytest.mark.parametrize("name", [*OFFSETS, *SIGNED])
def test_what_is_no_64_bit_integer_is_refused_by_name(kept, name):
    call = {**OFFSETS, **SIGNED}[name]
    for bad in NO_INTEGERS:
        refused(kept, functools.partial(call, kept, bad), name.split()[1])


@pytest.mark.parametrize("name", OFFSETS)
def test_an_offset_below_zero_is_refused_by_name(kept, name):
    for bad in NEGATIVE:
        refused(kept, functools.partial(OFFSETS[name], kept, bad), name.split()[1])


def test_none_is_refused_where_there_is_no_default(kept):
    for name in {**OFFSETS, **SIGNED}.keys() - MAY_BE_NONE:
        call = {**OFFSETS, **SIGNED}[name]
        refused(kept, functools.partial(call, kept, None), name.split()[1])


@pytest.mark.parametrize("name", ["read", "records", "to_arrow", "truncate_prefix_to"])
def test_an_offset_behind_the_end_is_out_of_range(kept, name):
    before = state_of(kept)
    for bad in (6, 2**62, 2**63 - 1):
        with pytest.raises(OffsetOutOfRangeError, match=str(bad)):
            getattr(kept, name)(bad)
    assert state_of(kept) == before


@pytest.mark.parametrize("name", ["read", "records", "to_arrow"])
def test_a_start_below_zero_is_out_of_range(kept, name):
    with pytest.raises(OffsetOutOfRangeError, match="-1"):
        getattr(kept, name)(-1)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
def test_numpys_integers_are_integers(log, kind):
    assert log.to_arrow(kind(1), kind(3))["offset"].to_pylist() == [1, 2]
    assert [record.offset for record in log.records(kind(1), kind(3))] == [1, 2]
    assert log.read(kind(3)).start_offset == 3
    assert log.end_offset_for_epoch(kind(0)) == (0, 3)
    assert log.set_high_watermark(kind(5)) == 5
    assert log.truncate_to(kind(3)) is True
    assert log.append([b"x"], leader_epoch=kind(2)).base_offset == 3


def test_a_log_that_starts_at_the_last_offset_takes_no_record(log):
    log.truncate_fully_and_start_at(2**63 - 1)
    assert log.log_end_offset == 2**63 - 1
    with pytest.raises(OffsetOutOfRangeError, match="nothing was appended"):
        log.append([b"x"])
    assert log.to_arrow().num_rows == 0
    log.truncate_fully_and_start_at(7)
    assert log.append([b"x"]).base_offset == 7


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("min_one_message", lambda log, bad: log.read(0, min_one_message=bad)),
        ("whole_batches", lambda log, bad: log.read(0, whole_batches=bad)),
        ("coordinator", lambda log, bad: log.append_as_leader(BATCH, 3, coordinator=bad)),
        ("flush", lambda log, bad: log.close(flush=bad)),
        ("zero_copy", lambda log, bad: log.to_arrow(zero_copy=bad)),
    ],
)
def test_a_flag_is_true_or_false(kept, argument, call):
    for bad in (0, 1, "yes", None, np.array([True, False])):
        refused(kept, functools.partial(call, kept, bad), argument)


@pytest.mark.parametrize("now_ms", [lambda: "x", lambda: None, lambda: 1.5, lambda: 2**70])
def test_a_clock_that_gives_no_integer_is_refused(tmp_path, now_ms):
    with pytest.raises(ReplogError, match="now_ms"):
        PartitionLog.open(tmp_path / "orders-0", now_ms=now_ms)
