"""The controller of a cluster, in memory: a request and the time in, answers and incidents out.

It decides who is there, who leads and who is in sync, and tells it as versions of the metadata that
brokers ask for. Everything it knows dies with it; the metadata log is what will outlive it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from replog.config import ControllerOptions
from replog.controller.broker_registry import BrokerRegistry
from replog.controller.cluster_state import ClusterState
from replog.controller.effects import ControllerEffect, Report, Respond
from replog.controller.events import ConnectionLost, ControllerEvent, RequestReceived
from replog.controller.incidents import TopicCreated, TopicDeleted
from replog.controller.placement import UsableBroker, place
from replog.controller.proposal_checks import check_proposal
from replog.controller.topic_checks import (
    check_assignment,
    check_config,
    check_counts,
    check_name,
)
from replog.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControllerResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    ErrorCode,
    HeartbeatResponse,
    IsrDecision,
    IsrProposal,
    MetadataFetchRequest,
    MetadataFetchResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from replog.registrations import BrokerRegistration, PartitionRegistration, TopicConfig
from replog.types import TopicPartition

if TYPE_CHECKING:
    import uuid


class _WaitingFetch(NamedTuple):
    broker_id: int
    version: int
    deadline_ms: int


class ModelController:
    """Decides for all brokers. One `step` at a time; its effects are carried out before the next.

    `new_topic_id` gives ids never given before. Times are of one monotonic clock, in ms.
    """

    def __init__(self, options: ControllerOptions, new_topic_id: Callable[[], uuid.UUID]) -> None:
        self._new_topic_id = new_topic_id
        self._state = ClusterState()
        self._brokers = BrokerRegistry(self._state, options)
        self._fetches: dict[int, _WaitingFetch] = {}
        self._topics_placed = 0

    @property
    def version(self) -> int:
        """The latest version of the metadata."""
        return self._state.version

    @property
    def next_deadline_ms(self) -> int | None:
        """When a Tick is due: a session runs out, or a fetch has waited long enough."""
        deadlines = [fetch.deadline_ms for fetch in self._fetches.values()]
        session_ms = self._brokers.next_deadline_ms
        return min(deadlines if session_ms is None else [*deadlines, session_ms], default=None)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """What is registered of a broker."""
        return self._state.registration_of(broker_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        """What is registered of a partition."""
        partition = self._state.partitions.get(topic_partition)
        return partition.registration if partition else None

    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """The names of a topic's partitions, in order; empty if there is no such topic."""
        known = self._state.topics.get(topic)
        return known.partitions if known else ()

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, sorted."""
        return tuple(sorted(self._state.topics))

    def step(self, event: ControllerEvent, now_ms: int) -> list[ControllerEffect]:
        """Take one event; the effects are to be carried out in order."""
        effects: list[ControllerEffect] = []
        if isinstance(event, RequestReceived):
            response = self._answer(event, now_ms)
            if response is not None:
                effects.append(Respond(event.request_id, response))
        elif isinstance(event, ConnectionLost):
            self._brokers.connection_lost(event.broker_id, now_ms)
        else:
            self._brokers.expire(now_ms)
        self._state.commit()
        effects.extend(self._answer_fetches(now_ms))
        effects.extend(Report(incident) for incident in self._state.incidents)
        self._state.incidents.clear()
        return effects

    def _answer(self, event: RequestReceived, now_ms: int) -> ControllerResponse | None:
        """The answer to a request; None while it waits."""
        request = event.request
        if isinstance(request, MetadataFetchRequest):
            known = self._state.brokers.get(request.broker_id)
            if known is not None:
                known.applied_version = max(
                    known.applied_version, min(request.version, self._state.version)
                )
            self._fetches[event.request_id] = _WaitingFetch(
                request.broker_id, request.version, now_ms + request.wait_ms_max
            )
            return None
        if isinstance(request, CreateTopicRequest):
            return self._create_topic(request)
        if isinstance(request, DeleteTopicRequest):
            return self._delete_topic(request)
        foreign = event.sender is not None and event.sender != request.broker_id
        if isinstance(request, AlterPartitionRequest):
            if foreign:
                return AlterPartitionResponse(error=ErrorCode.INVALID_REQUEST)
            return self._alter_partitions(request)
        if isinstance(request, RegisterBrokerRequest):
            if foreign or request.broker_id < 0:
                return RegisterBrokerResponse(error=ErrorCode.INVALID_REQUEST)
            return self._brokers.register(request, now_ms)
        if foreign:
            return HeartbeatResponse(error=ErrorCode.INVALID_REQUEST)
        return self._brokers.heartbeat(request, now_ms)

    def _answer_fetches(self, now_ms: int) -> list[ControllerEffect]:
        """Answer who lacks a version, and who has waited as long as it wished."""
        answers: list[ControllerEffect] = []
        for request_id, fetch in list(self._fetches.items()):
            if fetch.version != self._state.version or fetch.deadline_ms <= now_ms:
                del self._fetches[request_id]
                deltas = self._state.deltas_after(fetch.version, fetch.broker_id)
                answers.append(Respond(request_id, MetadataFetchResponse(deltas=deltas)))
        return answers

    def _create_topic(self, request: CreateTopicRequest) -> CreateTopicResponse:
        brokers = {
            broker_id: UsableBroker(
                broker_id, broker.registration.rack, not broker.registration.eligible
            )
            for broker_id, broker in sorted(self._state.brokers.items())
        }
        usable = [
            brokers[broker_id]
            for broker_id, broker in sorted(self._state.brokers.items())
            if not broker.registration.in_controlled_shutdown
        ]
        config = request.config or TopicConfig()
        refusal = check_name(request.topic, self._state.topics) or check_config(config)
        if refusal is None and request.assignment is not None:
            refusal = check_assignment(request, brokers)
        elif refusal is None:
            refusal = check_counts(request, usable)
        if refusal is not None:
            return CreateTopicResponse(error=refusal.error, message=refusal.message)
        assignment = request.assignment
        if assignment is None:
            assignment = tuple(
                place(
                    usable,
                    max(request.partitions, 1),
                    max(request.replication_factor, 1),
                    start=self._topics_placed,
                )
            )
            self._topics_placed += 1
        topic_id = self._new_topic_id()
        self._state.add_topic(
            request.topic,
            (
                self._first_registration(
                    TopicPartition(request.topic, number), topic_id, replicas, config
                )
                for number, replicas in enumerate(assignment)
            ),
        )
        self._state.incidents.append(
            TopicCreated(topic=request.topic, topic_id=topic_id, partitions=len(assignment))
        )
        return CreateTopicResponse(topic_id=topic_id, version=self._state.next_version)

    def _first_registration(
        self,
        name: TopicPartition,
        topic_id: uuid.UUID,
        replicas: tuple[int, ...],
        config: TopicConfig,
    ) -> PartitionRegistration:
        """All live replicas are in sync while the log is empty, and the first of them leads."""
        live = tuple(replica for replica in replicas if self._state.is_live(replica))
        return PartitionRegistration(
            topic_partition=name,
            topic_id=topic_id,
            replicas=tuple(replicas),
            isr=live,
            leader_id=live[0],
            config=config,
        )

    def _delete_topic(self, request: DeleteTopicRequest) -> DeleteTopicResponse:
        topic = self._state.topics.get(request.topic)
        if topic is None:
            return DeleteTopicResponse(
                error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                message=f"expected an existing topic, found no {request.topic!r} to delete",
            )
        self._state.remove_topic(request.topic)
        self._state.incidents.append(TopicDeleted(topic=request.topic, topic_id=topic.topic_id))
        return DeleteTopicResponse(version=self._state.next_version)

    def _alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        known = self._state.registration_of(request.broker_id)
        if known is None or known.broker_epoch != request.broker_epoch:
            return AlterPartitionResponse(error=ErrorCode.STALE_BROKER_EPOCH)
        return AlterPartitionResponse(
            decisions=tuple(
                self._alter_partition(proposal, request.broker_id) for proposal in request.proposals
            )
        )

    def _alter_partition(self, proposal: IsrProposal, sender: int) -> IsrDecision:
        name = proposal.topic_partition
        topic = self._state.topics.get(name.topic)
        if topic is None or topic.topic_id != proposal.topic_id:
            return IsrDecision(topic_partition=name, error=ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._state.partitions.get(name)
        if partition is None:
            return IsrDecision(topic_partition=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        before = partition.registration
        error = check_proposal(proposal, sender, before, self._state.registration_of)
        if error is not ErrorCode.NONE:
            return IsrDecision(topic_partition=name, error=error)
        proposed = {broker_id for broker_id, _ in proposal.isr}
        if proposed != set(before.isr):
            in_order = tuple(replica for replica in before.replicas if replica in proposed)
            self._state.commit_isr(partition, in_order, sender)
        after = partition.registration
        return IsrDecision(
            topic_partition=name,
            leader_id=after.leader_id,
            leader_epoch=after.leader_epoch,
            isr=after.isr,
            partition_epoch=after.partition_epoch,
        )
