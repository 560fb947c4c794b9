"""Which role each replica of a broker plays: as the controller says, and as its log allows.

Roles change with the controller's metadata, with the life of leaders' brokers, and with logs that
fail or are replaced; whoever waits for a role that ends is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.config import LONG_MAX
from replog.messages import ErrorCode
from replog.replication.effects import DeleteLog, SetAsideLog
from replog.replication.fetcher import Fetcher
from replog.replication.follower import Follower
from replog.replication.incidents import LeadershipChanged, ReplicaFailed
from replog.replication.leader import Leader
from replog.replication.replica import Replica
from replog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.errors import ReplogError
    from replog.registrations import MetadataDelta, PartitionRegistration
    from replog.replication.alter_partition import ProposalQueue
    from replog.replication.events import LogUnavailable
    from replog.replication.fetch_server import FetchServer
    from replog.replication.host_context import HostContext
    from replog.replication.log_view import LogView
    from replog.replication.partition_table import PartitionTable
    from replog.replication.produce_server import ProduceServer
    from replog.types import TopicPartition


class ReplicaRoles:
    """Gives the replicas of one broker their roles, and takes them away."""

    def __init__(
        self,
        context: HostContext,
        table: PartitionTable,
        logs: Callable[[TopicPartition], LogView | None],
        proposals: ProposalQueue,
        produces: ProduceServer,
        fetches: FetchServer,
    ) -> None:
        self.broker_id = context.cluster.broker_id
        self.fetchers: dict[int, Fetcher] = {}
        """By leader's broker id; only those with partitions."""
        self._context = context
        self._table = table
        self._logs = logs
        self._proposals = proposals
        self._produces = produces
        self._fetches = fetches
        self._faults: dict[TopicPartition, tuple[ReplogError, bool]] = {}
        """Logs that cannot be used: why, and whether they are damaged."""
        self._damage: dict[TopicPartition, int] = {}
        """Damaged logs: the latest leader epoch in which they may have been fetched into."""

    def apply(self, delta: MetadataDelta, now_ms: int) -> None:
        """Take in what the controller decided, brokers first."""
        self._context.cluster.apply(delta.brokers)
        self._context.throttle.configure(delta.broker_options)
        anew = {registration.topic_partition for registration in delta.partitions}
        for topic_partition, topic_id in delta.removed_partitions:
            known = self._table.registrations.get(topic_partition)
            if known is not None and known.topic_id == topic_id:
                self._remove(topic_partition, now_ms, is_replaced=topic_partition in anew)
        for registration in delta.partitions:
            self._apply_registration(registration, now_ms)
        if delta.brokers:
            self._brokers_changed(now_ms)
        if delta.partitions:
            self._fetches.nudge_unheard(now_ms)

    def _brokers_changed(self, now_ms: int) -> None:
        """Who is alive and who may join has changed: leaders, followers and deletions look anew."""
        for topic_partition, replica in self._table.replicas.items():
            if replica.leader is not None:
                replica.leader.advance_high_watermark(now_ms)
                self._context.moved[topic_partition] = True
            elif replica.log is not None:
                self._maybe_follow(replica, now_ms)

    def _remove(self, topic_partition: TopicPartition, now_ms: int, *, is_replaced: bool) -> None:
        self._table.registrations.pop(topic_partition, None)
        self._drop_replica(topic_partition, now_ms, is_replaced=is_replaced)

    def _drop_replica(
        self, topic_partition: TopicPartition, now_ms: int, *, is_replaced: bool = False
    ) -> None:
        """The replica is not ours any more: its files go.

        is_replaced: they have gone, and a topic of the same name has its own there already.
        """
        replica = self._table.replicas.get(topic_partition)
        if replica is None:
            return
        self._retire(
            replica,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{topic_partition} was deleted or moved away while the producer waited",
        )
        del self._table.replicas[topic_partition]
        if not is_replaced:
            self._faults.pop(topic_partition, None)
            self._damage.pop(topic_partition, None)
        self._fetches.release(replica, now_ms)
        if not is_replaced:
            self._context.emit(DeleteLog(topic_partition))

    def _apply_registration(self, registration: PartitionRegistration, now_ms: int) -> None:
        topic_partition = registration.topic_partition
        known = self._table.registrations.get(topic_partition)
        if known is not None and known.topic_id != registration.topic_id:
            self._remove(topic_partition, now_ms, is_replaced=True)
            known = None
        if known is not None and (
            registration.partition_epoch < known.partition_epoch
            or registration.leader_epoch < known.leader_epoch
        ):
            return
        self._table.registrations[topic_partition] = registration
        if self.broker_id not in registration.replicas:
            self._drop_replica(topic_partition, now_ms)
            return
        replica = self._table.replicas.get(topic_partition)
        if replica is None:
            replica = Replica(registration, None)
            self._table.replicas[topic_partition] = replica
        self._open(replica, registration, now_ms)
        if (
            replica.log is not None
            and self.broker_id in registration.isr
            and registration.leader_epoch > self._damage.get(topic_partition, LONG_MAX)
        ):
            del self._damage[topic_partition]  # by what was fetched into the new log
        self._assume_role(replica, registration, now_ms)

    def _open(self, replica: Replica, registration: PartitionRegistration, now_ms: int) -> None:
        """Have the log, if it can be had: in place of one that failed only a new one will do."""
        if replica.log is not None:
            return
        topic_partition = registration.topic_partition
        log = self._logs(topic_partition)
        if log is not None and log is not replica.failed_log:
            replica.log = log
            self._faults.pop(topic_partition, None)
            return
        fault = self._faults.get(topic_partition)
        leader_id = registration.leader_id
        if (
            fault is not None
            and fault[1]
            and leader_id not in {None, self.broker_id}
            and self.broker_id not in registration.isr
            and not replica.is_replacing
        ):
            # All that is committed is with the leader and its in-sync set: ours may be set aside.
            replica.is_replacing = True
            self._context.emit(SetAsideLog(topic_partition))

    def _assume_role(
        self, replica: Replica, registration: PartitionRegistration, now_ms: int
    ) -> None:
        before = replica.registration
        replica.registration = registration
        log = replica.log
        if log is None:
            return
        leads = registration.leader_id == self.broker_id
        role_before = replica.role
        is_new_epoch = registration.leader_epoch > before.leader_epoch or (
            replica.leader is None and replica.follower is None
        )
        if leads:
            self._stop_following(replica)
            self._end_outdated_leadership(replica)
            if replica.leader is None:
                replica.leader = Leader(self._context, registration, log, self._proposals, now_ms)
            else:
                replica.leader.apply(registration, now_ms)
        else:
            if replica.leader is not None:
                self._retire(
                    replica,
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"broker {self.broker_id} stopped leading {registration.topic_partition} "
                    f"before the records were committed; they may still be, so ask the new "
                    f"leader before sending them again",
                )
            self._maybe_follow(replica, now_ms)
        self._context.moved[registration.topic_partition] = True
        if is_new_epoch or replica.role is not role_before:
            self._context.report(
                LeadershipChanged(
                    topic_partition=registration.topic_partition,
                    leader_id=registration.leader_id,
                    leader_epoch=registration.leader_epoch,
                    isr=registration.isr,
                    high_watermark=replica.high_watermark,
                    log_end_offset=log.log_end_offset,
                    unclean=registration.unclean,
                )
            )

    def _end_outdated_leadership(self, replica: Replica) -> None:
        """Where we lead again, but have missed an epoch, somebody else may have led meanwhile: our
        followers have cut what they had of us then, and nothing that we know of them holds.
        """
        leader, registration = replica.leader, replica.registration
        if leader is not None and registration.leader_epoch > leader.leader_epoch + 1:
            self._retire(
                replica,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.broker_id} missed that {registration.topic_partition} had other "
                f"leaders between the leader epochs {leader.leader_epoch} and "
                f"{registration.leader_epoch}, before the records were committed; they may still "
                f"be, so ask again before sending them again",
            )

    def _maybe_follow(self, replica: Replica, now_ms: int) -> None:
        """Follow the leader there is, in its present epoch; nobody while it is not alive."""
        registration = replica.registration
        leader_id = registration.leader_id
        follower = replica.follower
        cluster = self._context.cluster
        is_alive = leader_id is not None and cluster.is_alive(leader_id)
        if follower is not None:
            if (
                is_alive
                and follower.leader_epoch == registration.leader_epoch
                and follower.leader_id == leader_id
            ):
                follower.registration = registration
                return
            self._stop_following(replica)
        if not is_alive or leader_id is None or replica.log is None:
            return
        fetcher = self.fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self.fetchers[leader_id] = Fetcher(self._context, leader_id)
        replica.follower = Follower(self._context, registration, replica.log, fetcher)
        fetcher.add(replica.follower)
        replica.follower.start(now_ms)

    def _stop_following(self, replica: Replica) -> None:
        follower, replica.follower = replica.follower, None
        if follower is None:
            return
        fetcher = self.fetchers[follower.leader_id]
        fetcher.remove(follower)
        if not fetcher.followers:
            fetcher.close()
            del self.fetchers[follower.leader_id]

    def _retire(self, replica: Replica, error: ErrorCode, message: str) -> None:
        """Play no role any more; who waits for what we cannot do hears `error`."""
        topic_partition = replica.registration.topic_partition
        self._stop_following(replica)
        leader, replica.leader = replica.leader, None
        if leader is not None:
            leader.resign(error, message)
            self._produces.release(topic_partition, error, message)
        self._context.moved[topic_partition] = True

    def lose_log(self, event: LogUnavailable, now_ms: int) -> None:
        """A log cannot be used: its replica plays no role until it has another."""
        topic_partition = event.topic_partition
        is_news = topic_partition not in self._faults
        self._faults[topic_partition] = (event.error, event.damaged)
        replica = self._table.replicas.get(topic_partition)
        if event.damaged:
            used = replica is not None and replica.log is not None
            epoch = replica.registration.leader_epoch if replica and used else NO_LEADER_EPOCH
            known = self._damage.get(topic_partition, NO_LEADER_EPOCH)
            self._damage[topic_partition] = max(epoch, known)
        if replica is not None:
            was_replacing, replica.is_replacing = replica.is_replacing, False
            if replica.log is not None:
                self._retire(
                    replica,
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the log of {topic_partition} on broker {self.broker_id} has failed: "
                    f"{event.error}",
                )
                replica.failed_log, replica.log = replica.log, None
            if not was_replacing:
                self._open(replica, replica.registration, now_ms)
        if is_news:
            self._context.report(
                ReplicaFailed(
                    topic_partition=topic_partition,
                    leader_epoch=replica.registration.leader_epoch if replica is not None else -1,
                    message=str(event.error),
                )
            )

    def damaged_epoch(self, topic_partition: TopicPartition) -> int | None:
        """Set while our log was found corrupt, and what was fetched anew in its place is not in
        sync yet, as far as we have heard. Being in the in-sync set is no proof of that under this
        leader epoch: the corrupt log was fetched into, and those fetches may have counted us in.
        """
        return self._damage.get(topic_partition)

    def replace_log(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """The damaged log was set aside: follow from empty."""
        replica = self._table.replicas.get(topic_partition)
        if replica is None:
            return
        replica.is_replacing = False
        self._open(replica, replica.registration, now_ms)
        self._assume_role(replica, replica.registration, now_ms)
