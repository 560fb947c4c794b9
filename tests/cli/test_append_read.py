"""`replog append` and `replog read`: lines in, lines out, and JSON both ways."""

from __future__ import annotations

import base64
import io
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replog.cli.main import run
from replog.reader import PartitionReader
from replog.storage.log import Log

PAUSE = threading.Event()
GOLDEN = Path(__file__).parents[1] / "golden"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
Command = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command line in process with bytes as stdin; answers exit code, stdout, stderr."""

    def runs(*arguments: object, stdin: bytes = b"") -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return runs


@pytest.mark.parametrize("codec", CODECS)
def test_lines_come_out_as_they_went_in(command: Command, tmp_path: Path, codec: str) -> None:
    lines = b"".join(b"line %d of \xff\x00 bytes\n" % number for number in range(2500)) + b"\n\nend"
    code, out, said = command("append", tmp_path / "lines-0", "--codec", codec, stdin=lines)
    assert (code, out) == (0, b"")
    assert "appended 2503 records" in said
    code, out, said = command("read", tmp_path / "lines-0")
    assert (code, out, said) == (0, lines + b"\n", "")


def test_append_makes_a_partition_directory_with_its_metadata(
    command: Command, tmp_path: Path
) -> None:
    command("append", tmp_path / "deeper" / "orders-7", stdin=b"one\n")
    metadata = (tmp_path / "deeper" / "orders-7" / "partition.metadata").read_text()
    assert metadata.startswith("version: 0\ntopic_id: ")
    code, out, _ = command("dump", "--json", "--records", tmp_path / "deeper" / "orders-7")
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert (row["topic"], row["partition"], row["value"]) == ("orders", 7, "b25l")


def test_batch_records_cuts_batches(command: Command, tmp_path: Path) -> None:
    lines = b"x\n" * 25
    command("append", tmp_path / "cut-0", "--batch-records", 10, stdin=lines)
    command("append", tmp_path / "cut-0", "--batch-records", 10, stdin=lines)
    _, out, _ = command("dump", "--json", "--batches", tmp_path / "cut-0")
    counts = [json.loads(line)["count"] for line in out.splitlines()]
    assert counts == [10, 10, 5, 10, 10, 5]


def test_keys_are_split_off_and_put_back(command: Command, tmp_path: Path) -> None:
    lines = b"k1=v1\nno key\n=empty key\nk2=v=w\n"
    command("append", tmp_path / "keyed-0", "--key-separator", "=", stdin=lines)
    table = PartitionReader(tmp_path / "keyed-0").to_arrow(columns=["key", "value"])
    assert table["key"].to_pylist() == [b"k1", None, b"", b"k2"]
    assert table["value"].to_pylist() == [b"v1", b"no key", b"empty key", b"v=w"]
    assert command("read", tmp_path / "keyed-0", "--key-separator", "=")[1] == lines


def test_json_keeps_keys_nulls_headers_and_timestamps(command: Command, tmp_path: Path) -> None:
    rows = [
        {"key": None, "value": None, "headers": [], "timestamp": 5},
        {"key": "", "value": "", "headers": [["h", None], ["h", "AA=="]], "timestamp": -1},
        {"key": "a2V5", "value": "dmFsdWU=", "headers": [["ключ", ""]], "timestamp": 1},
    ]
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    code, out, _ = command("append", tmp_path / "json-0", "--json", stdin=lines)
    assert code == 0
    assert json.loads(out) == {"records": 3, "first_offset": 0, "log_end_offset": 3}
    _, out, _ = command("read", tmp_path / "json-0", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [{name: row[name] for name in rows[0]} for row in found] == rows


def test_what_read_prints_as_json_can_be_appended(command: Command, tmp_path: Path) -> None:
    source = GOLDEN / "transactions" / "data" / "idempotent-0"
    _, printed, _ = command("read", source, "--json")
    code, _, _ = command("append", tmp_path / "copy-0", "--json", "--codec", "zstd", stdin=printed)
    assert code == 0
    _, again, _ = command("read", tmp_path / "copy-0", "--json")
    names = ("key", "value", "headers", "timestamp")

    def shown(lines: bytes) -> list[list[object]]:
        return [[json.loads(line)[name] for name in names] for line in lines.splitlines()]

    assert shown(again) == shown(printed)


def test_read_takes_a_range_of_offsets(command: Command, tmp_path: Path) -> None:
    command("append", tmp_path / "some-0", stdin=b"".join(b"%d\n" % n for n in range(100)))
    _, out, _ = command("read", tmp_path / "some-0", "--start", 95, "--end", 98)
    assert out == b"95\n96\n97\n"
    code, _, said = command("read", tmp_path / "some-0", "--start", 101)
    assert code == 1
    assert "expected a start offset in [0, 100]" in said


def test_what_the_last_append_wrote_is_there_for_the_next(command: Command, tmp_path: Path) -> None:
    for number in range(5):
        command("append", tmp_path / "more-0", stdin=b"%d\n" % number)
    assert command("read", tmp_path / "more-0")[1] == b"0\n1\n2\n3\n4\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", "expected a JSON object on line 1"),
        (b"[1]", "expected a JSON object on line 1"),
        (b'{"value": "*"}', "base64"),
        (b'{"value": 7}', "base64"),
        (b'{"value": "", "timestamp": "now"}', "integer timestamp"),
        (b'{"value": "", "headers": [["h"]]}', "headers as pairs"),
    ],
)
def test_a_line_that_is_no_record_is_refused_and_named(
    command: Command, tmp_path: Path, line: bytes, said: str
) -> None:
    code, _, problem = command("append", tmp_path / "bad-0", "--json", stdin=line + b"\n")
    assert code == 1
    assert said in problem


def test_a_directory_that_is_no_partition_name_is_refused(command: Command, tmp_path: Path) -> None:
    code, _, said = command("append", tmp_path / "name", stdin=b"x\n")
    assert code == 1
    assert "TOPIC-N" in said
    code, _, said = command("read", tmp_path / "absent-0")
    assert code == 1
    assert "expected a partition directory" in said


def test_values_of_many_kinds_survive(command: Command, tmp_path: Path) -> None:
    value = base64.b64encode(bytes(range(256)) * 300).decode()
    line = json.dumps({"value": value}).encode() + b"\n"
    command("append", tmp_path / "large-0", "--json", "--codec", "lz4", stdin=line * 3)
    _, out, _ = command("read", tmp_path / "large-0", "--json")
    assert [json.loads(one)["value"] for one in out.splitlines()] == [value] * 3


def test_a_mistyped_field_is_refused_and_what_stood_before_it_is_kept(
    command: Command, tmp_path: Path
) -> None:
    lines = b'{"value": "YQ=="}\n\n{"value": "Yg=="}\n{"worth": "Yw=="}\n{"value": "ZA=="}\n'
    code, _, said = command("append", tmp_path / "t-0", "--json", stdin=lines)
    assert code == 1
    assert "expected the fields key, value, headers, timestamp on line 4, found 'worth'" in said
    assert "2 records before were appended" in said
    assert command("read", tmp_path / "t-0") == (0, b"a\nb\n", "")


def test_options_are_kafkas_and_are_kept(command: Command, tmp_path: Path) -> None:
    code, _, _ = command(
        "append", tmp_path / "t-0", "--option", "segment.bytes=1048576", stdin=b"one\n"
    )
    assert code == 0
    with Log.open(tmp_path / "t-0") as log:
        assert log.config.segment_bytes == 1048576
    for option, problem in (("segment.byte=1", "segment.byte"), ("segment.bytes", "NAME=VALUE")):
        code, _, said = command("append", tmp_path / "t-0", "--option", option, stdin=b"x\n")
        assert code != 0
        assert problem in said
    assert command("read", tmp_path / "t-0")[1] == b"one\n"


class Appending:
    """`replog append` in a process of its own, whose input stays open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-m", "replog", "append", str(path)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, content: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(content)
        self.process.stdin.flush()

    def wait_for(self, expected: list[bytes]) -> None:
        deadline = time.monotonic() + 20
        found: list[bytes] = []
        while found != expected:
            assert time.monotonic() < deadline, found
            PAUSE.wait(0.02)
            if list(self.path.glob("*.log")):
                reader = PartitionReader(self.path)
                found = reader.to_arrow(columns=["value"]).column("value").to_pylist()


@pytest.fixture
def appending(tmp_path: Path) -> Iterator[Appending]:
    started = Appending(tmp_path / "t-0")
    yield started
    started.process.kill()
    started.process.communicate()


def test_lines_do_not_wait_for_a_batch_to_be_full(appending: Appending) -> None:
    appending.send(b"one\ntwo\nunfini")
    appending.wait_for([b"one", b"two"])
    appending.send(b"shed\n")
    appending.wait_for([b"one", b"two", b"unfinished"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_was_given(appending: Appending, number: signal.Signals) -> None:
    appending.send(b"one\n")
    appending.wait_for([b"one"])
    appending.send(b"two\n" * 3)
    appending.process.send_signal(number)
    _, said = appending.process.communicate(timeout=20)
    assert appending.process.returncode == 128 + number
    assert b"appended 4 records; the log ends at offset 4" in said
    with Log.open(appending.path) as log:
        assert log.recovery_report.clean


def test_read_begins_at_a_time_and_ends_at_a_limit(command: Command, tmp_path: Path) -> None:
    at = 1_800_000_000_000
    with Log.open(tmp_path / "t-0", now_ms=lambda: at + 1000) as log:
        log.append([b"%d" % n for n in range(10)], timestamps=[at + 100 * n for n in range(10)])
    for given in (str(at + 450), "2027-01-15T08:00:00.450Z", "2027-01-15T09:00:00.450+01:00"):
        code, out, _ = command("read", tmp_path / "t-0", "--from-time", given)
        assert (code, out) == (0, b"5\n6\n7\n8\n9\n"), given
    code, out, _ = command("read", tmp_path / "t-0", "--from-time", at + 450, "--limit", 2)
    assert out == b"5\n6\n"
    assert command("read", tmp_path / "t-0", "--limit", 0) == (0, b"", "")
    assert command("read", tmp_path / "t-0", "--from-time", at + 5000) == (0, b"", "")
    for wrong in (["--from-time", "noon"], ["--from-time", "1", "--start", "2"]):
        code, out, said = command("read", tmp_path / "t-0", *wrong)
        assert (code, out) == (2, b"")
        assert "expected" in said


def test_read_follows_what_is_appended(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0") as log:
        log.append([b"one"])
        following = subprocess.Popen(
            [sys.executable, "-m", "replog", "read", str(tmp_path / "t-0"), "--follow",
             "--isolation", "log_end", "--limit", "4"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert following.stdout is not None
        assert following.stdout.readline() == b"one\n"
        log.append([b"two", b"three"])
        assert following.stdout.readline() == b"two\n"
        log.append([b"four", b"five"])
        with following.stdout as stdout:
            assert stdout.read() == b"three\nfour\n"
        assert following.wait(20) == 0
