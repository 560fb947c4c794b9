"""`LocalCluster` for code without a loop: the same methods but `producer`, from any thread, each
waiting its turn.

The loop runs in a background thread between `start` and `close`. Whatever a call raises there is
raised here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from replog.errors import UsageError
from replog.runtime.cluster_connection import closed_meanwhile
from replog.types import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from replog.admin_messages import AdminAnswer, AdminRequest
    from replog.client.consumer import ConsumedRecords, Consumer, Start
    from replog.client.produced import Produced
    from replog.client.producer import AcksName
    from replog.config import LogConfig
    from replog.registrations import PartitionRegistration
    from replog.replication.incidents import Uncommitted
    from replog.runtime.failover_watch import Failover
    from replog.runtime.journal import JournalEntry
    from replog.runtime.local_cluster import LocalCluster, Node, ReplicaStatus
    from replog.types import Record

T = TypeVar("T")

CLOSE_GRACE_S = 1.0
"""How long calls that the close has failed may take to say so."""


class BlockingConsumer:
    """A consumer as a plain iterator of records; `slices` gives whole fetches."""

    def __init__(self, cluster: BlockingCluster, consumer: Consumer) -> None:
        self._cluster = cluster
        self._consumer = consumer

    @property
    def position(self) -> int | None:
        """The offset behind what was handed out last; None before the first read."""
        return self._consumer.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        consumer = self._consumer
        while True:
            record = consumer.next_of_slice()
            if record is not None:
                return record
            if not self._cluster.wait(consumer.fetch_slice()):
                raise StopIteration

    def slices(self) -> Iterator[ConsumedRecords]:
        """Fetch after fetch, up to the end that was asked for."""
        while (consumed := self._cluster.wait(self._consumer.next_slice())) is not None:
            yield consumed


class BlockingCluster:
    """What `with LocalCluster(...)` gives; see there for what each method does."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        """A process that is forked from ours has neither the thread nor the brokers."""
        self._lock = threading.Lock()
        """Held while a call is put on the loop: none gets onto one that has stopped."""

    def start(self) -> Self:
        """Start the thread and the brokers."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run, args=(self._loop,), name="replog-cluster", daemon=True
        )
        self._thread.start()
        try:
            self.wait(self._cluster.start())
        except BaseException:
            self._stop_loop()
            raise
        return self

    def close(self) -> None:
        """Stop the brokers and the thread. Raises what LocalCluster.close raises."""
        if self._loop is None or self._pid != os.getpid():
            return
        try:
            self.wait(self._cluster.close())
        finally:
            self._stop_loop()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop, and wait for what it returns.

        Raises ReplicationError if another thread closes the cluster meanwhile, and UsageError in a
        process forked from the one that started it.
        """
        if self._pid != os.getpid():
            coroutine.close()
            raise UsageError(
                f"expected process {self._pid}, which started the cluster, found {os.getpid()}, "
                f"which was forked from it; start another cluster here, or processes by spawn"
            )
        with self._lock:
            loop = self._loop
            if loop is None or threading.current_thread() is self._thread:
                coroutine.close()
                raise UsageError(
                    "expected a running cluster and a thread that is not its own, found "
                    + ("the cluster closed" if loop is None else "a call from the cluster's thread")
                )
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._loop is loop:
                raise
            raise closed_meanwhile() from None
        except BaseException:
            future.cancel()
            raise

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        min_insync_replicas: int = 1,
        unclean_leader_election: bool = False,
        config: LogConfig | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.wait(
            self._cluster.create_topic(
                topic,
                partitions,
                replication_factor,
                min_insync_replicas=min_insync_replicas,
                unclean_leader_election=unclean_leader_election,
                config=config,
                assignment=assignment,
            )
        )

    def delete_topic(self, topic: str) -> None:
        self.wait(self._cluster.delete_topic(topic))

    def admin(self, request: AdminRequest) -> AdminAnswer:
        return self.wait(self._cluster.admin(request))

    def topics(self) -> tuple[str, ...]:
        return self._call(self._cluster.topics)

    def registration(self, topic: str, partition: int = 0) -> PartitionRegistration:
        return self._call(self._cluster.registration, topic, partition)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        return self._call(self._cluster.leader, topic, partition)

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        return self._call(self._cluster.isr, topic, partition)

    def replica(self, broker_id: int, topic: str, partition: int = 0) -> ReplicaStatus | None:
        return self._call(self._cluster.replica, broker_id, topic, partition)

    def partition_directory(self, broker_id: int, topic: str, partition: int = 0) -> str:
        return self._call(self._cluster.partition_directory, broker_id, topic, partition)

    @property
    def active_controller(self) -> int | None:
        return self._call(lambda: self._cluster.active_controller)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return self._cluster.broker_ids

    @property
    def controller_ids(self) -> tuple[int, ...]:
        return self._cluster.controller_ids

    def produce(
        self,
        topic: str,
        values: Any,
        *,
        keys: Any = None,
        timestamps: Any = None,
        headers: Any = None,
        partition: int | None = None,
        acks: AcksName = "all",
    ) -> Produced:
        return self.wait(
            self._cluster.produce(
                topic,
                values,
                keys=keys,
                timestamps=timestamps,
                headers=headers,
                partition=partition,
                acks=acks,
            )
        )

    def consume(
        self,
        topic: str,
        partition: int = 0,
        *,
        start: Start = "earliest",
        timestamp: int | None = None,
        end: int | Literal["latest"] | None = None,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
        **options: Any,
    ) -> BlockingConsumer:
        return BlockingConsumer(
            self,
            self._cluster.consume(
                topic,
                partition,
                start=start,
                timestamp=timestamp,
                end=end,
                isolation=isolation,
                **options,
            ),
        )

    def kill(self, broker_id: int) -> None:
        self._call(self._cluster.kill, broker_id)

    def pause(self, broker_id: int) -> None:
        self._call(self._cluster.pause, broker_id)

    def resume(self, broker_id: int) -> None:
        self._call(self._cluster.resume, broker_id)

    def partition(self, one: Node, other: Node) -> None:
        self._call(self._cluster.partition, one, other)

    def isolate(self, broker_id: int) -> None:
        self._call(self._cluster.isolate, broker_id)

    def heal(self, one: Node | None = None, other: Node | None = None) -> None:
        self._call(self._cluster.heal, one, other)

    def restart(self, broker_id: int) -> None:
        self.wait(self._cluster.restart(broker_id))

    def stop(self, broker_id: int) -> None:
        self.wait(self._cluster.stop(broker_id))

    def until(
        self, holds: Callable[[LocalCluster], bool], what: str, *, timeout_ms: int = 30_000
    ) -> None:
        """`holds` runs in the cluster's thread: it must ask the cluster that it is given."""
        self.wait(self._cluster.until(holds, what, timeout_ms=timeout_ms))

    def in_sync(
        self,
        topic: str,
        partition: int = 0,
        *,
        replicas: Sequence[int] | None = None,
        timeout_ms: int = 30_000,
    ) -> tuple[int, ...]:
        return self.wait(
            self._cluster.in_sync(topic, partition, replicas=replicas, timeout_ms=timeout_ms)
        )

    def leader_after(
        self, epoch: int, topic: str, partition: int = 0, *, timeout_ms: int = 30_000
    ) -> int:
        return self.wait(self._cluster.leader_after(epoch, topic, partition, timeout_ms=timeout_ms))

    def why_uncommitted(self, topic: str, offset: int, partition: int = 0) -> Uncommitted | None:
        return self._call(self._cluster.why_uncommitted, topic, offset, partition)

    def incidents(self, topic: str | None = None, partition: int = 0) -> list[JournalEntry]:
        return self._call(self._cluster.incidents, topic, partition)

    @property
    def failovers(self) -> list[Failover]:
        return self._call(lambda: self._cluster.failovers)

    def _call(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a plain call on the cluster's loop."""

        async def called() -> T:
            return call(*arguments)

        return self.wait(called())

    def _stop_loop(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is told to stop, and end it, all in one thread.

    The thread that closes the cluster may have a running loop of its own (a notebook's, an async
    test's), beside which it cannot run another.
    """
    loop.run_forever()
    loop.run_until_complete(_end(asyncio.all_tasks(loop)))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def _end(calls: set[asyncio.Task[Any]]) -> None:
    """Let calls end that have failed by the close; what waits for anything else is cancelled."""
    if calls:
        _, waiting = await asyncio.wait(calls, timeout=CLOSE_GRACE_S)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
