"""replog: Kafka's replicated commit log as a Python library.

with replog.Log.open("orders-0") as log:
    log.append([b"first", b"second"])
    for record in log:
        print(record.offset, record.value)

with replog.LocalCluster(3) as cluster:
    cluster.create_topic("orders")
    cluster.produce("orders", [b"first", b"second"])
    for record in cluster.consume("orders", end="latest"):
        print(record.offset, record.value)
"""

from typing import TYPE_CHECKING, Any

from replog.config import ControllerOptions, LogConfig, QuorumOptions, ReplicationOptions
from replog.errors import ReplogError
from replog.storage.log_directory import LogDirectory
from replog.storage.partition_log import PartitionLog as Log
from replog.types import Codec, Isolation, Record, TimestampType, TopicPartition

if TYPE_CHECKING:
    from replog.runtime.local_cluster import LocalCluster

__all__ = [
    "Codec",
    "ControllerOptions",
    "Isolation",
    "LocalCluster",
    "Log",
    "LogConfig",
    "LogDirectory",
    "QuorumOptions",
    "Record",
    "ReplicationOptions",
    "ReplogError",
    "TimestampType",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    # Who opens one log should not wait for asyncio and all that a cluster needs.
    if name == "LocalCluster":
        import importlib

        found = importlib.import_module("replog.runtime.local_cluster").LocalCluster
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
