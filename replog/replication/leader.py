"""The leading role: takes produce and fetch requests, advances the high watermark, answers waiters.

The ISR is fixed for the leader epoch. A produce with acks=all waits until the high watermark has
passed its last record; a fetch that has nothing to learn waits until there is something, or until
its own deadline. Both kinds of waiters live here, keyed so that the order of answers is the order
of offsets and of replica ids, whatever the order of arrival.
"""

from __future__ import annotations

import dataclasses
import heapq
from typing import TYPE_CHECKING

from replog.errors import NotLeaderError, invariant
from replog.messages import (
    Acks,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetSpec,
)
from replog.replication.divergence import check_claim
from replog.replication.effects import (
    AppendAsLeader,
    AssignEpoch,
    CompleteProduce,
    Effect,
    Send,
    SendRecords,
    SetHighWatermark,
)
from replog.replication.high_watermark import leader_high_watermark
from replog.replication.replica_progress import ReplicaProgress

if TYPE_CHECKING:
    from replog.replication.events import (
        LeaderAppendCompleted,
        LeaderAppendFailed,
        LeadershipChange,
        Produce,
    )
    from replog.replication.log_view import LogView


@dataclasses.dataclass(frozen=True, slots=True)
class _WaitingFetch:
    request: FetchRequest
    deadline_ms: int


class Leader:
    """One leadership of one replica, over one or more consecutive leader epochs."""

    def __init__(self, replica_id: int, log: LogView) -> None:
        self.replica_id = replica_id
        self.leader_epoch = -1
        self.epoch_start_offset = log.log_end_offset
        """Where our present epoch begins."""
        self.isr: tuple[int, ...] = ()
        self.high_watermark = log.high_watermark
        """Ours and the log's; ahead of the log's only within a step. Never goes back (I7)."""
        self.followers: dict[int, ReplicaProgress] = {}
        """By replica id, ascending."""
        self._log = log
        self._appending: dict[int, Acks] = {}
        """request_id of each produce that is being appended."""
        self._uncommitted: list[tuple[int, int, int]] = []
        """Heap of (required high watermark, request_id, base_offset): appended with acks=all."""
        self._fetches: dict[int, _WaitingFetch] = {}
        """By replica id: a follower has one fetch outstanding."""

    def begin_epoch(self, change: LeadershipChange) -> list[Effect]:
        """Start to lead in a new epoch. Producers that wait go on waiting; followers prove anew.

        What a follower had in the epoch before is not counted: it may have died and lost its tail
        since. The high watermark stands until each follower in the ISR has fetched once.
        """
        invariant(
            change.leader_id == self.replica_id and self.replica_id in change.isr,
            "the leader to be this replica, and in the ISR",
            replica_id=self.replica_id,
            change=change,
        )
        effects = self._dismiss_fetches(ErrorCode.FENCED_LEADER_EPOCH)
        self.leader_epoch = change.leader_epoch
        self.isr = change.isr
        self.followers = {
            follower_id: ReplicaProgress(follower_id)
            for follower_id in sorted(change.replicas)
            if follower_id != self.replica_id
        }
        # The epoch is on record before its first append: a leader that dies in between must be able
        # to tell its followers where its epoch began (KAFKA-7415).
        self.epoch_start_offset = self._log.log_end_offset
        effects.append(AssignEpoch(change.leader_epoch, self.epoch_start_offset))
        return effects + self._advance_high_watermark()

    def resign(self) -> list[Effect]:
        """Stop leading: whoever still waits is told that this is not the leader any more."""
        waiting = [*self._appending, *(request_id for _, request_id, _ in self._uncommitted)]
        error = NotLeaderError(
            f"replica {self.replica_id} stopped leading after epoch {self.leader_epoch} before the "
            f"record was committed; it may still be, so ask the new leader before sending it again",
            leader_epoch=self.leader_epoch,
        )
        effects = self._dismiss_fetches(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return effects + [CompleteProduce(waiter, error=error) for waiter in sorted(waiting)]

    def produce(self, produce: Produce) -> list[Effect]:
        """Append a client's batches."""
        invariant(
            produce.request_id not in self._appending,
            "a request_id that no waiting produce has",
            request_id=produce.request_id,
        )
        self._appending[produce.request_id] = produce.acks
        return [AppendAsLeader(produce.request_id, produce.batches, self.leader_epoch)]

    def append_completed(self, done: LeaderAppendCompleted) -> list[Effect]:
        """The batches are in our log: answer acks=1, hold acks=all, wake fetches."""
        acks = self._appending.pop(done.request_id)
        invariant(
            done.last_offset < self._log.log_end_offset,
            "log_end_offset behind the appended records",
            last_offset=done.last_offset,
            log_end_offset=self._log.log_end_offset,
        )
        effects: list[Effect] = []
        if acks is Acks.LEADER:
            effects.append(CompleteProduce(done.request_id, done.base_offset, done.last_offset))
        elif acks is Acks.ALL:
            required = done.last_offset + 1
            heapq.heappush(self._uncommitted, (required, done.request_id, done.base_offset))
        effects += self._advance_high_watermark()
        # A repeated batch of an idempotent producer may have been committed long ago.
        return effects + self._complete_produces() + self._answer_waiting_fetches()

    def append_failed(self, failed: LeaderAppendFailed) -> list[Effect]:
        """Nothing was appended: the producer hears why, whatever its acks."""
        del self._appending[failed.request_id]
        return [CompleteProduce(failed.request_id, error=failed.error)]

    def fetch(self, request: FetchRequest, now_ms: int) -> list[Effect]:
        """Answer a follower, count its claim as an acknowledgement, or let it wait."""
        progress = self.followers.get(request.replica_id)
        if progress is None:
            return [self._refusal(request, ErrorCode.UNKNOWN_LEADER_EPOCH)]
        self._fetches.pop(request.replica_id, None)
        fault = check_claim(self._log, request.fetch_offset, request.last_fetched_epoch)
        if isinstance(fault, ErrorCode):
            return [self._refusal(request, fault)]
        if fault is not None:
            # Not progress: its log end offset counts records that are not ours (KAFKA-13141).
            response = dataclasses.replace(self._response(request), diverging_epoch=fault)
            return [Send(request.replica_id, response)]
        effects: list[Effect] = []
        if progress.record_fetch(request, now_ms):
            effects += self._advance_high_watermark()
        if self._has_news_for(request):
            return [*effects, self._answer(request)]
        if request.wait_ms_max <= 0:
            return [*effects, self._answer(request)]
        deadline_ms = now_ms + request.wait_ms_max
        self._fetches[request.replica_id] = _WaitingFetch(request, deadline_ms)
        return effects

    def list_offsets(self, request: ListOffsetsRequest) -> list[Effect]:
        """Tell a follower where our log starts or ends."""
        latest = request.spec is OffsetSpec.LATEST
        response = ListOffsetsResponse(
            topic_partition=request.topic_partition,
            leader_epoch=self.leader_epoch,
            spec=request.spec,
            offset=self._log.log_end_offset if latest else self._log.log_start_offset,
        )
        return [Send(request.replica_id, response)]

    def tick(self, now_ms: int) -> list[Effect]:
        """Answer the fetches that have waited long enough, with nothing."""
        expired = [
            replica_id
            for replica_id, waiting in sorted(self._fetches.items())
            if waiting.deadline_ms <= now_ms
        ]
        return [self._answer(self._fetches.pop(replica_id).request) for replica_id in expired]

    def _advance_high_watermark(self) -> list[Effect]:
        in_sync = [
            self.followers[replica_id].log_end_offset
            for replica_id in self.isr
            if replica_id != self.replica_id
        ]
        advanced = leader_high_watermark(self.high_watermark, self._log.log_end_offset, in_sync)
        if advanced == self.high_watermark:
            return []
        self.high_watermark = advanced
        effects: list[Effect] = [SetHighWatermark(advanced)]
        return effects + self._complete_produces() + self._answer_waiting_fetches()

    def _complete_produces(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._uncommitted and self._uncommitted[0][0] <= self.high_watermark:
            required, request_id, base_offset = heapq.heappop(self._uncommitted)
            effects.append(CompleteProduce(request_id, base_offset, required - 1))
        return effects

    def _answer_waiting_fetches(self) -> list[Effect]:
        ready = [
            replica_id
            for replica_id, waiting in sorted(self._fetches.items())
            if self._has_news_for(waiting.request)
        ]
        return [self._answer(self._fetches.pop(replica_id).request) for replica_id in ready]

    def _has_news_for(self, request: FetchRequest) -> bool:
        return (
            request.fetch_offset < self._log.log_end_offset
            or self.followers[request.replica_id].high_watermark_sent != self.high_watermark
        )

    def _answer(self, request: FetchRequest) -> Effect:
        self.followers[request.replica_id].high_watermark_sent = self.high_watermark
        response = dataclasses.replace(
            self._response(request),
            high_watermark=self.high_watermark,
            log_start_offset=self._log.log_start_offset,
        )
        if request.fetch_offset < self._log.log_end_offset:
            return SendRecords(request.replica_id, response, request.max_bytes)
        return Send(request.replica_id, response)

    def _dismiss_fetches(self, error: ErrorCode) -> list[Effect]:
        """Refuse the waiting fetches, under the epoch that they were asked in."""
        dismissed = [waiting.request for _, waiting in sorted(self._fetches.items())]
        self._fetches.clear()
        return [self._refusal(request, error) for request in dismissed]

    def _refusal(self, request: FetchRequest, error: ErrorCode) -> Effect:
        return Send(request.replica_id, dataclasses.replace(self._response(request), error=error))

    def _response(self, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            topic_partition=request.topic_partition,
            leader_epoch=self.leader_epoch,
            fetch_offset=request.fetch_offset,
        )
