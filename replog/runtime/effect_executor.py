"""Carries out what a broker's replicas ask for, strictly in order, over the broker's ports.

Records cross it as whole batches in one buffer: the leader's read view goes into the response, and
the follower appends from it. Appends and truncations are answered by their completion events; any
other failure of a log makes it unavailable: the core hears of it before anything else is stepped,
and what it still wants of that log within the same list of effects is refused, since an effect must
not be carried out without those that stood before it. Nor may anybody be told of what was not done.
A log start that finds no room stays where it was, and the log in use: it moves when it is asked for
again.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from replog.errors import (
    CorruptBatchError,
    CorruptFileError,
    LogFailedError,
    NoSpaceError,
    OffsetOutOfRangeError,
    OutOfDescriptorsError,
    ReplogError,
    StorageError,
    UsageError,
)
from replog.messages import (
    DeletedRecords,
    DeleteRecordsResponse,
    ErrorCode,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    LogRead,
)
from replog.replication import effects as fx
from replog.replication.events import (
    FollowerAppendCompleted,
    FollowerAppendFailed,
    LeaderAppendCompleted,
    LeaderAppendFailed,
    LogReplaced,
    LogStartKept,
    LogUnavailable,
    RequestFailed,
    ResponseReceived,
    TruncationCompleted,
)
from replog.replication.incidents import RecordsLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.messages import RawBatches
    from replog.replication.events import Completion, Event
    from replog.runtime.journal import Journal
    from replog.runtime.ports import Ports, ReplicatedLog
    from replog.types import LostRecords, TopicPartition

    Core = Callable[[Event, int, bool], list[fx.Effect]]

DAMAGE = (CorruptBatchError, CorruptFileError)


class EffectExecutor:
    """The hands of one broker's replicas; `core` is `ReplicaHost.step`."""

    def __init__(
        self,
        core: Core,
        ports: Ports,
        journal: Journal,
        send_id: Callable[[int], int],
        on_fault: Callable[[LogUnavailable, int], None],
        on_loss: Callable[[LostRecords, int], None] | None = None,
    ) -> None:
        """send_id: under which id on the network a request of the core's own id travels.

        on_fault(event, now_ms) is called before the core hears of a log that cannot be used,
        on_loss when it is about to cut records because of an unclean election, and waits for
        LossHeard.
        """
        self._core = core
        self._store = ports.store
        self._open_log = ports.store.get
        self._on_fault = on_fault
        self._on_loss = on_loss
        self._network = ports.network
        self._flushes = ports.flushes
        self._journal = journal
        self._send_id = send_id
        self._now_ms = 0
        self._events: collections.deque[Event] = collections.deque()
        self._is_stepping = False
        self._unavailable: dict[TopicPartition, ReplogError] = {}
        """Logs that failed within the list of effects that is being carried out."""
        self._untold: set[TopicPartition] = set()
        """Those, and the ones whose log start stayed: nobody may hear that it has moved."""
        self._carry_out: dict[type, Callable[[Any], Completion | LogUnavailable | None]] = {
            fx.AssignEpoch: self._assign_epoch,
            fx.AppendAsLeader: self._append_as_leader,
            fx.AppendAsFollower: self._append_as_follower,
            fx.TruncateLog: self._truncate,
            fx.TruncateFullyAndStartAt: self._truncate,
            fx.SetHighWatermark: self._set_high_watermark,
            fx.AdvanceLogStart: self._advance_log_start,
            fx.FlushLog: self._flush,
            fx.SetAsideLog: self._set_aside,
            fx.DeleteLog: self._delete,
            fx.CheckpointHighWatermarks: self._checkpoint_high_watermarks,
            fx.SendRequest: self._send_request,
            fx.SendToController: self._send_to_controller,
            fx.Respond: self._respond,
            fx.GiveUpLog: self._give_up_log,
            fx.Report: self._report,
        }

    def step(self, event: Event, now_ms: int, *, more: bool = False) -> None:
        """Step the core with `event` and carry out all that follows from it, to the end.

        more: see `ReplicaHost.step`. What on_fault or on_loss steps it with waits for completions
        that are known by then, and is done before the outer call returns.
        """
        events = self._events
        events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        self._now_ms = now_ms
        carry_out = self._carry_out
        try:
            while events:
                event = events.popleft()
                if type(event) is LogUnavailable:
                    self._on_fault(event, now_ms)
                effects = self._core(event, now_ms, more or bool(events))
                if len(effects) > 1 and type(event) is ResponseReceived:
                    self._settle_ahead(effects)
                for effect in effects:
                    completion = carry_out[type(effect)](effect)
                    if completion is not None:
                        events.append(completion)
                if self._untold:
                    self._unavailable.clear()
                    self._untold.clear()
        finally:
            # Only a bug leaves something here: the broker stops, and must not do half of it later.
            events.clear()
            self._is_stepping = False

    def _settle_ahead(self, effects: list[fx.Effect]) -> None:
        """After a change of leaders one answer holds records for many logs."""
        appends = [
            (effect.topic_partition, effect.batches)
            for effect in effects
            if type(effect) is fx.AppendAsFollower
        ]
        if len(appends) > 1:
            self._store.settle_ahead(appends)

    def _log(self, topic_partition: TopicPartition) -> ReplicatedLog:
        """The log; raises what made it unavailable."""
        if self._unavailable and topic_partition in self._unavailable:
            raise self._unavailable[topic_partition]
        log = self._open_log(topic_partition)
        if log is None:
            raise StorageError(
                f"expected an open log of {topic_partition}, found none; see its earlier error",
                topic_partition=str(topic_partition),
            )
        return log

    def _failed(self, topic_partition: TopicPartition, error: ReplogError) -> LogUnavailable | None:
        """The event that says so, once per list of effects."""
        if topic_partition in self._unavailable:
            return None
        self._unavailable[topic_partition] = error
        self._untold.add(topic_partition)
        return LogUnavailable(
            topic_partition=topic_partition, error=error, damaged=isinstance(error, DAMAGE)
        )

    def _assign_epoch(self, effect: fx.AssignEpoch) -> LogUnavailable | None:
        try:
            self._log(effect.topic_partition).assign_epoch(effect.leader_epoch, effect.start_offset)
        except ReplogError as error:
            return self._failed(effect.topic_partition, error)
        return None

    def _append_as_leader(self, effect: fx.AppendAsLeader) -> Completion | LogUnavailable | None:
        try:
            appended = self._log(effect.topic_partition).append_as_leader(
                effect.batches, effect.leader_epoch
            )
        except ReplogError as error:
            failed = LeaderAppendFailed(
                topic_partition=effect.topic_partition, append_id=effect.append_id, error=error
            )
            return self._append_failed(effect.topic_partition, failed, error)
        return LeaderAppendCompleted(
            effect.topic_partition,
            effect.append_id,
            appended.base_offset,
            appended.last_offset,
            appended.log_append_time_ms,
            appended.duplicate,
        )

    def _append_as_follower(
        self, effect: fx.AppendAsFollower
    ) -> Completion | LogUnavailable | None:
        try:
            self._log(effect.topic_partition).append_as_follower(effect.batches)
        except ReplogError as error:
            failed = FollowerAppendFailed(topic_partition=effect.topic_partition, error=error)
            return self._append_failed(effect.topic_partition, failed, error)
        return FollowerAppendCompleted(effect.topic_partition)

    def _append_failed(
        self, topic_partition: TopicPartition, failed: Completion, error: ReplogError
    ) -> Completion | LogUnavailable | None:
        """A refused append leaves the log as it was; a failed disk takes it away, too."""
        if not isinstance(error, LogFailedError):
            return failed
        self._events.append(failed)
        return self._failed(topic_partition, error)

    def _truncate(
        self, effect: fx.TruncateLog | fx.TruncateFullyAndStartAt
    ) -> Completion | LogUnavailable | None:
        try:
            log = self._log(effect.topic_partition)
            if type(effect) is fx.TruncateLog:
                log.truncate_to(effect.offset)
            else:
                log.truncate_fully_and_start_at(effect.offset)
        except ReplogError as error:
            return self._failed(effect.topic_partition, error)
        return TruncationCompleted(topic_partition=effect.topic_partition)

    def _set_high_watermark(self, effect: fx.SetHighWatermark) -> LogUnavailable | None:
        try:
            self._log(effect.topic_partition).set_high_watermark(effect.high_watermark)
        except ReplogError as error:
            return self._failed(effect.topic_partition, error)
        return None

    def _advance_log_start(self, effect: fx.AdvanceLogStart) -> Completion | LogUnavailable | None:
        try:
            self._log(effect.topic_partition).truncate_prefix_to(effect.log_start_offset)
        except (NoSpaceError, OutOfDescriptorsError):
            self._untold.add(effect.topic_partition)
            return LogStartKept(topic_partition=effect.topic_partition)
        except ReplogError as error:
            return self._failed(effect.topic_partition, error)
        return None

    def _flush(self, effect: fx.FlushLog) -> LogUnavailable | None:
        try:
            self._flushes.flush(effect.topic_partition, self._log(effect.topic_partition))
        except ReplogError as error:
            return self._failed(effect.topic_partition, error)
        return None

    def _set_aside(self, effect: fx.SetAsideLog) -> Completion | LogUnavailable | None:
        self._unavailable.pop(effect.topic_partition, None)
        self._untold.discard(effect.topic_partition)
        try:
            self._store.set_aside(effect.topic_partition)
        except ReplogError as error:
            return self._failed(effect.topic_partition, error)
        return LogReplaced(topic_partition=effect.topic_partition)

    def _delete(self, effect: fx.DeleteLog) -> LogUnavailable | None:
        try:
            self._store.delete(effect.topic_partition)
        except ReplogError as error:
            return self._failed(effect.topic_partition, error)
        return None

    def _checkpoint_high_watermarks(self, _: fx.CheckpointHighWatermarks) -> None:
        try:
            self._store.checkpoint_high_watermarks()
        except StorageError:
            # A low high watermark after a restart is safe (KIP-101); the next period tries again.
            return

    def _send_request(self, effect: fx.SendRequest) -> None:
        request = effect.request
        if (
            self._untold
            and type(request) is FetchRequest
            and any(asked.topic_partition in self._untold for asked in request.partitions)
        ):
            # A claim to have what the log has not. None of these partitions waits for long.
            self._events.append(RequestFailed(request_id=effect.request_id))
            return
        self._network.send_to_broker(self._send_id(effect.request_id), effect.to, effect.request)

    def _send_to_controller(self, effect: fx.SendToController) -> None:
        self._network.send_to_controller(self._send_id(effect.request_id), effect.request)

    def _give_up_log(self, effect: fx.GiveUpLog) -> LogUnavailable | None:
        return self._failed(effect.topic_partition, effect.error)

    def _report(self, effect: fx.Report) -> None:
        incident = effect.incident
        self._journal.add(incident, self._now_ms)
        if self._on_loss is not None and type(incident) is RecordsLost:
            self._on_loss(incident.lost, self._now_ms)

    def _respond(self, effect: fx.Respond) -> None:
        response = effect.response
        if type(response) is FetchResponse and response.partitions:
            response = self._with_records(response, effect.max_bytes)
        elif self._untold and type(response) is DeleteRecordsResponse:
            response = self._as_far_as_done(response)
        self._network.respond(effect.request_id, response)

    def _as_far_as_done(self, response: DeleteRecordsResponse) -> DeleteRecordsResponse:
        """No log start of these has moved that was to be moved within this list of effects."""
        return DeleteRecordsResponse(
            partitions=tuple(
                DeletedRecords(
                    topic_partition=deleted.topic_partition, error=ErrorCode.KAFKA_STORAGE_ERROR
                )
                if deleted.topic_partition in self._untold
                else deleted
                for deleted in response.partitions
            )
        )

    def _with_records(self, response: FetchResponse, max_bytes: int) -> FetchResponse:
        """The response with records in place of each LogRead, `max_bytes` of them in all.

        The first records of a response come whole however large they are, so that a batch above
        every limit cannot stop a reader for ever (KIP-74).
        """
        left = max_bytes
        found = False
        partitions = []
        for partition in response.partitions:
            wanted = partition.records
            if type(wanted) is not LogRead:
                partitions.append(partition)
                continue
            fetched, size_bytes = self._read(
                partition, wanted, min(left, wanted.max_bytes), whole=not found
            )
            if size_bytes:
                left = max(left - size_bytes, 0)
                found = True
            partitions.append(fetched)
        return FetchResponse(tuple(partitions), response.error, response.session_id)

    def _read(
        self, partition: FetchedPartition, wanted: LogRead, max_bytes: int, *, whole: bool
    ) -> tuple[FetchedPartition, int]:
        """The partition with its records, and how many bytes they are."""
        topic_partition = partition.topic_partition
        records: RawBatches | None = None
        size_bytes = 0
        aborted = partition.aborted
        try:
            if max_bytes > 0 or whole:
                log = self._log(topic_partition)
                records = log.read(wanted.start_offset, max_bytes, wanted.end_offset)
                size_bytes = len(records)
                if not size_bytes or (size_bytes > max_bytes and not whole):
                    records, size_bytes = None, 0
                elif wanted.read_committed:
                    aborted = tuple(
                        log.aborted_transactions(wanted.start_offset, wanted.end_offset)
                    )
        except OffsetOutOfRangeError:
            return _refused(partition, ErrorCode.OFFSET_OUT_OF_RANGE), 0
        except UsageError:
            return _refused(partition, ErrorCode.INVALID_REQUEST), 0
        except ReplogError as error:
            event = self._failed(topic_partition, error)
            if event is not None:
                self._events.append(event)
            return _refused(partition, ErrorCode.KAFKA_STORAGE_ERROR), 0
        fetched = FetchedPartition(
            topic_partition=topic_partition,
            error=partition.error,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            diverging_epoch=partition.diverging_epoch,
            preferred_read_replica=partition.preferred_read_replica,
            aborted=aborted,
            records=records,
        )
        return fetched, size_bytes


def _refused(partition: FetchedPartition, error: ErrorCode) -> FetchedPartition:
    return FetchedPartition(topic_partition=partition.topic_partition, error=error)
