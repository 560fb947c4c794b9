"""A replica's log: `replog.Log` with a high watermark that only the protocol moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from replog.config import LogConfig
    from replog.runtime.replica_group import ClosableLog


def open_replica_log(
    path: str | os.PathLike[str], config: LogConfig, now_ms: Callable[[], int]
) -> ClosableLog:
    """Open (or create) the bare partition directory at `path` for one replica.

    A log that stands alone counts all it has as committed. A replica may not: without a checkpoint
    of it, its high watermark starts at the log start, and a low one is safe (facts 6.3).
    """
    log = PartitionLog.open(path, config, now_ms=now_ms)
    if log.follows_high_watermark:
        log.high_watermark = log.log_start_offset
    return log
