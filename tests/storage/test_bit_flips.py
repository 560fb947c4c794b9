"""One flipped bit anywhere in a small log: the same answers, a rebuilt file or a typed error.

Method: a log of three segments with three epochs, an idempotent producer, an aborted transaction
and a moved start is stopped, cleanly or by a crash behind its recovery point; then a bit of each
byte of each file is flipped in turn, the log is opened, and all that it can be asked is asked.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from replog._native.record_encoder import encode, encode_control
from replog.config import LogConfig
from replog.errors import InvariantViolation, ReplogError
from replog.storage.partition_log import PartitionLog
from replog.types import Isolation

NOW_MS = 1_000_000
NAME = "orders-0"
CONFIG = LogConfig(
    segment_bytes=330,
    index_interval_bytes=0,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
# Offsets in them bound what is seen, and no second copy says what they should be.
BOUNDS = {"log-start-offset-checkpoint", "replication-offset-checkpoint"}


def open_log(path: Path) -> PartitionLog:
    return PartitionLog.open(path, CONFIG, now_ms=lambda: NOW_MS)


def build(path: Path) -> PartitionLog:
    """Seven batches: plain, idempotent, transactional with its abort, and of a second epoch."""
    log = open_log(path)

    def batch(values: list[bytes], time: int, **fields: Any) -> bytes:
        times = [time + place for place in range(len(values))]
        return bytes(
            encode(
                values, timestamps=times, now_ms=NOW_MS, base_offset=log.log_end_offset, **fields
            )
        )

    log.append_as_follower(batch([b"a", b"b"], 10, leader_epoch=0))
    log.append_as_follower(
        batch([b"c", b"d"], 20, leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=0)
    )
    log.append_as_follower(
        batch(
            [b"e"],
            30,
            leader_epoch=1,
            producer_id=8,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )
    marker = encode_control(
        0,
        producer_id=8,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=35,
        base_offset=log.log_end_offset,
        leader_epoch=1,
    )
    log.append_as_follower(bytes(marker))
    log.append_as_follower(batch([b"f", b"g"], 40, leader_epoch=1))
    log.append_as_follower(batch([b"h"], 50, leader_epoch=3))
    log.truncate_prefix_to(1)
    return log


def rows_of(log: PartitionLog, isolation: Isolation, start: int | None = None) -> list[Any]:
    return [
        (r.offset, r.timestamp, r.leader_epoch, r.value)
        for r in log.records(start, isolation=isolation)
    ]


def answers(log: PartitionLog) -> dict[str, Any]:
    """Everything that a reader, a follower or a producer can ask."""
    end = log.log_end_offset
    return {
        "offsets": (log.log_start_offset, end, log.last_stable_offset),
        "rows": rows_of(log, Isolation.LOG_END),
        "committed": rows_of(log, Isolation.TXN_COMMITTED),
        "from": [
            rows_of(log, Isolation.LOG_END, o) for o in range(log.log_start_offset, min(end, 20))
        ],
        "times": [log.offset_for_timestamp(time) for time in range(0, 60, 5)],
        "epochs": log.epochs,
        "ends": [log.end_offset_for_epoch(epoch) for epoch in range(-1, 6)],
        "producers": sorted(log.producer_entries),
    }


def outcome_of(path: Path) -> dict[str, Any] | ReplogError:
    """What the log at `path` answers, or the typed error with which it refuses."""
    log = None
    try:
        log = open_log(path)
        return answers(log)
    except ReplogError as error:
        return error
    except InvariantViolation as violation:
        return {"rows": [str(violation)], "offsets": (-1, -1, -1)}
    finally:
        if log is not None:
            log.close(flush=False)


def flipped(tmp_path: Path, original: Path, file: Path, position: int) -> Path:
    """A copy of the log with one bit of `file` flipped."""
    path = tmp_path / "flipped" / NAME
    shutil.rmtree(path.parent, ignore_errors=True)
    shutil.copytree(original, path)
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << position % 8
    (path / file.name).write_bytes(content)
    return path


def is_part_of(rows: list[Any], whole: list[Any]) -> bool:
    """Whether `rows` are a run of `whole`."""
    return not rows or any(whole[at : at + len(rows)] == rows for at in range(len(whole)))


def files_of(path: Path) -> list[Path]:
    return [file for file in sorted(path.iterdir()) if file.name != ".lock"]


@pytest.fixture(scope="module")
def stopped_cleanly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clean") / NAME
    build(path).close()
    return path


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed: synced up to offset 6, with two more batches behind that."""
    directory = tmp_path_factory.mktemp("crashed")
    log = build(directory / "live" / NAME)
    (directory / "live" / NAME / "recovery-point-offset-checkpoint").write_text(
        "0\n1\norders 0 6\n"
    )
    shutil.copytree(log.path, directory / NAME)
    log.close(flush=False)
    return directory / NAME


def test_the_small_log_has_a_file_of_each_kind(stopped_cleanly: Path) -> None:
    suffixes = {file.suffix for file in files_of(stopped_cleanly)}
    assert suffixes >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata"}
    names = {file.name for file in files_of(stopped_cleanly)}
    assert names >= {"leader-epoch-checkpoint", "recovery-point-offset-checkpoint", *BOUNDS} - {
        "replication-offset-checkpoint"
    }


def test_a_flip_after_a_clean_stop_changes_no_answer(tmp_path: Path, stopped_cleanly: Path) -> None:
    copy = tmp_path / "copy" / NAME
    shutil.copytree(stopped_cleanly, copy)
    expected = outcome_of(copy)
    assert isinstance(expected, dict)
    wrong = []
    for file in files_of(stopped_cleanly):
        for position in range(file.stat().st_size):
            found = outcome_of(flipped(tmp_path, stopped_cleanly, file, position))
            if isinstance(found, ReplogError) or found == expected:
                continue
            if file.name in BOUNDS and is_part_of(found["rows"], expected["rows"]):
                continue
            keys = [key for key in expected if found.get(key) != expected[key]]
            wrong.append(f"{file.name} at {position}: {keys}")
    assert not wrong, "\n".join(wrong)


def test_a_flip_after_a_crash_costs_at_most_the_unsynced_tail(
    tmp_path: Path, crashed: Path
) -> None:
    copy = tmp_path / "copy" / NAME
    shutil.copytree(crashed, copy)
    expected = outcome_of(copy)
    assert isinstance(expected, dict)
    wrong = []
    for file in files_of(crashed):
        for position in range(file.stat().st_size):
            found = outcome_of(flipped(tmp_path, crashed, file, position))
            if isinstance(found, ReplogError) or found == expected:
                continue
            cut = found["rows"] == expected["rows"][: len(found["rows"])]
            if file.suffix == ".log" and cut and found["offsets"][1] >= 6:
                continue
            if file.name in BOUNDS and is_part_of(found["rows"], expected["rows"]):
                continue
            keys = [key for key in expected if found.get(key) != expected[key]]
            wrong.append(f"{file.name} at {position}: {keys}")
    assert not wrong, "\n".join(wrong)
