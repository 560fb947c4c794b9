"""The quickstart on few records; Spark's part is marked."""

from __future__ import annotations

import json
import os
import shutil

import pytest

pytest.importorskip("click")

from click.testing import CliRunner

from replog.cli.quickstart import quickstart
from replog.errors import UsageError


def run(*arguments: str):
    return CliRunner().invoke(quickstart, arguments, catch_exceptions=False)


def figures(*arguments: str) -> dict:
    outcome = run("--json", *arguments)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(100)))
    return str(path)


def test_quickstart_loses_nothing_and_cuts_what_was_uncommitted():
    found = figures("--records", "5000", "--no-spark")
    assert found["records"] == found["acknowledged_records"] == found["high_watermark"] == 5000
    assert found["acknowledged_missing"] == 0
    assert found["killed_at_offset"] == 2500
    assert 0 < found["truncated_on_bystander"] < found["uncommitted_records"]
    assert found["truncated_records"] == found["uncommitted_records"] == 300
    assert found["caught_up_records"] > 0
    assert found["bytes_compared"] > found["value_bytes"]
    assert found["new_leader_epoch"] == 1
    assert found["directory"] is None
    assert found["spark"] == {"skipped": "--no-spark was given"}


@pytest.mark.parametrize("count", [1, 2, 3, 49, 101])
def test_quickstart_works_on_any_number_of_records(lines, count):
    found = figures("--records", str(count), "--input", lines, "--no-spark")
    assert found["records"] == found["acknowledged_records"] == count
    assert found["truncated_records"] >= 1


def test_quickstart_repeats_a_short_input_and_says_so(lines):
    found = figures("--records", "250", "--input", lines, "--no-spark")
    assert (found["input"], found["input_passes"]) == (lines, 3)


def test_quickstart_repeats_what_a_pipe_gave():
    outcome = CliRunner().invoke(
        quickstart, ["--json", "--records", "7", "--input", "-", "--no-spark"], input="a\nb\nc\n"
    )
    found = json.loads(outcome.stdout)
    assert (found["records"], found["value_bytes"], found["input_passes"]) == (7, 7, 3)


def test_quickstart_keeps_its_files_where_it_was_told_to(tmp_path, lines):
    place = tmp_path / "kept"
    outcome = run("--records", "100", "--input", lines, "--no-spark", "--directory", str(place))
    assert outcome.exit_code == 0
    assert str(place) in outcome.stdout
    contents = [
        (place / f"broker-{number}" / "lines-0" / "00000000000000000000.log").read_bytes()
        for number in (1, 2, 3)
    ]
    assert contents[0] == contents[1] == contents[2] != b""


def test_quickstart_prints_each_figure_and_no_progress_where_no_terminal_is(lines):
    outcome = run("--records", "100", "--input", lines, "--no-spark")
    names = [line.split("  ")[0] for line in outcome.stdout.splitlines()]
    expected = "input produced rate leader_killed failover truncated old_leader compared"
    assert [name.replace(" ", "_") for name in names] == [
        *expected.split(),
        "acknowledged",
        "Spark",
        "in_all",
    ]
    assert outcome.stderr == ""


def test_quickstart_refuses_a_directory_with_files_in_it(tmp_path, lines):
    with pytest.raises(UsageError, match="new or empty directory"):
        run("--records", "9", "--input", lines, "--no-spark", "--directory", str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["lines.txt"]


def test_quickstart_refuses_an_empty_input(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(UsageError, match="at least one line"):
        run("--input", str(empty), "--no-spark")
    assert run("--input", str(tmp_path / "missing")).exit_code == 2


def test_quickstart_goes_on_without_java_and_says_so(lines, monkeypatch):
    pytest.importorskip("spark_integration.session")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = figures("--records", "100", "--input", lines)
    assert "Java" in found["spark"]["skipped"] or "PySpark" in found["spark"]["skipped"]
    assert found["records"] == 100


@pytest.mark.spark
@pytest.mark.slow
def test_spark_counts_what_was_produced(lines):
    session = pytest.importorskip("spark_integration.session")
    if session.missing():
        pytest.skip(session.missing())
    found = figures("--records", "1000", "--input", lines)
    assert found["spark"]["records"] == 1000
    assert found["spark"]["value_bytes"] == found["value_bytes"]
    assert found["spark"]["last_offset"] == 999
    assert found["spark"]["first_words"] == [["line", 1000]]
