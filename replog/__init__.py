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

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replog.config import ControllerOptions, LogConfig, QuorumOptions, ReplicationOptions
    from replog.errors import ReplogError
    from replog.runtime.local_cluster import LocalCluster
    from replog.storage.log import Log
    from replog.storage.log_directory import LogDirectory
    from replog.types import Codec, Isolation, Record, TimestampType, TopicPartition

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

# Where each name comes from, and what it is called there. Imported at first use: the command's help
# needs no pyarrow, and who opens one log needs no asyncio and nothing of what a cluster needs.
_HOMES = {
    "Codec": ("replog.types", "Codec"),
    "ControllerOptions": ("replog.config", "ControllerOptions"),
    "Isolation": ("replog.types", "Isolation"),
    "LocalCluster": ("replog.runtime.local_cluster", "LocalCluster"),
    "Log": ("replog.storage.log", "Log"),
    "LogConfig": ("replog.config", "LogConfig"),
    "LogDirectory": ("replog.storage.log_directory", "LogDirectory"),
    "QuorumOptions": ("replog.config", "QuorumOptions"),
    "Record": ("replog.types", "Record"),
    "ReplicationOptions": ("replog.config", "ReplicationOptions"),
    "ReplogError": ("replog.errors", "ReplogError"),
    "TimestampType": ("replog.types", "TimestampType"),
    "TopicPartition": ("replog.types", "TopicPartition"),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(home[0]), home[1])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
