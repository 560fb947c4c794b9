"""A reader beside Kafka's log cleaner: each state between its renames, and a rename at each read.

The renames are those of `LocalLog.replaceSegments`: a compacted log of Kafka's is taken through
them by hand, with a segment that stands for one or for two of the old ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replog._native.mapped_file import OfflineFile
from replog.cli.dump_rows import file_record_rows
from replog.cli.main import run
from replog.errors import LogTruncatedError
from replog.reader import PartitionReader, listing
from replog.types import Isolation
from tests.spark.in_process import reader_of
from tests.spark.in_process import rows as spark_rows

GOLDEN = Path(__file__).parents[1] / "golden"
COMPACTED = GOLDEN / "compaction" / "after-2"
PARTITIONS = ["compact-0", "compact-txn-0"]
SIDE = (".log", ".index", ".timeindex", ".txnindex")


@pytest.fixture(params=PARTITIONS)
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(COMPACTED, tmp_path / "broker")
    for path in (tmp_path / "broker").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path / "broker" / str(request.param)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAUSE_SECONDS", 0)


def bases(partition: Path) -> list[str]:
    return sorted(path.stem for path in partition.glob("*.log"))


def cleaned(partition: Path, segments: list[str]) -> None:
    """What the cleaner writes aside for these segments; nothing of theirs is obsolete here."""
    for end in SIDE:
        parts = [partition / (base + end) for base in segments]
        if any(part.exists() for part in parts):
            whole = b"".join(part.read_bytes() for part in parts if part.exists())
            # The indexes of a merged segment hold other positions: a reader does without them.
            if end in {".log", ".txnindex"} or len(segments) == 1:
                (partition / (segments[0] + end + ".cleaned")).write_bytes(whole)


def renames(partition: Path, segments: list[str]) -> Iterator[None]:
    """One rename at a time, `.log` first of each segment, as Kafka does it."""

    def one(base: str, old: str, new: str) -> Iterator[None]:
        for end in SIDE:
            path = partition / (base + end + old)
            if path.exists():
                path.rename(partition / (base + end + new))
                yield

    yield from one(segments[0], ".cleaned", ".swap")
    for base in segments:
        yield from one(base, "", ".deleted")
    yield from one(segments[0], ".swap", "")


def replaced(partition: Path) -> list[list[str]]:
    """Each segment alone, then two and two; the active one is never cleaned."""
    sealed = bases(partition)[:-1]
    return [[base] for base in sealed] + [sealed[at : at + 2] for at in range(0, len(sealed), 2)]


def committed(partition: Path) -> list[tuple[int, bytes | None]]:
    table = PartitionReader(partition).to_arrow(isolation=Isolation.TXN_COMMITTED)
    return list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def dumped(partition: Path) -> list[int]:
    return [row["offset"] for row in file_record_rows(str(partition))]


def in_spark(partition: Path) -> list[int]:
    reader = reader_of(partition, "offset", **{"kafka.isolation.level": "read_committed"})
    return [row["offset"] for row in spark_rows(reader)]


def test_every_state_between_the_renames_is_read_whole(partition: Path) -> None:
    rows, offsets, of_spark = committed(partition), dumped(partition), in_spark(partition)
    assert rows
    states = 0
    for segments in replaced(partition):
        cleaned(partition, segments)
        for _ in renames(partition, segments):
            assert committed(partition) == rows, sorted(path.name for path in partition.iterdir())
            assert dumped(partition) == offsets
            assert in_spark(partition) == of_spark
            states += 1
        for path in partition.glob("*.deleted"):
            path.unlink()
    assert states > 40


class CleanedBeside(OfflineFile):
    """Has the cleaner go on by one rename at each read from a given one on."""

    reads = 0
    at = 0
    steps: Iterator[None] = iter(())

    def __init__(self, path: str) -> None:
        self.go_on()
        super().__init__(path)

    def go_on(self) -> None:
        CleanedBeside.reads += 1
        if CleanedBeside.reads >= CleanedBeside.at:
            next(CleanedBeside.steps, None)

    def read(self, position: int, length_bytes: int) -> bytes:
        self.go_on()
        return super().read(position, length_bytes)


@pytest.mark.parametrize("read", [committed, in_spark])
@pytest.mark.parametrize("merged", [1, 2])
def test_a_cleaner_that_goes_on_at_each_read_takes_no_row_away(
    partition: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], list[object]],
    merged: int,
) -> None:
    rows = read(partition)
    monkeypatch.setattr("replog.reader.data_file.OfflineFile", CleanedBeside)
    at = reads = whole = 0
    while at <= reads:
        segments = bases(partition)[: 2 * merged]
        steps = []
        for group in (segments[:merged], segments[merged:]):
            cleaned(partition, group)
            steps.append(renames(partition, group))
        CleanedBeside.steps = (None for step in steps for _ in step)
        CleanedBeside.reads, CleanedBeside.at = 0, at
        try:
            assert read(partition) == rows
            whole += 1
        except LogTruncatedError:
            pass
        reads, at = max(reads, CleanedBeside.reads), at + 1
        for _ in CleanedBeside.steps:
            pass
        for path in partition.glob("*.deleted"):
            path.unlink()
        if len(bases(partition)) < 2 * merged:
            break
    assert whole


@pytest.mark.parametrize("which", [0, 2])
def test_a_segment_that_is_there_as_deleted_only_is_not_taken_for_retention(
    partition: Path, which: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The listing is made again; once the replacement is there, it is read."""
    rows = committed(partition)
    base = bases(partition)[which]
    path = partition / f"{base}.log"
    path.rename(partition / f"{base}.log.deleted")
    with pytest.raises(LogTruncatedError, match=f"{base}.log.deleted only"):
        PartitionReader(partition)
    assert run(["dump", "--json", "--records", str(partition)]) == 1
    assert f"{base}.log.deleted only" in capsys.readouterr().err
    (partition / f"{base}.log.deleted").rename(path)
    assert committed(partition) == rows


def test_the_replacement_is_waited_for(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = committed(partition)
    base = bases(partition)[0]
    deleted = partition / f"{base}.log.deleted"
    (partition / f"{base}.log").rename(deleted)
    seconds: list[float] = []

    def wait(pause: float) -> None:
        seconds.append(pause)
        if len(seconds) == 3:
            shutil.copyfile(deleted, partition / f"{base}.log.swap")

    monkeypatch.setattr(listing.time, "sleep", wait)
    assert committed(partition) == rows
    assert len(seconds) < listing.LISTINGS_MAX


def test_a_swap_whose_replacement_is_not_complete_stands_for_nothing(partition: Path) -> None:
    """A segment that is split gets its swap names from the last part to the first."""
    rows = committed(partition)
    base = bases(partition)[0]
    (partition / f"{base}.log.cleaned").write_bytes(b"")
    (partition / f"{int(base) + 1:020d}.log.swap").write_bytes(b"")
    assert committed(partition) == rows


def test_what_kafkas_retention_took_is_no_missing_segment() -> None:
    """The leader epochs begin where the log does by now, though no log start was checkpointed."""
    partition = GOLDEN / "retention" / "data" / "by-size-pending-0"
    first = min(partition.glob("*.log"))
    assert list(partition.glob("*.log.deleted"))
    assert PartitionReader(partition).log_start_offset == int(first.stem)
