"""Verify without a JVM: Kafka's replicas are the same; one byte is found wherever it is."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from replog.cli.main import run
from replog.errors import UsageError
from replog.reader import PartitionReader
from replog.storage.partition_log import PartitionLog
from spark_integration.jobs.engine import LocalEngine
from spark_integration.jobs.verify import Difference, verify
from tests.spark.jobs.exports import append

GOLDEN = Path(__file__).parents[2] / "golden"
BROKERS = [GOLDEN / "leader_changes" / f"broker-{number}" for number in (1, 2, 3)]


def differences(*paths: Path, **options: int) -> list[Difference]:
    return verify(paths, LocalEngine(2), **options).differences


def pair(tmp_path: Path) -> tuple[Path, Path]:
    append(tmp_path / "a" / "t-0", 400)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"


def test_replicas_that_kafka_kept_through_leader_changes_are_the_same() -> None:
    report = verify(BROKERS, LocalEngine(2))
    assert report.differences == []
    assert {(one.topic, one.partition) for one in report.comparisons} >= {
        ("moves", 0),
        ("moves-zstd", 0),
    }
    assert all(one.start_offset < one.end_offset for one in report.comparisons)


def with_a_later_last_epoch(path: Path) -> tuple[Path, int]:
    """Raise the epoch of the last batch, a byte that no checksum covers: the file and the byte."""
    segment = path / "00000000000000000000.log"
    (headers,) = PartitionReader(path).headers(390)
    place = int(headers["position"][-1]) + 15
    content = bytearray(segment.read_bytes())
    content[place] += 1
    segment.write_bytes(content)
    return segment, place


@pytest.mark.parametrize("piece_bytes", [1 << 30, 3000])
def test_a_leader_epoch_that_differs_is_found_with_its_byte(
    tmp_path: Path, piece_bytes: int
) -> None:
    """The leader epoch is no part of the checksum; only the comparison can find it."""
    one, other = pair(tmp_path)
    segment, place = with_a_later_last_epoch(other)
    (found,) = differences(one.parent, other.parent, piece_bytes=piece_bytes)
    assert (found.topic, found.partition, found.offset) == ("t", 0, 390)
    assert found.positions == (place, place)
    assert str(place) in found.sentence
    assert str(segment) in found.sentence


def test_damage_in_one_replica_is_a_difference_with_its_place(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    segment = other / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    (found,) = differences(one.parent, other.parent)
    assert found.paths == (str(segment),)
    assert found.positions[0] is not None
    assert found.positions[0] <= len(content) // 2


def test_records_of_another_leader_are_found_at_the_first_of_them(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    for path, value in ((one, b"one"), (other, b"two")):
        with PartitionLog.open(path) as log:
            log.append([value], timestamps=[5], leader_epoch=9)
            log.high_watermark = log.log_end_offset
    (found,) = differences(one, other)
    assert found.offset == 400


def test_what_is_not_committed_on_both_is_not_compared(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    with PartitionLog.open(one) as log:
        log.append([b"more"])
    with PartitionLog.open(other) as log:
        log.truncate_prefix_to(100)
    report = verify([one, other], LocalEngine(1))
    (compared,) = report.comparisons
    assert (compared.start_offset, compared.end_offset) == (100, 400)
    assert report.differences == []


def test_replicas_are_compared_while_they_are_written(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"
    with PartitionLog.open(one) as leader, PartitionLog.open(other) as follower:

        def write() -> None:
            for _ in range(300):
                leader.append([b"x" * 50] * 10)
                follower.append_as_follower(leader.read(follower.log_end_offset, 1 << 20))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                assert differences(one, other, piece_bytes=20_000) == []
        finally:
            writer.join()
    assert verify([one, other], LocalEngine(2)).comparisons[0].end_offset == 3000


def test_one_replica_alone_is_nothing_to_compare(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 3)
    with pytest.raises(UsageError, match="two replicas"):
        differences(tmp_path / "t-0")


def test_the_exit_code_tells_a_difference(tmp_path: Path, capfd) -> None:
    one, other = pair(tmp_path)
    command = ["spark", "verify", "--no-spark", str(one), str(other)]
    assert run(command) == 0
    assert "0 differ" in capfd.readouterr().out
    _, place = with_a_later_last_epoch(other)
    assert run(command) == 3
    assert f"byte {place} of" in capfd.readouterr().out
    assert run([*command, "--json"]) == 3
    (row,) = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert (row["difference"]["offset"], row["difference"]["positions"]) == (390, [place] * 2)
