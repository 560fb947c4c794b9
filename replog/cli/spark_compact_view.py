"""`replog spark compact-view`: the latest record of each key."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import click

from replog.cli.dump_text import readable
from replog.cli.spark_run import ISOLATION, JSON, PATHS, spark_session, write_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
)


@click.command("compact-view")
@PATHS
@ISOLATION
@click.option(
    "--output",
    type=click.Path(file_okay=False),
    help="Write Parquet to this new directory instead of rows to stdout.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Print at most so many rows.")
@JSON
def compact_view_command(
    paths: tuple[str, ...],
    *,
    isolation: str,
    output: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Print, or write as Parquet, the latest record of each key under PATHS.

    Keys whose latest record has no value (a tombstone) and records without a key are left out.
    """
    from spark_integration.jobs.compact_view import compact_view, write_view

    with spark_session() as session:
        source = session.read.format("replog").schema(COLUMNS)
        view = compact_view(source.option("kafka.isolation.level", isolation).load([*paths]))
        if output is None:
            _print(view if limit is None else view.limit(limit), as_json=as_json)
            return
        write_view(view, output)
        keys = session.read.parquet(f"file://{click.format_filename(output)}").count()
    write_row({"keys": keys, "output": output}, as_json=as_json)


def _print(view: DataFrame, *, as_json: bool) -> None:
    from pyspark.sql import functions

    for row in view.withColumn("timestamp", functions.unix_millis("timestamp")).toLocalIterator():
        facts: dict[str, Any] = {**row.asDict(), "headers": []}
        for name in ("key", "value"):
            facts[name] = base64.b64encode(facts[name]).decode()
        shown = facts if as_json else readable(facts)
        del shown["headers"]
        write_row(shown, as_json=as_json)
