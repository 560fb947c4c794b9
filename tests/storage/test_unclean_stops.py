"""What opening makes of damage, by how the log was stopped: cleanly, killed, or without power."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from replog.config import LogConfig
from replog.errors import CorruptBatchError
from replog.reader import PartitionReader
from replog.storage.log_directory import LogDirectory
from replog.storage.open_mark import OPEN_MARK_FILE, boot_id
from replog.storage.partition_log import PartitionLog
from replog.types import TopicPartition
from tests.crash.checker import booted

if TYPE_CHECKING:
    from pathlib import Path

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)
CUT = LogConfig(
    segment_bytes=400, index_interval_bytes=100, retention_ms=-1, unclean_recovery="cut"
)
COUNT = 30
STOPS = {"killed": None, "power": "the next one"}


def filled(path: Path, *, clean: bool = False) -> PartitionLog:
    """A log of about ten segments, one record a batch, of which nothing is known to be synced."""
    log = PartitionLog.open(path, SMALL)
    for number in range(COUNT):
        log.append([b"value %d" % number])
    assert len(log.segments) >= 6
    log.close(flush=clean)
    return log


def offsets_of(log: PartitionLog) -> list[int]:
    return [record.offset for record in log]


def data_files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.glob("*.log")}


@pytest.mark.parametrize("stop", ["clean", *STOPS])
@pytest.mark.parametrize("place", [2, -1])
def test_an_empty_file_of_a_roll_that_failed_costs_nothing(
    tmp_path: Path, stop: str, place: int
) -> None:
    """The log went on in the segment before, also past the name of the file."""
    path = tmp_path / "orders-0"
    log = filled(path, clean=stop == "clean")
    segment = log.segments[place]
    (path / f"{segment.base_offset + 1:020d}.log").write_bytes(b"")
    for _ in range(2):
        with booted(STOPS.get(stop)), PartitionLog.open(path, SMALL) as log:
            assert offsets_of(log) == list(range(COUNT))
            assert log.recovery_report.cut_bytes == 0
    assert PartitionReader(path).to_arrow().num_rows == COUNT
    assert not (path / f"{segment.base_offset + 1:020d}.log").exists()


@pytest.mark.parametrize("stop", ["clean", *STOPS])
@pytest.mark.parametrize("harm", ["gone", "torn"])
def test_a_hole_below_the_log_start_costs_nothing(tmp_path: Path, stop: str, harm: str) -> None:
    """Retention takes several segments; the renames reach the disk in another order."""
    path = tmp_path / "orders-0"
    log = PartitionLog.open(path, SMALL)
    for number in range(COUNT):
        log.append([b"value %d" % number])
    start = log.segments[4].base_offset
    log.truncate_prefix_to(start)
    gone = path / f"{log.segments[2].base_offset:020d}"
    log.close(flush=stop == "clean")
    if harm == "gone":
        for suffix in (".log", ".index", ".timeindex"):
            gone.with_suffix(suffix).rename(gone.with_suffix(suffix + ".deleted"))
    else:
        with open(gone.with_suffix(".log"), "r+b") as file:
            file.truncate(30)
    for _ in range(2):
        with booted(STOPS.get(stop)), PartitionLog.open(path, SMALL) as log:
            assert offsets_of(log) == list(range(start, COUNT))
            assert log.recovery_report.cut_bytes == 0
            assert not log.recovery_report.kept


@pytest.mark.parametrize("home", ["alone", "directory"])
def test_a_hole_is_damage_where_only_a_process_died(tmp_path: Path, home: str) -> None:
    """Everything that the kernel took is there: a segment that is not was taken by somebody."""
    key = TopicPartition("orders", 0)
    path = tmp_path / "orders-0"
    if home == "alone":
        log = filled(path)
    else:
        with LogDirectory.open(tmp_path, SMALL) as logs:
            log = logs.create_log(*key)
            for number in range(COUNT):
                log.append([b"value %d" % number])
            logs.abandon()
    (path / f"{log.segments[3].base_offset:020d}.log").unlink()
    left = data_files(path)

    def refusal() -> str:
        if home == "alone":
            with pytest.raises(CorruptBatchError) as refused:
                PartitionLog.open(path, SMALL)
            return str(refused.value)
        with LogDirectory.open(tmp_path, SMALL) as logs:
            return str(logs.refused[key])

    for _ in range(2):
        told = refusal()
        assert f"end the log at offset {log.segments[3].base_offset}" in told
        assert "unclean_recovery='cut'" in told
        assert data_files(path) == left
    if home == "alone":
        with PartitionLog.open(path, CUT) as log:
            assert offsets_of(log) == list(range(log.log_end_offset))
    else:
        with booted("the next one"), LogDirectory.open(tmp_path, SMALL) as logs:
            assert offsets_of(logs[key]) == list(range(logs[key].log_end_offset))
    assert sorted(path.glob("*.torn"))


@pytest.mark.parametrize("stop", STOPS)
def test_whole_batches_behind_damage_go_only_where_power_was_lost(
    tmp_path: Path, stop: str
) -> None:
    path = tmp_path / "orders-0"
    log = filled(path)
    name = f"{log.segments[-2].base_offset:020d}.log"
    content = bytearray((path / name).read_bytes())
    size = 12 + int.from_bytes(content[8:12], "big")
    content[size + 65] ^= 1  # of the second batch
    (path / name).write_bytes(content)
    left = data_files(path)
    with booted(STOPS[stop]):
        if stop == "killed":
            with pytest.raises(CorruptBatchError, match="whole ones behind it"):
                PartitionLog.open(path, SMALL)
            assert data_files(path) == left
            return
        with PartitionLog.open(path, SMALL) as log:
            assert log.log_end_offset == int(name[:20]) + 1
            assert offsets_of(log) == list(range(int(name[:20]) + 1))


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("tail", ["short", "zeros", "garbage"])
def test_a_torn_tail_is_cut_however_it_was_stopped(tmp_path: Path, stop: str, tail: str) -> None:
    path = tmp_path / "orders-0"
    log = filled(path)
    last = path / f"{log.segments[-1].base_offset:020d}.log"
    content = last.read_bytes()
    with open(last, "ab") as file:
        file.write({"short": content[:40], "zeros": bytes(200), "garbage": b"\x02" * 200}[tail])
    with booted(STOPS[stop]), PartitionLog.open(path, SMALL) as log:
        assert offsets_of(log) == list(range(COUNT))
        assert log.recovery_report.cut_bytes in (40, 200)
        assert bool(log.recovery_report.kept) == (tail != "zeros")


def test_no_copy_is_kept_of_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    filled(path)
    (path / f"{COUNT + 5:020d}.log").write_bytes(b"")
    with booted("the next one"), PartitionLog.open(path, SMALL) as log:
        assert offsets_of(log) == list(range(COUNT))
        assert log.recovery_report.kept == []
    assert not list(path.glob("*.torn"))


@pytest.mark.parametrize("stop", STOPS)
def test_an_epoch_that_no_checkpoint_knows_is_called_that(tmp_path: Path, stop: str) -> None:
    """An epoch is on disk before its first batch is: an older checkpoint was put back."""
    path = tmp_path / "orders-0"
    log = PartitionLog.open(path, SMALL)
    log.append([b"a"], leader_epoch=3)
    older = (path / "leader-epoch-checkpoint").read_bytes()
    log.append([b"b"], leader_epoch=5)
    log.append([b"c"], leader_epoch=5)
    log.close(flush=False)
    (path / "leader-epoch-checkpoint").write_bytes(older)
    wanted = "its leader epoch is higher than any in leader-epoch-checkpoint"
    with booted(STOPS[stop]):
        if stop == "killed":
            with pytest.raises(CorruptBatchError, match=wanted):
                PartitionLog.open(path, SMALL)
            (path / "leader-epoch-checkpoint").unlink()
            with PartitionLog.open(path, SMALL) as log:
                assert log.epochs == [(3, 0), (5, 1)]
            return
        with PartitionLog.open(path, SMALL) as log:
            assert wanted in str(log.recovery_report.problem)
            assert offsets_of(log) == [0]


def test_the_mark_is_there_from_an_open_to_the_next_clean_close(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    mark = path / OPEN_MARK_FILE
    with PartitionLog.open(path) as log:
        assert f"boot_id: {boot_id()}\n" in mark.read_text()
        log.append([b"a"])
    assert not mark.exists()
    PartitionLog.open(path).close(flush=False)
    assert mark.exists()
    with booted("another"), PartitionLog.open(path):
        assert "boot_id: another\n" in mark.read_text()
    with LogDirectory.open(tmp_path / "logs"):
        assert (tmp_path / "logs" / OPEN_MARK_FILE).exists()
    assert not (tmp_path / "logs" / OPEN_MARK_FILE).exists()


@pytest.mark.parametrize("mark", [b"", b"\xff\x00", b"version: 7\nboot_id: x\n", b"version: 0\n"])
def test_a_mark_that_cannot_be_read_is_none(tmp_path: Path, mark: bytes) -> None:
    """Then nobody knows whose the stop was: a hole is read over, and nothing is cut."""
    path = tmp_path / "orders-0"
    log = filled(path)
    (path / OPEN_MARK_FILE).write_bytes(mark)
    (path / f"{log.segments[3].base_offset:020d}.log").unlink()
    left = data_files(path)
    with booted("the next one"), PartitionLog.open(path, SMALL) as log:
        missing = range(log.segments[2].next_offset(), log.segments[3].base_offset)
        assert offsets_of(log) == [at for at in range(COUNT) if at not in missing]
    assert data_files(path) == left


def test_a_partition_that_was_refused_keeps_the_stop_that_it_had(tmp_path: Path) -> None:
    """Others are opened, and the directory is killed again: it is not taken for one of these."""
    with LogDirectory.open(tmp_path, SMALL) as logs:
        logs.create_partition("clicks", 0).append([b"a"])
    source = filled(tmp_path / "away" / "orders-0").path
    shutil.move(source, tmp_path / "orders-0")
    (tmp_path / "away").rmdir()
    (tmp_path / "orders-0" / OPEN_MARK_FILE).unlink()
    batch = sorted((tmp_path / "orders-0").glob("*.log"))[1]
    content = bytearray(batch.read_bytes())
    content[70] ^= 1
    batch.write_bytes(content)
    left = data_files(tmp_path / "orders-0")
    for boot in (None, "the next one", "the one after"):
        with booted(boot):
            logs = LogDirectory.open(tmp_path, SMALL)
            assert list(logs.refused) == [TopicPartition("orders", 0)]
            logs[TopicPartition("clicks", 0)].append([b"b"])
            logs.abandon()
        assert data_files(tmp_path / "orders-0") == left
    with LogDirectory.open(tmp_path, SMALL) as logs:
        logs.delete_partition(TopicPartition("orders", 0))
        assert "orders" not in (tmp_path / OPEN_MARK_FILE).read_text()


@pytest.mark.parametrize("stop", ["clean", *STOPS])
def test_a_cut_in_the_batch_that_the_log_starts_in_leaves_an_empty_log(
    tmp_path: Path, stop: str
) -> None:
    """Its records end below the start, which a foreign log would be refused for."""
    path = tmp_path / "orders-0"
    log = PartitionLog.open(path, SMALL)
    log.append([b"a", b"b", b"c", b"d"])
    log.append([b"e", b"f", b"g", b"h"])
    log.truncate_prefix_to(6)
    log.truncate_to(7)
    log.close(flush=stop == "clean")
    with booted(STOPS.get(stop)), PartitionLog.open(path, SMALL) as log:
        assert offsets_of(log) == []
        assert log.log_start_offset == 6
        assert log.append([b"i"]).base_offset >= 6
