"""`replog dump --json` over every directory that a real Kafka wrote, against that Kafka's rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replog import LogConfig
from replog.cli.main import run
from replog.storage.partition_log import PartitionLog
from tests.fixtures import cases
from tests.fixtures.cases import Row
from tests.reader.consumed import Consumed, consumed

STAGES = [(case, stage) for case in cases.cases() for stage in cases.stages(case)]


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes]):
    """Runs a command line in process; answers exit code, rows of JSON, and what it complained."""

    def runs(*arguments: object) -> tuple[int, list[Row], str]:
        code = run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err.decode()

    return runs


def answers(case: str, stage: str, file: str) -> list[Row] | None:
    """Rows of the partitions that are there: a selection of fixtures may leave some out."""
    path = cases.ROOT / case / f"{stage}.expected" / file
    if not path.exists():
        return None
    names = {one.name for one in cases.partitions(case, stage)}
    return [row for row in cases.lines(path) if f"{row['topic']}-{row['partition']}" in names]


@pytest.mark.parametrize(("case", "stage"), STAGES)
def test_batches_are_kafkas_batches(command, case: str, stage: str) -> None:
    code, rows, problem = command("dump", "--json", "--batches", cases.ROOT / case / stage)
    assert (code, problem) == (0, "")
    expected = answers(case, stage, "batches.jsonl.gz")
    assert rows == expected
    assert [list(row) for row in rows] == [list(row) for row in expected or []]


@pytest.mark.parametrize(("case", "stage"), STAGES)
def test_records_are_those_of_kafkas_file_walk(command, case: str, stage: str) -> None:
    """Where the file's rows leave out what the consumer's rows hold, the others are compared."""
    code, rows, problem = command("dump", "--json", "--records", cases.ROOT / case / stage)
    assert (code, problem) == (0, "")
    expected = answers(case, stage, "filerecords.jsonl.gz") or []
    batches = answers(case, stage, "batches.jsonl.gz") or []
    if {row["topic"] for row in expected} != {
        row["topic"] for row in batches if "error" not in row
    }:
        rows = [row for row in rows if row["topic"].startswith("__")]
    assert rows == expected
    assert [list(row) for row in rows] == [list(row) for row in expected]


@pytest.mark.parametrize("told", list(consumed()), ids=str)
def test_visible_records_are_those_of_kafkas_consumer(command, told: Consumed) -> None:
    expected = told.rows()
    broken = [name for name, counts in told.counts().items() if "error" in counts]
    arguments = ("dump", "--json", "--records", "--isolation", told.isolation)
    code, rows, problem = command(*arguments, told.directory)
    assert code == 0 or broken, problem
    for partition in told.partitions():
        mine = [
            r for r in rows if (r["topic"], r["partition"]) == (partition.topic, partition.number)
        ]
        assert mine == expected[partition.name], partition
        assert [list(row) for row in mine] == [list(row) for row in expected[partition.name]]


@pytest.mark.parametrize(("case", "stage"), STAGES)
def test_every_file_of_a_log_directory_has_a_text(
    capfdbinary: pytest.CaptureFixture[bytes], case: str, stage: str
) -> None:
    directory = cases.ROOT / case / stage
    unknown = {".lock", "bootstrap.checkpoint.tmp"}
    for path in [directory, *sorted(directory.rglob("*"))]:
        if path.name in unknown or path.suffix == ".tmp" or "delete" in str(path):
            continue
        code = run(["dump", str(path)])
        out, err = capfdbinary.readouterr()
        damaged = path.suffix == ".snapshot" and b"expected" in err
        assert code == 0 or damaged, f"{path}: {err.decode()}"
        assert b"Traceback" not in out + err


def test_side_files_hold_what_kafkas_classes_read(command) -> None:
    for partition in cases.partitions_with("side_files.json"):
        for name, expected in partition.answers("side_files.json").items():
            code, rows, _ = command("dump", "--json", partition.path / name)
            if expected and isinstance(expected[0], str):
                assert code == 1
            elif name.endswith(".snapshot"):
                assert sorted(rows, key=lambda row: row["producer_id"]) == expected
            else:
                assert rows == expected


def test_index_entries_are_those_of_kafkas_classes(command) -> None:
    for partition in cases.partitions_with("index_lookups.json"):
        for segment, expected in partition.answers("index_lookups.json").items():
            for suffix, key in (("index", "offset_entries"), ("timeindex", "time_entries")):
                path = partition.path / f"{segment}.{suffix}"
                if partition.damage is None and path.exists():
                    _, rows, _ = command("dump", "--json", path)
                    assert [list(row.values()) for row in rows] == expected[key], path


def test_epoch_checkpoint_rows_are_epochs_and_start_offsets(command) -> None:
    for partition in cases.partitions_with("epoch_end_offsets.json"):
        path = partition.path / "leader-epoch-checkpoint"
        _, rows, _ = command("dump", "--json", path)
        entries = partition.answers("epoch_end_offsets.json")["entries"]
        assert [list(row.values()) for row in rows] == entries


def test_text_shows_what_is_text_in_records_and_says_what_is_damaged(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    golden = Path(__file__).parents[1] / "golden" / "transactions" / "data" / "txn-0"
    segment = golden / "00000000000000000000.log"
    assert run(["dump", "--records", str(segment)]) == 0
    assert "  value: ms oaodu nr nillme" in capfdbinary.readouterr().out.decode()
    broken = tmp_path / "broken-0" / segment.name
    broken.parent.mkdir()
    broken.write_bytes(segment.read_bytes()[:311] + bytes(200))
    assert run(["dump", str(broken)]) == 0
    last = capfdbinary.readouterr().out.decode().splitlines()[-1]
    assert "problem: expected a whole record batch at byte 311" in last


@pytest.mark.parametrize("arguments", [["--batches"], ["--records"], []])
def test_an_absent_path_is_one_sentence_and_exit_code_1(
    command, tmp_path: Path, arguments: list[str]
) -> None:
    code, rows, problem = command("dump", *arguments, tmp_path / "absent-0")
    assert (code, rows) == (1, [])
    assert problem.startswith("replog: expected")
    assert problem.count("\n") == 1


def test_batches_and_records_together_are_refused(command, tmp_path: Path) -> None:
    code, _, problem = command("dump", "--batches", "--records", tmp_path)
    assert code == 2
    assert "one at a time" in problem


METADATA = Path(__file__).parents[1] / "golden" / "metadata" / "node-100"


def test_metadata_records_are_shown_by_type_and_fields(capfdbinary) -> None:
    assert run(["dump", "--metadata", str(METADATA / "bootstrap.checkpoint")]) == 0
    second = capfdbinary.readouterr().out.decode().splitlines()[1]
    assert "offset: 1 " in second
    assert "type: FEATURE_LEVEL_RECORD" in second
    assert 'data: {"name": "metadata.version", "featureLevel": 29}' in second


def test_metadata_that_is_none_is_told_and_passed_over(command, tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "orders-0") as log:
        log.append([b"not metadata", b"\x01\x14\x00\x00"])
    code, (first, second), _ = command("dump", "--metadata", "--json", tmp_path / "orders-0")
    assert code == 0
    assert "frame version 1" in first["problem"]
    assert (second["type"], second["data"]) == ("NO_OP_RECORD", {})


def test_a_log_directory_without_a_metadata_log_is_refused(command, tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "meta.properties").touch()
    code, _, complaint = command("dump", "--metadata", tmp_path)
    assert code == 1
    assert "expected the metadata log at" in complaint


def test_metadata_is_asked_for_alone(command) -> None:
    code, _, complaint = command("dump", "--metadata", "--records", METADATA)
    assert code == 2
    assert "expected --metadata alone" in complaint


@pytest.mark.parametrize("suffix", [".txnindex", ".index", ".timeindex"])
def test_a_damaged_side_file_is_told_and_hides_no_other_segment(
    command, tmp_path: Path, suffix: str
) -> None:
    with PartitionLog.open(tmp_path / "orders-0", LogConfig(segment_bytes=1000)) as log:
        for _ in range(40):
            log.append([b"value"] * 10)
        bases = [segment.base_offset for segment in log.segments]
    damaged = tmp_path / "orders-0" / f"{bases[1]:020}{suffix}"
    if suffix == ".txnindex":
        damaged.write_bytes(b"\x7f" * 34)
    else:
        damaged.unlink()
        damaged.mkdir()
    code, rows, problem = command("dump", "--json", tmp_path / "orders-0")
    assert (code, problem) == (0, "")
    told = {row["base_offset"]: row for row in rows if "segment" in row}
    assert sorted(told) == bases
    assert str(damaged) in told[bases[1]]["problem"]
    assert [base for base in bases if "problem" in told[base]] == [bases[1]]


def test_a_directory_that_merely_has_such_a_name_is_no_partition(command, tmp_path: Path) -> None:
    """As /etc has them: dbus-1, polkit-1."""
    (tmp_path / "dbus-1" / "system.d").mkdir(parents=True)
    code, out, said = command("dump", tmp_path)
    assert (code, out) == (1, [])
    assert "found neither" in said
    with PartitionLog.open(tmp_path / "orders-0") as log:
        log.append([b"one"])
    code, rows, _ = command("dump", "--json", "--records", tmp_path)
    assert (code, [row["topic"] for row in rows]) == (0, ["orders"])
