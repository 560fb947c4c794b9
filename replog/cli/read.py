"""`replog read PATH`: the records of a partition directory on stdout, a line each."""

from __future__ import annotations

import click
import pyarrow as pa

from replog.cli.record_json import line, record_rows
from replog.cli.streams import separator_bytes, standard_output
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
    end: int | None,
    isolation: str,
    separator: bytes | None,
    as_json: bool,
) -> None:
    """Print the records of the partition directory PATH, a line each, oldest first.

    Works beside a running writer. A null value prints as an empty line.
    """
    if as_json and separator is not None:
        raise click.UsageError(
            "expected --json or --key-separator, found both; JSON names its keys"
        )
    write = standard_output().write
    reader = PartitionReader(path)
    columns = None if as_json else ["key", "value"]
    for records in reader.record_batches(start, end, columns=columns, isolation=isolation):
        if as_json:
            for row in record_rows(reader.topic_partition, records):
                write(line(row))
        else:
            write(_text(records, separator))


def _text(records: pa.RecordBatch, separator: bytes | None) -> bytes:
    values = records.column("value").to_pylist()
    if separator is None:
        return b"".join((value or b"") + b"\n" for value in values)
    keys = records.column("key").to_pylist()
    return b"".join(
        (value or b"") + b"\n" if key is None else key + separator + (value or b"") + b"\n"
        for key, value in zip(keys, values, strict=True)
    )
