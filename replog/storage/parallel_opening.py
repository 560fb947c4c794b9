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
) -> Iterator[tuple[TopicPartition, StorageError | None]]:
    """Call open_one for each; yields them as they are done, with the error that refused one.

    What is no StorageError is raised. If the caller stops early, those not begun are not opened.
    """
    import concurrent.futures  # only here: a lone log needs no threads, and it is dear

    with concurrent.futures.ThreadPoolExecutor(
        max(1, threads), thread_name_prefix="replog-recovery"
    ) as pool:
        opening = {pool.submit(open_one, key): key for key in found}
        try:
            for future in concurrent.futures.as_completed(opening):
                error = future.exception()
                if error is not None and not isinstance(error, StorageError):
                    raise error
                yield opening[future], error
        finally:
            pool.shutdown(cancel_futures=True)
