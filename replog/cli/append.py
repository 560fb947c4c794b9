"""`replog append PATH`: lines of stdin become records of a partition directory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from replog.cli.arriving_lines import ArrivingLines
from replog.cli.record_json import RECORD_FIELDS, decoded, line
from replog.cli.streams import separator_bytes, standard_input, standard_output
from replog.config import LogConfig
from replog.errors import ReplogError, UsageError, shown
from replog.storage.log import Log
from replog.types import NO_TIMESTAMP, Codec

if TYPE_CHECKING:
    from replog._native.append_result import AppendResult

Headers = list[tuple[str, bytes | None]]


BATCH_RECORDS_MAX = 1_000_000
TIMESTAMP_MAX = 2**63 - 1
TAKEN_FIELDS = ("key", "value", "headers", "timestamp")
EXIT_SIGNALLED = 128  # and the signal's number, as a shell tells it


class Lines(NamedTuple):
    """Columns of the records of one append; `timestamps` in ms since the epoch.

    numbers: of the input's lines, from 1.
    """

    values: list[bytes | None]
    keys: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers]
    numbers: list[int]


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
    type=click.IntRange(min=1, max=BATCH_RECORDS_MAX),
    default=1000,
    show_default=True,
    help="Records per batch.",
)
@click.option(
    "--key-separator",
    "separator",
    callback=separator_bytes,
    help="Split each line at the first of this text: key, value.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the log under Kafka's name, as segment.bytes=1048576; may be repeated. "
    "Without any, those it was made with.",
)
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON objects, bytes as base64.")
@click.pass_context
def append(
    context: click.Context,
    path: str,
    *,
    codec: str,
    batch_records: int,
    separator: bytes | None,
    options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Append the lines of stdin to the partition directory PATH, named TOPIC-N.

    The directory is created if missing. A line waits at most 100 ms for others to become a batch
    with it. With --json a line is an object of `key`, `value`, `headers` (pairs) and `timestamp`
    (ms), each of them optional; the other fields that `read --json` and `dump --json --records`
    print are passed over. All records are on disk, synced, when the command ends; so are those
    before a line that is refused, or before a signal (SIGINT, SIGTERM) that ends it.
    """
    if as_json and separator is not None:
        raise click.UsageError(
            "expected --json or --key-separator, found both; JSON names its keys"
        )
    arriving = ArrivingLines(standard_input())
    first_offset: int | None = None
    count = 0
    with arriving, Log.open(path, _config(options), now_ms=now_ms) as log:
        gathered = _gathered(arriving, batch_records, separator, as_json=as_json)
        while (lines := _next_lines(gathered, count)) is not None:
            result = _appended(log, lines, Codec.of(codec), count)
            first_offset = result.base_offset if first_offset is None else first_offset
            count += len(lines.values)
        log.flush()
        end_offset = log.log_end_offset
    if as_json:
        told = {"records": count, "first_offset": first_offset, "log_end_offset": end_offset}
        standard_output().write(line(told))
    else:
        click.echo(f"appended {count} records; the log ends at offset {end_offset}", err=True)
    if arriving.stopped_by is not None:
        context.exit(EXIT_SIGNALLED + arriving.stopped_by)


def _config(options: tuple[str, ...]) -> LogConfig | None:
    """None without options: those that the log was made with."""
    for option in options:
        if "=" not in option:
            raise click.BadParameter(f"expected --option NAME=VALUE, found {option!r}")
    if not options:
        return None
    return LogConfig.from_kafka(dict(option.split("=", 1) for option in options))


def _appended(log: Log, lines: Lines, codec: Codec, count: int) -> AppendResult:
    """Append some lines; an error tells which they were and what went in before them."""
    try:
        return log.append(
            lines.values,
            keys=lines.keys,
            timestamps=lines.timestamps,
            headers=lines.headers,
            codec=codec,
        )
    except ReplogError as error:
        row = error.facts.get("row")
        place = f"lines {lines.numbers[0]} to {lines.numbers[-1]}"
        if len(lines.numbers) == 1:
            place = f"line {lines.numbers[0]}"
        elif isinstance(row, int):
            place = f"line {lines.numbers[row]} (with {place})"
        facts = error.facts | {"line": lines.numbers[row or 0]}
        raise type(error)(
            f"{error}; {place} of the input not appended, {count} records before were", **facts
        ) from error


def _next_lines(gathered: Iterator[Lines], count: int) -> Lines | None:
    """The next records; None at the end. A line that is no record tells what went in before it."""
    try:
        return next(gathered, None)
    except UsageError as error:
        raise UsageError(f"{error}; {count} records before were appended") from error


def _gathered(
    arriving: ArrivingLines, batch_records: int, separator: bytes | None, *, as_json: bool
) -> Iterator[Lines]:
    """Records that make a batch each; those before a line that is refused come before its error."""
    lines = Lines([], [], [], [], [])
    number = 0
    for text in arriving:
        try:
            if text is not None:
                number += 1
                if as_json:
                    _take_json(text, number, lines)
                else:
                    _take_text(text.removesuffix(b"\n"), number, separator, lines)
        except UsageError:
            if lines.values:
                yield lines
            raise
        if lines.values and (text is None or len(lines.values) == batch_records):
            yield lines
            lines = Lines([], [], [], [], [])
    if lines.values:
        yield lines


def _take_text(text: bytes, number: int, separator: bytes | None, lines: Lines) -> None:
    key: bytes | None = None
    if separator is not None and separator in text:
        key, _, text = text.partition(separator)
    lines.values.append(text)
    lines.keys.append(key)
    lines.timestamps.append(now_ms())
    lines.headers.append([])
    lines.numbers.append(number)


def _take_json(text: bytes, number: int, lines: Lines) -> None:
    if not text.strip():
        return
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"expected a JSON object on line {number}, found {error}") from error
    if not isinstance(row, dict):
        raise UsageError(f"expected a JSON object on line {number}, found {type(row).__name__}")
    unknown = row.keys() - RECORD_FIELDS
    if unknown:
        raise UsageError(
            f"expected the fields {', '.join(TAKEN_FIELDS)} on line {number}, found "
            f"{shown(min(unknown))}; correct its name, or leave it out"
        )
    timestamp = row.get("timestamp")
    if timestamp is not None and (
        not isinstance(timestamp, int)
        or isinstance(timestamp, bool)
        or not NO_TIMESTAMP <= timestamp <= TIMESTAMP_MAX
    ):
        raise UsageError(
            f"expected an integer timestamp of ms, or -1 for none, on line {number}, found "
            f"{shown(timestamp)}"
        )
    headers = row.get("headers") or []
    if not isinstance(headers, list) or not all(_is_header(pair) for pair in headers):
        raise UsageError(f"expected headers as pairs on line {number}, found {shown(headers)}")
    place = f"on line {number}"
    key, value = (
        decoded(row.get("key"), f"key {place}"),
        decoded(row.get("value"), f"value {place}"),
    )
    pairs = [(name, decoded(content, f"header {place}")) for name, content in headers]
    # Only now, so that a line that is refused leaves no part of a record.
    lines.keys.append(key)
    lines.values.append(value)
    lines.timestamps.append(now_ms() if timestamp is None else timestamp)
    lines.headers.append(pairs)
    lines.numbers.append(number)


def _is_header(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
