"""What the logs of the crash tests live through: scripts for a Workload."""

from __future__ import annotations

import errno
from collections.abc import Callable

from replog._native import recorded_calls
from replog.errors import NoSpaceError
from tests.crash.workload import Workload


def everyday(work: Workload) -> None:
    """Append, roll, flush, checkpoint, truncate, delete, restart, close and open again."""
    work.open()
    work.append(3)
    work.flush()
    work.append(2, producer_id=7)
    work.roll()
    work.append(3)
    work.checkpoint()
    work.append(6)
    work.new_epoch()
    work.append(2, producer_id=9)
    work.flush()
    work.append(3)
    work.truncate_to(work.batch_starts()[-5])
    work.new_epoch()
    work.append(4)
    work.truncate_to(work.batch_starts()[3])
    work.new_epoch()
    work.append(8, producer_id=11)
    work.checkpoint()
    work.delete_records(work.batch_starts()[4])
    work.append(5)
    work.retention()
    work.flush()
    work.close()
    work.open()
    work.append(4)
    # What follows the cut ends where the retired segment began, which must not come back behind it.
    work.append(1, record_count=2)
    work.roll()
    work.append(2)
    work.truncate_to(work.batch_starts()[-3])
    work.append(1, record_count=2)
    work.truncate_to(work.log.log_end_offset - 1)
    work.new_epoch()
    work.append(3)
    work.checkpoint()
    work.append(2)
    work.restart_at(work.log.log_end_offset + 50)
    work.new_epoch()
    work.append(3)
    work.close()


def churn(work: Workload) -> None:
    """Random operations, all kinds often."""
    work.open()
    work.append(3)
    for _ in range(24):
        starts = [start for start in work.batch_starts() if start >= work.start_min]
        match work.random.randrange(9):
            case 0:
                work.roll()
            case 1:
                work.flush()
            case 2:
                work.checkpoint()
            case 3 if len(starts) > 4:
                work.truncate_to(starts[-work.random.randrange(1, 5)])
                work.new_epoch()
            case 4 if len(starts) > 6:
                work.delete_records(starts[2])
                work.retention()
            case 5:
                work.close()
                work.open()
            case _:
                work.append(work.random.randrange(1, 5), producer_id=work.random.choice((-1, 3)))
    work.close()


def transactions(work: Workload) -> None:
    """Transactions of two producers that overlap, commit, abort, span segments and are cut."""
    work.open()
    work.append(1, producer_id=3)
    work.append(2, producer_id=5, transactional=True)
    work.append(2, producer_id=6, transactional=True)
    work.end_transaction(5, commit=False)
    work.flush()
    work.append(1, producer_id=5, transactional=True)
    work.end_transaction(6, commit=True)
    work.roll()
    work.append(1, producer_id=6, transactional=True)
    work.end_transaction(5, commit=False)
    work.append(2)
    work.end_transaction(6, commit=False)
    work.checkpoint()
    work.append(2, producer_id=5, transactional=True)
    work.end_transaction(5, commit=False)
    # The marker goes, and with it its entry; the transaction is open again.
    work.truncate_to(work.batch_starts()[-1])
    work.new_epoch()
    work.append(1, producer_id=6, transactional=True)
    work.end_transaction(6, commit=True)
    work.roll()
    work.append(1)
    work.end_transaction(5, commit=False)
    work.close()
    work.open()
    work.append(2, producer_id=6, transactional=True)
    work.end_transaction(6, commit=False)
    work.flush()


def holes(work: Workload) -> None:
    """Cuts inside batches that were synced: the empty batch that fills the hole is synced, too."""
    work.open()
    work.append(3)
    for _ in range(3):
        work.append(1, record_count=3)
        work.checkpoint()
        work.truncate_to(work.log.log_end_offset - 1)
        work.new_epoch()
        work.append(1)
        # Whatever the log calls synced may be written down without another sync.
        work.persist_recovery_point()
        work.append(1)
    work.roll()
    work.append(1, record_count=2)
    work.flush()
    work.truncate_to(work.log.log_end_offset - 1)
    work.roll()
    work.persist_recovery_point()
    work.append(2)


def committing(work: Workload) -> None:
    """Flush mode `commit`: whatever an append has returned for is there."""
    work.open()
    work.append(4)
    work.new_epoch()
    work.append(2, producer_id=7)
    work.roll()
    work.append(4)
    work.append(2, producer_id=8, transactional=True)
    work.end_transaction(8, commit=False)
    work.truncate_to(work.batch_starts()[-2])
    work.new_epoch()
    work.append(1, record_count=3)
    work.truncate_to(work.log.log_end_offset - 1)
    work.append(2)
    work.checkpoint()
    work.delete_records(work.batch_starts()[5])
    work.retention()
    work.append(6)
    work.close()
    work.open()
    work.append(2)


def views(work: Workload) -> None:
    """Cuts and restarts under views that are held: what was cut must not come back."""
    work.open()
    held = []
    for _ in range(3):
        work.append(5)
        work.flush()
        held.append(memoryview(work.log.read(work.log.log_start_offset)))
        held.append(memoryview(work.log.read(work.batch_starts()[-2])))
        work.truncate_to(work.batch_starts()[-2])
        work.new_epoch()
        work.append(2)
    work.truncate_to(work.log.log_end_offset - 1)
    work.new_epoch()
    work.append(2)
    work.flush()
    held.clear()
    work.append(2)


def several_segments(work: Workload) -> None:
    """Retention that takes several segments at once, synced or not, some of them under views."""
    work.open()
    held = []
    for synced in (True, False, True):
        for _ in range(3):
            work.append(2)
            work.roll()
        work.append(2)
        if synced:
            work.flush()
        held.append(memoryview(work.log.read(work.log.log_start_offset)))
        work.delete_records(work.batch_starts()[-2])
        work.append(1)
        work.retention()
        work.append(1)
    work.truncate_to(work.batch_starts()[-2])
    work.new_epoch()
    work.append(2)
    held.clear()
    work.checkpoint()


def full_disks(work: Workload) -> None:
    """Rolls and appends that are refused for want of room, and records deleted between."""
    work.open()
    for kind, path in (("open", ".log"), ("open", ".index"), ("open", ".timeindex")):
        work.append(4)
        recorded_calls.fail(kind, errno.ENOSPC, path=path)
        refused(work.roll)
        work.flush()
        work.append(3)
        recorded_calls.fail("pwritev", errno.ENOSPC, path=".log")
        refused(work.append)
        work.append(1)
        work.flush()
        work.delete_records(work.batch_starts()[1])
    work.append(3)
    work.roll()
    work.append(2)


def refused(act: Callable[[], None]) -> None:
    """The disk is full, which the call comes upon."""
    try:
        act()
    except NoSpaceError:
        pass
    else:
        raise AssertionError("expected a full disk, found that nothing came upon it")
    finally:
        recorded_calls.clear_faults()
