"""`replog dump PATH`: what is in a directory or file of a log, with nothing running."""

from __future__ import annotations

from collections.abc import Iterator

import click

from replog.cli.dump_rows import batch_rows, file_record_rows, visible_rows
from replog.cli.dump_text import facts, readable, text_line
from replog.cli.metadata_rows import metadata_rows
from replog.cli.record_json import Row, line
from replog.cli.streams import standard_output
from replog.types import Isolation

ISOLATIONS = [Isolation.HIGH_WATERMARK.value, Isolation.TXN_COMMITTED.value]


@click.command()
@click.argument("path", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for machines.")
@click.option("--batches", is_flag=True, help="Every record batch of every segment.")
@click.option("--records", is_flag=True, help="Every record of every segment, control records too.")
@click.option(
    "--isolation",
    type=click.Choice(ISOLATIONS),
    help="With --records: only what a consumer of this isolation level would see.",
)
@click.option("--metadata", is_flag=True, help="The metadata log's records, decoded.")
def dump(
    path: str,
    *,
    as_json: bool,
    batches: bool,
    records: bool,
    isolation: str | None,
    metadata: bool,
) -> None:
    """Show what is in PATH: a log directory, a partition directory, or any file in one.

    Understands segments, indexes, transaction indexes, producer snapshots, metadata snapshots,
    checkpoints, partition.metadata, meta.properties and quorum-state, whether a broker is running
    on them or not. A log directory stands for all its partitions. With --metadata: what Kafka's
    controllers decided, from a metadata partition, one of its files or a log directory with it.
    """
    if batches and (records or isolation):
        raise click.UsageError("expected --batches or --records, found both; ask for one at a time")
    if metadata and (batches or records or isolation):
        raise click.UsageError(
            "expected --metadata alone, found --batches or --records beside it; ask for one at a "
            "time"
        )
    rows: Iterator[Row]
    if metadata:
        rows = metadata_rows(path)
    elif batches:
        rows = batch_rows(path, explain=not as_json)
    elif isolation is not None:
        rows = visible_rows(path, Isolation(isolation))
    elif records:
        rows = file_record_rows(path)
    else:
        rows = facts(path)
    write = standard_output().write
    for row in rows:
        write(line(row) if as_json else text_line(readable(row)))
