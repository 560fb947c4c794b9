"""`replog spark verify`: are the replicas the same?"""

from __future__ import annotations

import dataclasses

import click

from replog.cli.spark_run import (
    JSON,
    NO_SPARK,
    PATHS,
    TOPICS,
    job_engine,
    shown_progress,
    write_row,
)

EXIT_DIFFERENT = 3


@click.command("verify")
@PATHS
@TOPICS
@NO_SPARK
@JSON
@click.pass_context
def verify_command(
    context: click.Context,
    paths: tuple[str, ...],
    *,
    topics: tuple[str, ...],
    no_spark: bool,
    as_json: bool,
) -> None:
    """Compare the replicas of each partition under PATHS, byte for byte, up to the high watermark.

    Give the log directories of several brokers, or copies of them. Exit code 0: all the same;
    3: a difference, told with topic, partition, offset and byte; 1: could not be compared.
    Compacted topics may differ between brokers without anything being wrong.
    """
    from spark_integration.jobs.verify import verify

    with job_engine(no_spark=no_spark) as engine, shown_progress("comparing") as progress:
        report = verify(paths, engine, topics=topics, progress=progress)
    for one in report.comparisons:
        if as_json:
            write_row(dataclasses.asdict(one), as_json=True)
        elif one.difference is not None:
            click.echo(one.difference.sentence)
    if not as_json:
        records = sum(one.end_offset - one.start_offset for one in report.comparisons)
        click.echo(
            f"compared {len(report.comparisons)} replicas with the furthest of their partition, "
            f"{records} offsets in {report.seconds:.1f} s: {len(report.differences)} differ; "
            f"{len(report.single)} partitions have one replica only"
        )
    if report.differences:
        context.exit(EXIT_DIFFERENT)
