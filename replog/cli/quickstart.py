"""`replog quickstart`: the whole product in one run, on files that stay if asked."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Any

import click

from replog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


LINE_BYTES_MAX = 1_000_000


@click.command()
@click.option(
    "--input",
    "input_path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="One record a line, - for stdin; default: the lines of Python's own library sources.",
)
@click.option(
    "--records",
    "record_count",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="How many; the input is repeated if it is shorter, and cut if it is longer.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    help="Keep the files here; must be new or empty. Default: a temporary directory, deleted.",
)
@click.option("--spark/--no-spark", default=True, help="Let Spark read the result as well.")
@click.option("--json", "as_json", is_flag=True, help="The figures as one JSON object.")
def quickstart(
    input_path: str | None,
    *,
    record_count: int,
    directory: str | None,
    spark: bool,
    as_json: bool,
) -> None:
    """Run three replicas through the loss of their leader, and prove that nothing is lost.

    Produces the records, kills the leader with uncommitted records in its log, elects another, goes
    on, takes the old leader back, compares the three replicas' files byte by byte, and lets Spark
    count what is in them.
    """
    from replog.cli.failover_run import FailoverRun
    from replog.cli.line_source import LineSource, standard_library_sources
    from replog.cli.progress import Progress
    from replog.cli.quickstart_report import print_report
    from replog.cli.spark_count import count_with_spark

    started = time.perf_counter()
    progress = Progress()
    with _directory(directory) as place, _regular_file(input_path) as path:
        paths = [path] if path is not None else standard_library_sources()
        source = LineSource(paths, LINE_BYTES_MAX)
        run = FailoverRun(place, source, record_count, progress.show)
        try:
            figures = run.run()
            progress.show("comparing files done; Spark starts", 1, 1)
            counted: dict[str, Any] = {"skipped": "--no-spark was given"}
            if spark:
                counted = count_with_spark(run.directories[0])
        finally:
            progress.clear()
        report: dict[str, Any] = {
            "input": input_path or "the standard library's sources",
            "input_passes": source.passes,
            "directory": place if directory is not None else None,
            **dataclasses.asdict(figures),
            "spark": counted,
            "seconds": time.perf_counter() - started,
        }
    if as_json:
        click.echo(json.dumps(report))
    else:
        print_report(report, figures)
    if "skipped" not in counted:
        produced = (figures.records, figures.value_bytes)
        found = (counted["records"], counted["value_bytes"])
        if found != produced:
            raise click.ClickException(
                f"expected Spark to find {produced[0]} records of {produced[1]} bytes in all, "
                f"found {found[0]} of {found[1]}"
            )


@contextlib.contextmanager
def _regular_file(path: str | None) -> Iterator[str | None]:
    """`path`, or a temporary copy of what a pipe gives: a short input is read more than once."""
    if path is None or os.path.isfile(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="replog-quickstart-") as copy:
        with click.open_file(path, "rb") as pipe:
            shutil.copyfileobj(pipe, copy)
        copy.flush()
        yield copy.name


@contextlib.contextmanager
def _directory(directory: str | None) -> Iterator[str]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="replog-quickstart-") as place:
            yield place
        return
    os.makedirs(directory, exist_ok=True)
    if os.listdir(directory):
        raise UsageError(
            f"expected a new or empty directory, found files in {directory}; give another",
            path=directory,
        )
    yield os.path.abspath(directory)
