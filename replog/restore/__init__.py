"""Puts partitions back into a log directory: copies of their files, or their records.

A `RestoreTarget` holds the directory; `copy_partition` and `PartitionWriter` fill a staging place,
in any process; `RestoreTarget.publish` makes it a partition by one rename.
"""

from replog.restore.copied import copy_partition
from replog.restore.target import RestoreTarget, StagedPartition
from replog.restore.written import PartitionWriter

__all__ = ["PartitionWriter", "RestoreTarget", "StagedPartition", "copy_partition"]
