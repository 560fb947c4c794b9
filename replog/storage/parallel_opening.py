"""Many partitions opened by some threads: recovery waits for the disk, and needs no GIL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from replog.types import TopicPartition


def each_in_threads(
    found: Sequence[TopicPartition],
    open_one: Callable[[TopicPartition], object],
    threads: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[TopicPartition, StorageError | None]]:
    """Call open_one for each; yields them as they are done, with the error that refused one.

    on_progress(done, total) follows. What is no StorageError is raised. If the caller stops early,
    those not begun are not opened.
    """
    import concurrent.futures  # only here: a lone log needs no threads, and it is dear

    with concurrent.futures.ThreadPoolExecutor(
        max(1, threads), thread_name_prefix="replog-recovery"
    ) as pool:
        opening = {pool.submit(open_one, key): key for key in found}
        try:
            for done, future in enumerate(concurrent.futures.as_completed(opening), start=1):
                error = future.exception()
                if error is not None and not isinstance(error, StorageError):
                    raise error
                yield opening[future], error
                if on_progress is not None:
                    on_progress(done, len(found))
        finally:
            pool.shutdown(cancel_futures=True)
