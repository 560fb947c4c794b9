"""OffsetIndex and TimeIndex against a list model, against Kafka's answers, and against damage."""

from __future__ import annotations

import json
import os
import struct
import threading
from bisect import bisect_right
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replog import errors
from replog._native.offset_index import OffsetIndex
from replog._native.time_index import TimeIndex

FIXTURES = Path(os.environ.get("REPLOG_FIXTURES", Path(__file__).parent.parent / "golden"))
LOOKUPS = sorted(FIXTURES.rglob("index_lookups.json"))
MANY = 1 << 20
BASE = 1000

reused_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)


@pytest.mark.parametrize("lookups", LOOKUPS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_entries_and_lookups_equal_those_of_kafka(lookups: Path) -> None:
    folder = lookups.parent.parent / lookups.parent.name.removesuffix(".expected")
    for name, segments in json.loads(lookups.read_text()).items():
        for base, answers in segments.items():
            stem = str(folder / name / base)
            offsets = OffsetIndex(f"{stem}.index", int(base), MANY, writable=False)
            times = TimeIndex(f"{stem}.timeindex", int(base), MANY, writable=False)
            for index, kind in ((offsets, "offset"), (times, "time")):
                assert index.check(whole=True)
                assert index.entries().tolist() == [tuple(e) for e in answers[f"{kind}_entries"]]
                for target, *answer in answers[f"{kind}_lookups"]:
                    assert index.find(target) == tuple(answer)
                targets = [lookup[0] for lookup in answers[f"{kind}_lookups"]]
                columns = index.lookup_many(targets)
                assert np.transpose(columns).tolist() == [
                    lookup[1:] for lookup in answers[f"{kind}_lookups"]
                ]


zero = st.just(0)


def floor_entry(model: list[tuple[int, int]], target: int) -> tuple[int, int] | None:
    """The last entry whose key is at most `target`."""
    place = bisect_right(model, target, key=lambda entry: entry[0])
    return model[place - 1] if place else None


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 300), st.integers(1, 50)),
        st.tuples(st.just("truncate"), st.integers(0, 40_000), zero),
        st.tuples(st.sampled_from(["write_out", "flush", "reset", "reopen"]), zero, zero),
    ),
    max_size=25,
)


@reused_folder
@given(steps=steps, targets=st.lists(st.integers(-10, 60_000), min_size=1, max_size=70))
def test_an_offset_index_does_what_a_list_does(
    tmp_path: Path, steps: list[tuple[str, int, int]], targets: list[int]
) -> None:
    path = str(tmp_path / "a.index")
    index = OffsetIndex(path, BASE, MANY)
    index.reset()
    model: list[tuple[int, int]] = []
    for step, number, spread in steps:
        if step == "append":
            for _ in range(number):
                offset, position = model[-1] if model else (BASE, 0)
                model.append((offset + spread, position + 7))
                index.add(*model[-1])
        elif step == "truncate":
            index.truncate_to(BASE + number)
            model = [entry for entry in model if entry[0] < BASE + number]
        elif step == "reopen":
            index.close()
            index = OffsetIndex(path, BASE, MANY)
        else:
            getattr(index, step)()
            model = [] if step == "reset" else model
        assert (index.last_offset, index.last_position) == (model[-1] if model else (BASE, 0))
        assert index.entry_count == len(model)
    assert index.entries().tolist() == model
    assert index.check(whole=True)
    wanted = [BASE + target for target in targets]
    answers = [floor_entry(model, target) or (BASE, 0) for target in wanted]
    assert [index.find(target) for target in wanted] == answers
    assert np.transpose(index.lookup_many(np.array(wanted))).tolist() == [list(a) for a in answers]
    index.close()
    assert os.path.getsize(path) == 8 * len(model)


@reused_folder
@given(steps=steps, targets=st.lists(st.integers(-10, 60_000), min_size=1, max_size=70))
def test_a_time_index_does_what_a_list_does(
    tmp_path: Path, steps: list[tuple[str, int, int]], targets: list[int]
) -> None:
    path = str(tmp_path / "a.timeindex")
    index = TimeIndex(path, BASE, MANY)
    index.reset()
    model: list[tuple[int, int]] = []
    for step, number, spread in steps:
        if step == "append":
            for turn in range(number):
                timestamp, offset = model[-1] if model else (-1, BASE)
                # Every third entry repeats the timestamp, and must be left out.
                entry = (timestamp + (0 if turn % 3 == 2 else spread), offset + turn % 2)
                assert index.maybe_add(*entry) == (entry[0] > timestamp)
                if entry[0] > timestamp:
                    model.append(entry)
        elif step == "truncate":
            index.truncate_to(BASE + number)
            model = [entry for entry in model if entry[1] < BASE + number]
        elif step == "reopen":
            index.close()
            index = TimeIndex(path, BASE, MANY)
        else:
            getattr(index, step)()
            model = [] if step == "reset" else model
        assert (index.last_timestamp, index.last_offset) == (model[-1] if model else (-1, BASE))
    assert index.entries().tolist() == model
    answers = [floor_entry(model, target) or (-1, BASE) for target in targets]
    assert [index.find(target) for target in targets] == answers
    assert np.transpose(index.lookup_many(targets)).tolist() == [list(a) for a in answers]
    index.close()


def test_the_bytes_are_those_of_kafkas_example(tmp_path: Path) -> None:
    offsets = OffsetIndex(str(tmp_path / "a.index"), 50, MANY)
    offsets.add(57, 8192)
    offsets.flush()
    assert (tmp_path / "a.index").read_bytes().hex() == "0000000700002000"
    times = TimeIndex(str(tmp_path / "a.timeindex"), 50, MANY)
    times.maybe_add(1_700_000_000_000, 57)
    times.flush()
    assert (tmp_path / "a.timeindex").read_bytes().hex() == "0000018bcfe5680000000007"


def test_appended_slots_stay_in_memory_until_512_have_gathered(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path / "a.index"), 0, MANY)
    for number in range(1, 513):
        index.add(number, number)
    assert (tmp_path / "a.index").stat().st_size == 0
    index.add(513, 513)
    assert (tmp_path / "a.index").stat().st_size == 512 * 8
    assert index.find(513) == (513, 513)


def test_an_index_is_full_at_its_cap_and_the_time_index_keeps_one_slot_for_closing(
    tmp_path: Path,
) -> None:
    offsets = OffsetIndex(str(tmp_path / "a.index"), 0, 20)
    times = TimeIndex(str(tmp_path / "a.timeindex"), 0, 36)
    for number in (1, 2, 3):
        offsets.add(number, number)
        times.maybe_add(number, number)
    assert offsets.full
    assert times.full
    assert offsets.entries().tolist() == [(1, 1), (2, 2)]
    assert times.entries().tolist() == [(1, 1), (2, 2)]
    assert times.maybe_add(3, 3, ignore_full=True)
    assert times.last_timestamp == 3


@pytest.mark.parametrize(
    "entry", [(57, 9000), (58, 8192), (49, 9000), (50 + 2**31, 9000), (58, 2**31)]
)
def test_a_step_back_or_an_offset_too_far_is_a_bug(tmp_path: Path, entry: tuple[int, int]) -> None:
    index = OffsetIndex(str(tmp_path / "a.index"), 50, MANY)
    index.add(57, 8192)
    with pytest.raises(errors.InvariantViolation):
        index.add(*entry)
    assert index.entry_count == 1


def test_a_preallocated_tail_of_zeros_is_no_entry_and_goes_at_close(tmp_path: Path) -> None:
    offsets_path, times_path = tmp_path / "a.index", tmp_path / "a.timeindex"
    offsets_path.write_bytes(struct.pack(">4i", 7, 100, 9, 200) + bytes(4080))
    times_path.write_bytes(struct.pack(">qiqi", 5, 7, 6, 9) + bytes(4080))
    offsets = OffsetIndex(str(offsets_path), 0, MANY)
    times = TimeIndex(str(times_path), 0, MANY)
    assert offsets.entries().tolist() == [(7, 100), (9, 200)]
    assert times.entries().tolist() == [(5, 7), (6, 9)]
    offsets.add(11, 300)
    offsets.close()
    times.close()
    assert offsets_path.read_bytes() == struct.pack(">6i", 7, 100, 9, 200, 11, 300)
    assert times_path.stat().st_size == 24
    empty = tmp_path / "b.index"
    empty.write_bytes(bytes(4096))
    assert OffsetIndex(str(empty), 0, MANY, writable=False).entry_count == 0


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">4i", 7, 100, 9, 200)[:-1],
        struct.pack(">4i", 7, 100, 5, 200),
        struct.pack(">4i", 7, 100, 9, 50),
        struct.pack(">6i", 7, 100, 9, 200, 8, 300),
        struct.pack(">2i", -1, 100),
    ],
)
def test_a_damaged_index_fails_its_check_and_works_again_after_reset(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.index").write_bytes(content)
    index = OffsetIndex(str(tmp_path / "a.index"), 0, MANY)
    assert not index.check(whole=True)
    index.reset()
    assert index.check(whole=True)
    index.add(1, 1)
    index.close()
    assert (tmp_path / "a.index").stat().st_size == 8


def test_lookups_while_the_index_is_cut_and_grows_give_right_answers(tmp_path: Path) -> None:
    """Look-ups run without the GIL on a pinned file; the writer must neither wait nor shrink it."""
    index = OffsetIndex(str(tmp_path / "a.index"), 0, MANY)
    for number in range(1, 20_001):
        index.add(number * 3, number)
    index.write_out()
    targets = np.random.default_rng(7).integers(0, 30_000, 200_000)
    expected = np.where(targets >= 3, targets // 3, 0)
    wrong: list[int] = []

    def look_up() -> None:
        for _ in range(10):
            offsets, positions = index.lookup_many(targets)
            wrong.append(int((positions != expected).sum() + (offsets != expected * 3).sum()))

    readers = [threading.Thread(target=look_up) for _ in range(2)]
    for reader in readers:
        reader.start()
    while any(reader.is_alive() for reader in readers):
        index.truncate_to(30_003)
        for number in range(10_001, 12_001):
            index.add(number * 3, number)
        index.write_out()
    for reader in readers:
        reader.join()
    assert wrong == [0] * 20


def test_a_deleted_index_is_gone_and_deleting_again_is_no_error(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path / "a.index"), 0, MANY)
    index.delete()
    index.delete()
    assert not (tmp_path / "a.index").exists()
    with pytest.raises(FileNotFoundError):
        OffsetIndex(str(tmp_path / "a.index"), 0, MANY, writable=False)
