"""`replog spark ...`: Spark over the segment files of a directory, in a local session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from replog.cli.spark_compact_view import compact_view_command
from replog.cli.spark_export import export_command
from replog.cli.spark_restore import restore_command
from replog.cli.spark_run import ISOLATION, JSON, spark_session, write_row
from replog.cli.spark_stats import stats_command
from replog.cli.spark_verify import verify_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PATH = click.argument("path", type=click.Path(exists=True))


@click.group()
def spark() -> None:
    """Let Spark read the segment files of log or partition directories (needs Java and PySpark)."""


for command in (
    compact_view_command,
    export_command,
    restore_command,
    stats_command,
    verify_command,
):
    spark.add_command(command)


@contextmanager
def _frame(path: str, isolation: str, columns: str | None) -> Iterator[DataFrame]:
    with spark_session() as session:
        source = session.read.format("replog").option("kafka.isolation.level", isolation)
        yield (source.schema(columns) if columns else source).load(path)


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
    write_row({"records": records, "seconds": seconds}, as_json=as_json)


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
        write_row(row.asDict(), as_json=as_json)


@spark.command()
@click.argument("paths", nargs=-1, required=True)
def snapshot(paths: tuple[str, ...]) -> None:
    """Print a token of what is committed under PATHS now; option("snapshot", TOKEN) reads that.

    Needs neither Java nor PySpark.
    """
    from spark_integration import snapshot as snapshot_of

    click.echo(snapshot_of(paths))
