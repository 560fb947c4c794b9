"""replog: Kafka's replicated commit log as a Python library.

with replog.Log.open("orders-0") as log:
    log.append([b"first", b"second"])
    for record in log:
        print(record.offset, record.value)
"""

from replog.config import LogConfig
from replog.errors import ReplogError
from replog.storage.log_directory import LogDirectory
from replog.storage.partition_log import PartitionLog as Log
from replog.types import Codec, Isolation, Record, TimestampType, TopicPartition

__all__ = [
    "Codec",
    "Isolation",
    "Log",
    "LogConfig",
    "LogDirectory",
    "Record",
    "ReplogError",
    "TimestampType",
    "TopicPartition",
]
