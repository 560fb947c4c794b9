"""`replog read PATH`: the records of a partition directory on stdout, a line each."""

from __future__ import annotations

import sys

import click
import pyarrow as pa

from replog.cli.record_json import line, record_rows
from replog.reader import PartitionReader
from replog.types import Isolation


@click.command()
@click.argument("path", type=click.Path(file_okay=False))
@click.option("--start", type=int, help="First offset; default: where the log starts.")
@click.option("--end", type=int, help="Offset to stop before; default: the end.")
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in Isolation]),
    default=Isolation.HIGH_WATERMARK.value,
    show_default=True,
    help="How far to read; log_end also shows what is not committed.",
)
@click.option("--key-separator", help="Print KEY, this text and the value; a null key as nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record, bytes as base64.")
def read(
    path: str,
    *,
    start: int | None,
    end: int | None,
    isolation: str,
    key_separator: str | None,
    as_json: bool,
) -> None:
    """Print the records of the partition directory PATH, a line each, oldest first.

    Works beside a running writer. A null value prints as an empty line.
    """
    reader = PartitionReader(path)
    columns = None if as_json else ["key", "value"]
    write = sys.stdout.buffer.write
    for records in reader.record_batches(start, end, columns=columns, isolation=isolation):
        if as_json:
            for row in record_rows(reader.topic_partition, records):
                write(line(row))
        else:
            write(_text(records, key_separator))


def _text(records: pa.RecordBatch, key_separator: str | None) -> bytes:
    values = records.column("value").to_pylist()
    if key_separator is None:
        return b"".join((value or b"") + b"\n" for value in values)
    separator = key_separator.encode()
    keys = records.column("key").to_pylist()
    return b"".join(
        (value or b"") + b"\n" if key is None else key + separator + (value or b"") + b"\n"
        for key, value in zip(keys, values, strict=True)
    )
