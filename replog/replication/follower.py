"""The following role: fetches from the leader, truncates where the logs part, appends, fetches on.

One request or one local effect is outstanding at a time, named by the phase:

    FETCHING ──records──> APPENDING ──done──> FETCHING
       │  ──diverging──> TRUNCATING ──done──> FETCHING
       │  ──out of range──> ASKING_LATEST ──> TRUNCATING
       │                      └──> ASKING_EARLIEST ──> TRUNCATING or BACKING_OFF
       │  ──other error, lost answer──> BACKING_OFF ──Tick──> FETCHING
       └──fenced, or a local append or fetch that cannot go on──> FAILED until the next leader epoch

The log is truncated before the leader's high watermark is taken: an answer that says "diverging"
moves neither the high watermark nor the log start (KAFKA-14704).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from replog.errors import CorruptBatchError, InvalidRecordError, ReplogError, invariant
from replog.messages import (
    ErrorCode,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetSpec,
)
from replog.replication.divergence import truncation_for
from replog.replication.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    Effect,
    Send,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateLog,
    TruncationCause,
)
from replog.replication.high_watermark import follower_high_watermark
from replog.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from replog.replication.log_view import LogView

FETCH_BACKOFF_MS = 1000
FETCH_TIMEOUT_MS = 30_000


class FollowerPhase(enum.Enum):
    """What the follower is waiting for."""

    FETCHING = "the leader's records"
    APPENDING = "its own append"
    TRUNCATING = "its own truncation"
    ASKING_LATEST = "the leader's log end offset"
    ASKING_EARLIEST = "the leader's log start offset"
    BACKING_OFF = "the end of a back-off"
    FAILED = "a new leader epoch"


_ASKING = {
    FollowerPhase.FETCHING,
    FollowerPhase.ASKING_LATEST,
    FollowerPhase.ASKING_EARLIEST,
}


class Follower:
    """One replica's following of one leader in one leader epoch."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        replica_id: int,
        leader_id: int,
        leader_epoch: int,
        log: LogView,
    ) -> None:
        invariant(leader_id != replica_id, "a leader other than ourselves", replica_id=replica_id)
        self.replica_id = replica_id
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.phase = FollowerPhase.BACKING_OFF
        self.failure: ReplogError | ErrorCode | None = None
        """Why the phase is FAILED."""
        self._topic_partition = topic_partition
        self._log = log
        self._fetch_offset = log.log_end_offset
        """Of the latest fetch; an answer to any other is dropped."""
        self._appending: FetchResponse | None = None
        """Its records are being appended; its high watermark is taken when they are in the log."""
        self._deadline_ms = 0
        """Of the back-off, or of the answer that is awaited."""

    def start(self, now_ms: int) -> list[Effect]:
        """Begin to follow, with the log as it is."""
        log = self._log
        if log.latest_epoch == NO_LEADER_EPOCH and log.log_end_offset > log.high_watermark:
            return self._truncate(TruncateLog(log.high_watermark, TruncationCause.NO_EPOCHS))
        return self._fetch(now_ms)

    def fetch_answered(self, response: FetchResponse, now_ms: int) -> list[Effect]:
        """Append, truncate, or back off, as the leader's answer says."""
        stale = response.fetch_offset != self._fetch_offset
        if self.phase is not FollowerPhase.FETCHING or stale:
            return []
        invariant(
            self._fetch_offset == self._log.log_end_offset,
            "the log end offset to stand still while a fetch is outstanding",
            fetch_offset=self._fetch_offset,
            log_end_offset=self._log.log_end_offset,
        )
        if response.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._ask(OffsetSpec.LATEST, now_ms)
        if response.error is not ErrorCode.NONE:
            return self._refused(response.error, now_ms)
        if response.diverging_epoch is not None:
            truncation = truncation_for(self._log, response.diverging_epoch, self._fetch_offset)
            # Even if no bytes go, the epochs behind must (KAFKA-10706). Unless it is complete, the
            # next fetch carries the epoch that is then latest, and the leader judges again.
            return self._truncate(TruncateLog(truncation.offset, TruncationCause.DIVERGING_EPOCH))
        if response.records is not None:
            self.phase = FollowerPhase.APPENDING
            self._appending = response
            return [AppendAsFollower(response.records)]
        return self._take_watermarks(response) + self._fetch(now_ms)

    def append_completed(self, now_ms: int) -> list[Effect]:
        """The fetched records are in the log: take the leader's high watermark, fetch on."""
        response = self._appending
        invariant(
            self.phase is FollowerPhase.APPENDING and response is not None,
            "an append to be outstanding",
            phase=self.phase,
        )
        assert response is not None
        self._appending = None
        if self._log.log_end_offset == self._fetch_offset:
            # Not one whole batch came, which no leader sends: do not ask in a tight loop.
            return self._back_off(now_ms)
        return self._take_watermarks(response) + self._fetch(now_ms)

    def append_failed(self, error: ReplogError, now_ms: int) -> list[Effect]:
        """Bad bytes may have been hurt on the way and a full disk may drain; all else is final."""
        self._appending = None
        if error.retriable or isinstance(error, CorruptBatchError | InvalidRecordError):
            return self._back_off(now_ms)
        return self._fail(error)

    def truncation_completed(self, now_ms: int) -> list[Effect]:
        """The log is cut: fetch from its new end."""
        invariant(
            self.phase is FollowerPhase.TRUNCATING,
            "a truncation to be outstanding",
            phase=self.phase,
        )
        return self._fetch(now_ms)

    def offsets_answered(self, response: ListOffsetsResponse, now_ms: int) -> list[Effect]:
        """Bring a log that does not overlap the leader's to where it does (facts 8.4)."""
        cause = TruncationCause.OUT_OF_RANGE
        if self.phase is FollowerPhase.ASKING_LATEST and response.spec is OffsetSpec.LATEST:
            if response.error is not ErrorCode.NONE:
                return self._refused(response.error, now_ms)
            if response.offset < self._log.log_end_offset:
                return self._truncate(TruncateLog(response.offset, cause))
            return self._ask(OffsetSpec.EARLIEST, now_ms)
        if self.phase is FollowerPhase.ASKING_EARLIEST and response.spec is OffsetSpec.EARLIEST:
            if response.error is not ErrorCode.NONE:
                return self._refused(response.error, now_ms)
            if response.offset > self._log.log_end_offset:
                return self._truncate(TruncateFullyAndStartAt(response.offset, cause))
            # In range by now. If the leader refuses again, the back-off keeps the loop slow.
            return self._back_off(now_ms)
        return []

    def tick(self, now_ms: int) -> list[Effect]:
        """Fetch after a back-off, or once more when no answer came."""
        waiting = self.phase is FollowerPhase.BACKING_OFF or self.phase in _ASKING
        if waiting and now_ms >= self._deadline_ms:
            return self._fetch(now_ms)
        return []

    def _fetch(self, now_ms: int) -> list[Effect]:
        self.phase = FollowerPhase.FETCHING
        self._fetch_offset = self._log.log_end_offset
        self._deadline_ms = now_ms + FETCH_TIMEOUT_MS
        request = FetchRequest(
            topic_partition=self._topic_partition,
            replica_id=self.replica_id,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self._fetch_offset,
            last_fetched_epoch=self._log.latest_epoch,
            log_start_offset=self._log.log_start_offset,
        )
        return [Send(self.leader_id, request)]

    def _ask(self, spec: OffsetSpec, now_ms: int) -> list[Effect]:
        latest = spec is OffsetSpec.LATEST
        self.phase = FollowerPhase.ASKING_LATEST if latest else FollowerPhase.ASKING_EARLIEST
        self._deadline_ms = now_ms + FETCH_TIMEOUT_MS
        request = ListOffsetsRequest(
            topic_partition=self._topic_partition,
            replica_id=self.replica_id,
            current_leader_epoch=self.leader_epoch,
            spec=spec,
        )
        return [Send(self.leader_id, request)]

    def _truncate(self, effect: TruncateLog | TruncateFullyAndStartAt) -> list[Effect]:
        self.phase = FollowerPhase.TRUNCATING
        return [effect]

    def _take_watermarks(self, response: FetchResponse) -> list[Effect]:
        log = self._log
        effects: list[Effect] = []
        high_watermark = follower_high_watermark(
            response.high_watermark, log.log_start_offset, log.log_end_offset
        )
        if high_watermark != log.high_watermark:
            effects.append(SetHighWatermark(high_watermark))
        # What we have not seen committed we do not drop; the next answer will say it again.
        log_start_offset = min(response.log_start_offset, high_watermark)
        if log_start_offset > log.log_start_offset:
            effects.append(AdvanceLogStart(log_start_offset))
        return effects

    def _refused(self, error: ErrorCode, now_ms: int) -> list[Effect]:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            return self._fail(error)
        return self._back_off(now_ms)

    def _back_off(self, now_ms: int) -> list[Effect]:
        self.phase = FollowerPhase.BACKING_OFF
        self._deadline_ms = now_ms + FETCH_BACKOFF_MS
        return []

    def _fail(self, failure: ReplogError | ErrorCode) -> list[Effect]:
        self.phase = FollowerPhase.FAILED
        self.failure = failure
        return []
