"""The batch reader: the plan is made on the driver, once for each load(), and read by tasks.

`partitions()` fixes the end of every log, so what is appended later is not seen, and what is taken
meanwhile is an error that names the file. A partition carries paths and integers only; an executor
opens the files by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from replog.errors import LogTruncatedError
from spark_integration.cut import batch_ranges
from spark_integration.inputs import one_sentence
from spark_integration.options import SourceOptions
from spark_integration.planning import SegmentRanges, plan
from spark_integration.reading import ReadSettings, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

PLAN_ATTEMPTS = 3


class ReplogReader(DataSourceReader):
    """Reads the partitions under the paths of the options, up to where they end now."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.settings = ReadSettings.of(options, columns)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need no more, and a snapshot of many partitions is long.
        return {"settings": self.settings}

    def partitions(self) -> Sequence[InputPartition]:
        """The plan, as it is now. Raises UsageError, OffsetOutOfRangeError, StorageError."""
        with one_sentence():
            for attempt in range(1, PLAN_ATTEMPTS + 1):
                try:
                    return self.plan()
                except LogTruncatedError:
                    # Retention took a segment between two looks at the directory: look again.
                    if attempt == PLAN_ATTEMPTS:
                        raise
        return []

    def plan(self) -> list[SegmentRanges]:
        """One try at a plan."""
        return plan(batch_ranges(self.options), self.options)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one Spark partition; Spark sends None where there is nothing to read."""
        if isinstance(partition, SegmentRanges):
            yield from read_ranges(partition.ranges, self.settings)
