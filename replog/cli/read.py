"""`replog read PATH`: the records of a partition directory on stdout, a line each."""

from __future__ import annotations

import datetime as dt
import time

import click
import pyarrow as pa

from replog.cli.record_json import line, record_rows
from replog.cli.streams import separator_bytes, standard_output
from replog.reader import PartitionReader
from replog.types import Isolation

POLL_S = 0.1


def _timestamp(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """The ms since the epoch of `text`: that number, or a time of the calendar."""
    if text is None:
        return None
    if text.removeprefix("-").isdigit():
        return int(text)
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"expected ms since 1970 or a time as 2026-01-31T12:00:00Z, found {text!r}",
            context,
            parameter,
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
    return (at - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)


@click.command()
@click.argument("path", type=click.Path(file_okay=False))
@click.option("--start", type=int, help="First offset; default: where the log starts.")
@click.option(
    "--from-time",
    callback=_timestamp,
    metavar="TIME",
    help="Begin with the first record at or after it: ms since 1970, or as 2026-01-31T12:00:00Z "
    "(UTC where no zone is named).",
)
@click.option("--end", type=int, help="Offset to stop before; default: the end.")
@click.option("--limit", type=click.IntRange(min=0), help="Print so many records at most.")
@click.option("--follow", is_flag=True, help="Go on with what is appended, until interrupted.")
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in Isolation]),
    default=Isolation.HIGH_WATERMARK.value,
    show_default=True,
    help="How far to read; log_end also shows what is not committed.",
)
@click.option(
    "--key-separator",
    "separator",
    callback=separator_bytes,
    help="Print KEY, this text and the value; a null key as nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record, bytes as base64.")
def read(
    path: str,
    *,
    start: int | None,
    from_time: int | None,
    end: int | None,
    limit: int | None,
    follow: bool,
    isolation: str,
    separator: bytes | None,
    as_json: bool,
) -> None:
    """Print the records of the partition directory PATH, a line each, oldest first.

    Works beside a running writer. A null value prints as an empty line. --follow ends at --end or
    --limit, or with a sentence if what it was to print next is gone.
    """
    if as_json and separator is not None:
        raise click.UsageError(
            "expected --json or --key-separator, found both; JSON names its keys"
        )
    if start is not None and from_time is not None:
        raise click.UsageError("expected --start or --from-time, found both; give one of them")
    output = standard_output()
    reader = PartitionReader(path)
    offset = start
    if from_time is not None:
        found = reader.offset_for_timestamp(from_time, isolation=isolation)
        offset = reader.bound(isolation) if found is None else found.offset
    columns = None if as_json else ["key", "value"]
    while True:
        for records in reader.record_batches(offset, end, columns=columns, isolation=isolation):
            printed = records if limit is None else records.slice(0, limit)
            if as_json:
                for row in record_rows(reader.topic_partition, printed):
                    output.write(line(row))
            else:
                output.write(_text(printed, separator))
            if limit is not None:
                limit -= printed.num_rows
                if limit == 0:
                    return
        offset = max(offset or 0, reader.bound(isolation))
        if not follow or limit == 0 or (end is not None and offset >= end):
            return
        output.flush()
        time.sleep(POLL_S)
        reader.refresh()


def _text(records: pa.RecordBatch, separator: bytes | None) -> bytes:
    values = records.column("value").to_pylist()
    if separator is None:
        return b"".join((value or b"") + b"\n" for value in values)
    keys = records.column("key").to_pylist()
    return b"".join(
        (value or b"") + b"\n" if key is None else key + separator + (value or b"") + b"\n"
        for key, value in zip(keys, values, strict=True)
    )
