"""`replog append PATH`: lines of stdin become records of a partition directory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import click

from replog.cli.record_json import decoded, line
from replog.errors import UsageError
from replog.storage.partition_log import PartitionLog
from replog.types import Codec

Headers = list[tuple[str, bytes | None]]


class Lines(NamedTuple):
    """Columns of the records of one append; `timestamps` in ms since the epoch."""

    values: list[bytes | None]
    keys: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers]


def now_ms() -> int:
    """Wall time in ms since the epoch."""
    return time.time_ns() // 1_000_000


@click.command()
@click.argument("path", type=click.Path(file_okay=False))
@click.option(
    "--codec",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default=Codec.NONE.name.lower(),
    show_default=True,
)
@click.option(
    "--batch-records",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Records per batch.",
)
@click.option("--key-separator", help="Split each line at the first of this text: key, value.")
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON objects, bytes as base64.")
def append(
    path: str, *, codec: str, batch_records: int, key_separator: str | None, as_json: bool
) -> None:
    """Append the lines of stdin to the partition directory PATH, named TOPIC-N.

    The directory is created if missing. With --json a line is an object of `key`, `value`,
    `headers` (pairs) and `timestamp` (ms), each of them optional; other fields are passed over, so
    that what `read --json` and `dump --json --records` print can be appended. All records are on
    disk, synced, when the command ends.
    """
    if as_json and key_separator is not None:
        raise UsageError("expected --json or --key-separator, found both; JSON names its keys")
    stdin = sys.stdin.buffer
    separator = None if key_separator is None else key_separator.encode()
    first_offset: int | None = None
    count = 0
    with PartitionLog.open(path, now_ms=now_ms) as log:
        gathered = _gathered(stdin, batch_records, separator, as_json=as_json)
        while (lines := _next_lines(gathered, count)) is not None:
            result = log.append(
                lines.values,
                keys=lines.keys,
                timestamps=lines.timestamps,
                headers=lines.headers,
                codec=Codec[codec.upper()],
            )
            first_offset = result.base_offset if first_offset is None else first_offset
            count += len(lines.values)
        log.flush()
        end_offset = log.log_end_offset
    if as_json:
        told = {"records": count, "first_offset": first_offset, "log_end_offset": end_offset}
        sys.stdout.buffer.write(line(told))
    else:
        click.echo(f"appended {count} records; the log ends at offset {end_offset}", err=True)


def _next_lines(gathered: Iterator[Lines], count: int) -> Lines | None:
    """The next records; None at the end. A line that is no record tells what went in before it."""
    try:
        return next(gathered, None)
    except UsageError as error:
        raise UsageError(f"{error}; {count} records before it were appended") from error


def _gathered(
    stdin: BinaryIO, batch_records: int, separator: bytes | None, *, as_json: bool
) -> Iterator[Lines]:
    lines = Lines([], [], [], [])
    for number, text in enumerate(stdin, start=1):
        if as_json:
            _take_json(text, number, lines)
        else:
            _take_text(text.removesuffix(b"\n"), separator, lines)
        if len(lines.values) == batch_records:
            yield lines
            lines = Lines([], [], [], [])
    if lines.values:
        yield lines


def _take_text(text: bytes, separator: bytes | None, lines: Lines) -> None:
    key: bytes | None = None
    if separator is not None and separator in text:
        key, _, text = text.partition(separator)
    lines.values.append(text)
    lines.keys.append(key)
    lines.timestamps.append(now_ms())
    lines.headers.append([])


def _take_json(text: bytes, number: int, lines: Lines) -> None:
    if not text.strip():
        return
    try:
        row = json.loads(text)
    except ValueError as error:
        raise UsageError(f"expected a JSON object on line {number}, found {error}") from error
    if not isinstance(row, dict):
        raise UsageError(f"expected a JSON object on line {number}, found {type(row).__name__}")
    timestamp = row.get("timestamp")
    if timestamp is not None and (not isinstance(timestamp, int) or isinstance(timestamp, bool)):
        raise UsageError(f"expected an integer timestamp on line {number}, found {timestamp!r}")
    headers = row.get("headers") or []
    if not isinstance(headers, list) or not all(_is_header(pair) for pair in headers):
        raise UsageError(f"expected headers as pairs on line {number}, found {headers!r}")
    place = f"on line {number}"
    lines.keys.append(decoded(row.get("key"), f"key {place}"))
    lines.values.append(decoded(row.get("value"), f"value {place}"))
    lines.timestamps.append(now_ms() if timestamp is None else timestamp)
    lines.headers.append([(name, decoded(value, f"header {place}")) for name, value in headers])


def _is_header(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
