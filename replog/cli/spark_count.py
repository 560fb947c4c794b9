"""Spark's own look at a partition's files: how many records, how many bytes, which first words."""

from __future__ import annotations

import time
from typing import Any

FIRST_WORDS = 5


def count_with_spark(partition_directory: str) -> dict[str, Any]:
    """Count and aggregate in a local session, its start included in `seconds`.

    Without PySpark or Java the answer is {"skipped": one sentence}.
    """
    from spark_integration.session import local_session, missing

    problem = missing()
    if problem is not None:
        return {"skipped": problem}
    from pyspark.sql import functions

    started = time.perf_counter()
    session = local_session("replog quickstart")
    try:
        source = session.read.format("replog").schema("value binary, offset bigint")
        frame = source.load(partition_directory)
        word = functions.split(functions.trim(functions.decode("value", "ISO-8859-1")), r"\s+", 2)[
            0
        ]
        groups = (
            frame.groupBy(word.alias("word"))
            .agg(
                functions.count("*").alias("records"),
                functions.sum(functions.octet_length("value")).alias("value_bytes"),
                functions.max("offset").alias("last_offset"),
            )
            .cache()
        )
        totals = groups.agg(
            functions.sum("records"), functions.sum("value_bytes"), functions.max("last_offset")
        ).first()
        words = (
            groups.where(functions.length("word") > 0)
            .orderBy(functions.desc("records"), "word")
            .limit(FIRST_WORDS)
            .collect()
        )
    finally:
        session.stop()
    assert totals is not None
    records, value_bytes, last_offset = totals
    return {
        "records": records or 0,
        "value_bytes": value_bytes or 0,
        "last_offset": last_offset,
        "first_words": [(row["word"], row["records"]) for row in words],
        "seconds": time.perf_counter() - started,
    }
