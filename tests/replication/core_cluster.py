"""Hosts over memory logs, a queue of messages and a controller that a test plays itself.

Nothing moves by itself: a test delivers messages, ticks, and decides proposals. With
`decides=True` the queue holds a controller that grants every proposal of the present epochs.
"""

from __future__ import annotations

import collections
import dataclasses
import uuid
from typing import Any, NamedTuple

from replog.config import LogConfig, ReplicationOptions
from replog.errors import ReplogError
from replog.messages import (
    Acks,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    IsrDecision,
    LogRead,
    ProduceRequest,
)
from replog.registrations import (
    BrokerRegistration,
    MetadataDelta,
    PartitionRegistration,
    TopicConfig,
)
from replog.replication import effects as fx
from replog.replication import events as ev
from replog.replication.replica_host import ReplicaHost
from replog.types import TopicPartition
from tests.replication.memory_log import MemoryLog

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=1)
CONTROLLER = 0
CLIENT = -1
STEPS_MAX = 10_000
CLAIMED = ("current_leader_epoch", "last_fetched_epoch", "max_bytes")


class Envelope(NamedTuple):
    """`to` and `sender` are broker ids, CONTROLLER or CLIENT; a response comes back by its id."""

    to: int
    sender: int
    request_id: int
    body: Any
    is_response: bool = False


class CoreBroker:
    """One host and the hands that carry out its effects."""

    def __init__(self, broker_id: int, logs, options: ReplicationOptions, cluster) -> None:
        self.broker_id = broker_id
        self.logs: dict[TopicPartition, MemoryLog] = logs
        self.host = ReplicaHost(broker_id, self._log, options)
        self.cluster = cluster
        self.damaged: set[TopicPartition] = set()
        self.set_aside: list[MemoryLog] = []
        self.incidents: list[Any] = []
        self.asked: dict[int, tuple[int, int]] = {}
        """Our answers go back to (sender, its request id)."""
        self.unflushed: list[TopicPartition] = []
        self.checkpoints = 0
        self._received = 0

    def _log(self, topic_partition):
        return None if topic_partition in self.damaged else self.logs.get(topic_partition)

    def handle(self, event: ev.Event, *, more: bool = False) -> None:
        events = collections.deque([event])
        while events:
            for effect in self.host.step(events.popleft(), self.cluster.now_ms, more):
                completion = self._carry_out(effect)
                if completion is not None:
                    events.append(completion)

    def receive(self, sender: int, request_id: int, request, *, more: bool = False) -> int:
        self._received += 1
        self.asked[self._received] = (sender, request_id)
        received = self._received
        self.handle(ev.RequestReceived(request_id=received, request=request), more=more)
        return received

    def flush(self) -> None:
        flushed, self.unflushed = self.unflushed, []
        for topic_partition in flushed:
            self.logs[topic_partition].sync()
            self.handle(ev.LogFlushed(topic_partition=topic_partition))

    def _carry_out(self, effect) -> Any:
        self.cluster.effects.append((self.broker_id, effect))
        log = self.logs.get(getattr(effect, "topic_partition", None))
        match effect:
            case fx.AppendAsLeader():
                try:
                    appended = log.append_as_leader(effect.batches, effect.leader_epoch)
                except ReplogError as error:
                    return ev.LeaderAppendFailed(
                        topic_partition=effect.topic_partition,
                        append_id=effect.append_id,
                        error=error,
                    )
                return ev.LeaderAppendCompleted(
                    topic_partition=effect.topic_partition,
                    append_id=effect.append_id,
                    base_offset=appended.base_offset,
                    last_offset=appended.last_offset,
                    duplicate=appended.duplicate,
                )
            case fx.AppendAsFollower():
                try:
                    log.append_as_follower(effect.batches)
                except ReplogError as error:
                    return ev.FollowerAppendFailed(
                        topic_partition=effect.topic_partition, error=error
                    )
                return ev.FollowerAppendCompleted(topic_partition=effect.topic_partition)
            case fx.TruncateLog():
                log.truncate_to(effect.offset)
                return ev.TruncationCompleted(topic_partition=effect.topic_partition)
            case fx.TruncateFullyAndStartAt():
                log.truncate_fully_and_start_at(effect.offset)
                return ev.TruncationCompleted(topic_partition=effect.topic_partition)
            case fx.SetHighWatermark():
                log.high_watermark = effect.high_watermark
            case fx.AdvanceLogStart():
                log.truncate_prefix_to(effect.log_start_offset)
            case fx.AssignEpoch():
                log.assign_epoch(effect.leader_epoch, effect.start_offset)
            case fx.FlushLog():
                self.unflushed.append(effect.topic_partition)
            case fx.SetAsideLog():
                self.damaged.discard(effect.topic_partition)
                self.set_aside.append(log)
                self.logs[effect.topic_partition] = MemoryLog()
                return ev.LogReplaced(topic_partition=effect.topic_partition)
            case fx.DeleteLog():
                self.logs.pop(effect.topic_partition, None)
            case fx.SendRequest():
                self.cluster.post(effect.to, self.broker_id, effect.request_id, effect.request)
            case fx.SendToController():
                self.cluster.post(CONTROLLER, self.broker_id, effect.request_id, effect.request)
            case fx.Respond():
                self._respond(effect)
            case fx.Report():
                self.incidents.append(effect.incident)
            case fx.CheckpointHighWatermarks():
                self.checkpoints += 1
            case fx.GiveUpLog():
                name, error = effect.topic_partition, effect.error
                return ev.LogUnavailable(topic_partition=name, error=error, damaged=True)
            case _:
                raise AssertionError(effect)
        return None

    def _respond(self, effect: fx.Respond) -> None:
        sender, request_id = self.asked.pop(effect.request_id)
        body = effect.response
        if isinstance(body, FetchResponse):
            partitions = []
            for answer in body.partitions:
                fetched, records = answer, answer.records
                if isinstance(records, LogRead):
                    log = self.logs[fetched.topic_partition]
                    found = log.read(
                        records.start_offset, records.end_offset, max(1, records.max_bytes)
                    )
                    fetched = dataclasses.replace(answer, records=found)
                partitions.append(fetched)
            body = dataclasses.replace(body, partitions=tuple(partitions))
        if sender == CLIENT:
            assert request_id not in self.cluster.answers, f"answered twice: {body}"
            self.cluster.answers[request_id] = body
        else:
            self.cluster.post(sender, self.broker_id, request_id, body, is_response=True)


class CoreCluster:
    def __init__(
        self, logs: dict[int, Any], *, decides: bool = True, alive=True, **options
    ) -> None:
        """logs: per broker a MemoryLog of PARTITION, or a map of several."""
        self.options = ReplicationOptions(**options)
        self.decides = decides
        self.now_ms = 0
        self.effects: list[tuple[int, Any]] = []
        self.queue: collections.deque[Envelope] = collections.deque()
        self.delivered: list[Envelope] = []
        self.answers: dict[int, Any] = {}
        self.proposals: list[Envelope] = []
        self.version = 0
        self.registrations: dict[TopicPartition, PartitionRegistration] = {}
        self.registered: dict[int, BrokerRegistration] = {}
        self.brokers: dict[int, CoreBroker] = {}
        self._next_id = 1000
        for broker_id, log in logs.items():
            held = log if isinstance(log, dict) else {PARTITION: log}
            self.start(broker_id, held)
        if alive:
            self.publish(brokers=tuple(self.registered.values()))

    def start(self, broker_id: int, logs, *, rack=None) -> CoreBroker:
        """A new incarnation; its registration is known to the others with the next `publish`."""
        before = self.registered.get(broker_id)
        epoch = before.broker_epoch + 100 if before is not None else broker_id
        self.registered[broker_id] = BrokerRegistration(
            broker_id=broker_id, broker_epoch=epoch, rack=rack
        )
        self.brokers[broker_id] = CoreBroker(broker_id, logs, self.options, self)
        self.brokers[broker_id].handle(ev.BrokerRegistered(broker_epoch=epoch))
        return self.brokers[broker_id]

    def restart(self, broker_id: int) -> CoreBroker:
        logs = self.brokers[broker_id].logs
        broker = self.start(broker_id, logs)
        self.version += 1
        delta = MetadataDelta(
            version=self.version,
            brokers=tuple(self.registered.values()),
            partitions=tuple(self.registrations.values()),
        )
        broker.handle(ev.MetadataChanged(delta=delta))
        self.publish(brokers=(self.registered[broker_id],))
        return broker

    def kill(self, broker_id: int, *, tell: bool = True) -> CoreBroker:
        """Its connections break: who waits for its answer hears of it."""
        broker = self.brokers.pop(broker_id)
        lost = [one for one in self.queue if broker_id in {one.sender, one.to}]
        self.queue = collections.deque(one for one in self.queue if one not in lost)
        if tell:
            for other in self.brokers.values():
                for fetcher in list(other.host._fetchers.values()):
                    if fetcher.leader_id == broker_id and fetcher.request_id is not None:
                        other.handle(ev.RequestFailed(request_id=fetcher.request_id))
        return broker

    def register(self, broker_id: int, **changes) -> None:
        """Change what is registered of a broker, and tell everybody."""
        self.registered[broker_id] = dataclasses.replace(self.registered[broker_id], **changes)
        self.publish(brokers=(self.registered[broker_id],))

    def publish(self, *, brokers=(), partitions=(), removed=(), to=None) -> None:
        self.version += 1
        delta = MetadataDelta(
            version=self.version,
            brokers=tuple(brokers),
            partitions=tuple(partitions),
            removed_partitions=tuple(removed),
        )
        for registration in partitions:
            self.registrations[registration.topic_partition] = registration
        for broker_id in to if to is not None else list(self.brokers):
            broker = self.brokers[broker_id]
            for registration in partitions:
                if (
                    broker_id in registration.replicas
                    and registration.topic_partition not in broker.logs
                ):
                    broker.logs[registration.topic_partition] = MemoryLog()
            broker.handle(ev.MetadataChanged(delta=delta))

    def lead(
        self,
        leader_id,
        epoch: int,
        isr,
        *,
        to=None,
        topic_partition=PARTITION,
        replicas=None,
        min_insync_replicas=None,
        flush_mode=None,
        **fields,
    ) -> PartitionRegistration:
        """Make it so, in a partition epoch of its own."""
        before = self.registrations.get(topic_partition)
        config = before.config if before is not None else TopicConfig()
        if min_insync_replicas is not None:
            config = dataclasses.replace(config, min_insync_replicas=min_insync_replicas)
        if flush_mode is not None:
            config = dataclasses.replace(config, log=LogConfig(flush_mode=flush_mode))
        registration = PartitionRegistration(
            topic_partition=topic_partition,
            topic_id=TOPIC_ID,
            replicas=tuple(
                replicas
                if replicas is not None
                else before.replicas
                if before is not None
                else self.brokers
            ),
            isr=tuple(isr),
            leader_id=leader_id,
            leader_epoch=epoch,
            partition_epoch=before.partition_epoch + 1 if before is not None else 1,
            config=config,
            **fields,
        )
        self.publish(partitions=(registration,), to=to)
        return registration

    def log(self, broker_id: int, topic_partition=PARTITION) -> MemoryLog:
        return self.brokers[broker_id].logs[topic_partition]

    def leader(self, broker_id: int, topic_partition=PARTITION):
        return self.brokers[broker_id].host.leader(topic_partition)

    def follower(self, broker_id: int, topic_partition=PARTITION):
        return self.brokers[broker_id].host.follower(topic_partition)

    def ask(self, broker_id: int, request, *, more: bool = False) -> int:
        """A client's request; its answer comes to `answers`."""
        self._next_id += 1
        self.brokers[broker_id].receive(CLIENT, self._next_id, request, more=more)
        return self._next_id

    def answer(self, broker_id: int, request):
        """The answer to a request that needs not wait."""
        return self.answers[self.ask(broker_id, request)]

    def produce(
        self,
        broker_id: int,
        *payloads,
        acks=Acks.ALL,
        timeout_ms=30000,
        topic_partition=PARTITION,
        topic_id=TOPIC_ID,
        more: bool = False,
    ) -> int:
        request = ProduceRequest(
            partitions=((topic_partition, topic_id, payloads),), acks=acks, timeout_ms=timeout_ms
        )
        return self.ask(broker_id, request, more=more)

    def produced(self, request_id: int):
        """The answer for the only partition; None while it waits."""
        answer = self.answers.get(request_id)
        return None if answer is None else answer.partitions[0]

    def consume(self, broker_id: int, offset: int, *, wait_ms_max=0, **fields):
        """What a consumer is told; `None` while it waits."""
        partition = {name: fields.pop(name) for name in CLAIMED if name in fields}
        asked = FetchPartition(
            topic_partition=PARTITION, topic_id=TOPIC_ID, fetch_offset=offset, **partition
        )
        request = FetchRequest(partitions=(asked,), wait_ms_max=wait_ms_max, **fields)
        answer = self.answers.get(self.ask(broker_id, request))
        return None if answer is None else answer.partitions[0]

    def fetch(self, leader_id: int, replica_id: int, offset: int, *, epoch=None, **fields):
        """A follower's fetch outside any session, made by hand; returns the leader's answer."""
        last_epoch = fields.pop("last_fetched_epoch", None)
        leader = self.leader(leader_id)
        if epoch is None:
            epoch = leader.leader_epoch
        if last_epoch is None:
            last_epoch = self.log(leader_id).epoch_for_offset(offset - 1) if offset else -1
        asked = FetchPartition(
            topic_partition=PARTITION,
            topic_id=TOPIC_ID,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
            log_start_offset=fields.pop("log_start_offset", 0),
        )
        broker_epoch = fields.pop("broker_epoch", self.registered[replica_id].broker_epoch)
        request = FetchRequest(
            partitions=(asked,),
            replica_id=replica_id,
            broker_epoch=broker_epoch,
            wait_ms_max=0,
            **fields,
        )
        return self.answer(leader_id, request).partitions[0]

    def post(self, to: int, sender: int, request_id: int, body, *, is_response=False) -> None:
        self.queue.append(Envelope(to, sender, request_id, body, is_response))

    def deliver_one(self) -> Envelope:
        envelope = self.queue.popleft()
        self.delivered.append(envelope)
        if envelope.to == CONTROLLER:
            self.proposals.append(envelope)
            if self.decides:
                self.decide(envelope)
        elif envelope.to in self.brokers:
            broker = self.brokers[envelope.to]
            if envelope.is_response:
                broker.handle(
                    ev.ResponseReceived(request_id=envelope.request_id, response=envelope.body)
                )
            else:
                broker.receive(envelope.sender, envelope.request_id, envelope.body)
        elif not envelope.is_response and envelope.sender in self.brokers:
            self.brokers[envelope.sender].handle(ev.RequestFailed(request_id=envelope.request_id))
        return envelope

    def decide(self, envelope: Envelope, error=ErrorCode.NONE, *, publish=True) -> None:
        """Grant or refuse all proposals of a request; tell everybody of what is granted."""
        request: AlterPartitionRequest = envelope.body
        decisions = []
        granted = []
        for proposal in request.proposals:
            before = self.registrations[proposal.topic_partition]
            refusal = error
            if proposal.leader_epoch != before.leader_epoch:
                refusal = ErrorCode.FENCED_LEADER_EPOCH
            elif proposal.partition_epoch != before.partition_epoch:
                refusal = ErrorCode.INVALID_UPDATE_VERSION
            if refusal is not ErrorCode.NONE:
                decisions.append(
                    IsrDecision(topic_partition=proposal.topic_partition, error=refusal)
                )
                continue
            after = dataclasses.replace(
                before,
                isr=tuple(replica_id for replica_id, _ in proposal.isr),
                partition_epoch=before.partition_epoch + 1,
            )
            self.registrations[proposal.topic_partition] = after
            granted.append(after)
            decisions.append(
                IsrDecision(
                    topic_partition=after.topic_partition,
                    leader_id=after.leader_id,
                    leader_epoch=after.leader_epoch,
                    isr=after.isr,
                    partition_epoch=after.partition_epoch,
                )
            )
        response = AlterPartitionResponse(decisions=tuple(decisions))
        self.post(envelope.sender, CONTROLLER, envelope.request_id, response, is_response=True)
        if granted and publish:
            self.publish(partitions=granted)

    def settle(self) -> None:
        """Deliver messages until none is left: every fetch waits at its leader."""
        for _ in range(STEPS_MAX):
            if not self.queue:
                return
            self.deliver_one()
        raise AssertionError(f"messages never end; the next is {self.queue[0]}")

    def tick(self, by_ms: int = 0) -> None:
        """Let time pass at once, and everybody see what is due."""
        self.now_ms += by_ms
        for broker in list(self.brokers.values()):
            broker.handle(ev.Tick())

    def run(self, for_ms: int) -> None:
        """Let time pass deadline by deadline, delivering all that follows."""
        end_ms = self.now_ms + for_ms
        for _ in range(STEPS_MAX):
            self.settle()
            deadlines = [
                broker.host.next_deadline_ms
                for broker in self.brokers.values()
                if broker.host.next_deadline_ms is not None
            ]
            due_ms = min(deadlines, default=end_ms)
            if due_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, due_ms)
            self.tick()
        raise AssertionError("timers never end")

    def payloads(self, broker_id: int) -> list[Any]:
        return [record.payload for record in self.log(broker_id).records]

    def incidents(self, kind, broker_id: int | None = None) -> list[Any]:
        return [
            incident
            for one, broker in self.brokers.items()
            if broker_id in {None, one}
            for incident in broker.incidents
            if isinstance(incident, kind)
        ]


def three_replicas(**options) -> CoreCluster:
    """Replica 1 leads 2 and 3 in epoch 1; all is quiet."""
    lead = {
        name: options.pop(name) for name in ("min_insync_replicas", "flush_mode") if name in options
    }
    cluster = CoreCluster({1: MemoryLog(), 2: MemoryLog(), 3: MemoryLog()}, **options)
    cluster.lead(1, 1, (1, 2, 3), **lead)
    cluster.settle()
    return cluster
