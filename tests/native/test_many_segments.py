"""Many segments, epochs and producers: what is kept in memory of them says what the disk does."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replog._native import mapped_file, record_encoder
from replog._native.leader_epoch_cache import LeaderEpochCache
from replog.config import LogConfig
from replog.storage.checkpoint_files import leader_epochs_text
from replog.storage.partition_log import PartitionLog

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
CONFIG = LogConfig(
    segment_bytes=4096, file_delete_delay_ms=0, retention_ms=-1, retention_bytes=-1,
    cleanup_policy="delete",
)  # fmt: skip
SEGMENTS = 700


def batch(timestamp: int = NOW_MS, **producer: Any) -> bytes:
    return bytes(
        record_encoder.encode([b"x" * 20], timestamps=timestamp, now_ms=NOW_MS, **producer)
    )


def bases(log: Any) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Any]:
    """A log of SEGMENTS segments of one record each, the last one empty."""
    with PartitionLog.open(tmp_path / "t-0", CONFIG, now_ms=lambda: NOW_MS) as opened:
        for number in range(SEGMENTS - 1):
            opened.append_as_leader(batch(NOW_MS + number), 0)
            opened.roll()
        yield opened


def test_segments_are_in_order_after_rolls_cuts_and_retention(log: Any) -> None:
    expected = list(range(SEGMENTS))
    assert bases(log) == expected
    draw = random.Random(3)
    for _ in range(40):
        before, taken = list(expected), log.segments
        match draw.randrange(3):
            case 0:
                cut = draw.randrange(expected[-1] - 40, expected[-1])
                log.truncate_to(cut)
                expected = [base for base in expected if base <= cut]
            case 1:
                start = draw.randrange(expected[0], expected[0] + 30)
                log.truncate_prefix_to(start)
                log.apply_retention()
                expected = [base for base in expected if base >= start]
            case _:
                for _ in range(draw.randrange(300)):
                    log.append_as_leader(batch(), 0)
                    log.roll()
                    expected.append(expected[-1] + 1)
        assert bases(log) == expected
        assert [segment.base_offset for segment in reversed(log.segments)] == expected[::-1]
        assert log.segments[-1].base_offset == expected[-1]
        assert [segment.base_offset for segment in log.segments[3:9]] == expected[3:9]
        assert [segment.base_offset for segment in taken] == before, "a reader's list has changed"
        with pytest.raises(IndexError):
            log.segments[len(expected)]
    assert [record.offset for record in log.records()] == list(
        range(log.log_start_offset, log.log_end_offset)
    )


def descriptors_below(directory: Path) -> int:
    """How many descriptors of this process are of a file in `directory`; other logs' count not."""
    held = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            held += os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{directory}/")
    return held


def test_segments_that_are_gone_give_their_files_back(log: Any, tmp_path: Path) -> None:
    assert all(segment.size_bytes >= 0 for segment in log.segments)
    assert descriptors_below(tmp_path) > 3 * 101 + 1
    log.truncate_prefix_to(300)
    log.apply_retention()
    log.truncate_to(400)
    assert 0 < descriptors_below(tmp_path) <= 3 * 101 + 1, "101 segments are left, and the lock"


def test_a_truncation_lists_no_directory(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []
    monkeypatch.setattr(mapped_file, "list_dir", listed.append)
    log.truncate_to(log.log_end_offset - 2)
    log.append_as_leader(batch(), 0)
    log.roll()
    assert not listed


def test_the_first_record_at_a_time_is_found_whatever_the_order_of_times(tmp_path: Path) -> None:
    draw = random.Random(11)
    times: dict[int, int] = {}
    with PartitionLog.open(tmp_path / "t-0", CONFIG, now_ms=lambda: NOW_MS) as log:

        def check() -> None:
            for wanted in [*draw.choices(range(-3, 420), k=12), *draw.choices([*times.values()])]:
                first = min((offset for offset, at in times.items() if at >= wanted), default=None)
                found = log.offset_for_timestamp(wanted)
                assert (found and found.offset) == first, wanted

        for step in range(160):
            offset = log.log_end_offset
            times[offset] = draw.randrange(max(1, step - 9), 2 * step + 2)
            log.append_as_leader(batch(times[offset]), 0)
            if draw.random() < 0.7:
                log.roll()
            if draw.random() < 0.1:
                cut = draw.randrange(max(offset - 7, log.log_start_offset), offset + 1)
                log.truncate_to(cut)
                times = {at: time for at, time in times.items() if at < cut}
            if draw.random() < 0.05 and times:
                start = draw.randrange(min(times), min(times) + 3)
                log.truncate_prefix_to(min(start, log.log_end_offset))
                log.apply_retention()
                times = {at: time for at, time in times.items() if at >= log.log_start_offset}
            if times:
                check()


def test_a_time_index_that_lied_misleads_no_later_look_up(tmp_path: Path) -> None:
    """Its own segment is found to be wrong after others were judged by what it said."""
    path = tmp_path / "t-0"
    with PartitionLog.open(path, CONFIG, now_ms=lambda: NOW_MS) as log:
        for number, timestamp in enumerate([10, 50, 20, 30, 40]):
            log.append_as_leader(batch(timestamp), 0)
            if number < 4:
                log.roll()
    lying = path / f"{1:020d}.timeindex"
    content = bytearray(lying.read_bytes())
    content[-12:-4] = (15).to_bytes(8, "big")
    lying.write_bytes(content)
    with PartitionLog.open(path, CONFIG, now_ms=lambda: NOW_MS) as log:
        assert log.offset_for_timestamp(35).offset == 4
        assert log.offset_for_timestamp(15).offset == 1  # here the entry is held against its batch
        assert log.offset_for_timestamp(35).offset == 1
        assert log.offset_for_timestamp(60) is None


def test_the_text_of_the_epochs_is_that_of_their_entries() -> None:
    draw = random.Random(7)
    cache = LeaderEpochCache()
    assert cache.checkpoint_text() == leader_epochs_text([])
    for _ in range(2000):
        match draw.randrange(8):
            case 0:
                cache.truncate_from_end(draw.randrange(3_000_000_000))
            case 1:
                cache.truncate_from_start(draw.randrange(3_000_000))
            case 2 if draw.random() < 0.05:
                cache.clear()
            case _:
                latest, start = (cache.entries() or [(-1, -1)])[-1]
                cache.assign(
                    max(0, latest + draw.randrange(-1, 5)),
                    max(0, start + draw.randrange(-9, 10**7)),
                )
        assert cache.checkpoint_text() == leader_epochs_text(cache.entries())
    cache.assign(2**31 - 1, 2**63 - 1)
    assert cache.checkpoint_text() == leader_epochs_text(cache.entries())


def test_producers_that_are_idle_are_forgotten_while_the_log_runs(tmp_path: Path) -> None:
    clock = [NOW_MS]

    def of(producer_id: int, sequence: int, *, transactional: bool = False) -> bytes:
        return batch(
            clock[0], producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
            transactional=transactional,
        )  # fmt: skip

    def known(log: Any) -> set[int]:
        return {entry.producer_id for entry in log.producer_entries}

    with PartitionLog.open(tmp_path / "t-0", CONFIG, now_ms=lambda: clock[0]) as log:
        for producer_id in range(50):
            log.append_as_leader(of(producer_id, 0), 0)
        log.append_as_leader(of(99, 0, transactional=True), 0)
        clock[0] += DAY_MS - 60_000
        log.append_as_leader(of(0, 1), 0)
        assert len(known(log)) == 51, "none was idle for a day yet"
        clock[0] += 120_000
        log.append_as_leader(of(0, 2), 0)
        assert len(known(log)) == 51, "they are looked for every ten minutes"
        clock[0] += 600_000
        log.append_as_leader(of(0, 3), 0)
        assert known(log) == {0, 99}, "an open transaction keeps its producer"
        again = log.append_as_leader(of(0, 3), 0)
        assert again.duplicate
        clock[0] += 2 * DAY_MS
        log.roll()
        assert known(log) == {99}
        name = f"{log.log_end_offset:020d}.snapshot"
        assert (tmp_path / "t-0" / name).stat().st_size == 10 + 46


def test_a_follower_forgets_idle_producers_with_each_snapshot_and_retention(tmp_path: Path) -> None:
    clock = [NOW_MS]
    with PartitionLog.open(tmp_path / "t-0", CONFIG, now_ms=lambda: clock[0]) as log:
        follow = record_encoder.encode(
            [b"x"], timestamps=NOW_MS, now_ms=NOW_MS, producer_id=1, producer_epoch=0,
            base_sequence=0, base_offset=0, leader_epoch=0,
        )  # fmt: skip
        log.append_as_follower(follow)
        clock[0] += DAY_MS + 1
        assert len(log.producer_entries) == 1
        log.apply_retention()
        assert log.producer_entries == []
