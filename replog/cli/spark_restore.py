"""`replog spark restore`: partitions back into a log directory."""

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
from replog.types import Codec

MIB = 1024 * 1024


@click.command("restore")
@PATHS
@click.option(
    "--target",
    required=True,
    type=click.Path(file_okay=False),
    help="A log directory that nobody has open; made if it is missing.",
)
@TOPICS
@click.option(
    "--codec",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
    help="Compression of the batches that an export becomes.",
)
@NO_SPARK
@JSON
def restore_command(
    paths: tuple[str, ...],
    *,
    target: str,
    topics: tuple[str, ...],
    codec: str,
    no_spark: bool,
    as_json: bool,
) -> None:
    """Restore the partitions of PATHS into a log directory.

    PATHS are copies of log directories or partitions, which come back byte for byte, or one
    directory that `replog spark export` wrote, whose records come back with their offsets and
    epochs. A partition that is there is never overwritten. Run a broken-off restore again to finish
    it.
    """
    from spark_integration.jobs.restore import restore

    with job_engine(no_spark=no_spark) as engine, shown_progress("restoring") as progress:
        report = restore(
            paths, target, engine, topics=topics, codec=Codec[codec.upper()], progress=progress
        )
    if as_json:
        write_row(dataclasses.asdict(report), as_json=True)
        return
    counted = "" if report.records is None else f"{report.records} records, "
    before = f", {report.skipped} were done before" if report.skipped else ""
    click.echo(
        f"restored {report.partitions} partitions from {report.kind} into {report.target}: "
        f"{counted}{report.size_bytes / MIB:.1f} MiB in {report.seconds:.1f} s{before}"
    )
