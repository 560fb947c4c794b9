"""TransactionIndex against a list, and against what Kafka wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from replog._native.producer_state import ProducerState
from replog._native.record_batch import scan
from replog._native.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    read_transactions,
)
from replog.errors import CorruptFileError, InvariantViolation, LogClosedError

FIXTURES = Path(os.environ.get("REPLOG_FIXTURES", "tests/golden"))
ABORTED = [
    AbortedTransaction(1, 0, 10, 11),
    AbortedTransaction(2, 5, 20, 12),
    AbortedTransaction(3, 12, 30, 31),
]


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    made = TransactionIndex(str(tmp_path / "0.txnindex"), 0)
    for aborted in ABORTED:
        made.append(aborted)
    return made


def test_the_file_is_made_by_the_first_append(tmp_path: Path) -> None:
    path = tmp_path / "7.txnindex"
    made = TransactionIndex(str(path), 7)
    assert made.entries() == []
    assert made.collect_aborted(0, 100) == ([], False)
    assert not made.truncate_to(0)
    made.reset()
    made.flush()
    assert made.check()
    assert not path.exists()
    made.append(AbortedTransaction(1, 8, 9, 10))
    assert made.created
    assert path.read_bytes() == bytes.fromhex("0000") + b"".join(
        number.to_bytes(8, "big") for number in (1, 8, 9, 10)
    )


def test_entries_survive_a_close(index: TransactionIndex) -> None:
    index.flush()
    index.close()
    again = TransactionIndex(index.path, 0)
    assert again.entries() == ABORTED
    assert not again.created
    assert again.check()
    with pytest.raises(LogClosedError):
        index.entries()


@pytest.mark.parametrize("fetch_offset", range(0, 35, 3))
@pytest.mark.parametrize("upper_bound", range(0, 35, 3))
def test_collect_aborted_finds_what_overlaps(
    index: TransactionIndex, fetch_offset: int, upper_bound: int
) -> None:
    found, complete = index.collect_aborted(fetch_offset, upper_bound)
    last = next((n for n, txn in enumerate(ABORTED) if txn.last_stable_offset >= upper_bound), None)
    asked = ABORTED if last is None else ABORTED[: last + 1]
    assert complete is (last is not None)
    assert found == [
        txn for txn in asked if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound
    ]


@pytest.mark.parametrize("offset", [0, 10, 11, 20, 21, 30, 31])
def test_truncate_to_keeps_markers_below_the_offset(index: TransactionIndex, offset: int) -> None:
    kept = [txn for txn in ABORTED if txn.last_offset < offset]
    assert index.truncate_to(offset) is (len(kept) < len(ABORTED))
    assert index.entries() == kept
    index.append(AbortedTransaction(4, offset, offset + 40, offset))
    assert len(index.entries()) == len(kept) + 1


def test_reset_and_delete_leave_nothing(index: TransactionIndex) -> None:
    index.reset()
    assert index.entries() == []
    index.append(ABORTED[0])
    index.delete()
    assert not Path(index.path).exists()
    index.delete()


def test_a_marker_that_does_not_grow_is_a_bug(index: TransactionIndex) -> None:
    with pytest.raises(InvariantViolation):
        index.append(AbortedTransaction(4, 0, 30, 31))


def test_a_torn_entry_is_ignored_and_cut_by_the_next_append(index: TransactionIndex) -> None:
    index.close()
    path = Path(index.path)
    path.write_bytes(path.read_bytes()[:-1])
    torn = TransactionIndex(index.path, 0)
    assert not torn.check()
    assert torn.entries() == ABORTED[:2]
    torn.append(ABORTED[2])
    assert torn.entries() == ABORTED
    assert torn.check()


def test_rename_moves_the_file_or_only_the_name(index: TransactionIndex, tmp_path: Path) -> None:
    index.rename_to(str(tmp_path / "0.txnindex.deleted"))
    assert index.entries() == ABORTED
    index.close()
    index.rename_to(str(tmp_path / "again"))
    assert (tmp_path / "again").exists()


def test_every_flip_of_a_byte_is_refused_or_read_without_a_crash(index: TransactionIndex) -> None:
    index.close()
    path = Path(index.path)
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x80
        path.write_bytes(bytes(damaged))
        flipped = TransactionIndex(str(path), 0)
        assert not flipped.check() or len(flipped.entries()) == len(ABORTED)
        flipped.close()
        if position % 34 < 2:
            with pytest.raises(CorruptFileError):
                read_transactions(bytes(damaged))


def aborted_of_replay(partition: Path) -> list[AbortedTransaction]:
    """Aborted transactions that a replay of the partition's segments finds."""
    headers = [scan(path.read_bytes()).headers for path in sorted(partition.glob("*.log"))]
    ended = ProducerState().replay(np.concatenate(headers))
    return [
        AbortedTransaction(t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
        for t in ended
        if t.aborted
    ]


def test_kafkas_indexes_are_read_and_rebuilt_as_kafka_wrote_them() -> None:
    compared = 0
    for expected in sorted(FIXTURES.rglob("side_files.json")):
        directory = expected.parent.with_name(expected.parent.name.removesuffix(".expected"))
        for partition, files in json.loads(expected.read_text()).items():
            rows = {name: rows for name, rows in files.items() if name.endswith(".txnindex")}
            found = []
            for name in sorted(rows):
                content = (directory / partition / name).read_bytes()
                entries = read_transactions(content, name)
                found += entries
                assert [{"version": 0, **entry._asdict()} for entry in entries] == rows[name]
            if found and "compact" not in partition:
                assert aborted_of_replay(directory / partition) == found, (directory, partition)
                compared += 1
    if not compared:
        pytest.skip(f"no transaction index under {FIXTURES}")
