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
    from replog._native.append_result import AppendResult
    from replog._native.segment_recovery import RecoveryReport
    from replog.client.consumer import Consumer
    from replog.client.produced import Produced
    from replog.client.producer import Producer
    from replog.config import ControllerOptions, LogConfig, QuorumOptions, ReplicationOptions
    from replog.errors import ReplogError
    from replog.runtime.blocking_cluster import BlockingCluster
    from replog.runtime.local_cluster import LocalCluster
    from replog.storage.log import Log
    from replog.storage.log_directory import LogDirectory
    from replog.types import Codec, Isolation, Record, TimestampType, TopicPartition

    __version__: str

__all__ = [
    "AppendResult",
    "BlockingCluster",
    "Codec",
    "Consumer",
    "ControllerOptions",
    "Isolation",
    "LocalCluster",
    "Log",
    "LogConfig",
    "LogDirectory",
    "Produced",
    "Producer",
    "QuorumOptions",
    "Record",
    "RecoveryReport",
    "ReplicationOptions",
    "ReplogError",
    "TimestampType",
    "TopicPartition",
    "__version__",
]

# Where each name comes from, and what it is called there. Imported at first use: the command's help
# needs no pyarrow, and who opens one log needs no asyncio and nothing of what a cluster needs.
_HOMES = {
    "AppendResult": ("replog._native.append_result", "AppendResult"),
    "BlockingCluster": ("replog.runtime.blocking_cluster", "BlockingCluster"),
    "Codec": ("replog.types", "Codec"),
    "Consumer": ("replog.client.consumer", "Consumer"),
    "ControllerOptions": ("replog.config", "ControllerOptions"),
    "Isolation": ("replog.types", "Isolation"),
    "LocalCluster": ("replog.runtime.local_cluster", "LocalCluster"),
    "Log": ("replog.storage.log", "Log"),
    "LogConfig": ("replog.config", "LogConfig"),
    "LogDirectory": ("replog.storage.log_directory", "LogDirectory"),
    "Produced": ("replog.client.produced", "Produced"),
    "Producer": ("replog.client.producer", "Producer"),
    "QuorumOptions": ("replog.config", "QuorumOptions"),
    "Record": ("replog.types", "Record"),
    "RecoveryReport": ("replog._native.segment_recovery", "RecoveryReport"),
    "ReplicationOptions": ("replog.config", "ReplicationOptions"),
    "ReplogError": ("replog.errors", "ReplogError"),
    "TimestampType": ("replog.types", "TimestampType"),
    "TopicPartition": ("replog.types", "TopicPartition"),
}


def __getattr__(name: str) -> Any:
    found: Any
    if name == "__version__":
        # At first use, too: the metadata take longer to find than all else here.
        found = importlib.import_module("importlib.metadata").version(__name__)
    elif name in _HOMES:
        module, attribute = _HOMES[name]
        found = getattr(importlib.import_module(module), attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
