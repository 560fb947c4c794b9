"""Read-only access to log directories for tools and Spark, safe beside a live writer.

What to use: `PartitionReader` for one partition, `open_partitions` for all that a path stands for,
`read_split` for a range planned earlier, perhaps by another process.
"""

from replog.reader.directory import open_partitions, partition_paths
from replog.reader.partition import PartitionReader
from replog.reader.records import read_split
from replog.reader.side_files import AbortedRange
from replog.reader.splits import SplitRange

__all__ = [
    "AbortedRange",
    "PartitionReader",
    "SplitRange",
    "open_partitions",
    "partition_paths",
    "read_split",
]
