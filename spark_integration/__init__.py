"""Spark over replog's files: the data source `replog`, and sessions for the command line.

Nothing is imported before it is used: Spark imports this package in every session that looks for
data sources.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["snapshot"]


def snapshot(paths: str | Sequence[str], **options: str) -> str:
    """A token of what a batch query of these paths and options would read now.

    Given back as option("snapshot", token) it makes a read repeatable: the same rows, or an error
    that says what changed. Needs no Spark session. Raises UsageError, OffsetOutOfRangeError,
    StorageError.
    """
    import json

    from spark_integration.cut import take_snapshot
    from spark_integration.inputs import one_sentence
    from spark_integration.options import SourceOptions

    listed = [paths] if isinstance(paths, str) else list(paths)
    with one_sentence():
        return str(take_snapshot(SourceOptions.batch({**options, "paths": json.dumps(listed)})))
