"""What a command cannot take: one sentence, exit code 1; wrong usage is exit code 2."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

import replog

COMMAND = [sys.executable, "-c", "from replog.cli.main import main; main()"]


def run(*arguments: object, stdin: bytes = b"") -> tuple[int, bytes, str]:
    done = subprocess.run(
        [*COMMAND, *map(os.fsdecode, map(str, arguments))],
        input=stdin,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def sentence(said: str) -> None:
    assert said.startswith("replog: expected"), said
    assert said.count("\n") == 1, said
    assert "Error:" not in said, said


@pytest.mark.parametrize(
    "options",
    [
        ["--key-separator", ""],
        ["--batch-records", "0"],
        ["--batch-records", "-1"],
        ["--batch-records", str(2**70)],
        ["--batch-records", "many"],
        ["--codec", "brotli"],
        ["--json", "--key-separator", ":"],
    ],
    ids=" ".join,
)
def test_wrong_options_of_append_create_nothing(tmp_path: Path, options: list[str]) -> None:
    code, out, said = run("append", tmp_path / "lines-0", *options, stdin=b"a\n")
    assert (code, out) == (2, b"")
    assert options[0] in said
    assert not list(tmp_path.iterdir())


def test_a_refused_record_is_told_with_its_line_and_what_went_in_before(tmp_path: Path) -> None:
    lines = b"a\nb\nc\n" + b"x" * 2_000_000 + b"\nd\n"
    code, out, said = run("append", tmp_path / "lines-0", "--batch-records", 2, stdin=lines)
    assert (code, out) == (1, b"")
    sentence(said)
    assert "line 4 (with lines 3 to 4) of the input not appended, 2 records before were" in said
    code, out, _ = run("read", tmp_path / "lines-0")
    assert (code, out) == (0, b"a\nb\n")


VALUE = base64.b64encode(b"v").decode()


@pytest.mark.parametrize(
    "bad",
    [
        b'{"timestamp": 1e3}', b'{"timestamp": -2}', b'{"timestamp": 9223372036854775808}',
        b'{"timestamp": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"headers": 5}',
        b'{"headers": [["\\ud800", null]]}', b'{"key": ["x"]}', b'{"value": "\xff"}', b"null",
    ],
    ids=lambda line: line[:30],
)  # fmt: skip
def test_a_json_line_that_is_no_record_is_told_with_its_number(tmp_path: Path, bad: bytes) -> None:
    good = b'{"value": "%s"}\n' % VALUE.encode()
    code, out, said = run(
        "append", tmp_path / "lines-0", "--json", "--batch-records", 1, stdin=good * 2 + bad + b"\n"
    )
    assert (code, out) == (1, b"")
    sentence(said)
    assert "line 3" in said
    assert "2 records before were" in said
    with replog.Log.open(tmp_path / "lines-0") as log:
        assert log.log_end_offset == 2


@pytest.mark.parametrize("command", ["append", "read", "dump"])
def test_a_closed_stream_is_a_sentence(tmp_path: Path, command: str) -> None:
    with replog.Log.open(tmp_path / "lines-0") as log:
        log.append([b"a"])
    closed = "<&-" if command == "append" else ">&-"
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *COMMAND, command, str(tmp_path / "lines-0")],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    sentence(done.stderr)
    assert "closed" in done.stderr


@pytest.mark.parametrize("path", ["/dev/null/x-0", "/proc/x-0", "x" * 300 + "-0", "", "no\nname"])
def test_a_path_that_cannot_be_is_a_sentence(path: str) -> None:
    code, out, said = run("append", path)
    assert (code, out) == (1, b"")
    sentence(said)
    code, out, said = run("read", path)
    assert (code, out) == (1, b"")
    sentence(said)


@pytest.mark.parametrize("offset", ["-1", "99", str(2**63), str(2**80)])
def test_an_offset_that_is_not_there_is_a_sentence(tmp_path: Path, offset: str) -> None:
    with replog.Log.open(tmp_path / "lines-0") as log:
        log.append([b"a"])
    code, out, said = run("read", tmp_path / "lines-0", "--start", offset)
    assert (code, out) == (1, b"")
    sentence(said)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("meta.properties", b"garbage"),
        ("meta.properties", b"version=9\nnode.id=1\ncluster.id=x\n"),
        ("meta.properties", b"\xff\xfe\x00"),
        ("quorum-state", b'{"leaderId": 1, "leader'),
        ("quorum-state", b"garbage"),
        ("quorum-state", b'{"leaderId": "one"}'),
        (".kafka_cleanshutdown", b'{"version": 0, "brok'),
        (".kafka_cleanshutdown", b"[" * 100_000),
        ("partition.metadata", b"version: 0\ntopic_id: no\n"),
        ("recovery-point-offset-checkpoint", b"0\n7\na 0 1\n"),
        ("leader-epoch-checkpoint", b"0\nx\n"),
    ],
)
def test_a_damaged_side_file_is_no_fact(tmp_path: Path, name: str, content: bytes) -> None:
    with replog.LogDirectory.open(tmp_path / "logs") as directory:
        directory.create_partition("a", 0)
    inside = tmp_path / "logs"
    if name in ("partition.metadata", "leader-epoch-checkpoint"):
        inside /= "a-0"
    (inside / name).write_bytes(content)
    for options in ([], ["--json"]):
        code, out, said = run("dump", *options, inside / name)
        assert (code, out) == (1, b"")
        sentence(said)
        assert name in said
        code, out, _ = run("dump", *options, inside)
        assert code == 0
        assert b"problem" in out


def test_quickstart_refuses_an_input_that_is_no_file(tmp_path: Path) -> None:
    code, _, said = run("quickstart", "--no-spark", "--input", tmp_path / "absent")
    assert code == 2
    assert "absent" in said
    code, _, said = run("quickstart", "--no-spark", "--input", tmp_path)
    assert code == 2
    code, _, said = run("quickstart", "--no-spark", "--directory", "/proc/here")
    assert code == 1
    assert said.count("\n") == 1
