"""Asks one leader broker on behalf of all partitions that follow it: one fetch in flight.

Partitions that are ready go into the next fetch together. It leaves when the answer to the last one
has been worked off: when no partition is appending, truncating or syncing any more, so that a sync
holds an acknowledgement no longer than it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.messages import (
    ErrorCode,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from replog.replication.deadlines import Patience
from replog.replication.effects import SendRequest
from replog.replication.fetch_session import AskedSession

if TYPE_CHECKING:
    from replog.messages import FetchPartition, OffsetSpec
    from replog.replication.deadlines import Timer
    from replog.replication.follower import Follower
    from replog.replication.host_context import HostContext
    from replog.types import TopicPartition

_SESSION_LOST = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
}


class Fetcher:
    """The fetches to one leader broker."""

    def __init__(self, context: HostContext, leader_id: int) -> None:
        self._context = context
        self.leader_id = leader_id
        self.followers: dict[TopicPartition, Follower] = {}
        self.request_id: int | None = None
        """Of the fetch in flight."""
        self.offset_requests: dict[int, tuple[Follower, int, Timer]] = {}
        """By request id: who asks for which offset."""
        self._session = AskedSession()
        self._changed: dict[TopicPartition, None] = {}
        """Partitions whose part in the session may be out of date."""
        self._busy = 0
        """Partitions that will be ready as soon as their own log has done something."""
        self._patience = Patience(context.deadlines, self._give_up)
        """With the fetch in flight."""
        self.idle = True
        """Nothing was ready when a fetch was due, and no partition has turned since."""

    def add(self, follower: Follower) -> None:
        """Fetch for it from now on, as soon as it is ready."""
        self.followers[follower.topic_partition] = follower
        self._changed[follower.topic_partition] = None

    def remove(self, follower: Follower) -> None:
        """No more of it."""
        follower.stop()
        if self.followers.get(follower.topic_partition) is follower:
            del self.followers[follower.topic_partition]
            self._changed[follower.topic_partition] = None
        for request_id, (asker, _, timer) in list(self.offset_requests.items()):
            if asker is follower:
                self._context.deadlines.cancel(timer)
                del self.offset_requests[request_id]

    def close(self) -> None:
        """No partition is left: what is in flight is nobody's any more."""
        self._patience.end()
        self.request_id = None

    def turned(self, follower: Follower, *, was_busy: bool, is_busy: bool) -> None:
        """A partition's phase, or its log, is another."""
        self._busy += is_busy - was_busy
        self.idle = False
        self._changed[follower.topic_partition] = None

    def maybe_send(self, now_ms: int) -> None:
        """Send the next fetch if it is time."""
        if self.request_id is not None or self._busy or self.idle:
            return
        session = self._session
        asked: tuple[FetchPartition, ...]
        forgotten: tuple[TopicPartition, ...] = ()
        if session.is_incremental:
            asked, forgotten = self._changes()
        else:
            ready = [follower for follower in self.followers.values() if follower.is_ready]
            asked = session.begin([follower.question() for follower in ready])
        self._changed.clear()
        if not session.known:
            self.idle = True
            if session.is_incremental:
                session.reset()
            return
        context, options = self._context, self._context.options
        self.request_id = next(context.request_ids)
        self._patience.last_until(now_ms + options.request_timeout_ms)
        wait_ms_max = options.replica_fetch_wait_max_ms
        if owed_ms := context.throttle.owed_ms(now_ms):
            # Who pauses is not in this fetch, and can only join the next one.
            wait_ms_max = min(wait_ms_max, owed_ms)
        request = FetchRequest(
            partitions=asked,
            replica_id=context.cluster.broker_id,
            broker_epoch=context.cluster.broker_epoch,
            wait_ms_max=wait_ms_max,
            min_bytes=options.replica_fetch_min_bytes,
            max_bytes=options.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            forgotten=forgotten,
        )
        context.emit(SendRequest(self.request_id, self.leader_id, request))

    def _changes(self) -> tuple[tuple[FetchPartition, ...], tuple[TopicPartition, ...]]:
        """What the other side does not know yet; it does from now on."""
        session = self._session
        asked: list[FetchPartition] = []
        forgotten: list[TopicPartition] = []
        for topic_partition in self._changed:
            follower = self.followers.get(topic_partition)
            if follower is None or not follower.is_ready:
                if session.forget(topic_partition):
                    forgotten.append(topic_partition)
                continue
            question = follower.question()
            if session.include(question):
                asked.append(question)
        return tuple(asked), tuple(forgotten)

    def answered(self, response: object, now_ms: int) -> None:
        """The answer to the fetch in flight."""
        self._end_request()
        if not isinstance(response, FetchResponse) or response.error is not ErrorCode.NONE:
            lost = isinstance(response, FetchResponse) and response.error in _SESSION_LOST
            was_incremental = self._session.is_incremental
            self._session.reset()
            if not (lost and was_incremental):
                self._back_off(now_ms)
            return
        self._session.answered(response.session_id)
        known = self._session.known
        for answer in response.partitions:
            asked = known.get(answer.topic_partition)
            follower = self.followers.get(answer.topic_partition)
            if asked is not None and follower is not None:
                follower.fetched(asked, answer, now_ms)

    def failed(self, now_ms: int) -> None:
        """The fetch in flight got no answer."""
        self._end_request()
        self._session.reset()
        self._back_off(now_ms)

    def ask_offset(self, follower: Follower, spec: OffsetSpec, now_ms: int) -> None:
        """Ask where the leader's log ends or starts."""
        context = self._context
        request_id = next(context.request_ids)
        timer = context.deadlines.schedule(
            now_ms + context.options.request_timeout_ms,
            lambda now_ms: self.offset_failed(request_id, now_ms),
        )
        self.offset_requests[request_id] = (follower, spec, timer)
        request = ListOffsetsRequest(
            topic_partition=follower.topic_partition,
            topic_id=follower.registration.topic_id,
            timestamp=spec,
            replica_id=context.cluster.broker_id,
            current_leader_epoch=follower.leader_epoch,
        )
        context.emit(SendRequest(request_id, self.leader_id, request))

    def offset_answered(self, request_id: int, response: object, now_ms: int) -> None:
        """The answer to ask_offset."""
        follower, spec, timer = self.offset_requests.pop(request_id)
        self._context.deadlines.cancel(timer)
        if (
            isinstance(response, ListOffsetsResponse)
            and response.topic_partition == follower.topic_partition
        ):
            follower.offsets_answered(spec, response, now_ms)
        else:
            follower.back_off(now_ms)

    def offset_failed(self, request_id: int, now_ms: int) -> None:
        """ask_offset got no answer."""
        follower, _, timer = self.offset_requests.pop(request_id)
        self._context.deadlines.cancel(timer)
        follower.back_off(now_ms)

    def _give_up(self, now_ms: int) -> None:
        self.failed(now_ms)

    def _end_request(self) -> None:
        self.request_id = None
        self._patience.end()

    def _back_off(self, now_ms: int) -> None:
        for follower in list(self.followers.values()):
            if follower.is_ready:
                follower.back_off(now_ms)
