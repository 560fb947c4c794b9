"""The batches of one partition on their way to its leader, in order and each at most once.

Up to a limit they are sent without waiting for each other, those with sequence numbers as
`produce_window` says. The first failure stops the lane: what is in flight is awaited, and then all
that failed is judged together, in order.

- Idempotent: whatever may succeed later is sent again under its sequence number, so that the leader
  tells a repeat (KIP-98). If one has failed for good, the sequence has a hole: what is known to be
  in no log takes a new producer id, the rest fails, since nobody could tell its repeat.
- Plain: only what is known to be in no log is sent again, and only if nothing behind it is in one.
  So nothing is doubled and nothing changes places; the rest fails, and its producer decides.

A lane is one topic's. Once the name is another's it is over: what was not acknowledged fails, for
nobody has asked to have it in the new topic.
"""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING

from replog.client.produce_window import IN_FLIGHT_MAX, Leadership, ProduceWindow
from replog.client.produced import SEQUENCES, Failure, PendingBatches, Produced
from replog.client.protocol_errors import RETRIABLE, error_of
from replog.errors import (
    NoLeaderError,
    RequestTimedOutError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from replog.messages import Acks, ErrorCode, ProduceRequest

if TYPE_CHECKING:
    import asyncio
    import uuid

    from replog.client.connection import ClusterConnection
    from replog.errors import ReplogError
    from replog.messages import ProduceResponse
    from replog.registrations import PartitionRegistration
    from replog.types import TopicPartition

IN_FLIGHT_PLAIN = 100
RETRY_BACKOFF_MS = 100
# What was found in place of an answer.
GONE = "that it is gone or leads no longer"
IN_TIME = "none before the delivery timeout: `why_uncommitted` names the replicas that hold it back"


class ProduceLane:
    """See the module."""

    def __init__(
        self,
        connection: ClusterConnection,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        acks: Acks,
        request_timeout_ms: int,
        *,
        idempotent: bool,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.producer_id = connection.new_producer_id() if idempotent else -1
        self._connection = connection
        self._acks = acks
        self._timeout_ms = request_timeout_ms
        self._in_flight_max = IN_FLIGHT_MAX if idempotent else IN_FLIGHT_PLAIN
        self._window = ProduceWindow() if idempotent else None
        self._next_sequence = 0 if idempotent else -1
        self._next_order = 0
        self._waiting: collections.deque[PendingBatches] = collections.deque()
        self._in_flight: collections.deque[PendingBatches] = collections.deque()
        self._failed: list[PendingBatches] = []
        self._acknowledged_order = -1
        """Of the latest batches that were acknowledged."""
        self._stopped = False
        self._retry: asyncio.TimerHandle | None = None
        self._when_idle: list[asyncio.Future[None]] = []

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._in_flight or self._failed)

    async def idle(self) -> None:
        """Return once nothing is on its way, also of what nobody waits for any more."""
        while not self.is_idle:
            future = self._connection.loop.create_future()
            self._when_idle.append(future)
            await future

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next record; -1 where there are none."""
        return self._next_sequence

    def add(self, pending: PendingBatches) -> None:
        """Put batches at the end of the line; they carry `producer_id` and `next_sequence`."""
        if self._next_sequence >= 0:
            self._next_sequence = (pending.sequence + pending.count) % SEQUENCES
        pending.order = self._next_order
        self._next_order += 1
        self._waiting.append(pending)
        if not self._stopped:
            self._send()

    def metadata_changed(self) -> None:
        """Try again what waits for a leader, and give up on one that leads no longer."""
        registration = self._registration()
        if registration is not None and registration.topic_id != self.topic_id:
            self.end(registration.topic_id)
            return
        if self._in_flight:
            leadership = self._leadership()
            leader_id = None if leadership is None else leadership.leader_id
            for pending in list(self._in_flight):
                if pending.sent_to != leader_id:
                    self._connection.give_up(pending.request_id)
                    self._answered(pending, None)
        if self._retry is not None:
            self._try_again()

    def expire(self, now_ms: float) -> None:
        """Fail what has waited too long."""
        for pending in [pending for pending in self._in_flight if pending.deadline_ms <= now_ms]:
            self._connection.give_up(pending.request_id)
            self._answered(pending, None, found=IN_TIME)
        for pending in [pending for pending in self._waiting if pending.deadline_ms <= now_ms]:
            self._waiting.remove(pending)
            self._failed.append(pending)
        for pending in self._failed:
            if pending.deadline_ms <= now_ms:
                _fail(pending, self._error(pending))
        if self._failed and not self._in_flight:
            self._settle(now_ms)

    def close(self, error: ReplogError) -> None:
        """Fail all that is on its way."""
        if self._retry is not None:
            self._retry.cancel()
        for pending in self._in_flight:
            self._connection.give_up(pending.request_id)
        for pending in [*self._failed, *self._in_flight, *self._waiting]:
            _fail(pending, error)
        self._in_flight.clear()
        self._waiting.clear()
        self._failed.clear()
        self._stopped = True
        self._tell_if_idle()

    def end(self, topic_id: uuid.UUID) -> None:
        """The partition's name is now that of a topic of this id: fail all that is on its way."""
        self.close(
            UnknownTopicIdError(
                f"expected topic {self.topic_partition.topic!r} of id {self.topic_id} to be there "
                f"until its records were acknowledged, found it deleted and another one of that "
                f"name, of id {topic_id}: they went with it or were never appended, and none is in "
                f"the new topic; send them again to have them there",
                topic_partition=str(self.topic_partition),
            )
        )

    def _registration(self) -> PartitionRegistration | None:
        try:
            return self._connection.partition(self.topic_partition)
        except UnknownTopicOrPartitionError:
            return None

    def _leadership(self) -> Leadership | None:
        registration = self._registration()
        if registration is None or registration.topic_id != self.topic_id:
            return None
        leader_id = registration.leader_id
        if leader_id is None or not self._connection.reaches(leader_id):
            return None
        return Leadership(leader_id, registration.leader_epoch)

    def _may_send(self, pending: PendingBatches, leadership: Leadership) -> bool:
        in_flight = self._in_flight
        return self._window is None or self._window.may_send(
            pending.order,
            leadership,
            len(in_flight),
            in_flight[0].order if in_flight else pending.order,
        )

    def _send(self) -> None:
        """Send from the line's head, as many as may be in flight."""
        while self._waiting and len(self._in_flight) < self._in_flight_max:
            leadership = self._leadership()
            if leadership is None:
                self._retry_soon()
                return
            if not self._may_send(self._waiting[0], leadership):
                return
            leader_id = leadership.leader_id
            pending = self._waiting.popleft()
            request = ProduceRequest(
                partitions=((self.topic_partition, self.topic_id, pending.batches),),
                acks=self._acks,
                timeout_ms=self._timeout_ms,
            )
            if self._acks is Acks.NONE:
                self._connection.tell(leader_id, request)
                _complete(pending, Produced(topic_partition=self.topic_partition))
                self._tell_if_idle()
                continue
            self._in_flight.append(pending)
            if self._window is not None:
                self._window.sent(pending.order, leadership)
            pending.sent_to = leader_id
            pending.request_id = self._connection.ask(
                leader_id, request, functools.partial(self._answered, pending)
            )

    def _answered(
        self, pending: PendingBatches, response: ProduceResponse | None, *, found: str = GONE
    ) -> None:
        in_flight = self._in_flight
        if in_flight[0] is pending:
            in_flight.popleft()
        else:
            in_flight.remove(pending)
        failure: Failure | None = None
        if response is not None:
            answer = response.partitions[0]
            if answer.error is ErrorCode.NONE:
                self._acknowledged_order = max(self._acknowledged_order, pending.order)
                if self._window is not None:
                    self._window.acknowledged(pending.order)
                _complete(
                    pending,
                    Produced(
                        topic_partition=self.topic_partition,
                        base_offset=answer.base_offset,
                        last_offset=answer.last_offset,
                        leader_epoch=answer.leader_epoch,
                        durability=answer.durability,
                        log_append_time_ms=answer.log_append_time_ms,
                    ),
                )
            else:
                failure = Failure(
                    answer.error, answer.message or answer.error.name, answer.base_offset >= 0
                )
        else:
            failure = Failure(
                ErrorCode.REQUEST_TIMED_OUT,
                f"expected broker {pending.sent_to} to answer a produce to {self.topic_partition}, "
                f"found {found}; the records may be lost or still be "
                f"committed, so send them again only if a repeat does no harm",
                appended=True,
            )
        if failure is not None:
            pending.failure = failure
            pending.may_be_in_log |= failure.appended
            self._stopped = True
            self._failed.append(pending)
            if self._window is not None:
                self._window.close()
        if not self._stopped:
            if self._waiting:
                self._send()
        elif not in_flight and self._failed:
            self._settle(self._connection.loop.time() * 1000)
        if self._when_idle:
            self._tell_if_idle()

    def _settle(self, now_ms: float) -> None:
        """Nothing is in flight: judge what failed, and go on with the rest."""
        failed = sorted(self._failed, key=lambda pending: pending.order)
        self._failed.clear()
        may_repeat = self._may_repeat if self.producer_id >= 0 else self._is_in_no_log
        again: list[PendingBatches] = []
        given_up = False
        for pending in failed:
            if pending.deadline_ms > now_ms and may_repeat(pending, behind=bool(again) or given_up):
                again.append(pending)
            else:
                given_up = True
                _fail(pending, self._error(pending))
        self._waiting.extendleft(reversed(again))
        if given_up and self.producer_id >= 0:
            self._start_anew()
        if self._waiting:
            self._retry_soon()
        else:
            self._stopped = False
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if self.is_idle:
            for future in self._when_idle:
                if not future.done():
                    future.set_result(None)
            self._when_idle.clear()

    def _may_repeat(self, pending: PendingBatches, *, behind: bool) -> bool:
        """Whether an idempotent batch may succeed later; `behind`: another before it has failed."""
        failure = pending.failure
        if failure is None:
            return True
        if failure.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return behind
        return failure.code in RETRIABLE

    def _is_in_no_log(self, pending: PendingBatches, *, behind: bool) -> bool:
        failure = pending.failure
        if failure is None:
            return True
        return (
            failure.code in RETRIABLE
            and not failure.appended
            and pending.order > self._acknowledged_order
        )

    def _start_anew(self) -> None:
        """Give what waits a new producer's numbers, from 0 on, as far as it is in no log.

        Under another producer's numbers a leader would append again what it has.
        """
        for pending in [pending for pending in self._waiting if pending.may_be_in_log]:
            self._waiting.remove(pending)
            _fail(pending, self._error(pending))
        self.producer_id = self._connection.new_producer_id()
        self._next_sequence = 0
        if self._window is not None:
            self._window.close()
        for pending in self._waiting:
            pending.renumber(self.producer_id, self._next_sequence)
            self._next_sequence = (self._next_sequence + pending.count) % SEQUENCES

    def _retry_soon(self) -> None:
        """Go on when the metadata changes, or a while has passed."""
        self._stopped = True
        if self._retry is None:
            self._retry = self._connection.loop.call_later(RETRY_BACKOFF_MS / 1000, self._try_again)

    def _try_again(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._stopped = False
        self._send()

    def _error(self, pending: PendingBatches) -> ReplogError:
        failure = pending.failure
        if failure is None:
            return NoLeaderError(
                f"expected a leader of {self.topic_partition} to send records to, found none in "
                f"time; nothing was written",
                topic_partition=str(self.topic_partition),
            )
        if pending.may_be_in_log and not failure.appended:
            return RequestTimedOutError(
                f"expected to know whether an earlier try of records for {self.topic_partition} "
                f"was appended, found that broker {pending.sent_to} refuses the latest "
                f"({failure.code.name}); they may be lost or still be committed, so send them "
                f"again only if a repeat does no harm",
                topic_partition=str(self.topic_partition),
            )
        return error_of(failure.code, failure.message, topic_partition=str(self.topic_partition))


def _complete(pending: PendingBatches, produced: Produced) -> None:
    if not pending.future.done():
        pending.future.set_result(produced)


def _fail(pending: PendingBatches, error: ReplogError) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)
