"""The state that a log of changes adds up to: of each key its latest record, as a DataFrame.

What Kafka's compaction keeps in the end, without waiting for it: per topic, partition and key the
record with the highest offset, and nothing of a key whose latest record is a tombstone (no value).
Records without a key are of no key and are left out.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from replog.errors import UsageError
from spark_integration.jobs.durable_files import make_directories, sync_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = ("topic", "partition", "key")
NEEDED = (*KEY, "value", "offset")


def compact_view(records: DataFrame) -> DataFrame:
    """The latest record of each key among `records`, a DataFrame of the source `replog`.

    All its columns stay. Raises UsageError if topic, partition, key, value or offset is missing.
    """
    from pyspark.sql import functions

    missing = [name for name in NEEDED if name not in records.columns]
    if missing:
        raise UsageError(
            f"expected the columns {', '.join(NEEDED)} for the view, found no {missing[0]}; read "
            f"them too"
        )
    others = [name for name in records.columns if name not in KEY]
    latest = (
        records.where(functions.col("key").isNotNull())
        .groupBy(*KEY)
        .agg(functions.max_by(functions.struct(*others), "offset").alias("latest"))
        .where(functions.col("latest.value").isNotNull())
    )
    return latest.select(
        [name if name in KEY else functions.col(f"latest.{name}") for name in records.columns]
    )


def write_view(view: DataFrame, output: str | os.PathLike[str]) -> None:
    """Write a view as Parquet to the new directory `output`, which appears whole.

    Raises UsageError if it is there already.
    """
    directory = os.path.abspath(output)
    if os.path.lexists(directory):
        raise UsageError(
            f"expected no directory at {directory}, found one; give a new one", path=directory
        )
    parent, name = os.path.split(directory)
    make_directories(parent)
    staged = os.path.join(parent, f".{name}.unfinished")
    shutil.rmtree(staged, ignore_errors=True)  # of a run that was killed
    try:
        view.write.parquet(f"file://{staged}")
        os.rename(staged, directory)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    sync_path(parent)
