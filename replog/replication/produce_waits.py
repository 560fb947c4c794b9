"""Producers that wait: per request for all its partitions, per partition for an offset."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from replog.messages import ErrorCode, ProducedPartition, ProduceResponse
from replog.replication.effects import Respond

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replog.messages import Durability, ProduceRequest
    from replog.replication.events import LeaderAppendCompleted
    from replog.replication.host_context import HostContext


class ProduceWait:
    """One request: answered when every partition is decided, or when its time is up."""

    __slots__ = (
        "_context",
        "_left",
        "_open_waits",
        "acks",
        "answers",
        "deadline_ms",
        "is_abandoned",
        "pending",
        "request_id",
    )

    def __init__(
        self,
        context: HostContext,
        open_waits: dict[int, ProduceWait],
        request_id: int,
        request: ProduceRequest,
        now_ms: int,
    ) -> None:
        """open_waits: where it stands until it is answered; it leaves by itself."""
        self._context = context
        self._open_waits = open_waits
        self._left = len(request.partitions)
        self.request_id = request_id
        self.acks = request.acks
        self.deadline_ms = now_ms + max(request.timeout_ms, 0)
        self.answers: list[ProducedPartition | None] = [None] * self._left
        """In the request's order; None while undecided."""
        self.pending: list[PendingAck] = []
        self.is_abandoned = False
        """Nobody waits for the answer."""

    def decide(self, index: int, answer: ProducedPartition) -> None:
        """Fix the answer of one partition; a second one does not count."""
        if self.is_abandoned or self.answers[index] is not None:
            return
        self.answers[index] = answer
        self._left -= 1
        if self._left == 0:
            self._close()
            decided = tuple([answer for answer in self.answers if answer is not None])
            self._context.emit(Respond(self.request_id, ProduceResponse(decided)))

    def abandon(self) -> None:
        """Nobody waits any more: it is over without an answer."""
        self.is_abandoned = True
        self._close()

    def _close(self) -> None:
        self._open_waits.pop(self.request_id, None)
        # They point back here: Python would have to search for each request as garbage.
        self.pending.clear()


class PendingAck:
    """One partition of a request: its records are in our log and await what `acks` asks for."""

    __slots__ = ("_leader_epoch", "_log_start_offset", "done", "index", "required_offset", "wait")

    def __init__(
        self,
        wait: ProduceWait,
        index: int,
        done: LeaderAppendCompleted,
        leader_epoch: int,
        log_start_offset: int,
    ) -> None:
        self.wait = wait
        self.index = index
        self.done = done
        """Where the records are."""
        self.required_offset = done.last_offset + 1
        self._leader_epoch = leader_epoch
        self._log_start_offset = log_start_offset

    @property
    def is_open(self) -> bool:
        return self.wait.answers[self.index] is None and not self.wait.is_abandoned

    def acknowledge(self, durability: Durability | None) -> None:
        """The records have met what was asked; with acks=0 that is nothing."""
        self._decide(ErrorCode.NONE, None, durability)

    def refuse(self, error: ErrorCode, message: str) -> None:
        """They may be committed all the same, or later."""
        self._decide(error, message, None)

    def _decide(self, error: ErrorCode, message: str | None, durability: Durability | None) -> None:
        done = self.done
        self.wait.decide(
            self.index,
            ProducedPartition(
                topic_partition=done.topic_partition,
                error=error,
                message=message,
                base_offset=done.base_offset,
                last_offset=done.last_offset,
                leader_epoch=self._leader_epoch,
                log_append_time_ms=done.log_append_time_ms,
                log_start_offset=self._log_start_offset,
                durability=durability,
            ),
        )


class AckQueue:
    """Pending acknowledgements of one partition by the offset that each requires.

    Offsets nearly always grow, but a batch that a producer repeats requires an older one.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, PendingAck]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, pending: PendingAck) -> None:
        self._arrivals += 1
        heapq.heappush(self._heap, (pending.required_offset, self._arrivals, pending))

    def take_reached(self, offset: int) -> Iterator[PendingAck]:
        """Those that require no more than `offset`, and drop them."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            pending = heapq.heappop(heap)[2]
            if pending.is_open:
                yield pending

    def take_all(self) -> list[PendingAck]:
        """Those that are still open, in order of their offsets; the queue is then empty."""
        entries, self._heap = sorted(self._heap, key=lambda entry: entry[:2]), []
        return [entry[2] for entry in entries if entry[2].is_open]

    def sweep(self) -> None:
        """Drop those that were answered meanwhile, once they are the greater part."""
        still_open = [entry for entry in self._heap if entry[2].is_open]
        if len(still_open) * 2 < len(self._heap):
            self._heap = still_open
            heapq.heapify(self._heap)
