"""`replog spark ...` jobs from the command line, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")

from replog.cli.main import run
from tests.spark.jobs.exports import append, rows


def commanded(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run(["spark", *map(str, arguments)])
    said = capfd.readouterr()
    return code, said.out, said.err


def facts(capfd: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    code, out, err = commanded(capfd, *arguments, "--json")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_export_tells_its_figures_and_which_way_is_faster(tmp_path: Path, capfd) -> None:
    append(tmp_path / "t-0", 30)
    command = ("export", tmp_path / "t-0", "--output", tmp_path / "out", "--no-spark")
    (found,) = facts(capfd, *command)
    assert (found["records"], found["files"], found["engine"]) == (30, 1, "pyarrow")
    assert "faster" in found["advice"]
    append(tmp_path / "t-0", 5, first=30)
    code, out, _ = commanded(capfd, *command)
    assert code == 0
    assert "exported 5 records" in out
    assert "faster" in out
    code, out, _ = commanded(capfd, *command)
    assert (code, "nothing new" in out) == (0, True)
    assert len(rows(tmp_path / "out")) == 35


def test_a_job_that_cannot_be_done_says_why_in_one_sentence(tmp_path: Path, capfd) -> None:
    append(tmp_path / "t-0", 3)
    command = ("export", tmp_path / "t-0", "--output", tmp_path, "--no-spark")
    code, out, err = commanded(capfd, *command)
    assert (code, out) == (1, "")
    assert "found other files" in err
    assert err.count("\n") == 1
