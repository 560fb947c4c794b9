"""Many partitions opened by some threads: recovery waits for the disk, and needs no GIL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import LogFailedError, NoSpaceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replog.types import TopicPartition


def open_in_threads(
    found: Sequence[TopicPartition],
    open_one: Callable[[TopicPartition], object],
    threads: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[TopicPartition, StorageError]:
    """Call open_one for each; returns the errors that refused some.

    on_progress(done, total) is called in this thread.
    What says that the disk has failed or is full, and what is no StorageError, is raised at once;
    those that were not begun are not opened then.
    """
    import concurrent.futures  # only here: a lone log needs no threads, and it is dear

    refused = {}
    with concurrent.futures.ThreadPoolExecutor(
        max(1, threads), thread_name_prefix="replog-recovery"
    ) as pool:
        opening = {pool.submit(open_one, key): key for key in found}
        try:
            for done, future in enumerate(concurrent.futures.as_completed(opening), start=1):
                try:
                    future.result()
                except (LogFailedError, NoSpaceError):
                    raise  # it is the disk, not the partition
                except StorageError as error:
                    refused[opening[future]] = error
                if on_progress is not None:
                    on_progress(done, len(found))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return refused
