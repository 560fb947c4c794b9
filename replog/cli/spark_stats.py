"""`replog spark stats`: counts, bytes, rates, skew and compression of topics."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import click

from replog.cli.spark_run import (
    ISOLATION,
    JSON,
    PATHS,
    TOPICS,
    shown_progress,
    spark_session,
    write_row,
)
from replog.types import Isolation

MIB = 1024 * 1024
COLUMNS = {
    "topic": "topic",
    "partition": "partition",
    "records": "records",
    "MiB": "size_bytes",
    "compression": "compression_ratio",
    "keys": "keys",
    "tombstones": "tombstones",
    "largest key": "largest_key_share",
    "records/s": "records_per_second",
}


@click.command("stats")
@PATHS
@TOPICS
@ISOLATION
@click.option(
    "--html", "page", type=click.Path(dir_okay=False), help="Also write a page with plots."
)
@click.option(
    "--keys",
    "keys_max",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many of each topic's most frequent keys to tell.",
)
@JSON
def stats_command(
    paths: tuple[str, ...],
    *,
    topics: tuple[str, ...],
    isolation: str,
    page: str | None,
    keys_max: int,
    as_json: bool,
) -> None:
    """Tell records, bytes, rates, key skew and compression of the partitions under PATHS."""
    from spark_integration.jobs.stats import stats
    from spark_integration.jobs.stats_page import require_plots, stats_page, write_page

    if page is not None:
        require_plots()
    with spark_session() as session, shown_progress("reading batch headers") as progress:
        report = stats(
            session,
            paths,
            topics=topics,
            isolation=Isolation(isolation),
            keys_max=keys_max,
            progress=progress,
        )
    if page is not None:
        write_page(page, stats_page(report, f"replog: {', '.join(paths)}"))
    facts = [dataclasses.asdict(one) for one in report.partitions]
    if as_json:
        for kind, rows in (
            ("topic", report.topics),
            ("partition", report.partitions),
            ("key", report.keys),
            ("rate", report.rates),
        ):
            for row in rows:
                write_row({"kind": kind, **_plain(dataclasses.asdict(row))}, as_json=True)
        return
    shown = [[_shown(name, one[field]) for name, field in COLUMNS.items()] for one in facts]
    for text in table_lines(list(COLUMNS), shown):
        click.echo(text)
    if page is not None:
        click.echo(f"wrote {page}")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: base64.b64encode(fact).decode() if isinstance(fact, bytes) else fact
        for name, fact in row.items()
    }


def _shown(name: str, fact: Any) -> str:
    if fact is None:
        return "-"
    if name == "MiB":
        return f"{fact / MIB:.1f}"
    if name == "largest key":
        return f"{fact:.1%}"
    return f"{fact:.2f}" if isinstance(fact, float) else str(fact)


def table_lines(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table for a terminal: the first column to the left, the others to the right."""
    listed = [list(names), *rows]
    widths = [max(len(row[at]) for row in listed) for at in range(len(names))]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in listed
    ]
