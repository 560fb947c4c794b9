"""What the commands of `replog spark` share: a session, an engine for jobs, progress, rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from replog.cli.dump_text import text_line
from replog.cli.progress import Progress
from replog.cli.record_json import Row, line
from replog.cli.streams import standard_output
from replog.types import Isolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_integration.jobs.engine import Engine

PATHS = click.argument("paths", type=click.Path(exists=True), nargs=-1, required=True)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
TOPICS = click.option(
    "--topic", "topics", multiple=True, help="Only this topic (or shell pattern); repeatable."
)
ISOLATION = click.option(
    "--isolation",
    type=click.Choice([Isolation.HIGH_WATERMARK.value, Isolation.TXN_COMMITTED.value]),
    default=Isolation.HIGH_WATERMARK.value,
    show_default=True,
)
NO_SPARK = click.option(
    "--no-spark", is_flag=True, help="Use threads of this process; needs neither Java nor PySpark."
)


def write_row(row: Row, *, as_json: bool) -> None:
    """One row of facts to stdout."""
    standard_output().write(line(row) if as_json else text_line(row))


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """This process's session, which stays, or a new local one, which is stopped."""
    from spark_integration.session import is_running, local_session

    borrowed = is_running()
    session = local_session("replog spark")
    try:
        yield session
    finally:
        if not borrowed:
            session.stop()


@contextmanager
def job_engine(*, no_spark: bool) -> Iterator[Engine]:
    """Where a command's tasks run."""
    from spark_integration.jobs.engine import LocalEngine, SparkEngine

    if no_spark:
        yield LocalEngine()
        return
    with spark_session() as session:
        yield SparkEngine(session)


@contextmanager
def shown_progress(step: str) -> Iterator[Callable[[int, int], None]]:
    """What a job calls with (done, total); the line is gone at the end."""
    progress = Progress()
    try:
        yield lambda done, total: progress.show(step, done, total)
    finally:
        progress.clear()
