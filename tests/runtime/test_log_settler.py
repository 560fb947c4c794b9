"""Threads that have many logs' small files on disk before the appends that need them."""

from __future__ import annotations

import itertools
import threading
import types

import pytest

from replog.errors import LogClosedError, LogFailedError, NoSpaceError
from replog.runtime.log_settler import THREADS, TOGETHER, LogSettler
from replog.storage import settled_files
from replog.storage.checkpoint_files import (
    LEADER_EPOCH_CHECKPOINT,
    leader_epochs_text,
    read_leader_epochs,
)
from replog.storage.settled_files import SettledFiles, settle_together

EPOCHS = [(0, 0), (4, 3)]


class FakeLog:
    """A partition whose epochs are in memory; it counts how often it was asked for them."""

    closed = False

    def __init__(self, path) -> None:
        path.mkdir()
        self.path = str(path)
        self.settled_files = SettledFiles(self.path, None)
        self.keeper = types.SimpleNamespace(settled_files=self.settled_files)
        self.epoch_text = leader_epochs_text(EPOCHS)

    @property
    def on_disk(self):
        return read_leader_epochs(f"{self.path}/{LEADER_EPOCH_CHECKPOINT}")


@pytest.fixture
def logs(tmp_path):
    return [FakeLog(tmp_path / f"t-{number}") for number in range(5 * TOGETHER)]


@pytest.fixture
def settler():
    settler = LogSettler()
    yield settler
    settler.close()


def pairs(logs):
    return [(log.settled_files, log) for log in logs]


def fail_for(monkeypatch, log, error):
    """Let every write fail that is of this log, among others."""
    replace = settled_files.replace_files

    def replace_or_fail(contents):
        if any(path.startswith(log.path + "/") for path in contents):
            raise error
        replace(contents)

    monkeypatch.setattr(settled_files, "replace_files", replace_or_fail)


def test_all_are_on_disk_when_settle_all_returns(logs, settler):
    settler.settle_all(logs)
    assert [log.on_disk for log in logs] == [EPOCHS] * len(logs)


def test_one_that_fails_for_now_holds_no_other_back(logs, settler, monkeypatch):
    fail_for(monkeypatch, logs[7], NoSpaceError("full"))
    settler.settle_all(logs)
    assert [log for log in logs if log.on_disk is None] == [logs[7]]
    monkeypatch.undo()
    logs[7].settled_files.settle(logs[7])
    assert logs[7].on_disk == EPOCHS


def test_settle_soon_settles_all_though_few_threads_are_woken(logs, settler, monkeypatch):
    done = threading.Event()
    left = set(range(len(logs)))
    settle = settle_together
    lock = threading.Lock()

    def settle_and_count(together):
        assert len(together) <= TOGETHER
        settle(together)
        with lock:
            left.difference_update(logs.index(log) for _, log in together)
            if not left:
                done.set()

    monkeypatch.setattr("replog.runtime.log_settler.settle_together", settle_and_count)
    for log in logs:
        settler.settle_soon(log)
    assert done.wait(30), left
    assert [log.on_disk for log in logs] == [EPOCHS] * len(logs)
    logs[0].epoch_text = leader_epochs_text([*EPOCHS, (5, 9)])
    done.clear()
    left.add(0)
    settler.settle_soon(logs[0])
    assert done.wait(30), "threads that have found nothing to do are woken again"


def test_a_closed_settler_begins_nothing(logs, settler):
    settler.close()
    settler.settle_soon(logs[0])
    assert logs[0].on_disk is None


def test_closed_logs_and_those_that_are_up_to_date_are_not_written(logs, monkeypatch):
    settle_together(pairs(logs[:2]))
    logs[2].closed = True
    fail_for(monkeypatch, logs[0], AssertionError("written again"))
    settle_together(pairs(logs[:4]))
    assert [log.on_disk for log in logs[:4]] == [EPOCHS, EPOCHS, None, EPOCHS]


def test_after_a_failed_sync_none_of_those_written_together_is_tried_again(logs, monkeypatch):
    fail_for(monkeypatch, logs[0], LogFailedError("lost pages", of_sync=True))
    with pytest.raises(LogFailedError, match="lost pages"):
        settle_together(pairs(logs[:2]))
    monkeypatch.undo()
    for log in logs[:2]:
        with pytest.raises(LogFailedError, match="lost pages"):
            log.settled_files.settle(log)
    assert logs[1].on_disk is None


def test_a_disk_error_that_is_no_syncs_is_that_of_one_log_alone(logs, settler, monkeypatch):
    fail_for(monkeypatch, logs[7], LogFailedError("cannot be opened"))
    settler.settle_all(logs)
    monkeypatch.undo()
    assert [log for log in logs if log.on_disk is None] == [logs[7]]
    with pytest.raises(LogFailedError, match="cannot be opened"):
        logs[7].settled_files.settle(logs[7])


def test_a_thread_that_ends_by_a_bug_is_replaced(logs, settler, monkeypatch):
    done = threading.Event()
    calls = itertools.count()

    def settle_or_break(together):
        if next(calls) < 2 * THREADS:
            raise MemoryError
        done.set()

    monkeypatch.setattr("replog.runtime.log_settler.settle_together", settle_or_break)
    for _ in range(1000):
        settler.settle_soon(logs[0])
        if done.wait(0.01):
            return
    raise AssertionError("nobody settles any more")


def test_files_of_a_log_whose_close_has_failed_are_not_written_any_more(logs):
    """Its directory may be another log's by then."""
    logs[0].settled_files.close()
    with pytest.raises(LogClosedError, match="open it again"):
        logs[0].settled_files.settle(logs[0])
    with pytest.raises(LogClosedError):
        settle_together(pairs(logs[:2]))
    assert logs[0].on_disk is None


def test_threads_that_settle_the_same_logs_in_another_order_do_not_wait_for_each_other(logs):
    def settle_often(some):
        for turn in range(20):
            for log in some:
                log.epoch_text = leader_epochs_text([*EPOCHS, (5 + turn, 9)])
            settle_together(pairs(some))

    threads = [
        threading.Thread(target=settle_often, args=(some,), daemon=True)
        for some in (logs[:8], logs[7::-1])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
