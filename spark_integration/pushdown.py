"""Filters of a query as a narrower plan, for those who ask for it.

PySpark 4.3.0 keeps the plan that a filter narrowed on the DataFrame, so that the next query of the
same DataFrame, or the other side of a union, misses rows. Hence only with option("pushdown",
"true") and the setting spark.sql.python.filterPushdown.enabled; each loaded frame must then be used
with one filter only. Every filter is also given back to Spark, which applies it to the rows.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from replog.config import LONG_MAX
from spark_integration.cut import OffsetRange, batch_ranges
from spark_integration.options import SourceOptions
from spark_integration.planning import SegmentRanges, plan
from spark_integration.reader import ReplogReader

# The process that Spark starts to push filters down, only if its setting says so. Anywhere else a
# reader with pushFilters is refused.
PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def reader_class(options: SourceOptions) -> type[ReplogReader]:
    """The class that reads with these options, in this process."""
    return FilteredReader if options.pushdown and PUSHDOWN_WORKER in sys.modules else ReplogReader


@dataclasses.dataclass(slots=True)
class Narrowing:
    """What the filters leave: topics and partitions (None for all), offsets [start, end), and no
    record before the first one at or after `timestamp` ms.
    """

    topics: set[str] | None = None
    partitions: set[int] | None = None
    start_offset: int = 0
    end_offset: int = LONG_MAX
    timestamp: int | None = None

    def take(self, one: Filter) -> None:
        """Narrow by a filter, if it is of a kind that can."""
        match one:
            case EqualTo((column,), wanted) | EqualNullSafe((column,), wanted):
                self._among(column, [wanted])
            case In((column,), wanted):
                self._among(column, list(wanted))
            case GreaterThanOrEqual((column,), least) | GreaterThan((column,), least):
                self._from(column, least)
            case LessThan((column,), bound) if column == "offset":
                self.end_offset = min(self.end_offset, bound)
            case LessThanOrEqual((column,), bound) if column == "offset":
                self.end_offset = min(self.end_offset, bound + 1)

    def _among(self, column: str, wanted: Sequence[Any]) -> None:
        values = {one for one in wanted if one is not None}
        if not values:
            return
        if column == "topic":
            self.topics = values if self.topics is None else self.topics & values
        elif column == "partition":
            self.partitions = values if self.partitions is None else self.partitions & values
        elif column == "offset":
            self._from(column, min(values))
            self.end_offset = min(self.end_offset, max(values) + 1)
        elif column == "timestamp":
            self._from(column, min(values))

    def _from(self, column: str, least: Any) -> None:
        if column == "offset":
            self.start_offset = max(self.start_offset, least)
        elif column == "timestamp":
            since = (least - _EPOCH) // dt.timedelta(milliseconds=1)
            self.timestamp = since if self.timestamp is None else max(self.timestamp, since)

    def apply(self, ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
        """What is left of the ranges."""
        for reader, start, end in ranges:
            topic, partition = reader.topic_partition
            if self.topics is not None and topic not in self.topics:
                continue
            if self.partitions is not None and partition not in self.partitions:
                continue
            low, high = max(start, self.start_offset), min(end, self.end_offset)
            if low < high and self.timestamp is not None and self.timestamp > 0:
                found = reader.offset_for_timestamp(self.timestamp)
                low = high if found is None else max(low, found.offset)
            if low < high:
                yield OffsetRange(reader, low, high)


class FilteredReader(ReplogReader):
    """A reader whose plan leaves out what the query's filters rule out."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self.narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take what helps to plan; all are given back, so that Spark applies them as well."""
        for one in filters:
            self.narrowing.take(one)
        return filters

    def plan(self) -> list[SegmentRanges]:
        """One try at a plan of what the filters leave."""
        return plan(list(self.narrowing.apply(batch_ranges(self.options))), self.options)
