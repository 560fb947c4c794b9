"""The replicas of one partition in one process, each over its own log: a model of failover.

There is no controller and no background work. Its owner says who leads, who dies and who returns,
and nothing moves but by `deliver_one`, `settle` and `tick`, so every run can be repeated step by
step. The in-sync set is fixed between two orders: `elect` drops the dead from it, `readmit` takes a
replica back that has caught up.

`kill` is the crash of a process: no close, no flush, no checkpoint. What the kernel had taken
stays; what the log kept in memory is gone; opening it again is a recovery.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Protocol, Self

from replog.errors import (
    IneligibleReplicaError,
    ReplicationError,
    RequestTimedOutError,
    UsageError,
    invariant,
)
from replog.messages import Acks, RawBatches
from replog.replication.effects import CompleteProduce
from replog.replication.events import LeadershipChange, Produce, Tick
from replog.replication.leader import Leader
from replog.replication.replica import Replica
from replog.runtime.clock import Clock, SystemClock
from replog.runtime.effect_executor import EffectExecutor, LogTruncation, ReplicatedLog
from replog.runtime.memory_transport import MemoryTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from replog.messages import Message
    from replog.types import TopicPartition


class ClosableLog(ReplicatedLog, Protocol):
    """A log that can also be closed cleanly."""

    def close(self) -> None: ...


class ProduceTicket:
    """A produce on its way; `answer` is None until the group has decided it."""

    __slots__ = ("answer", "request_id")

    def __init__(self, request_id: int) -> None:
        self.request_id = request_id
        self.answer: CompleteProduce | None = None

    @property
    def acknowledged(self) -> bool:
        """Answered, and with success."""
        return self.answer is not None and self.answer.error is None

    def offsets(self) -> tuple[int, int]:
        """(base_offset, last_offset) of the records. Raises the error it was answered with.

        Raises RequestTimedOutError while there is no answer: the records may still be committed.
        """
        if self.answer is None:
            raise RequestTimedOutError(
                f"expected an answer to produce request {self.request_id}, found none yet; "
                f"deliver more messages, or ask again later"
            )
        if self.answer.error is not None:
            raise self.answer.error
        assert self.answer.base_offset is not None
        assert self.answer.last_offset is not None
        return self.answer.base_offset, self.answer.last_offset


class ReplicaGroup:
    """See the module. Use as a context manager: leaving it closes the logs of the living."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        replica_ids: Iterable[int],
        open_log: Callable[[int], ClosableLog],
        clock: Clock | None = None,
    ) -> None:
        """Open all logs. `open_log` is called again with the same id when a replica restarts."""
        self.topic_partition = topic_partition
        self.replica_ids = tuple(sorted(replica_ids))
        self.isr = self.replica_ids
        self.leader_id: int | None = None
        self.leader_epoch = -1
        self.transport = MemoryTransport()
        self.truncations: list[LogTruncation] = []
        """All so far, oldest first."""
        self._open_log = open_log
        self._clock = clock if clock is not None else SystemClock()
        self._living: dict[int, EffectExecutor] = {}
        self._logs: dict[int, ClosableLog] = {}
        self._tickets: dict[int, ProduceTicket] = {}
        self._next_request_id = 0
        try:
            for replica_id in self.replica_ids:
                self._start(replica_id)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def living(self) -> tuple[int, ...]:
        """Ids of the replicas that run, ascending."""
        return tuple(sorted(self._living))

    def log(self, replica_id: int) -> ClosableLog:
        """The log of a living replica. Do not keep it: a kill is complete when nobody holds it."""
        self._executor(replica_id)
        return self._logs[replica_id]

    def elect(self, leader_id: int) -> int:
        """Make a living in-sync replica the leader in a new epoch, which is returned.

        The dead leave the in-sync set. Raises UsageError for a dead one and IneligibleReplicaError
        for one outside the in-sync set: it may lack committed records.
        """
        self._executor(leader_id)
        if leader_id not in self.isr:
            raise IneligibleReplicaError(
                f"expected a leader out of the in-sync replicas {list(self.isr)}, found "
                f"{leader_id}; readmit it once it has caught up",
                topic_partition=str(self.topic_partition),
            )
        return self._order(leader_id, tuple(i for i in self.isr if i in self._living))

    def readmit(self, replica_id: int) -> int:
        """Take a replica back into the in-sync set, in a new epoch of the same leader.

        Raises IneligibleReplicaError unless its fetches in this epoch have reached the leader's
        high watermark and the start of the leader's epoch; ReplicationError without a leader.
        """
        leader = self._leader()
        self._executor(replica_id)
        if replica_id in self.isr:
            return self.leader_epoch
        log_end_offset = leader.followers[replica_id].log_end_offset
        floor = max(leader.high_watermark, leader.epoch_start_offset)
        if log_end_offset is None or log_end_offset < floor:
            raise IneligibleReplicaError(
                f"expected replica {replica_id} to have fetched up to offset {floor}, found "
                f"{log_end_offset}; let it catch up first",
                topic_partition=str(self.topic_partition),
                offset=log_end_offset,
            )
        return self._order(self.leader_id, tuple(sorted((*self.isr, replica_id))))

    def produce(self, batches: RawBatches, acks: Acks = Acks.ALL) -> ProduceTicket:
        """Append whole batches on the leader. Raises ReplicationError without a living leader."""
        self._leader()
        assert self.leader_id is not None
        self._next_request_id += 1
        ticket = ProduceTicket(self._next_request_id)
        if acks is not Acks.NONE:
            self._tickets[ticket.request_id] = ticket
        event = Produce(request_id=ticket.request_id, batches=batches, acks=acks)
        self._handle(self.leader_id, event)
        return ticket

    def deliver_one(self) -> bool:
        """Deliver the oldest message on its way; False if there is none."""
        envelope = self.transport.next()
        if envelope is None:
            return False
        if envelope.receiver in self._living:
            self._handle(envelope.receiver, envelope.message)
        return True

    def settle(self) -> None:
        """Deliver messages until none is on its way: every living follower waits at the leader."""
        while self.deliver_one():
            pass

    def tick(self) -> None:
        """Let the living notice that time has passed."""
        for replica_id in self.living:
            self._handle(replica_id, Tick())

    def kill(self, replica_id: int) -> None:
        """Let a replica die as its process would, and lose what is on its way from and to it.

        Produce requests that wait at a dead leader are answered with RequestTimedOutError: their
        records may be lost or be committed by the next leader.
        """
        self._executor(replica_id)
        self.transport.disconnect(replica_id)
        del self._living[replica_id]
        del self._logs[replica_id]
        # The native log gives up its descriptors and its lock with its last reference, unwritten.
        gc.collect()
        if replica_id == self.leader_id:
            self.leader_id = None
            self._abandon_produces(replica_id)

    def restart(self, replica_id: int) -> None:
        """Open a dead replica's log again, with all the recovery it needs, and let it follow."""
        if replica_id in self._living:
            raise UsageError(f"expected replica {replica_id} to be dead, found it running")
        if replica_id not in self.replica_ids:
            raise UsageError(f"expected one of replicas {self.replica_ids}, found {replica_id}")
        self._start(replica_id)
        if self.leader_id is not None:
            self._handle(replica_id, self._change())

    def close(self) -> None:
        """Close the logs of the living cleanly. The dead stay as they died."""
        self._living.clear()
        while self._logs:
            _, log = self._logs.popitem()
            log.close()

    def _start(self, replica_id: int) -> None:
        log = self._open_log(replica_id)
        self._logs[replica_id] = log

        def send(receiver: int, message: Message) -> None:
            self.transport.send(replica_id, receiver, message)

        self._living[replica_id] = EffectExecutor(
            Replica(self.topic_partition, replica_id, log),
            log,
            send=send,
            complete_produce=self._complete_produce,
            on_truncation=self.truncations.append,
        )

    def _order(self, leader_id: int | None, isr: tuple[int, ...]) -> int:
        self.leader_id, self.isr = leader_id, isr
        self.leader_epoch += 1
        for replica_id in self.living:
            self._handle(replica_id, self._change())
        return self.leader_epoch

    def _change(self) -> LeadershipChange:
        return LeadershipChange(
            leader_id=self.leader_id,
            leader_epoch=self.leader_epoch,
            replicas=self.replica_ids,
            isr=self.isr,
        )

    def _handle(self, replica_id: int, event: LeadershipChange | Produce | Tick | Message) -> None:
        self._living[replica_id].handle(event, self._clock.monotonic_ms())

    def _executor(self, replica_id: int) -> EffectExecutor:
        executor = self._living.get(replica_id)
        if executor is None:
            raise UsageError(
                f"expected one of the running replicas {list(self.living)}, found {replica_id}; "
                f"restart it first"
            )
        return executor

    def _leader(self) -> Leader:
        if self.leader_id is None:
            raise ReplicationError(
                f"expected a leader of {self.topic_partition}, found none; elect one",
                topic_partition=str(self.topic_partition),
            )
        role = self._living[self.leader_id].replica.role
        invariant(isinstance(role, Leader), "the leader to lead", leader_id=self.leader_id)
        assert isinstance(role, Leader)
        return role

    def _complete_produce(self, answer: CompleteProduce) -> None:
        ticket = self._tickets.pop(answer.request_id, None)
        if ticket is not None:
            ticket.answer = answer

    def _abandon_produces(self, replica_id: int) -> None:
        for request_id, ticket in self._tickets.items():
            error = RequestTimedOutError(
                f"expected replica {replica_id} to answer produce request {request_id}, found that "
                f"it died; the records may be lost or still be committed, so send them again only "
                f"if a repeat does no harm",
                topic_partition=str(self.topic_partition),
            )
            ticket.answer = CompleteProduce(request_id, error=error)
        self._tickets.clear()
