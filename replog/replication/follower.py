"""The following role of one replica: takes what its leader says, truncates where the logs part.

Which requests carry its questions is the fetcher's business; here stands what one partition waits
for, named by the phase:

    FETCHING ──records──> APPENDING ──done──> FLUSHING (flush mode `commit`) ──> FETCHING
       │  ──diverging──> TRUNCATING ──done──> FETCHING
       │  ──out of range──> ASKING_LATEST ──> TRUNCATING
       │                      └──> ASKING_EARLIEST ──> TRUNCATING or BACKING_OFF
       │  (wherever an unclean election is the cause: TELLING ──heard──> TRUNCATING)
       │  ──other error, lost answer──> BACKING_OFF ──time──> FETCHING
       └──fenced, or a local append or cut that must not be──> FAILED until the next leader epoch

The log is truncated before the leader's high watermark is taken: an answer that says "diverging"
moves neither the high watermark nor the log start (KAFKA-14704).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from replog.divergence import epoch_ranges, truncation_for
from replog.errors import CorruptBatchError, InvalidRecordError
from replog.messages import ErrorCode, FetchPartition, ListOffsetsResponse, OffsetSpec
from replog.replication.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    FlushLog,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateLog,
    TruncationCause,
)
from replog.replication.high_watermark import follower_high_watermark
from replog.replication.incidents import (
    AppendRefused,
    Fenced,
    LogTruncated,
    RecordsLost,
    ReplicaFailed,
)
from replog.replication.partition_table import is_same_topic
from replog.types import NO_LEADER_EPOCH, UNKNOWN_OFFSET, LostRecords

if TYPE_CHECKING:
    from replog.errors import ReplogError
    from replog.messages import FetchedPartition, RawBatches
    from replog.registrations import PartitionRegistration
    from replog.replication.deadlines import Timer
    from replog.replication.fetcher import Fetcher
    from replog.replication.host_context import HostContext
    from replog.replication.log_view import LogView
    from replog.types import EpochRange


class FollowerPhase(enum.Enum):
    """What the follower is waiting for."""

    FETCHING = "the leader's records"
    APPENDING = "its own append"
    FLUSHING = "its own sync"
    TELLING = "the controller's word that it has heard what will be lost"
    TRUNCATING = "its own truncation"
    ASKING_LATEST = "the leader's log end offset"
    ASKING_EARLIEST = "the leader's log start offset"
    BACKING_OFF = "the end of a back-off"
    FAILED = "a new leader epoch"

    # By identity: phases are keys on the hot path.
    __hash__ = object.__hash__


_BUSY = {FollowerPhase.APPENDING, FollowerPhase.FLUSHING, FollowerPhase.TRUNCATING}
_ASKING = {
    FollowerPhase.ASKING_LATEST: OffsetSpec.LATEST,
    FollowerPhase.ASKING_EARLIEST: OffsetSpec.EARLIEST,
}


class Follower:
    """One replica's following of one leader in one leader epoch."""

    def __init__(
        self,
        context: HostContext,
        registration: PartitionRegistration,
        log: LogView,
        fetcher: Fetcher,
    ) -> None:
        self._context = context
        self._log = log
        self._fetcher = fetcher
        self.registration = registration
        self.topic_partition = registration.topic_partition
        self.leader_epoch = registration.leader_epoch
        self.leader_id = fetcher.leader_id
        self.phase = FollowerPhase.BACKING_OFF
        self.failure: str | None = None
        """Why the phase is FAILED."""
        self.high_watermark = log.high_watermark
        """The log's; ahead of it only within a step."""
        self._log_start_offset = log.log_start_offset
        """The log's; ahead of it only within a step."""
        self._appending: FetchedPartition | None = None
        """Its records are being appended; its high watermark is taken when they are in the log."""
        self._complaint: str | None = None
        """Why the log did not take what was fetched last."""
        self._is_compared = False
        """The leader has held our claim against a record of its own, and found them alike."""
        self._truncating: tuple[TruncationCause, int, int] | None = None
        """Why, and the log's end and latest epoch before."""
        self._telling: tuple[LostRecords, int, TruncationCause] | None = None
        """What is to be cut because of an unclean election, from which offset on, and why."""
        self._timer: Timer | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it belongs into the next fetch."""
        return self.phase is FollowerPhase.FETCHING

    @property
    def is_busy(self) -> bool:
        """Whether it will be ready as soon as its own log has done something."""
        return self.phase in _BUSY

    def start(self, now_ms: int) -> None:
        """Begin to follow, with the log as it is."""
        log = self._log
        if log.latest_epoch == NO_LEADER_EPOCH and log.log_end_offset > log.high_watermark:
            self._truncate_to(log.high_watermark, TruncationCause.NO_EPOCHS)
        else:
            self._go_on()

    def stop(self) -> None:
        """Another epoch, or none: whatever was under way does not count any more."""
        self._context.deadlines.cancel(self._timer)
        self._turn(FollowerPhase.FAILED)
        self.failure = "stopped"

    def question(self) -> FetchPartition:
        """Our part of the next fetch: what we have, and who vouches for it."""
        log = self._log
        return FetchPartition(
            topic_partition=self.topic_partition,
            topic_id=self.registration.topic_id,
            fetch_offset=log.log_end_offset,
            current_leader_epoch=self.leader_epoch,
            last_fetched_epoch=log.latest_epoch,
            log_start_offset=max(log.log_start_offset, self._log_start_offset),
            max_bytes=self._context.options.replica_fetch_max_bytes,
        )

    def fetched(self, asked: FetchPartition, answer: FetchedPartition, now_ms: int) -> None:
        """Append, truncate, or back off, as the leader's answer to `asked` says (KIP-595)."""
        if (
            self.phase is not FollowerPhase.FETCHING
            or asked.current_leader_epoch != self.leader_epoch
            or asked.fetch_offset != self._log.log_end_offset
            or not is_same_topic(asked.topic_id, self.registration.topic_id)
        ):
            return
        if answer.error is not ErrorCode.NONE:
            if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._ask(FollowerPhase.ASKING_LATEST, now_ms)
            else:
                self._refused(answer.error, now_ms)
        elif answer.diverging_epoch is not None:
            leader_epoch, end_offset = answer.diverging_epoch
            if leader_epoch > self.leader_epoch or min(leader_epoch, end_offset) < UNKNOWN_OFFSET:
                self.back_off(now_ms)
                return
            truncation = truncation_for(self._log, answer.diverging_epoch, asked.fetch_offset)
            # Even if no bytes go, the epochs behind must (KAFKA-10706). Unless it is complete, the
            # next fetch carries the epoch that is then latest, and the leader judges again.
            self._truncate_to(truncation.offset, TruncationCause.DIVERGING_EPOCH)
        elif self._is_incomparable(asked, answer):
            # What we have there may be another leader's, and with it what we know of producers.
            self._begin_truncation(TruncationCause.OUT_OF_RANGE)
            self._context.emit(
                TruncateFullyAndStartAt(
                    self.topic_partition, answer.log_start_offset, TruncationCause.OUT_OF_RANGE
                )
            )
        elif answer.records is not None:
            self._turn(FollowerPhase.APPENDING)
            self._appending = answer
            self._context.emit(AppendAsFollower(self.topic_partition, answer.records))
        else:
            self._take_watermarks(answer)

    def _is_incomparable(self, asked: FetchPartition, answer: FetchedPartition) -> bool:
        """Whether we have records that nobody ever called committed, and the leader has deleted all
        that it could compare them with.
        """
        if asked.fetch_offset > answer.log_start_offset:
            self._is_compared = True
        return (
            not self._is_compared
            and self.high_watermark < self._log.log_end_offset == answer.log_start_offset
        )

    def log_start_kept(self) -> None:
        """The log start could not move for want of room: the next answer says it again."""
        self._log_start_offset = self._log.log_start_offset

    def append_completed(self, now_ms: int) -> None:
        """The fetched records are in the log: take the leader's high watermark, go on."""
        answer, self._appending = self._appending, None
        if self.phase is not FollowerPhase.APPENDING or answer is None:
            return
        self._complaint = None
        if self._log.log_start_offset < self._log_start_offset:
            # A log begins with a batch: one that holds the start of an empty log takes it back to
            # where that batch begins. What was deleted stays deleted, and is committed.
            self._context.emit(SetHighWatermark(self.topic_partition, self.high_watermark))
            self._context.emit(AdvanceLogStart(self.topic_partition, self._log_start_offset))
        self._take_watermarks(answer)
        self._context.moved[self.topic_partition] = True
        context = self._context
        pause_ms = 0
        if context.cluster.broker_id not in self.registration.isr:
            pause_ms = context.throttle.pause_ms(_size_of(answer.records), now_ms)
        if pause_ms:
            self._rest(now_ms + pause_ms)
        else:
            self._go_on()

    def append_failed(self, error: ReplogError, now_ms: int) -> None:
        """Bad bytes may have been hurt on the way and a full disk may drain; all else is final."""
        self._appending = None
        if self.phase is not FollowerPhase.APPENDING:
            return
        if error.retriable or isinstance(error, CorruptBatchError | InvalidRecordError):
            self._complain(str(error))
            self.back_off(now_ms)
        else:
            self._fail(str(error))

    def _complain(self, message: str) -> None:
        if message == self._complaint:
            return
        self._complaint = message
        self._context.report(
            AppendRefused(
                topic_partition=self.topic_partition,
                leader_id=self.leader_id,
                leader_epoch=self.leader_epoch,
                log_end_offset=self._log.log_end_offset,
                message=message,
            )
        )

    def truncation_completed(self, now_ms: int) -> None:
        """The log is cut: fetch from its new end."""
        if self.phase is not FollowerPhase.TRUNCATING or self._truncating is None:
            return
        (cause, old_end_offset, old_epoch), self._truncating = self._truncating, None
        log = self._log
        self.high_watermark = log.high_watermark
        self._log_start_offset = log.log_start_offset
        self._context.moved[self.topic_partition] = True
        if log.log_end_offset != old_end_offset:
            self._context.report(
                LogTruncated(
                    topic_partition=self.topic_partition,
                    leader_epoch=self.leader_epoch,
                    leader_id=self.leader_id,
                    cause=cause,
                    old_end_offset=old_end_offset,
                    new_end_offset=log.log_end_offset,
                    high_watermark=log.high_watermark,
                )
            )
        elif log.latest_epoch == old_epoch:
            # Nothing has changed, and the same question would get the same answer.
            self.back_off(now_ms)
            return
        self._go_on()

    def log_synced(self) -> None:
        """Our log is on disk up to its synced_end_offset."""
        if self.phase is FollowerPhase.FLUSHING:
            self._go_on()

    def offsets_answered(self, timestamp: int, answer: ListOffsetsResponse, now_ms: int) -> None:
        """Bring a log that does not overlap the leader's to where it does, as Kafka does."""
        if _ASKING.get(self.phase) != timestamp:
            return
        if answer.error is not ErrorCode.NONE:
            self._refused(answer.error, now_ms)
            return
        if answer.offset < 0:
            self.back_off(now_ms)
            return
        cause = TruncationCause.OUT_OF_RANGE
        end_offset = self._log.log_end_offset
        if self.phase is FollowerPhase.ASKING_LATEST:
            if answer.offset < end_offset:
                self._truncate_to(answer.offset, cause)
            else:
                self._ask(FollowerPhase.ASKING_EARLIEST, now_ms)
        elif answer.offset > end_offset:
            # All we have lies before the leader's first record: deleted there, not lost.
            self._begin_truncation(cause)
            self._context.emit(TruncateFullyAndStartAt(self.topic_partition, answer.offset, cause))
        else:
            # In range by now. If the leader refuses again, the back-off keeps the loop slow.
            self.back_off(now_ms)

    def back_off(self, now_ms: int) -> None:
        """Ask again after a while."""
        self._rest(now_ms + self._context.options.replica_fetch_backoff_ms)

    def _rest(self, until_ms: int) -> None:
        self._turn(FollowerPhase.BACKING_OFF)
        deadlines = self._context.deadlines
        deadlines.cancel(self._timer)
        self._timer = deadlines.schedule(until_ms, self._backed_off)

    def _backed_off(self, now_ms: int) -> None:
        if self.phase is FollowerPhase.BACKING_OFF:
            self._go_on()

    def _go_on(self) -> None:
        """Fetch; in flush mode `commit` only what is on disk counts as fetched."""
        log = self._log
        syncs = self.registration.config.log.flush_mode == "commit"
        if syncs and log.synced_end_offset < log.log_end_offset:
            self._turn(FollowerPhase.FLUSHING)
            self._context.emit(FlushLog(self.topic_partition))
            return
        self._turn(FollowerPhase.FETCHING)

    def _turn(self, phase: FollowerPhase) -> None:
        was_busy = self.phase in _BUSY
        self.phase = phase
        self._fetcher.turned(self, was_busy=was_busy, is_busy=phase in _BUSY)

    def _ask(self, phase: FollowerPhase, now_ms: int) -> None:
        self._turn(phase)
        self._fetcher.ask_offset(self, _ASKING[phase], now_ms)

    def _begin_truncation(self, cause: TruncationCause) -> None:
        self._turn(FollowerPhase.TRUNCATING)
        self._truncating = (cause, self._log.log_end_offset, self._log.latest_epoch)

    def _truncate_to(self, offset: int, cause: TruncationCause) -> None:
        """Cut, unless that would give up what is known as committed (I17)."""
        log = self._log
        if offset < self.high_watermark and not self._may_lose_committed:
            self._fail(
                f"expected the log of leader {self.leader_id} in epoch {self.leader_epoch} to hold "
                f"all committed records of {self.topic_partition}, found that it ends or parts at "
                f"offset {offset} below our high watermark {self.high_watermark}; offsets "
                f"[{offset}, {log.log_end_offset}) are kept here, compare the replicas"
            )
            return
        if offset < log.log_end_offset and log.latest_epoch < self.registration.unclean_epoch:
            self._tell(epoch_ranges(log, log.latest_epoch, offset), offset, cause)
        else:
            self._cut(offset, cause)

    def _tell(self, ranges: tuple[EpochRange, ...], offset: int, cause: TruncationCause) -> None:
        """Whoever dies between a cut and the word of it takes along what nobody else knows."""
        lost = LostRecords(
            topic_partition=self.topic_partition,
            topic_id=self.registration.topic_id,
            unclean_epoch=self.registration.unclean_epoch,
            ranges=ranges,
            committed_end_offset=self.high_watermark,
        )
        self._telling = (lost, offset, cause)
        self._turn(FollowerPhase.TELLING)
        self._context.report(RecordsLost(topic_partition=self.topic_partition, lost=lost))

    def loss_heard(self, lost: LostRecords) -> None:
        """The controller knows what this cut will lose."""
        if self.phase is FollowerPhase.TELLING and self._telling is not None:
            told, offset, cause = self._telling
            if lost == told:
                self._telling = None
                self._cut(offset, cause)

    def _cut(self, offset: int, cause: TruncationCause) -> None:
        self._begin_truncation(cause)
        if offset < self._log.log_start_offset:
            effect = TruncateFullyAndStartAt(self.topic_partition, offset, cause)
            self._context.emit(effect)
            return
        self._context.emit(TruncateLog(self.topic_partition, offset, cause))

    @property
    def _may_lose_committed(self) -> bool:
        """Whether an unclean election stands between our records and the leader's."""
        registration = self.registration
        return registration.unclean or self._log.latest_epoch < registration.unclean_epoch

    def _take_watermarks(self, answer: FetchedPartition) -> None:
        log = self._log
        own_start_offset = log.log_start_offset
        high_watermark = follower_high_watermark(
            self.high_watermark, answer.high_watermark, own_start_offset, log.log_end_offset
        )
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            self._context.emit(SetHighWatermark(self.topic_partition, high_watermark))
            self._context.moved[self.topic_partition] = True
        # What we have not seen committed we do not drop; the next answer will say it again.
        log_start_offset = min(answer.log_start_offset, high_watermark)
        if log_start_offset > max(own_start_offset, self._log_start_offset):
            self._log_start_offset = log_start_offset
            self._context.emit(AdvanceLogStart(self.topic_partition, log_start_offset))
            self._fetcher.turned(self, was_busy=self.is_busy, is_busy=self.is_busy)

    def _refused(self, error: ErrorCode, now_ms: int) -> None:
        if error in {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}:
            self._context.report(
                Fenced(
                    topic_partition=self.topic_partition,
                    error=error,
                    leader_epoch=self.leader_epoch,
                    found_epoch=self.leader_epoch,
                    peer_id=self.leader_id,
                    by_peer=True,
                )
            )
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(
                f"leader {self.leader_id} of {self.topic_partition} is in a later epoch than "
                f"{self.leader_epoch}; the controller's metadata will tell it"
            )
        else:
            self.back_off(now_ms)

    def _fail(self, message: str) -> None:
        self._context.deadlines.cancel(self._timer)
        self.failure = message
        self._turn(FollowerPhase.FAILED)
        self._context.report(
            ReplicaFailed(
                topic_partition=self.topic_partition,
                leader_epoch=self.leader_epoch,
                message=message,
            )
        )


def _size_of(records: RawBatches | None) -> int:
    return 0 if records is None else len(records)
