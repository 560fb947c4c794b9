"""`replog spark export`: segments to Parquet, incrementally."""

from __future__ import annotations

import dataclasses

import click

from replog.cli.spark_run import (
    ISOLATION,
    JSON,
    NO_SPARK,
    PATHS,
    TOPICS,
    job_engine,
    shown_progress,
    write_row,
)
from replog.types import Isolation

MIB = 1024 * 1024


@click.command("export")
@PATHS
@click.option("--output", required=True, type=click.Path(file_okay=False), help="Where to.")
@TOPICS
@ISOLATION
@click.option(
    "--compression",
    type=click.Choice(["zstd", "snappy", "gzip", "lz4", "none"]),
    default="zstd",
    show_default=True,
)
@click.option(
    "--file-mib",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="About how many MiB of a segment go into a file.",
)
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Go on where retention deleted records before they were exported.",
)
@NO_SPARK
@JSON
def export_command(
    paths: tuple[str, ...],
    *,
    output: str,
    topics: tuple[str, ...],
    isolation: str,
    compression: str,
    file_mib: int,
    allow_loss: bool,
    no_spark: bool,
    as_json: bool,
) -> None:
    """Export what is new under PATHS to Parquet, partitioned by topic and date.

    Run it again to export what came since; a run that was killed is taken up where it was. On one
    machine --no-spark is the faster way: the same files without Spark's start. Spark pays where
    executors on several machines see the same directories.
    """
    from spark_integration.jobs.export import advice, export

    with job_engine(no_spark=no_spark) as engine, shown_progress("exporting") as progress:
        report = export(
            paths,
            output,
            engine,
            topics=topics,
            isolation=Isolation(isolation),
            compression=compression,
            file_bytes=file_mib * MIB,
            allow_loss=allow_loss,
            progress=progress,
        )
        said = advice(report, engine)
    row = dataclasses.asdict(report) | {"advice": said}
    if as_json:
        write_row(row, as_json=True)
        return
    if not report.files and not report.partitions:
        click.echo(f"nothing new to export to {report.directory}")
        return
    click.echo(
        f"exported {report.records} records of {report.partitions} partitions to {report.files} "
        f"files in {report.directory}: {report.segment_bytes / MIB:.1f} MiB of segments became "
        f"{report.file_bytes / MIB:.1f} MiB in {report.seconds:.1f} s"
        f"{' (taken up from a run that was broken off)' if report.resumed else ''}"
    )
    click.echo(said)
