"""LeaderEpochCache against a dumb twin, the five cases of KIP-279, and Kafka's own answers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog._native.leader_epoch_cache import LeaderEpochCache
from replog.errors import UsageError

FIXTURES = Path(os.environ.get("REPLOG_FIXTURES", "tests/golden"))
EPOCHS = st.integers(0, 12)
OFFSETS = st.integers(0, 40)


class DumbCache:
    """The rules of Kafka's LeaderEpochFileCache over a plain list."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def assign(self, epoch: int, start: int) -> bool:
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start:
            return False
        while self.entries and (self.entries[-1][0] >= epoch or self.entries[-1][1] >= start):
            self.entries.pop()
        self.entries.append((epoch, start))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        if epoch == -1 or not self.entries or epoch > self.entries[-1][0]:
            return -1, -1
        if epoch == self.entries[-1][0]:
            return epoch, log_end_offset
        higher = min(entry for entry in self.entries if entry[0] > epoch)
        floor = max((e for e, _ in self.entries if e <= epoch), default=epoch)
        return floor, higher[1]

    def epoch_for_offset(self, offset: int) -> int:
        return max((e for e, start in self.entries if start <= offset), default=-1)

    def truncate_from_end(self, end: int) -> bool:
        before = list(self.entries)
        if end >= 0:
            self.entries = [entry for entry in self.entries if entry[1] < end]
        return before != self.entries

    def truncate_from_start(self, start: int) -> bool:
        before = list(self.entries)
        dropped = [entry for entry in self.entries if entry[1] <= start]
        if dropped:
            self.entries = [(dropped[-1][0], start), *self.entries[len(dropped) :]]
        return before != self.entries


STEPS = st.one_of(
    st.tuples(st.just("assign"), EPOCHS, OFFSETS),
    st.tuples(st.just("truncate_from_end"), st.integers(-2, 40)),
    st.tuples(st.just("truncate_from_start"), OFFSETS),
)


@given(st.lists(STEPS, max_size=30))
def test_every_sequence_of_calls_gives_what_the_dumb_twin_gives(steps: list[tuple]) -> None:
    cache, dumb = LeaderEpochCache(), DumbCache()
    for name, *arguments in steps:
        assert getattr(cache, name)(*arguments) == getattr(dumb, name)(*arguments)
        assert cache.entries() == dumb.entries
    assert len(cache) == len(dumb.entries)
    assert cache.latest_epoch == (dumb.entries[-1][0] if dumb.entries else -1)
    for epoch in range(-2, 15):
        assert cache.end_offset_for(epoch, 99) == dumb.end_offset_for(epoch, 99)
    for offset in range(-1, 42):
        assert cache.epoch_for_offset(offset) == dumb.epoch_for_offset(offset)


@pytest.mark.parametrize(
    ("case", "asked", "answer"),
    [
        ("undefined", -1, (-1, -1)),
        ("the latest ends at the log end", 9, (9, 100)),
        ("above the latest is unknown", 10, (-1, -1)),
        ("below the first ends where the first starts", 1, (1, 10)),
        ("between two ends where the higher starts", 5, (4, 30)),
        ("a known one ends where the next starts", 4, (4, 30)),
    ],
)
def test_end_offset_for_answers_each_case_of_kip_279(
    case: str, asked: int, answer: tuple[int, int]
) -> None:
    cache = LeaderEpochCache([(2, 10), (4, 20), (9, 30)])
    assert cache.end_offset_for(asked, 100) == answer, case


def test_an_empty_cache_knows_no_epoch() -> None:
    cache = LeaderEpochCache()
    assert cache.end_offset_for(0, 5) == (-1, -1)
    assert cache.epoch_for_offset(0) == -1
    assert cache.latest_epoch == -1


def test_entries_out_of_order_heal_as_kafka_replays_them() -> None:
    assert LeaderEpochCache([(5, 10), (3, 4), (4, 2), (6, 9)]).entries() == [(4, 2), (6, 9)]


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_a_negative_epoch_or_offset_is_refused(entry: tuple[int, int]) -> None:
    cache = LeaderEpochCache([(1, 1)])
    with pytest.raises(UsageError, match="expected a leader epoch"):
        cache.assign(*entry)
    assert cache.entries() == [(1, 1)]


@pytest.mark.parametrize("asked_count", [0, 1, 100, 5000])
def test_many_look_ups_in_one_call_equal_single_ones(asked_count: int) -> None:
    cache = LeaderEpochCache((2 * place, 7 * place) for place in range(500))
    asked = np.random.default_rng(7).integers(-2, 1010, asked_count)
    found, ends = cache.end_offsets_for(asked, 4000)
    assert found.dtype == np.int32
    assert ends.dtype == np.int64
    singles = [cache.end_offset_for(int(epoch), 4000) for epoch in asked]
    assert list(zip(found.tolist(), ends.tolist(), strict=True)) == singles


def test_clear_forgets_every_entry() -> None:
    cache = LeaderEpochCache([(1, 1), (2, 5)])
    cache.clear()
    assert cache.entries() == []
    assert cache.assign(0, 0)


def test_answers_equal_those_of_kafkas_own_class() -> None:
    """Goal: equality with LeaderEpochFileCache on every partition of the fixtures."""
    files = sorted(FIXTURES.rglob("epoch_end_offsets.json"))
    if not files:
        pytest.skip(f"no epoch_end_offsets.json under {FIXTURES}")
    for path in files:
        for partition, answers in json.loads(path.read_text()).items():
            cache = LeaderEpochCache(tuple(entry) for entry in answers["entries"])
            assert cache.entries() == [tuple(entry) for entry in answers["entries"]]
            for row in answers["end_offset_for"]:
                found = cache.end_offset_for(row["requested"], answers["log_end_offset"])
                assert found == (row["epoch"], row["end_offset"]), (path, partition, row)
            for offset, epoch in answers["epoch_for_offset"]:
                assert cache.epoch_for_offset(offset) == epoch, (path, partition, offset)
