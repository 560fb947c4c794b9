"""Side files are opened, and made anew, by whoever asks first: one that fails leaves no half."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replog import LogConfig, errors
from replog._native import record_encoder, recorded_calls
from replog.storage.partition_log import PartitionLog

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=4096, max_message_bytes=4096, index_interval_bytes=0, segment_index_bytes=1 << 16
)
TRANSACTIONS = 30
KINDS = ("open", "fstat", "mmap", "pread", "pwritev", "ftruncate", "rename", "fdatasync")
PRODUCERS = range(3)


@pytest.fixture(autouse=True)
def recording() -> Iterator[None]:
    recorded_calls.install()
    yield
    recorded_calls.uninstall()


def opened(place: Path) -> PartitionLog:
    return PartitionLog.open(place / "t-0", CONFIG, now_ms=lambda: NOW_MS)


def write(place: Path) -> None:
    """Aborted transactions with rising timestamps, over a few segments."""
    with opened(place) as log:
        for number in range(TRANSACTIONS):
            producer = number % len(PRODUCERS)
            batch = record_encoder.encode(
                [b"x" * 300],
                timestamps=NOW_MS + number,
                now_ms=NOW_MS,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=number // len(PRODUCERS),
                transactional=True,
            )
            log.append_as_leader(batch, 0)
            end = record_encoder.encode_control(
                control_type=0,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=NOW_MS + number,
            )
            log.append_as_leader(bytes(end), 0, coordinator=True)
        assert len(list((place / "t-0").glob("*.log"))) > 2


def answers(log: PartitionLog) -> tuple[Any, ...]:
    stamps = [log.offset_for_timestamp(NOW_MS + number) for number in range(TRANSACTIONS)]
    found = [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for entry in log.aborted_transactions(0, log.log_end_offset)
    ]
    return stamps, found, [record.offset for record in log.records(isolation="read_committed")]


def as_it_is(place: Path) -> None:
    pass


def without_indexes(place: Path) -> None:
    for suffix in ("index", "timeindex"):
        for path in (place / "t-0").glob(f"*.{suffix}"):
            path.unlink()


def with_torn_indexes(place: Path) -> None:
    for suffix in ("index", "timeindex"):
        for path in (place / "t-0").glob(f"*.{suffix}"):
            path.write_bytes(path.read_bytes()[:-1])


def with_wrong_transactions(place: Path) -> None:
    for path in (place / "t-0").glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:9] + b"\x07" + path.read_bytes()[10:])


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "found", [as_it_is, without_indexes, with_torn_indexes, with_wrong_transactions]
)
def test_a_first_use_that_fails_is_made_again_from_its_beginning(
    tmp_path: Path, found: Any, kind: str, clean: bool
) -> None:
    """Whatever call fails, in the first answers of a log: the next ones are right, and so they are
    behind a clean stop and a kill."""
    wanted: Any = None
    struck: Any = True
    nth = 0
    while struck:
        nth += 1
        place = tmp_path / str(nth)
        place.mkdir()
        write(place)
        with opened(place) as log:
            wanted = wanted or answers(log)
        found(place)
        for path in (place / "t-0").glob("*.log"):
            os.utime(path, (0, 0))  # it stands for the records' time where that is not known
        log = opened(place)
        recorded_calls.fail(kind, errno.EIO, nth=nth, times=1)
        refused = False
        try:
            answers(log)
        except errors.ReplogError:
            refused = True
        struck = recorded_calls.strikes()
        recorded_calls.clear_faults()
        if not log.failed:
            assert answers(log) == wanted, (nth, struck)
        log.close(flush=clean and not log.failed)
        with opened(place) as log:
            assert answers(log) == wanted, (nth, struck, refused)
