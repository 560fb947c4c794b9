"""ProducerState: rules of idempotence and transactions, and snapshots byte-equal to Kafka's."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog._native.crc32c import checksum
from replog._native.producer_snapshot import read_snapshot
from replog._native.producer_state import ProducerState
from replog._native.record_batch import HEADER_DTYPE, scan
from replog.errors import (
    CorruptFileError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    UsageError,
)

FIXTURES = Path(os.environ.get("REPLOG_FIXTURES", "tests/golden"))
INT_MAX = 2**31 - 1
TRANSACTIONAL, CONTROL = 0x10, 0x20
# An entry whose fields are all different, in Kafka's format.
VECTOR = bytes.fromhex(
    "00017ba39017000000010000000000000009000100000004000000000000006800000002"
    "0000018bcfe56800ffffffffffffffffffffffff"
)


def batch(offset: int = 0, sequence: int = 0, count: int = 1, **fields: int) -> np.ndarray:
    """Header of a batch of producer 9, epoch 0; `fields` override."""
    header = np.zeros(1, dtype=HEADER_DTYPE)
    values = {
        "base_offset": offset,
        "last_offset": offset + count - 1,
        "max_timestamp": 1000 + offset,
        "producer_id": 9,
        "base_sequence": sequence,
        "record_count": count,
        "magic": 2,
        "control_type": -1,
        "coordinator_epoch": -1,
    } | fields
    for name, value in values.items():
        header[name] = value
    return header


def marker(offset: int, *, commit: bool, **fields: int) -> np.ndarray:
    """An end-of-transaction marker."""
    values = {
        "sequence": -1,
        "attributes": TRANSACTIONAL | CONTROL,
        "control_type": int(commit),
        "coordinator_epoch": 0,
    } | fields
    return batch(offset, **values)


def state_after(*headers: np.ndarray) -> ProducerState:
    state = ProducerState()
    state.replay(np.concatenate(headers))
    return state


def test_a_repeat_of_any_of_the_last_five_batches_is_a_duplicate() -> None:
    batches = [batch(10 * n, 3 * n, 3) for n in range(7)]
    state = state_after(*batches)
    assert [state.duplicate_of_batch(header) for header in batches] == [
        None,
        None,
        *((10 * n, 10 * n + 2, 1000 + 10 * n) for n in range(2, 7)),
    ]
    assert state.duplicate_of_batch(batch(0, 18, 2)) is None
    assert state.duplicate_of_batch(batch(0, 18, 3, producer_epoch=1)) is None
    assert [r.first_sequence for r in state.cached_batches(9)] == [6, 9, 12, 15, 18]


@pytest.mark.parametrize(
    ("last", "next_sequence", "accepted"),
    [(4, 5, True), (4, 6, False), (4, 4, False), (INT_MAX, 0, True), (INT_MAX, 1, False)],
)
def test_sequences_go_on_without_a_gap_and_wrap(
    last: int, next_sequence: int, accepted: bool
) -> None:
    state = state_after(batch(0, last))
    if accepted:
        state.check_batch(batch(1, next_sequence), client_origin=True)
    else:
        with pytest.raises(OutOfOrderSequenceError, match="expected sequence"):
            state.check_batch(batch(1, next_sequence), client_origin=True)
        state.check_batch(batch(1, next_sequence), client_origin=False)


def test_a_batch_whose_sequences_wrap_is_followed_and_repeated() -> None:
    wrapping = batch(0, INT_MAX - 1, 4)
    state = state_after(wrapping)
    assert state.entries()[0].last_sequence == 1
    assert state.entries()[0].first_sequence == INT_MAX - 1
    assert state.duplicate_of_batch(wrapping) == (0, 3, 1000)
    state.check_batch(batch(4, 2), client_origin=True)


def test_an_unknown_producer_may_start_at_any_sequence() -> None:
    ProducerState().check_batch(batch(0, 77), client_origin=True)


def test_a_new_epoch_starts_at_sequence_zero_and_forgets_the_batches() -> None:
    state = state_after(batch(0, 5))
    with pytest.raises(OutOfOrderSequenceError):
        state.check_batch(batch(1, 6, producer_epoch=1), client_origin=True)
    state.check_batch(batch(1, 0, producer_epoch=1), client_origin=True)
    state.replay(batch(1, 0, producer_epoch=1))
    assert len(state.cached_batches(9)) == 1
    with pytest.raises(InvalidProducerEpochError):
        state.check_batch(batch(2, 6), client_origin=False)


def test_a_plain_batch_inside_an_open_transaction_is_refused() -> None:
    state = state_after(batch(0, 0, attributes=TRANSACTIONAL))
    with pytest.raises(InvalidTransactionStateError):
        state.check_batch(batch(1, 1), client_origin=True)


def test_a_marker_of_an_older_coordinator_is_fenced() -> None:
    state = state_after(
        batch(0, 0, attributes=TRANSACTIONAL), marker(1, commit=True, coordinator_epoch=4)
    )
    with pytest.raises(TransactionCoordinatorFencedError):
        state.check_batch(marker(2, commit=True, coordinator_epoch=3), client_origin=False)
    state.check_batch(marker(2, commit=True, coordinator_epoch=4), client_origin=False)


def test_a_marker_with_the_next_epoch_leaves_no_batch_behind() -> None:
    """Transactions v2 (KIP-890): last sequence and last offset -1, the next one starts at 0."""
    state = state_after(
        batch(0, 0, attributes=TRANSACTIONAL), marker(1, commit=True, producer_epoch=1)
    )
    entry = state.entries()[0]
    assert (entry.last_sequence, entry.last_offset, entry.producer_epoch) == (-1, -1, 1)
    with pytest.raises(OutOfOrderSequenceError):
        state.check_batch(batch(2, 1, producer_epoch=1), client_origin=True)
    state.check_batch(batch(2, 0, producer_epoch=1), client_origin=True)


def test_open_and_unreplicated_transactions_bound_the_stable_offset() -> None:
    state = ProducerState()
    state.replay(batch(3, 0, attributes=TRANSACTIONAL))
    state.replay(batch(5, 0, attributes=TRANSACTIONAL, producer_id=10))
    assert state.open_transactions() == [(9, 3), (10, 5)]
    assert state.first_unstable_offset(100) == 3
    assert state.replay(marker(8, commit=False)) == [(9, 3, 8, True, 5)]
    assert state.first_unstable_offset(8) == 3
    assert state.first_unstable_offset(9) == 5
    assert state.replay(marker(9, commit=True, producer_id=10)) == [(10, 5, 9, False, 10)]
    state.release_below(9)
    assert state.first_unstable_offset(0) == 5
    state.release_below(10)
    assert state.first_unstable_offset(0) is None


def stable_by_looking_at_all(
    opened: dict[int, int], ended: list[tuple[int, int]], high_watermark: int
) -> int | None:
    """opened: producer to first offset; ended: (first offset, offset of the marker)."""
    waiting = [first for first, end in ended if end >= high_watermark]
    return min([*opened.values(), *waiting], default=None)


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 9), st.booleans()), max_size=120),
    st.integers(0, 4),
)
def test_any_interleaving_of_transactions_bounds_the_stable_offset(
    moves: list[tuple[int, int, bool]], reloads: int
) -> None:
    """Method: against a list of all that ever ended; snapshots are loaded on the way."""
    state = ProducerState()
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    released = 0
    for offset, (producer_id, how, commit) in enumerate(moves):
        if producer_id not in opened:
            state.replay(batch(offset, producer_id=producer_id, attributes=TRANSACTIONAL))
            opened[producer_id] = offset
        elif how > 2:
            (told,) = state.replay(marker(offset, commit=commit, producer_id=producer_id))
            first = opened.pop(producer_id)
            ended.append((first, offset))
            stable = min(opened.values(), default=offset + 1)
            assert told == (producer_id, first, offset, not commit, stable)
        else:
            state.replay(batch(offset, -1, producer_id=-1))
        if how == 1:
            released = max(released, offset - producer_id)
            state.release_below(released)
        if how == 2 and reloads:
            reloads -= 1
            ended.clear()
            state.load_snapshot(state.to_snapshot(), now_ms=0)
        for high_watermark in range(released, offset + 2):
            assert state.first_unstable_offset(high_watermark) == stable_by_looking_at_all(
                opened, ended, high_watermark
            )
        by_offset = sorted((first, who) for who, first in opened.items())
        assert state.open_transactions() == [(who, first) for first, who in by_offset]


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    state = ProducerState()
    assert state.replay(marker(0, commit=True)) == []
    assert state.first_unstable_offset(0) is None
    assert state.end_offset == 1


def test_batches_without_producer_and_emptied_markers_change_no_transaction() -> None:
    state = state_after(batch(0, attributes=TRANSACTIONAL))
    emptied = marker(2, commit=True, control_type=-1, record_count=0)
    assert state.replay(np.concatenate([batch(1, -1, producer_id=-1), emptied])) == []
    assert state.open_transactions() == [(9, 0)]
    assert state.end_offset == 3


def test_idle_producers_expire_unless_their_transaction_is_open() -> None:
    state = ProducerState(expiration_ms=100)
    state.replay(batch(0, max_timestamp=1000))
    state.replay(batch(1, max_timestamp=1000, producer_id=10, attributes=TRANSACTIONAL))
    assert state.remove_expired(1099) == 0
    assert state.remove_expired(1100) == 1
    assert [entry.producer_id for entry in state.entries()] == [10]
    snapshot = state_after(batch(0, max_timestamp=1000)).to_snapshot()
    state.load_snapshot(snapshot, now_ms=1100)
    assert state.producer_count == 0
    state.load_snapshot(snapshot, now_ms=1099)
    assert state.producer_count == 1


def test_a_snapshot_is_read_and_written_as_kafkas_vector() -> None:
    assert read_snapshot(VECTOR) == [(9, 1, 2, 4, 104, 2, 1700000000000, -1, -1)]
    state = ProducerState()
    state.load_snapshot(VECTOR, now_ms=1700000000000)
    assert state.to_snapshot() == VECTOR


def java_order(producer_ids: list[int]) -> list[int]:
    """Iteration order of a Java HashMap<Long, ...> after these insertions: the dumb twin."""
    capacity, table = 16, {}
    for count, producer_id in enumerate(dict.fromkeys(producer_ids), start=1):
        table[producer_id] = None
        if count > capacity * 3 // 4:
            capacity *= 2

    def bucket(producer_id: int) -> int:
        bits = producer_id & 0xFFFFFFFFFFFFFFFF
        folded = (bits ^ (bits >> 32)) & 0xFFFFFFFF
        return (folded ^ (folded >> 16)) & (capacity - 1)

    return sorted(table, key=bucket)


@given(st.lists(st.integers(0, 200) | st.integers(0, 2**63 - 1), max_size=120))
def test_snapshot_entries_stand_in_the_order_of_a_java_hash_map(producer_ids: list[int]) -> None:
    state = ProducerState()
    for offset, producer_id in enumerate(producer_ids):
        state.replay(batch(offset, producer_id=producer_id))
    order = [entry.producer_id for entry in read_snapshot(state.to_snapshot())]
    assert order == java_order(producer_ids)
    again = ProducerState()
    again.load_snapshot(state.to_snapshot(), now_ms=0)
    assert again.entries() == state.entries()


@given(st.binary(max_size=120), st.integers(0, 2**16))
def test_any_bytes_are_a_snapshot_or_a_corrupt_file(content: bytes, count: int) -> None:
    body = struct.pack(">i", count % 4) + content
    sealed = struct.pack(">hI", 1, checksum(body)) + body
    for candidate in (content, sealed):
        try:
            entries = read_snapshot(candidate)
        except CorruptFileError:
            continue
        assert 10 + 46 * len(entries) == len(candidate)
        ProducerState().load_snapshot(candidate, now_ms=0)


def test_a_damaged_snapshot_names_its_file_and_changes_nothing() -> None:
    state = state_after(batch(0))
    for position in range(len(VECTOR)):
        damaged = bytearray(VECTOR)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptFileError, match=r"snapshot /x\.snapshot") as raised:
            state.load_snapshot(bytes(damaged), now_ms=0, path="/x.snapshot")
        assert raised.value.path == "/x.snapshot"
    assert [entry.producer_id for entry in state.entries()] == [9]


def test_headers_of_another_layout_are_refused() -> None:
    with pytest.raises(UsageError, match="HEADER_DTYPE"):
        ProducerState().replay(np.zeros(3, dtype=np.int64))


def expected_side_files() -> list[tuple[Path, dict[str, Any]]]:
    found = [
        (path.parent.with_name(path.parent.name.removesuffix(".expected")), path)
        for path in sorted(FIXTURES.rglob("side_files.json"))
    ]
    if not found:
        pytest.skip(f"no side_files.json under {FIXTURES}")
    return [(directory, json.loads(path.read_text())) for directory, path in found]


def test_every_snapshot_of_kafka_is_read_as_kafka_reads_it() -> None:
    for directory, partitions in expected_side_files():
        for partition, files in partitions.items():
            for name, rows in files.items():
                if name.endswith(".snapshot") and rows and isinstance(rows[0], str):
                    with pytest.raises(CorruptFileError):
                        read_snapshot((directory / partition / name).read_bytes())
                elif name.endswith(".snapshot"):
                    found = read_snapshot((directory / partition / name).read_bytes())
                    entries = [entry._asdict() for entry in sorted(found)]
                    assert entries == rows, (directory, partition, name)


def whole_snapshots(partition: Path, files: dict[str, Any]) -> list[Path]:
    """Snapshots of a partition that Kafka could read."""
    return [
        partition / name
        for name, rows in files.items()
        if name.endswith(".snapshot") and not (rows and isinstance(rows[0], str))
    ]


def test_every_snapshot_of_kafka_loads_and_is_written_back_byte_by_byte() -> None:
    for directory, partitions in expected_side_files():
        for partition, files in partitions.items():
            for path in whole_snapshots(directory / partition, files):
                state = ProducerState()
                content = path.read_bytes()
                state.load_snapshot(content, now_ms=0)
                assert state.to_snapshot() == content, path


def batches_below(partition: Path, end_offset: int) -> np.ndarray:
    """Headers of all batches below `end_offset`, from every segment of a partition."""
    scans = [scan(path.read_bytes()).headers for path in sorted(partition.glob("*.log"))]
    headers = np.concatenate(scans)
    return headers[headers["last_offset"] < end_offset]


def test_replaying_the_log_gives_the_snapshots_that_kafka_took() -> None:
    """Goal: update() equals Kafka's. Method: logs that still start at 0, not compacted."""
    compared = 0
    for directory, partitions in expected_side_files():
        for partition, files in partitions.items():
            folder = directory / partition
            if "compact" in str(folder) or not (folder / f"{0:020}.log").exists():
                continue
            for path in whole_snapshots(folder, files):
                state = ProducerState()
                state.replay(batches_below(folder, int(path.stem)))
                if state.end_offset == int(path.stem):
                    assert state.to_snapshot() == path.read_bytes(), path
                    compared += state.producer_count > 0
    if not compared:
        pytest.skip(f"no snapshot with producers under {FIXTURES}")
