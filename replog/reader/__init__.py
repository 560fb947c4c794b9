"""Read-only access to log directories for tools and Spark, safe beside a live writer.

What to use: `PartitionReader` for one partition, `open_partitions` for all that a path stands for,
`read_split` for a range planned earlier, perhaps by another process.
"""

from replog.reader.checkpoints import Checkpoints
from replog.reader.damage import DamagedRegion, read_past_damage
from replog.reader.directory import expand_paths, open_partitions, partition_paths
from replog.reader.names import topic_partition_of
from replog.reader.partition import PartitionReader
from replog.reader.records import read_split, split_headers
from replog.reader.replicas import ReplicaDifference, choose_replica, first_difference
from replog.reader.segment import BatchStamp
from replog.reader.side_files import AbortedRange
from replog.reader.splits import SplitRange

__all__ = [
    "AbortedRange",
    "BatchStamp",
    "Checkpoints",
    "DamagedRegion",
    "PartitionReader",
    "ReplicaDifference",
    "SplitRange",
    "choose_replica",
    "expand_paths",
    "first_difference",
    "open_partitions",
    "partition_paths",
    "read_past_damage",
    "read_split",
    "split_headers",
    "topic_partition_of",
]
