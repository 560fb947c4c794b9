"""The serving side of produce requests: check, append, wait for what `acks` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.messages import Acks, Durability, ErrorCode, ProducedPartition, ProduceResponse
from replog.replication.deadlines import Patience
from replog.replication.effects import AppendAsLeader, Respond
from replog.replication.error_codes import error_code_of
from replog.replication.incidents import ProduceRefused
from replog.replication.produce_waits import PendingAck, ProduceWait
from replog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    import uuid

    from replog.messages import ProduceRequest
    from replog.replication.events import LeaderAppendCompleted, LeaderAppendFailed
    from replog.replication.host_context import HostContext
    from replog.replication.partition_table import PartitionTable
    from replog.types import TopicPartition

_VALID_ACKS = {Acks.NONE, Acks.LEADER, Acks.ALL}


class _Appending:
    """One partition of a request, on its way into our log."""

    __slots__ = ("leader_epoch", "place", "topic_partition", "wait")

    def __init__(
        self, wait: ProduceWait, place: int, leader_epoch: int, topic_partition: TopicPartition
    ) -> None:
        self.wait = wait
        self.place = place
        self.leader_epoch = leader_epoch
        self.topic_partition = topic_partition


class ProduceServer:
    """Answers the produce requests of one broker's clients."""

    def __init__(self, context: HostContext, table: PartitionTable) -> None:
        self._context = context
        self._table = table
        self.appending: dict[int, _Appending] = {}
        """By append_id; while there are any, completions are to come before this step is whole."""
        self._waits: dict[int, ProduceWait] = {}
        """Those that are not answered yet, by request id."""
        self._patience = Patience(context.deadlines, self._expire)
        self._expiry_ms = 0
        """No later than the first of them runs out of time."""
        self._append_ids = 0

    def receive(self, request_id: int, request: ProduceRequest, now_ms: int) -> None:
        """Append what may be; every partition gets its own answer."""
        if not request.partitions:
            self._context.emit(Respond(request_id, ProduceResponse(partitions=())))
            return
        wait = ProduceWait(self._context, self._waits, request_id, request, now_ms)
        for index, (topic_partition, topic_id, batches) in enumerate(request.partitions):
            refusal = self._refusal(topic_partition, topic_id, request.acks)
            if refusal is not None:
                wait.decide(index, refusal)
                continue
            replica = self._table.replicas[topic_partition]
            leader_epoch = replica.registration.leader_epoch
            self._append_ids += 1
            append_id = self._append_ids
            self.appending[append_id] = _Appending(wait, index, leader_epoch, topic_partition)
            self._context.emit(AppendAsLeader(topic_partition, append_id, batches, leader_epoch))

    def append_completed(self, done: LeaderAppendCompleted, now_ms: int) -> None:
        """The records are in our log; or they were, and these are their offsets of then."""
        appending = self.appending.pop(done.append_id, None)
        replica = self._table.replicas.get(done.topic_partition)
        if appending is None or replica is None or replica.leader is None or replica.log is None:
            return
        leader, log = replica.leader, replica.log
        wait = appending.wait
        pending = PendingAck(
            wait, appending.place, done, appending.leader_epoch, log.log_start_offset
        )
        self._context.moved[done.topic_partition] = True
        leader.maybe_flush()
        if wait.acks == Acks.ALL:
            self._hold(pending)
            leader.replicated.add(pending)
        elif wait.acks == Acks.LEADER and leader.syncs:
            self._hold(pending)
            leader.synced.add(pending)
        else:
            pending.acknowledge(Durability.LEADER if wait.acks == Acks.LEADER else None)
        if len(leader.isr.maximal) == 1:
            # Else another one holds the high watermark, and moves it by its next fetch.
            leader.advance_high_watermark(now_ms)
        if done.duplicate:
            # What it waits for may have been reached long ago, and nothing tells it again.
            leader.acknowledge_reached()
            leader.acknowledge_synced()

    def append_failed(self, failed: LeaderAppendFailed) -> None:
        """Nothing was appended: the producer hears why."""
        appending = self.appending.pop(failed.append_id, None)
        if appending is None:
            return
        refusal = self._refuse(
            failed.topic_partition, error_code_of(failed.error), str(failed.error)
        )
        appending.wait.decide(appending.place, refusal)

    def release(self, topic_partition: TopicPartition, error: ErrorCode, message: str) -> None:
        """Its log is gone from here: what is being appended will not be completed."""
        for append_id, appending in list(self.appending.items()):
            if appending.topic_partition == topic_partition:
                del self.appending[append_id]
                refusal = ProducedPartition(
                    topic_partition=topic_partition, error=error, message=message
                )
                appending.wait.decide(appending.place, refusal)

    def gone(self, request_id: int) -> None:
        """Nobody waits for this answer any more."""
        wait = self._waits.get(request_id)
        if wait is not None:
            wait.abandon()

    def _hold(self, pending: PendingAck) -> None:
        """It may take its time: there is an end to the patience."""
        wait = pending.wait
        wait.pending.append(pending)
        if wait.request_id in self._waits or wait.is_abandoned:
            return
        if not self._waits or wait.deadline_ms < self._expiry_ms:
            self._wait_until(wait.deadline_ms)
        self._waits[wait.request_id] = wait

    def _wait_until(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self._patience.last_until(expiry_ms)

    def _expire(self, now_ms: int) -> None:
        """Answer those whose time is up; there may be none, if they were answered meanwhile."""
        for wait in [wait for wait in self._waits.values() if wait.deadline_ms <= now_ms]:
            for pending in list(wait.pending):
                if pending.is_open:
                    self._report_timeout(pending, now_ms)
                    pending.refuse(
                        ErrorCode.REQUEST_TIMED_OUT,
                        "expected what acks asks for in time, found replicas behind; the records "
                        "may still be committed, so sending them again may repeat them",
                    )
        if self._waits:
            self._wait_until(min([wait.deadline_ms for wait in self._waits.values()]))

    def _refusal(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, acks: int
    ) -> ProducedPartition | None:
        """Why nothing is appended, if so."""
        if acks not in _VALID_ACKS:
            return self._refuse(
                topic_partition,
                ErrorCode.INVALID_REQUIRED_ACKS,
                f"expected acks 0, 1 or -1, found {acks}",
            )
        error = self._table.refusal(topic_partition, topic_id)
        if error is ErrorCode.UNKNOWN_TOPIC_ID:
            known_id = self._table.registrations[topic_partition].topic_id
            return self._refuse(
                topic_partition,
                error,
                f"expected the topic of id {topic_id} under the name of {topic_partition}, found "
                f"the one of id {known_id}: one was deleted and the other created since, and who "
                f"has heard of the older one only is behind; nothing was appended, look it up",
            )
        if error is not ErrorCode.NONE:
            return self._refuse(topic_partition, error, f"{topic_partition} cannot be written here")
        leader = self._table.replicas[topic_partition].leader
        if leader is None:
            return self._refuse(
                topic_partition,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"expected the leader of {topic_partition}, found a broker that does not lead it; "
                f"nothing was appended, ask the leader",
            )
        if acks == Acks.ALL and leader.is_under_min_isr:
            floor = leader.registration.min_insync_replicas
            return self._refuse(
                topic_partition,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"expected {floor} in-sync replicas of {topic_partition}, found {leader.isr.isr}; "
                f"nothing was appended",
            )
        return None

    def _refuse(
        self, topic_partition: TopicPartition, error: ErrorCode, message: str
    ) -> ProducedPartition:
        registration = self._table.registrations.get(topic_partition)
        replica = self._table.replicas.get(topic_partition)
        leader = replica.leader if replica is not None else None
        isr: tuple[int, ...] = ()
        if registration is not None:
            isr = leader.isr.isr if leader is not None else registration.isr
        self._context.report(
            ProduceRefused(
                topic_partition=topic_partition,
                error=error,
                leader_epoch=registration.leader_epoch if registration else NO_LEADER_EPOCH,
                isr=isr,
                min_insync_replicas=registration.min_insync_replicas if registration else 0,
            )
        )
        return ProducedPartition(topic_partition=topic_partition, error=error, message=message)

    def _report_timeout(self, pending: PendingAck, now_ms: int) -> None:
        topic_partition = pending.done.topic_partition
        replica = self._table.replicas.get(topic_partition)
        if replica is None or replica.leader is None:
            return
        leader = replica.leader
        self._context.report(
            ProduceRefused(
                topic_partition=topic_partition,
                error=ErrorCode.REQUEST_TIMED_OUT,
                leader_epoch=leader.leader_epoch,
                isr=leader.isr.isr,
                min_insync_replicas=leader.registration.min_insync_replicas,
                required_offset=pending.required_offset,
                high_watermark=leader.high_watermark,
                held_back_by=leader.held_back_by(pending.done.last_offset, now_ms),
            )
        )
