"""`replog spark ...`: Spark over the segment files of a directory, in a local session."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from replog.cli.dump_text import text_line
from replog.cli.record_json import Row, line
from replog.types import Isolation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PATH = click.argument("path", type=click.Path(exists=True))
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
ISOLATION = click.option(
    "--isolation",
    type=click.Choice([Isolation.HIGH_WATERMARK.value, Isolation.TXN_COMMITTED.value]),
    default=Isolation.HIGH_WATERMARK.value,
    show_default=True,
)


@click.group()
def spark() -> None:
    """Let Spark read the segment files of a log or partition directory (needs Java and PySpark)."""


@contextmanager
def _frame(path: str, isolation: str, columns: str | None) -> Iterator[DataFrame]:
    from spark_integration.session import is_running, local_session

    borrowed = is_running()
    session = local_session("replog spark")
    try:
        source = session.read.format("replog").option("kafka.isolation.level", isolation)
        yield (source.schema(columns) if columns else source).load(path)
    finally:
        if not borrowed:
            session.stop()


def _write(row: Row, *, as_json: bool) -> None:
    sys.stdout.buffer.write(line(row) if as_json else text_line(row))


@spark.command()
@PATH
@JSON
@ISOLATION
def count(path: str, *, as_json: bool, isolation: str) -> None:
    """Count the records under PATH."""
    with _frame(path, isolation, "offset bigint") as frame:
        started = time.monotonic()
        records = frame.count()
        seconds = round(time.monotonic() - started, 3)
    _write({"records": records, "seconds": seconds}, as_json=as_json)


@spark.command()
@PATH
@JSON
@ISOLATION
def aggregate(path: str, *, as_json: bool, isolation: str) -> None:
    """Per partition under PATH: records, offsets, timestamps in ms, bytes of values."""
    from pyspark.sql import functions

    with _frame(path, isolation, None) as frame:
        rows = (
            frame.groupBy("topic", "partition")
            .agg(
                functions.count("*").alias("records"),
                functions.min("offset").alias("first_offset"),
                functions.max("offset").alias("last_offset"),
                functions.min(functions.unix_millis("timestamp")).alias("min_timestamp"),
                functions.max(functions.unix_millis("timestamp")).alias("max_timestamp"),
                functions.sum(functions.octet_length("value")).alias("value_bytes"),
            )
            .orderBy("topic", "partition")
            .collect()
        )
    for row in rows:
        _write(row.asDict(), as_json=as_json)
