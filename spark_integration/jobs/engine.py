"""Where the tasks of a job run: threads of this process, or the executors of a Spark session.

A task is a picklable value and a module-level function of it; both engines call the same function,
so a job's result does not depend on where it ran. An expected failure of a task comes back as its
own error, not wrapped in a worker's traceback.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from replog.errors import ReplogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")
# (tasks done, tasks in all); called from the thread that called the job.
Progress = Callable[[int, int], None]

POLL_SECONDS = 0.2


def no_progress(done: int, total: int) -> None:
    """Shows nothing."""


class Engine(Protocol):
    """Runs tasks. name: what figures and messages call it. machines: on how many they run."""

    name: str

    @property
    def machines(self) -> int: ...

    def run(
        self,
        function: Callable[[TaskT], ResultT],
        tasks: Sequence[TaskT],
        progress: Progress = no_progress,
    ) -> Iterator[ResultT]:
        """function(task) of every task, in no order. Raises the first error that a task raised."""
        ...


class LocalEngine:
    """Threads of this process: decoding, checksums and Parquet writing hold no lock of Python."""

    name = "pyarrow"
    machines = 1

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1

    def run(
        self,
        function: Callable[[TaskT], ResultT],
        tasks: Sequence[TaskT],
        progress: Progress = no_progress,
    ) -> Iterator[ResultT]:
        """As Engine.run; what has not begun when a task fails is not begun any more."""
        progress(0, len(tasks))
        with ThreadPoolExecutor(self.threads, thread_name_prefix="replog-job") as pool:
            futures = [pool.submit(function, task) for task in tasks]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    yield future.result()
                    progress(done, len(tasks))
            finally:
                pool.shutdown(cancel_futures=True)


class SparkEngine:
    """Executors of a session; each task becomes a Spark task, up to `slices_max` of them."""

    name = "spark"

    def __init__(self, session: SparkSession, *, slices_max: int = 10_000) -> None:
        self._session = session
        self._slices_max = slices_max

    @property
    def machines(self) -> int:
        """Hosts with executors now; 1 in local mode."""
        scala_context = self._session.sparkContext._jsc.sc()  # noqa: SLF001 - no other way
        hosts = {one.host() for one in scala_context.statusTracker().getExecutorInfos()}
        return max(len(hosts), 1)

    def run(
        self,
        function: Callable[[TaskT], ResultT],
        tasks: Sequence[TaskT],
        progress: Progress = no_progress,
    ) -> Iterator[ResultT]:
        """As Engine.run; an expected error is raised when all tasks have ended."""
        if not tasks:
            return
        slices = min(len(tasks), self._slices_max)
        tasks_there = self._session.sparkContext.parallelize(list(tasks), slices)
        outcomes = self._collected(
            tasks_there.map(_Guarded(function)).collect, len(tasks), slices, progress
        )
        for outcome in outcomes:
            result, error = outcome
            if error is not None:
                raise error
            yield result

    def _collected(
        self, collect: Callable[[], list[Any]], total: int, slices: int, progress: Progress
    ) -> list[Any]:
        """What collect() gives; meanwhile this thread tells how many Spark tasks are done."""
        tracker = self._session.sparkContext.statusTracker()
        with ThreadPoolExecutor(1, thread_name_prefix="replog-job") as pool:
            collected = pool.submit(collect)
            try:
                while not wait([collected], POLL_SECONDS).done:
                    stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
                    done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
                    progress(min(done * total // slices, total), total)
            except BaseException:
                self._session.sparkContext.cancelAllJobs()
                raise
            outcomes = collected.result()
        progress(total, total)
        return outcomes


class _Guarded:
    """What an executor runs: (result, None) or (None, an expected error) of a task.

    A bug is raised, and left to Spark to retry and to report.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, task: Any) -> tuple[Any, Exception | None]:
        try:
            return self._function(task), None
        except (ReplogError, OSError) as error:
            return None, error
