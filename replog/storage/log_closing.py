"""Closing many logs: each waits for the disk several times, and one sync serves many that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replog.storage.partition_log import PartitionLog

THREADS = 8


def close_all(logs: Iterable[PartitionLog]) -> list[StorageError]:
    """Flush and close each of them; returns what some have raised."""
    closing = list(logs)
    if len(closing) <= THREADS:
        raised = list(map(_close, closing))
    else:
        import concurrent.futures  # only here: few logs need no threads, and it is dear

        with concurrent.futures.ThreadPoolExecutor(THREADS, "replog-closing") as pool:
            raised = list(pool.map(_close, closing))
    return [error for error in raised if error is not None]


def _close(log: PartitionLog) -> StorageError | None:
    try:
        # One that has failed is left as a crash would leave it.
        log.close(flush=not log.failed)
    except StorageError as error:
        return error
    return None
