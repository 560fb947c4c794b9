"""The controller of a cluster: commands and events in, metadata records and answers out.

Every member of the quorum has one. Those that follow replay the committed records, `apply` by
`apply`. The one whose member leads is active: it checks a command against its image, writes
records, replays them at once (nobody else writes in its epoch), hands them out as one atomic batch,
and holds the answer back until the quorum has committed them.

    FOLLOWING ── LeadershipGained ──> ACTIVE ── LeadershipLost ──> FOLLOWING
        apply, load                     step: AppendRecords ... Committed: Respond

What an active controller knows beyond its image is soft: sessions, log ends, who waits. The next
one begins it anew, and resumes from the image alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from replog.admin_messages import (
    AlterOptionsRequest,
    BalanceLeadersRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeLossesRequest,
    DescribePartitionsRequest,
    ElectLeadersRequest,
    ListReassignmentsRequest,
    ReassignPartitionsRequest,
    StateChangesRequest,
    UnregisterBrokerRequest,
)
from replog.config import ControllerOptions
from replog.controller.broker_contacts import BrokerContacts
from replog.controller.broker_control import BrokerControl
from replog.controller.catch_up import CatchUp
from replog.controller.command_form import fault_of
from replog.controller.commit_queue import CommitQueue
from replog.controller.creation_waits import CreationWaits
from replog.controller.decision import Decision
from replog.controller.effects import (
    AppendRecords,
    ControllerEffect,
    ReloadState,
    Report,
    Resign,
    Respond,
)
from replog.controller.events import (
    Committed,
    ConnectionLost,
    ControllerEvent,
    LeadershipGained,
    LeadershipLost,
    RecordsAppended,
    RequestReceived,
)
from replog.controller.incidents import BrokerQueueFull, EventFailed, TransitionRefused
from replog.controller.isr_control import IsrControl
from replog.controller.leader_balance import LeaderBalance
from replog.controller.metadata_image import MetadataImage
from replog.controller.option_control import OptionControl
from replog.controller.partition_control import PartitionControl
from replog.controller.partition_description import describe
from replog.controller.reassignment import Reassignments
from replog.controller.reassignment_control import ReassignmentControl
from replog.controller.refusals import refused
from replog.controller.replica_reports import ReplicaReports
from replog.controller.replication_throttle import ReplicationThrottle
from replog.controller.state_journal import StateJournal
from replog.controller.state_machines import IllegalTransitionError
from replog.controller.topic_control import TopicControl
from replog.errors import invariant
from replog.messages import (
    AlterPartitionRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
)
from replog.registrations import BrokerRegistration, PartitionRegistration
from replog.types import TopicPartition

if TYPE_CHECKING:
    import uuid

_FROM_BROKERS = (AlterPartitionRequest, RegisterBrokerRequest, HeartbeatRequest)


class Controller:
    """See the module. One `step` at a time; its effects are carried out before the next.

    `new_topic_id` gives ids never given before. Times are of one monotonic clock, in ms. Offsets
    named `version` or `end_offset` are exclusive ends of the metadata log.
    """

    def __init__(
        self,
        options: ControllerOptions,
        new_topic_id: Callable[[], uuid.UUID],
        *,
        cluster_id: str | None = None,
    ) -> None:
        self._image = MetadataImage(tracks_changes=False)
        self._decision = Decision(self._image)
        self._reports = ReplicaReports()
        contacts = BrokerContacts(self._image, options.broker_session_timeout_ms)
        self._partitions = PartitionControl(self._decision, self._reports, contacts.is_there)
        self._brokers = BrokerControl(
            self._decision, self._partitions, contacts, options, cluster_id
        )
        self._isrs = IsrControl(self._decision, self._partitions)
        self._topics = TopicControl(self._decision, self._reports, new_topic_id)
        self._creations = CreationWaits(self._decision, self._brokers.contacts, self._reports)
        self._options = OptionControl(self._decision, self._partitions)
        self._balance = LeaderBalance(self._decision, self._partitions, options)
        self._catch_up = CatchUp()
        self._throttle = ReplicationThrottle(self._decision)
        self._reassignments = Reassignments(self._image, self._partitions)
        self._moves = ReassignmentControl(
            self._decision, self._reassignments, self._throttle, self._catch_up
        )
        self._queue = CommitQueue()
        self._controller_epoch: int | None = None
        self._committed = 0
        self._asked: dict[int, type] = {}
        """Requests without an answer, by id."""

    @property
    def active(self) -> bool:
        """Whether it decides."""
        return self._controller_epoch is not None

    @property
    def version(self) -> int:
        """Every record below this offset is committed and applied."""
        return self._committed

    @property
    def uncommitted_end_offset(self) -> int:
        """Every record below this offset is applied; from `version` on it may yet be lost."""
        return self._image.end_offset

    @property
    def next_deadline_ms(self) -> int | None:
        """When a Tick is due: a session runs out, or somebody has waited long enough."""
        if not self.active:
            return None
        deadlines = (
            self._brokers.contacts.next_deadline_ms,
            self._balance.due_ms,
            self._creations.next_deadline_ms,
        )
        first_ms = None
        for found in deadlines:
            if found is not None and (first_ms is None or found < first_ms):
                first_ms = found
        return first_ms

    def apply(self, record: Any, offset: int) -> None:
        """Replay a committed record, while not active."""
        invariant(not self.active, "a controller that follows", offset=offset)
        self._decision.replay(record, offset, None)
        self._committed = offset + 1

    def pass_over(self, end_offset: int) -> None:
        """All below this offset is committed; what is not applied was no record of metadata."""
        invariant(not self.active, "a controller that follows", end_offset=end_offset)
        self._image.pass_over(end_offset)
        self._committed = end_offset

    def load(self, records: Iterable[Any], end_offset: int) -> None:
        """Begin anew from a snapshot of all below `end_offset`, while not active."""
        invariant(not self.active, "a controller that follows", end_offset=end_offset)
        self._image.load(records, end_offset)
        self._decision.journal.begin(self._image)
        self._committed = end_offset

    def known_records(self) -> Iterator[Any]:
        """All that is known as records, also what may yet be lost. Nothing may happen meanwhile."""
        return self._image.snapshot_records()

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """What is registered of a broker."""
        broker = self._image.brokers.get(broker_id)
        return broker.registration if broker else None

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        """What is registered of a partition."""
        partition = self._image.partition(topic_partition)
        return partition.registration if partition else None

    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """The names of a topic's partitions, in order; empty if there is no such topic."""
        known = self._image.topics.get(topic)
        return known.names if known else ()

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, sorted."""
        return tuple(sorted(self._image.topics))

    @property
    def journal(self) -> StateJournal:
        """What brokers were asked to do, and how far they are."""
        return self._decision.journal

    def step(self, event: ControllerEvent, now_ms: int) -> list[ControllerEffect]:
        """Take one event; the effects are to be carried out in order."""
        self._decision.now_ms = now_ms
        if isinstance(event, RequestReceived):
            if not self.active:
                return [Respond(event.request_id, refused(type(event.request)))]
            return self._request(event, now_ms)
        if isinstance(event, LeadershipGained):
            return self._gained(event, now_ms)
        if not self.active:
            return []
        if isinstance(event, LeadershipLost):
            return self._lost()
        if isinstance(event, RecordsAppended):
            return self._appended(event)
        if isinstance(event, Committed):
            return self._advance(event.high_watermark, now_ms)
        if isinstance(event, ConnectionLost):
            self._brokers.connection_lost(event.broker_id, now_ms)
        else:
            self._brokers.expire(now_ms)
            self._balance.tick(now_ms)
        return self._finish(now_ms)

    def abandon(
        self, event: ControllerEvent, error: Exception, now_ms: int
    ) -> list[ControllerEffect]:
        """A step has raised, which is a bug: this event fails, and no other.

        If it had begun to write, what is known here is ahead of the log: then the controller gives
        up its office, and loads what is committed.
        """
        begun = bool(self._decision.records)
        self._decision.records.clear()
        self._decision.incidents.clear()
        what, effects = type(event).__name__, list[ControllerEffect]()
        if isinstance(event, RequestReceived):
            what = type(event.request).__name__
            if self._asked.pop(event.request_id, None) is not None:
                unknown = ErrorCode.UNKNOWN_SERVER_ERROR
                answer = refused(type(event.request), unknown, str(error))
                effects.append(Respond(event.request_id, answer))
        message = f"{type(error).__name__}: {error}"
        effects.append(Report(EventFailed(event=what, message=message, resigned=begun)))
        if begun:
            effects.append(Resign(message))
        return effects

    def _request(self, event: RequestReceived, now_ms: int) -> list[ControllerEffect]:
        request = event.request
        self._asked[event.request_id] = type(request)
        foreign = (
            isinstance(request, _FROM_BROKERS)
            and event.sender is not None
            and event.sender != request.broker_id
        )
        if foreign or (isinstance(request, RegisterBrokerRequest) and request.broker_id < 0):
            answer = refused(type(request), ErrorCode.INVALID_REQUEST)
        elif not isinstance(request, _FROM_BROKERS) and (fault := fault_of(request)) is not None:
            answer = refused(type(request), ErrorCode.INVALID_REQUEST, fault)
        elif isinstance(request, CreateTopicsRequest):
            return self._create_topics(event.request_id, request, now_ms)
        else:
            answer = self._answer_legally(request, now_ms)
        return self._finish(now_ms, Respond(event.request_id, answer))

    def _answer_legally(self, request: Any, now_ms: int) -> Any:
        """The answer; a sentence instead where a state would follow one that it must not."""
        try:
            return self._answer(request, now_ms)
        except IllegalTransitionError as error:
            if self._decision.records:
                raise
            name = getattr(request, "topic_partition", None)
            self._decision.report(TransitionRefused(topic_partition=name, message=str(error)))
            # A broker did not ask for a state; it asks again, and is not to end for it.
            of_broker = isinstance(request, _FROM_BROKERS)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if of_broker else ErrorCode.INVALID_REQUEST
            return refused(type(request), code, str(error))

    def _create_topics(
        self, request_id: int, request: CreateTopicsRequest, now_ms: int
    ) -> list[ControllerEffect]:
        response = self._topics.create_all(request, self._creations)
        if request.validate_only or request.wait_ms_max <= 0:
            return self._finish(now_ms, Respond(request_id, response))
        deadline_ms = now_ms + request.wait_ms_max
        self._creations.wait(request_id, response, request.topics, deadline_ms)
        return self._finish(now_ms)

    def _answer(self, request: Any, now_ms: int) -> Any:
        match request:
            case HeartbeatRequest():
                return self._heartbeat(request, now_ms)
            case AlterPartitionRequest():
                return self._isrs.alter(request)
            case RegisterBrokerRequest():
                return self._brokers.register(request, now_ms)
            case CreateTopicRequest():
                return self._topics.create(request)
            case DeleteTopicRequest():
                return self._topics.delete(request)
            case CreatePartitionsRequest():
                return self._topics.add(request)
            case AlterOptionsRequest():
                return self._options.alter(request)
            case ElectLeadersRequest():
                return self._balance.elect(request)
            case BalanceLeadersRequest():
                return self._balance.balance(request)
            case ReassignPartitionsRequest():
                return self._moves.reassign(request)
            case ListReassignmentsRequest():
                return self._moves.progress(request)
            case DescribePartitionsRequest():
                return describe(self._image, self._reports, request)
            case DescribeLossesRequest():
                return self._partitions.losses.describe(request)
            case StateChangesRequest():
                return self._decision.journal.rows(request)
            case UnregisterBrokerRequest():
                return self._brokers.unregister(request)
        return refused(type(request), ErrorCode.INVALID_REQUEST)

    def _heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        response = self._brokers.heartbeat(request, now_ms)
        if response.error is not ErrorCode.NONE:
            return response
        self._decision.journal.completed(request.broker_id, request.version, now_ms)
        for log in request.sizes:
            partition = self._image.partition(log.topic_partition)
            if partition is not None and partition in self._image.reassigning:
                self._catch_up.told(partition, request.broker_id, log, now_ms)
        return response

    def _finish(self, now_ms: int, *answers: ControllerEffect) -> list[ControllerEffect]:
        """One batch of what the step has decided; its answers wait behind it."""
        effects: list[ControllerEffect] = []
        answers += tuple(self._creations.settle(now_ms))
        end_offset = self._image.end_offset
        records = self._decision.records
        if records:
            assert self._controller_epoch is not None
            effects.append(
                AppendRecords(self._controller_epoch, end_offset - len(records), tuple(records))
            )
            records.clear()
        journal = self._decision.journal
        self._decision.incidents.extend(
            BrokerQueueFull(message=str(full)) for full in journal.overflows
        )
        journal.overflows.clear()
        for incident in self._decision.incidents:
            self._queue.put(end_offset, Report(incident))
        self._decision.incidents.clear()
        for answer in answers:
            self._queue.put(end_offset, answer)
        for effect in self._queue.committed(self._committed):
            if isinstance(effect, Respond):
                self._asked.pop(effect.request_id, None)
            effects.append(effect)
        return effects

    def _advance(self, high_watermark: int, now_ms: int) -> list[ControllerEffect]:
        if high_watermark <= self._committed:
            return []
        invariant(
            high_watermark <= self._image.end_offset,
            "nobody else to write in this epoch",
            high_watermark=high_watermark,
            end_offset=self._image.end_offset,
        )
        self._committed = high_watermark
        self._reassignments.advance(high_watermark)
        self._catch_up.keep_only(self._image.reassigning)
        self._throttle.settle()
        return self._finish(now_ms)

    def _appended(self, event: RecordsAppended) -> list[ControllerEffect]:
        if event.last_offset == self._image.end_offset - 1:
            return []
        return [
            Resign(
                f"expected the last record appended at offset {self._image.end_offset - 1}, found "
                f"it at {event.last_offset}: somebody else writes to the metadata log"
            )
        ]

    def _gained(self, event: LeadershipGained, now_ms: int) -> list[ControllerEffect]:
        invariant(
            not self.active and self._image.end_offset <= event.end_offset,
            "a controller that follows and has applied nothing that is not committed",
            applied=self._image.end_offset,
            end_offset=event.end_offset,
        )
        self._controller_epoch = event.controller_epoch
        self._image.end_offset = self._committed = event.end_offset
        self._brokers.contacts.begin(now_ms)
        # Who nobody leads is led when the first broker is heard of that may.
        self._reassignments.resume()
        self._reassignments.advance(self._image.end_offset)
        self._throttle.settle()
        self._balance.begin(now_ms)
        return self._finish(now_ms)

    def _lost(self) -> list[ControllerEffect]:
        lost = self._image.end_offset != self._committed
        self._controller_epoch = None
        self._queue.drop()
        self._reports.clear()
        self._catch_up.clear()
        self._creations.clear()
        self._partitions.reassigning_changed.clear()
        effects: list[ControllerEffect] = [
            Respond(request_id, refused(kind)) for request_id, kind in self._asked.items()
        ]
        self._asked.clear()
        if lost:
            self.load((), 0)
            effects.append(ReloadState())
        else:
            self._decision.journal.resigned()
        return effects
