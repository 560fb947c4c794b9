"""Small files of many logs, written by a few threads, each of which takes several logs at once."""

from __future__ import annotations

import collections
import concurrent.futures
import threading
from typing import TYPE_CHECKING

from replog.errors import ReplogError
from replog.storage.settled_files import settle_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replog.storage.partition_log import PartitionLog

THREADS = 8
TOGETHER = 16
"""Logs that a thread settles at once; an append that needs one of them waits for them all."""


class LogSettler:
    """The threads of one broker that settle logs ahead of their appends.

    A thread is handed to once for many logs, for the pool looks for an idle one at each. What fails
    here is told by the append that needs it, which settles again.
    """

    def __init__(self) -> None:
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._waiting: collections.deque[PartitionLog] = collections.deque()
        self._at_work = 0
        """Threads that will look into `_waiting` again."""

    def settle_soon(self, log: PartitionLog) -> None:
        """Settle it while the broker goes on."""
        if self._closed:
            return
        with self._lock:
            self._waiting.append(log)
            if self._at_work == THREADS:
                return
            self._at_work += 1
        self._threads().submit(self._settle_waiting)

    def settle_all(self, logs: Sequence[PartitionLog]) -> None:
        """Settle these; return when all are done."""
        count = min(THREADS, len(logs))
        shares = [logs[first::count] for first in range(count)]
        concurrent.futures.wait([self._threads().submit(_settle_each, share) for share in shares])

    def close(self) -> None:
        """Begin nothing any more; a log's close waits for what is being written of it."""
        self._closed = True
        with self._lock:
            self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _threads(self) -> concurrent.futures.ThreadPoolExecutor:
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(
                THREADS, thread_name_prefix="replog-settle"
            )
        return self._pool

    def _settle_waiting(self) -> None:
        while True:
            with self._lock:
                count = min(TOGETHER, len(self._waiting))
                logs = [self._waiting.popleft() for _ in range(count)]
                if not logs:
                    self._at_work -= 1
                    return
            try:
                _settle(logs)
            except BaseException:
                with self._lock:
                    self._at_work -= 1
                raise


def _settle_each(logs: Sequence[PartitionLog]) -> None:
    for first in range(0, len(logs), TOGETHER):
        _settle(logs[first : first + TOGETHER])


def _settle(logs: Sequence[PartitionLog]) -> None:
    try:
        settle_together([(log.keeper.settled_files, log) for log in logs])
    except (ReplogError, OSError):
        if len(logs) > 1:
            for log in logs:
                _settle([log])
