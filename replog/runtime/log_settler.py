"""Small files of many logs, written side by side: the disk syncs several at once as fast as one."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

from replog.errors import ReplogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from replog.storage.partition_log import PartitionLog

THREADS = 8


class LogSettler:
    """The threads of one broker that settle logs ahead of their appends.

    What fails here is told by the append that needs it, which settles again.
    """

    def __init__(self) -> None:
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._closed = False

    def settle_soon(self, log: PartitionLog) -> None:
        """Settle it while the broker goes on."""
        if not self._closed:
            self._threads().submit(_try, log.settle)

    def settle_all(self, calls: Iterable[Callable[[], None]]) -> None:
        """Make all these calls, each of which settles another log; return when all are done."""
        concurrent.futures.wait([self._threads().submit(_try, call) for call in calls])

    def close(self) -> None:
        """Begin nothing any more; a log's close waits for what is being written of it."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _threads(self) -> concurrent.futures.ThreadPoolExecutor:
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(
                THREADS, thread_name_prefix="replog-settle"
            )
        return self._pool


def _try(settle: Callable[[], None]) -> None:
    try:
        settle()
    except (ReplogError, OSError):
        return
