"""Syncs for flush.mode=commit: shared by those who wait, told on the loop, never after a close."""

from __future__ import annotations

import asyncio
import threading

import pytest

from replog.errors import LogFailedError, NoSpaceError, OutOfDescriptorsError
from replog.runtime import group_flush
from replog.runtime.group_flush import GroupFlush
from replog.runtime.synced_end import SyncTarget
from replog.types import TopicPartition

PARTITION = TopicPartition("orders", 0)


class SlowLog:
    """A log whose syncs last until the test lets them go."""

    def __init__(self):
        self.end_offset = 0
        self.cuts = 0
        self.synced = []
        self.let_go = threading.Semaphore(0)
        self.error = None
        self.refused = 0
        self.asked_twice = threading.Event()

    def sync_target(self):
        return SyncTarget(self.end_offset, self.cuts)

    def sync(self, target):
        assert self.let_go.acquire(timeout=10)
        if self.error is not None:
            self.refused += 1
            if self.refused == 2:
                self.asked_twice.set()
            raise self.error

    def note_synced(self, target):
        if target.cuts != self.cuts:
            return False
        self.synced.append(target.end_offset)
        return True


def run(scenario):
    async def main():
        told = asyncio.Queue()
        flushes = GroupFlush(
            asyncio.get_running_loop(), lambda name, _, error: told.put_nowait((name, error))
        )
        try:
            await scenario(flushes, SlowLog(), told)
        finally:
            flushes.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_what_is_asked_while_a_sync_runs_shares_the_next_one():
    async def scenario(flushes, log, told):
        log.end_offset = 1
        flushes.flush(PARTITION, log)
        for end_offset in range(2, 10):
            log.end_offset = end_offset
            flushes.flush(PARTITION, log)
        log.let_go.release()
        assert await told.get() == (PARTITION, None)
        assert log.synced == [1]
        log.let_go.release()
        assert await told.get() == (PARTITION, None)
        assert log.synced == [1, 9]
        assert told.empty()

    run(scenario)


def test_a_cut_during_a_sync_makes_another_one_due():
    async def scenario(flushes, log, told):
        log.end_offset = 5
        flushes.flush(PARTITION, log)
        log.end_offset, log.cuts = 3, 1
        log.let_go.release(2)
        assert await told.get() == (PARTITION, None)
        assert log.synced == [3]

    run(scenario)


def test_a_sync_that_fails_is_told_with_its_error():
    async def scenario(flushes, log, told):
        log.error = LogFailedError("EIO")
        log.let_go.release()
        flushes.flush(PARTITION, log)
        assert await told.get() == (PARTITION, log.error)
        log.error = OSError("not one of ours")
        log.let_go.release()
        flushes.flush(PARTITION, log)
        assert isinstance((await told.get())[1], LogFailedError)

    run(scenario)


@pytest.mark.parametrize("kind", [NoSpaceError, OutOfDescriptorsError])
def test_a_sync_that_cannot_be_made_now_is_made_later(monkeypatch, kind):
    monkeypatch.setattr(group_flush, "RETRY_SECONDS", 0.01)

    async def scenario(flushes, log, told):
        log.end_offset = 3
        log.error = kind("expected room, found none")
        flushes.flush(PARTITION, log)
        log.let_go.release(2)
        await asyncio.to_thread(log.asked_twice.wait, 10)
        assert told.empty()
        log.error = None
        log.let_go.release(2)
        assert await told.get() == (PARTITION, None)
        assert log.synced == [3]

    run(scenario)


def test_nothing_is_told_after_a_close():
    async def scenario(flushes, log, told):
        flushes.flush(PARTITION, log)
        flushes.close()
        log.let_go.release()
        await asyncio.to_thread(lambda: None)
        assert told.empty()
        assert log.synced == []

    run(scenario)
