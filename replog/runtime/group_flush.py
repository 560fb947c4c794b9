"""Syncs for flush.mode=commit: in threads, one at a time per log, shared by all who wait for it.

What is asked while a sync runs is answered by the next one, which begins when the first is done:
the slower the disk, the more appends share a sync. A sync that cannot be made now, for want of room
for an index or of descriptors, is made again until it can: who waits for it is told nothing yet.
"""

from __future__ import annotations

import concurrent.futures
import logging
from typing import TYPE_CHECKING, Any, Protocol

from replog.errors import (
    LogClosedError,
    LogFailedError,
    NoSpaceError,
    OutOfDescriptorsError,
    ReplogError,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from replog.runtime.synced_end import SyncTarget
    from replog.types import TopicPartition

    Completed = Callable[[TopicPartition, Any, ReplogError | None], None]

THREADS = 4
RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


class SyncedLog(Protocol):
    """A log whose syncs run in two halves: `sync` in any thread, the others in the loop's."""

    def sync_target(self) -> SyncTarget: ...
    def sync(self, target: SyncTarget) -> None: ...
    def note_synced(self, target: SyncTarget) -> bool: ...


class GroupFlush:
    """The flush scheduler of one broker; `completed` is called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, completed: Completed) -> None:
        self._loop = loop
        self._completed = completed
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._asked_again: dict[SyncedLog, bool] = {}
        """Logs that are being synced, and whether another sync was asked for meanwhile."""
        self._closed = False

    def flush(self, topic_partition: TopicPartition, log: SyncedLog) -> None:
        if log in self._asked_again:
            self._asked_again[log] = True
            return
        self._asked_again[log] = False
        self._start(topic_partition, log)

    def close(self) -> None:
        """Nothing is told from here on; a sync that runs is not waited for."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, topic_partition: TopicPartition, log: SyncedLog) -> None:
        if self._closed:
            return
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(
                THREADS, thread_name_prefix="replog-flush"
            )
        target = log.sync_target()

        def done(future: concurrent.futures.Future[None]) -> None:
            if not self._closed and not future.cancelled():
                self._loop.call_soon_threadsafe(
                    self._done, topic_partition, log, target, future.exception()
                )

        self._pool.submit(log.sync, target).add_done_callback(done)

    def _done(
        self,
        topic_partition: TopicPartition,
        log: SyncedLog,
        target: SyncTarget,
        error: BaseException | None,
    ) -> None:
        if isinstance(error, NoSpaceError | OutOfDescriptorsError) and not self._closed:
            logger.warning("%s is synced later: %s", topic_partition, error)
            self._loop.call_later(RETRY_SECONDS, self._start, topic_partition, log)
            return
        asked_again = self._asked_again.pop(log)
        if self._closed or isinstance(error, LogClosedError):
            return
        if error is not None and not isinstance(error, ReplogError):
            error = LogFailedError(f"expected to sync {log}, found {error}; check the disk")
        if error is None and not log.note_synced(target):
            self.flush(topic_partition, log)
            return
        if error is None and asked_again:
            self.flush(topic_partition, log)
        self._completed(topic_partition, log, error)
