"""`replog.LocalCluster`: brokers on real logs in one process, to embed, and to break in tests.

    async with replog.LocalCluster(3) as cluster:      with replog.LocalCluster(3) as cluster:
        await cluster.create_topic("orders")               cluster.create_topic("orders")
        await cluster.produce("orders", [b"first"])        cluster.produce("orders", [b"first"])

One asyncio loop runs all of it: the caller's own, or with plain `with` one in a background thread
(`blocking_cluster.py`). Each broker has a log directory of its own, and each controller: what they
decide is a log as well, so a cluster in a directory of one's own opens again where it was closed.

`kill` is the death of a process: nothing is closed, flushed or checkpointed, and the controllers
learn of it by the broken connection. `pause` is a process that stands still: nobody is told.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from replog._native.arguments import integer
from replog.client.consumer import Consumer
from replog.config import ControllerOptions, LogConfig, QuorumOptions, ReplicationOptions
from replog.errors import NoLeaderError, ReplicationError, UsageError
from replog.messages import CreateTopicRequest, DeleteTopicRequest
from replog.registrations import TopicConfig
from replog.runtime.clock import SystemClock, check_clock
from replog.runtime.cluster_arguments import check_reachable, options_of
from replog.runtime.cluster_connection import check_loop
from replog.runtime.cluster_nodes import (
    check_directory,
    check_layout,
    check_racks,
    settle_cluster_id,
)
from replog.runtime.running_cluster import TIMEOUT_MS, ClusterOptions, RunningCluster
from replog.storage.directory_access import make_directory
from replog.types import Isolation, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from replog.admin_messages import AdminAnswer, AdminRequest
    from replog.client.consumer import Start
    from replog.client.produced import Produced
    from replog.client.producer import AcksName, Producer
    from replog.registrations import PartitionRegistration
    from replog.replication.incidents import Uncommitted
    from replog.runtime.blocking_cluster import BlockingCluster
    from replog.runtime.clock import Clock
    from replog.runtime.failover_watch import Failover
    from replog.runtime.journal import JournalEntry

Node = int | Literal["controller"]


class ReplicaStatus(NamedTuple):
    """One broker's replica of a partition; ends are exclusive."""

    broker_id: int
    is_leader: bool
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    latest_epoch: int


class LocalCluster:
    """See the module. Brokers have the ids 1 to `brokers`, controllers those from 1001 on.

    Async methods are for the loop that entered it; entered by plain `with` it gives a
    BlockingCluster, whose methods have the same names (it has no `producer`), and may be called
    from any thread.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        controllers: int = 1,
        combined: bool = False,
        directory: str | os.PathLike[str] | None = None,
        racks: Mapping[int, str] | None = None,
        replication: ReplicationOptions | None = None,
        controller: ControllerOptions | None = None,
        quorum: QuorumOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        """controllers: how many voters decide on the metadata; three of them survive the loss of
        one. combined: they run beside the first brokers, live and die with them, and have their
        ids.

        directory: where the logs are; new, empty or of an earlier run of a cluster like this. None:
        a temporary one, gone at the end. replication, controller, quorum: options of the brokers'
        replicas and sessions, and of the controllers' elections. Raises UsageError for no brokers,
        an even number of controllers, racks of others than the brokers, options of another kind, a
        clock whose readings are no ints; entering raises it for a directory of something else.
        """
        layout = check_layout(brokers, controllers, combined=combined)
        self.controller_ids = layout.controllers
        self.directory = None if directory is None else check_directory(directory)
        self.broker_ids = layout.brokers
        self._is_temporary = directory is None
        self._options = ClusterOptions(
            layout=layout,
            racks=check_racks(racks, layout),
            replication=options_of("replication", replication, ReplicationOptions),
            controller=options_of("controller", controller, ControllerOptions),
            quorum=options_of("quorum", quorum, QuorumOptions),
            clock=SystemClock() if clock is None else check_clock(clock),
        )
        self._state: RunningCluster | None = None
        self._blocking: BlockingCluster | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> BlockingCluster:
        from replog.runtime.blocking_cluster import BlockingCluster

        self._check_not_running()
        blocking = BlockingCluster(self)
        blocking.start()
        self._blocking = blocking
        return blocking

    def __exit__(self, *_: object) -> None:
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.close()

    async def start(self) -> None:
        """Start all nodes, and return when each broker may lead; `close` undoes it.

        Raises MissingLogError where the metadata log is gone, or lacks what a broker's copy has.
        """
        self._check_not_running()
        is_new = self._prepare_directory()
        assert self.directory is not None
        cluster_id = settle_cluster_id(self.directory, self._options.layout)
        running = RunningCluster(self._options, self.directory, cluster_id)
        self._state = running
        try:
            await running.start(is_new=is_new)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the clients and the brokers; with a directory of one's own: cleanly.

        Calls that still wait, consumers' among them, end with a ReplicationError.
        Raises ReplicationError if a broker broke an invariant meanwhile: that is a bug in replog.
        """
        if self._state is None:
            return
        running, self._state = self._running(), None
        try:
            await running.close(keep_files=not self._is_temporary)
        finally:
            if self._is_temporary and self.directory is not None:
                shutil.rmtree(self.directory, ignore_errors=True)
                self.directory = None
        if running.pump.crashes:
            address, error = running.pump.crashes[0]
            raise ReplicationError(
                f"expected no node to break an invariant, found that node {address} did; this is "
                f"a bug in replog"
            ) from error

    # Topics.

    async def create_topic(
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
        """Create a topic, and return when its leaders take requests.

        replication_factor: three, or as many as there are brokers, if None. min_insync_replicas:
        fewer than so many in sync, and acks="all" is refused. config: options of its logs.
        assignment: the broker ids for each partition, the first of which leads. Raises
        TopicExistsError, UsageError for what the cluster cannot do.
        """
        running = self._running()
        if replication_factor is None:
            replication_factor = min(3, len(self.broker_ids)) if assignment is None else -1
        check_reachable(min_insync_replicas, replication_factor, assignment)
        await running.ask_controller(
            CreateTopicRequest(
                topic=topic,
                partitions=partitions,
                replication_factor=replication_factor,
                assignment=None if assignment is None else tuple(map(tuple, assignment)),
                config=TopicConfig(
                    min_insync_replicas=min_insync_replicas,
                    unclean_leader_election_enable=unclean_leader_election,
                    log=options_of("config", config, LogConfig),
                ),
            )
        )
        await running.until(
            lambda: all(map(running.has_leader, running.view.partitions_of(topic))),
            f"every partition of {topic!r} to have a leader",
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and its files. Raises UnknownTopicOrPartitionError."""
        await self._running().ask_controller(DeleteTopicRequest(topic=topic))

    async def admin(self, request: AdminRequest) -> AdminAnswer:
        """Ask the controller what `replog.admin_messages` has: replicas elsewhere, more partitions,
        options, elections, a balance, how partitions are doing.

        Returns its answer, which may hold an error for each part. Raises what stands for an error
        of the whole; RequestTimedOutError where no controller stays active.
        """
        answer: AdminAnswer = await self._running().ask_controller(request)
        return answer

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, sorted."""
        return self._running().view.topics()

    def registration(self, topic: str, partition: int = 0) -> PartitionRegistration:
        """What the controller has decided. Raises UnknownTopicOrPartitionError."""
        return self._running().connection.partition(TopicPartition(topic, partition))

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition; None if nobody does."""
        return self.registration(topic, partition).leader_id

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The in-sync set of a partition."""
        return self.registration(topic, partition).isr

    def replica(self, broker_id: int, topic: str, partition: int = 0) -> ReplicaStatus | None:
        """A broker's own view of its replica; None if it has none, or one that cannot be used."""
        topic_partition = TopicPartition(topic, partition)
        node = self._running().members.node(broker_id)
        log = node.store.get(topic_partition)
        if log is None:
            return None
        return ReplicaStatus(
            broker_id,
            node.host.leader(topic_partition) is not None,
            log.log_start_offset,
            log.high_watermark,
            log.log_end_offset,
            log.latest_epoch,
        )

    def partition_directory(self, broker_id: int, topic: str, partition: int = 0) -> str:
        """Where a broker keeps its replica, also while it does not run."""
        directory = self._running().members.log_directory(broker_id)
        return os.path.join(directory, str(TopicPartition(topic, partition)))

    # Records.

    async def produce(
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
        """Append records, and return once `acks` is met; see `Producer.send` for the arguments.

        With acks="all" a repeat after a failover is told from the first time (an idempotent
        producer is behind it).
        """
        return (
            await self._running()
            .producer(acks)
            .send(
                topic,
                values,
                keys=keys,
                timestamps=timestamps,
                headers=headers,
                partition=partition,
            )
        )

    def producer(self, **options: Any) -> Producer:
        """A producer of one's own, for many batches in flight; options as `Producer` has them."""
        return self._running().new_producer(**options)

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
    ) -> Consumer:
        """Committed records of a partition, to iterate; waits for more unless `end` is given."""
        return Consumer(
            self._running().connection,
            TopicPartition(topic, partition),
            start=start,
            timestamp=timestamp,
            end=end,
            isolation=isolation,
            **options,
        )

    # Faults.

    def kill(self, broker_id: int) -> None:
        """Let a node die as its process would; its files stay as the kernel has them.

        A node is a broker, with the controller that runs beside it, or a controller that stands
        alone; so it is below.
        """
        self._running().members.kill(broker_id)

    def pause(self, broker_id: int) -> None:
        """Let a node stand still, as SIGSTOP does; nobody is told."""
        self._running().members.pause(broker_id)

    def resume(self, broker_id: int) -> None:
        """Let a paused node go on with what it finds."""
        self._running().members.resume(broker_id)

    def partition(self, one: Node, other: Node) -> None:
        """Let nothing through between two nodes until `heal`.

        "controller" stands for every controller but one's own.
        """
        for pair in self._pairs(one, other):
            self._running().members.cut(*pair)

    def isolate(self, broker_id: int) -> None:
        """Cut a node off from all others, but not from clients."""
        for other in self._options.layout.nodes:
            if other != broker_id:
                self.partition(broker_id, other)

    def heal(self, one: Node | None = None, other: Node | None = None) -> None:
        """Undo one `partition`, or all; what waited on the way arrives, late."""
        members = self._running().members
        if one is None or other is None:
            members.join_all()
        else:
            for pair in self._pairs(one, other):
                members.join(*pair)

    async def restart(self, broker_id: int) -> None:
        """Start a node that was killed or stopped, with all the recovery it needs.

        A broker's returns when it may lead again, which is before it has caught up; see `in_sync`.
        """
        running = self._running()
        members = running.members
        await members.start(broker_id)
        await running.until(lambda: members.is_ready(broker_id), f"node {broker_id} to be ready")

    async def stop(self, broker_id: int) -> None:
        """Stop a node cleanly: its leaderships go to others first."""
        await self._running().members.stop(broker_id)

    # What is, and why.

    @property
    def active_controller(self) -> int | None:
        """The node whose controller decides; None while nobody's does."""
        return self._running().view.active_id

    async def until(
        self, holds: Callable[[LocalCluster], bool], what: str, *, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Return once `holds(cluster)`, which is looked at whenever something has moved.

        Raises RequestTimedOutError, saying that `what` was expected.
        """
        await self._running().until(lambda: holds(self), what, timeout_ms)

    async def in_sync(
        self,
        topic: str,
        partition: int = 0,
        *,
        replicas: Sequence[int] | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> tuple[int, ...]:
        """Return the in-sync set once it holds `replicas` (None: all of the partition's).

        Raises RequestTimedOutError.
        """
        wanted = set(self.registration(topic, partition).replicas if replicas is None else replicas)
        await self._running().until(
            lambda: wanted <= set(self.isr(topic, partition)),
            f"{sorted(wanted)} to be in sync for {topic}-{partition}",
            timeout_ms,
        )
        return self.isr(topic, partition)

    async def leader_after(
        self, epoch: int, topic: str, partition: int = 0, *, timeout_ms: int = TIMEOUT_MS
    ) -> int:
        """The leader of a later epoch than `epoch`, once it takes requests."""
        topic_partition = TopicPartition(topic, partition)

        def leads() -> bool:
            registration = self.registration(topic, partition)
            return registration.leader_epoch > epoch and self._running().has_leader(topic_partition)

        await self._running().until(
            leads, f"a leader of {topic_partition} after epoch {epoch}", timeout_ms
        )
        leader_id = self.leader(topic, partition)
        assert leader_id is not None
        return leader_id

    def why_uncommitted(self, topic: str, offset: int, partition: int = 0) -> Uncommitted | None:
        """Which replicas hold an offset back, and by how much; None if it is committed.

        Also None for an offset that is not in the leader's log. Raises NoLeaderError, also while a
        leader that died has no successor yet.
        """
        offset = integer(offset, "offset", f"topic {topic!r}")
        topic_partition = TopicPartition(topic, partition)
        leader_id = self.leader(topic, partition)
        host = self._running().members.host(leader_id)
        if host is None or host.leader(topic_partition) is None:
            raise NoLeaderError(
                f"expected a leader of {topic_partition} to ask, found "
                f"{'none' if leader_id is None else f'that broker {leader_id} does not lead now'}; "
                f"its in-sync set is {list(self.isr(topic, partition))}",
                topic_partition=str(topic_partition),
            )
        return host.why_uncommitted(topic_partition, offset)

    def incidents(self, topic: str | None = None, partition: int = 0) -> list[JournalEntry]:
        """What happened to a partition, or to all and in the controllers, by time (`wall_ms`)."""
        running = self._running()
        topic_partition = None if topic is None else TopicPartition(topic, partition)
        return running.members.entries(topic_partition)

    @property
    def failovers(self) -> list[Failover]:
        """Leaders lost to a fault and the ones that followed, with the times that it took."""
        return list(self._running().members.watch.failovers)

    # Within.

    def _check_not_running(self) -> None:
        if self._state is not None:
            raise UsageError("expected a cluster that does not run, found it running; close it")

    def _running(self) -> RunningCluster:
        if self._state is None:
            raise UsageError("expected a running cluster, found it closed; enter it by `with`")
        check_loop(self._state.connection.loop)
        return self._state

    def _prepare_directory(self) -> bool:
        """See that there is one; whether it is empty."""
        if self._is_temporary:
            self.directory = tempfile.mkdtemp(prefix="replog-cluster-")
        assert self.directory is not None
        make_directory(self.directory)
        return not os.listdir(self.directory)

    def _pairs(self, one: Node, other: Node) -> list[tuple[int, int]]:
        """The pairs of nodes that two names stand for."""
        ends = []
        for node in (one, other):
            if node == "controller":
                ends.append(self.controller_ids)
            else:
                self._running().members.check_id(node)
                ends.append((node,))
        return [(a, b) for a in ends[0] for b in ends[1] if a != b]
