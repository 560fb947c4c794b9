"""Carries out what one replica's core asks for, strictly in order, on its log and its transport.

Records cross it as whole batches in one buffer: the leader's read view goes into the response, and
the follower appends from it. An append that the log refuses is the core's business and goes back to
it as an event; any other failure of the log leaves the executor as an exception, and its owner
takes the replica out of service.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

from replog.errors import ReplogError, invariant
from replog.replication.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    AppendAsLeader,
    AssignEpoch,
    CompleteProduce,
    Effect,
    Send,
    SendRecords,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateLog,
)
from replog.replication.events import (
    Completion,
    Event,
    FollowerAppendCompleted,
    FollowerAppendFailed,
    LeaderAppendCompleted,
    LeaderAppendFailed,
    TruncationCompleted,
)
from replog.replication.log_view import LogView
from replog.types import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.messages import Message, RawBatches
    from replog.replication.replica import Replica


class AppendedRange(Protocol):
    """Where an append has gone: [base_offset, last_offset]."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...


class ReplicatedLog(LogView, Protocol):
    """A log as its replica drives it; `replog.Log` is one."""

    @property
    def high_watermark(self) -> int: ...

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None: ...

    def append_as_leader(self, batches: RawBatches, leader_epoch: int) -> AppendedRange: ...

    def append_as_follower(self, batches: RawBatches) -> Any: ...

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> Any: ...

    def read(self, start_offset: int, max_bytes: int) -> RawBatches: ...

    def truncate_to(self, offset: int) -> Any: ...

    def truncate_fully_and_start_at(self, offset: int) -> Any: ...

    def truncate_prefix_to(self, offset: int) -> Any: ...


@dataclasses.dataclass(frozen=True, slots=True)
class LogTruncation:
    """What a truncation took, for whoever watches: offsets [new_end_offset, old_end_offset)."""

    replica_id: int
    old_end_offset: int
    new_end_offset: int
    high_watermark: int
    effect: TruncateLog | TruncateFullyAndStartAt


class EffectExecutor:
    """The hands of one replica."""

    def __init__(
        self,
        replica: Replica,
        log: ReplicatedLog,
        *,
        send: Callable[[int, Message], None],
        complete_produce: Callable[[CompleteProduce], None],
        on_truncation: Callable[[LogTruncation], None] | None = None,
    ) -> None:
        self.replica = replica
        self.log = log
        self._send = send
        self._complete_produce = complete_produce
        self._on_truncation = on_truncation

    def handle(self, event: Event, now_ms: int) -> None:
        """Step the core with `event` and carry out all that follows from it, to the end."""
        events: collections.deque[Event] = collections.deque([event])
        while events:
            for effect in self.replica.step(events.popleft(), now_ms):
                completion = self._carry_out(effect)
                if completion is not None:
                    events.append(completion)

    def _carry_out(self, effect: Effect) -> Completion | None:
        match effect:
            case Send():
                self._send(effect.to, effect.message)
            case SendRecords():
                self._send_records(effect)
            case AppendAsLeader():
                return self._append_as_leader(effect)
            case AppendAsFollower():
                return self._append_as_follower(effect)
            case SetHighWatermark():
                self.log.high_watermark = effect.high_watermark
            case CompleteProduce():
                self._complete_produce(effect)
            case AssignEpoch():
                self.log.assign_epoch(effect.leader_epoch, effect.start_offset)
            case TruncateLog() | TruncateFullyAndStartAt():
                return self._truncate(effect)
            case AdvanceLogStart():
                self.log.truncate_prefix_to(effect.log_start_offset)
        return None

    def _send_records(self, effect: SendRecords) -> None:
        records = self.log.read(effect.response.fetch_offset, effect.max_bytes)
        self._send(effect.to, dataclasses.replace(effect.response, records=records))

    def _append_as_leader(self, effect: AppendAsLeader) -> Completion:
        try:
            appended = self.log.append_as_leader(effect.batches, effect.leader_epoch)
        except ReplogError as error:
            return LeaderAppendFailed(request_id=effect.request_id, error=error)
        return LeaderAppendCompleted(
            request_id=effect.request_id,
            base_offset=appended.base_offset,
            last_offset=appended.last_offset,
        )

    def _append_as_follower(self, effect: AppendAsFollower) -> Completion:
        try:
            self.log.append_as_follower(effect.batches)
        except ReplogError as error:
            return FollowerAppendFailed(error)
        return FollowerAppendCompleted()

    def _truncate(self, effect: TruncateLog | TruncateFullyAndStartAt) -> Completion:
        old_end_offset, high_watermark = self.log.log_end_offset, self.log.high_watermark
        invariant(effect.offset > UNKNOWN_OFFSET, "an offset to truncate to", effect=effect)
        if isinstance(effect, TruncateLog):
            self.log.truncate_to(effect.offset)
        else:
            self.log.truncate_fully_and_start_at(effect.offset)
        if self._on_truncation is not None:
            self._on_truncation(
                LogTruncation(
                    self.replica.replica_id,
                    old_end_offset,
                    self.log.log_end_offset,
                    high_watermark,
                    effect,
                )
            )
        return TruncationCompleted()
