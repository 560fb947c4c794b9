"""The serving side of fetches, for followers and consumers alike.

Each partition is checked in a fixed order; a follower's claim that holds is its acknowledgement.
The answer goes out at once if there is anything to say, else when something moves, else when the
request's time is up; what is said is read then, and not when the request came.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

from replog.divergence import check_claim
from replog.errors import ReplogError
from replog.messages import (
    CONSUMER,
    ErrorCode,
    FetchedPartition,
    FetchResponse,
    LogRead,
)
from replog.replication.deadlines import Patience
from replog.replication.effects import GiveUpLog, Respond
from replog.replication.fetch_session import FINAL_EPOCH, FULL_EPOCH, SessionCache
from replog.replication.fetch_waits import FetchWait
from replog.replication.incidents import Fenced
from replog.replication.partition_table import check_epoch, is_same_topic
from replog.replication.read_replica import preferred_read_replica
from replog.types import NO_LEADER_EPOCH, Isolation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replog.messages import FetchPartition, FetchRequest
    from replog.replication.fetch_session import ServedSession
    from replog.replication.host_context import HostContext
    from replog.replication.partition_table import PartitionTable
    from replog.replication.replica import Replica
    from replog.types import TopicPartition

    _Looks: TypeAlias = list[tuple[FetchPartition, Replica | None, FetchedPartition | None]]

FETCH_BYTES_MAX = 57671680
"""Of one answer, however much the request allows (Kafka's fetch.max.bytes)."""
UNHEARD_WAIT_MS_MAX = 20
"""While a follower has yet to ask for partitions that we lead anew: it may do so only with its next
fetch, and until then their high watermarks stand still."""

_FENCED = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}


class FetchServer:
    """Answers the fetches of one broker's peers and clients."""

    def __init__(self, context: HostContext, table: PartitionTable) -> None:
        self._context = context
        self._table = table
        self._sessions = SessionCache()
        self._waits: dict[int, FetchWait] = {}

    def receive(self, request_id: int, request: FetchRequest, now_ms: int) -> None:
        """Answer a fetch, or let it wait."""
        session = None
        if request.session_epoch == FULL_EPOCH:
            session = self._sessions.open(request, self._context.cluster.broker_epoch)
        elif request.session_epoch == FINAL_EPOCH:
            self._sessions.drop(request)
        else:
            resumed = self._sessions.resume(request)
            if isinstance(resumed, ErrorCode):
                self._context.emit(Respond(request_id, FetchResponse(error=resumed)))
                return
            session = resumed
            if session.waiting is not None:
                # Its asker has given it up, or it would not ask again in the same session.
                self._complete(session.waiting, now_ms)
            if request.forgotten:
                self._unwatch(session, request.forgotten)
            session.update(request)
        wait = FetchWait(request_id, request, session)
        if session is not None:
            self._watch(session, request.partitions)
            session.last_fetch_ms = now_ms
        looks, is_ready = self._look(wait, now_ms, counts=True)
        if is_ready or request.wait_ms_max <= 0:
            self._answer(wait, looks)
            return
        wait_ms = request.wait_ms_max
        if request.replica_id in self._context.unheard:
            wait_ms = min(wait_ms, UNHEARD_WAIT_MS_MAX)
        self._waits[request_id] = wait
        if session is not None:
            session.waiting = wait
            if session.patience is None:
                expire = functools.partial(self._expire, session)
                session.patience = Patience(self._context.deadlines, expire)
            session.patience.last_until(now_ms + wait_ms)
            return
        wait.timer = self._context.deadlines.schedule(
            now_ms + wait_ms, functools.partial(self._complete, wait)
        )
        for asked in request.partitions:
            replica = self._table.replicas.get(asked.topic_partition)
            if replica is not None:
                replica.fetch_waits[request_id] = wait

    def wake(self, moved: dict[TopicPartition, bool], now_ms: int) -> None:
        """Something moved at each of these: answer the fetches that need not wait any more.

        With each partition: whether its log's end or its role did; else followers need not be told,
        unless they serve consumers, who wait for their high watermarks (KIP-392). One answer tells
        all that has moved; `moved` is empty afterwards.
        """
        waits: dict[int, FetchWait] = {}
        outdated: dict[int, FetchWait] = {}
        followers_serve = self._context.options.rack_aware_reads
        replicas = self._table.replicas
        for topic_partition, concerns_followers in moved.items():
            replica = replicas.get(topic_partition)
            if replica is None:
                continue
            if replica.sessions:
                for session in list(replica.sessions.values()):
                    if topic_partition not in session.stirring or session.is_over:
                        self._stir(session, replica)
                    wait = session.waiting
                    if wait is None:
                        continue
                    if concerns_followers or session.replica_id < 0:
                        waits[wait.request_id] = wait
                    elif followers_serve:
                        outdated[wait.request_id] = wait
            if replica.fetch_waits:
                waits.update(replica.fetch_waits)
        moved.clear()
        for wait in waits.values():
            self._maybe_complete(wait, now_ms)
            if wait.request.isolation is Isolation.TXN_COMMITTED:
                # The log tells its last stable offset only after its high watermark was set.
                again = functools.partial(self._maybe_complete, wait)
                self._context.deadlines.schedule(now_ms, again)
        for wait in outdated.values():
            if wait.request_id in self._waits:
                self._complete(wait, now_ms)

    def release(self, replica: Replica, now_ms: int) -> None:
        """The replica is gone from here: the fetches that wait at it hear so."""
        for session in list(replica.sessions.values()):
            session.stir(replica.registration.topic_partition)
            if session.waiting is not None:
                self._complete(session.waiting, now_ms)
        for wait in list(replica.fetch_waits.values()):
            self._complete(wait, now_ms)

    def nudge_unheard(self, now_ms: int) -> None:
        """Answer the waiting fetches of followers that we have yet to hear of (see above)."""
        for replica_id in self._context.unheard:
            session = self._sessions.of_replica(replica_id)
            if session is not None and session.waiting is not None:
                self._complete(session.waiting, now_ms)

    def gone(self, request_id: int) -> None:
        """Nobody waits for this answer any more."""
        wait = self._waits.get(request_id)
        if wait is not None:
            self._forget(wait)

    def _look(self, wait: FetchWait, now_ms: int, *, counts: bool = False) -> tuple[_Looks, bool]:
        """Check each partition; returns what was found, and whether that need not wait.

        counts: this is the first look, in which claims that hold are acknowledgements.
        """
        request, session = wait.request, wait.session
        counts = counts and request.replica_id != CONSUMER
        replicas = self._table.replicas
        is_ready = not (request.partitions if session is None else session.partitions)
        available = 0
        looks: _Looks = []
        for asked in wait.partitions():
            replica = replicas.get(asked.topic_partition)
            refusal = self._refusal(asked, request, replica)
            if refusal is None and counts:
                refusal = self._count_claim(asked, request, now_ms)
            if refusal is not None:
                is_ready = True
                if counts and refusal.error in _FENCED:
                    self._report_fenced(asked, request, refusal.error)
            elif available < request.min_bytes:
                assert replica is not None
                end_offset = _read_end(replica, request)
                if end_offset > asked.fetch_offset:
                    try:
                        available += _readable_bytes(asked, request, replica, end_offset)
                    except ReplogError as error:
                        name = asked.topic_partition
                        if not error.retriable:
                            self._context.emit(GiveUpLog(name, error))
                        storage = ErrorCode.KAFKA_STORAGE_ERROR
                        refusal = FetchedPartition(topic_partition=name, error=storage)
                        is_ready = True
            looks.append((asked, replica, refusal))
        return looks, is_ready or available >= request.min_bytes

    def _count_claim(
        self, asked: FetchPartition, request: FetchRequest, now_ms: int
    ) -> FetchedPartition | None:
        """A follower's claim holds: it is an acknowledgement, unless the follower is outdated."""
        leader = self._table.replicas[asked.topic_partition].leader
        assert leader is not None
        if self._context.cluster.is_replaced(request.replica_id, request.broker_epoch):
            return FetchedPartition(
                topic_partition=asked.topic_partition, error=ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        # What no epoch vouches for proves nothing, unless it is no record at all.
        if asked.current_leader_epoch == leader.leader_epoch and (
            asked.last_fetched_epoch != NO_LEADER_EPOCH
            or asked.fetch_offset == asked.log_start_offset
        ):
            progress = leader.followers[request.replica_id]
            leader.record_fetch(progress, asked, request.broker_epoch, now_ms)
        return None

    def _refusal(
        self, asked: FetchPartition, request: FetchRequest, replica: Replica | None
    ) -> FetchedPartition | None:
        """Why there is nothing to read, in the order of Kafka's checks; None: there may be."""
        if replica is None or replica.log is None:
            return _refused(asked, self._table.refusal(asked.topic_partition, asked.topic_id))
        registration = replica.registration
        if not is_same_topic(asked.topic_id, registration.topic_id):
            return _refused(asked, ErrorCode.INCONSISTENT_TOPIC_ID)
        leader, log = replica.leader, replica.log
        if leader is not None and self._table.is_suspended:
            return _refused(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if request.replica_id == CONSUMER:
            if leader is not None and self._context.options.rack_aware_reads:
                preferred = preferred_read_replica(
                    leader, self._context.cluster, request.rack, asked.fetch_offset
                )
                if preferred is not None:
                    return FetchedPartition(
                        topic_partition=asked.topic_partition,
                        high_watermark=leader.high_watermark,
                        last_stable_offset=log.last_stable_offset,
                        log_start_offset=log.log_start_offset,
                        preferred_read_replica=preferred,
                    )
        elif request.replica_id < 0:
            return _refused(asked, ErrorCode.INVALID_REQUEST)
        if asked.current_leader_epoch != registration.leader_epoch:
            error = check_epoch(registration.leader_epoch, asked.current_leader_epoch)
            if error is not ErrorCode.NONE:
                return _refused(asked, error)
        if request.replica_id != CONSUMER:
            if leader is None:
                return _refused(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if request.replica_id not in leader.followers:
                if asked.current_leader_epoch >= 0:
                    return _refused(asked, ErrorCode.UNKNOWN_LEADER_EPOCH)
                return _refused(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if asked.log_start_offset > asked.fetch_offset:
                return _refused(asked, ErrorCode.INVALID_REQUEST)
        if asked.last_fetched_epoch < NO_LEADER_EPOCH:
            return _refused(asked, ErrorCode.INVALID_REQUEST)
        fault = None
        if not (
            asked.last_fetched_epoch in (NO_LEADER_EPOCH, log.latest_epoch)
            and log.log_start_offset <= asked.fetch_offset <= log.log_end_offset
        ):
            # Else it holds: our latest epoch reaches to the end of our log.
            fault = check_claim(log, asked.fetch_offset, asked.last_fetched_epoch)
        if fault is None:
            if (
                request.replica_id == CONSUMER
                and leader is not None
                and leader.is_high_watermark_behind
                and asked.fetch_offset >= leader.high_watermark
            ):
                return _refused(asked, ErrorCode.OFFSET_NOT_AVAILABLE)
            return None
        if isinstance(fault, ErrorCode):
            return _refused(asked, fault)
        return FetchedPartition(
            topic_partition=asked.topic_partition,
            high_watermark=replica.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=fault,
        )

    def _maybe_complete(self, wait: FetchWait, now_ms: int) -> None:
        if wait.request_id in self._waits:
            looks, is_ready = self._look(wait, now_ms)
            if is_ready:
                self._forget(wait)
                self._answer(wait, looks)

    def _complete(self, wait: FetchWait, now_ms: int) -> None:
        self._forget(wait)
        self._answer(wait, self._look(wait, now_ms)[0])

    def _expire(self, session: ServedSession, now_ms: int) -> None:
        if session.waiting is not None:
            self._complete(session.waiting, now_ms)

    def _forget(self, wait: FetchWait) -> None:
        del self._waits[wait.request_id]
        if wait.session is not None:
            wait.session.waiting = None
            return
        self._context.deadlines.cancel(wait.timer)
        replicas = self._table.replicas
        for asked in wait.partitions():
            replica = replicas.get(asked.topic_partition)
            if replica is not None:
                replica.fetch_waits.pop(wait.request_id, None)

    def _answer(self, wait: FetchWait, looks: _Looks) -> None:
        """Say what there is now, in a session only what is new."""
        request, session = wait.request, wait.session
        partitions: list[FetchedPartition] = []
        for asked, replica, refusal in looks:
            if refusal is not None:
                fetched = refusal
            else:
                assert replica is not None
                fetched = _read(asked, request, replica)
            if session is None:
                partitions.append(fetched)
                continue
            if session.is_news(fetched):
                partitions.append(fetched)
            if fetched.records is not None:
                session.move_to_end(asked.topic_partition)
            elif refusal is None and _may_rest(request, replica):
                session.rest(asked.topic_partition)
        session_id = session.session_id if session is not None else 0
        self._context.emit(
            Respond(
                wait.request_id,
                FetchResponse(tuple(partitions), ErrorCode.NONE, session_id),
                max(min(request.max_bytes, FETCH_BYTES_MAX), 0),
            )
        )

    def _watch(self, session: ServedSession, partitions: Iterable[FetchPartition]) -> None:
        """Stir the session when one of these moves."""
        for asked in partitions:
            replica = self._table.replicas.get(asked.topic_partition)
            if replica is not None:
                replica.sessions[session.session_id] = session

    def _unwatch(self, session: ServedSession, forgotten: Iterable[TopicPartition]) -> None:
        for topic_partition in forgotten:
            replica = self._table.replicas.get(topic_partition)
            if replica is not None:
                replica.sessions.pop(session.session_id, None)

    def _stir(self, session: ServedSession, replica: Replica) -> None:
        """Something moved here: the session looks at it again, if it is still there."""
        if session.is_over and session.waiting is None:
            del replica.sessions[session.session_id]
            return
        rested = session.stir(replica.registration.topic_partition)
        if rested is None or replica.leader is None:
            return
        # Its latest request did not name this partition, and so said again what it had said before.
        progress = replica.leader.followers.get(session.replica_id)
        if progress is not None and (
            progress.log_end_offset == rested.asked.fetch_offset
            and progress.broker_epoch == session.broker_epoch
            and rested.asked.current_leader_epoch == replica.leader.leader_epoch
        ):
            progress.still_level(session.last_fetch_ms)

    def _report_fenced(
        self, asked: FetchPartition, request: FetchRequest, error: ErrorCode
    ) -> None:
        self._context.report(
            Fenced(
                topic_partition=asked.topic_partition,
                error=error,
                leader_epoch=self._table.replicas[asked.topic_partition].registration.leader_epoch,
                found_epoch=asked.current_leader_epoch,
                peer_id=request.replica_id if request.replica_id >= 0 else None,
            )
        )


def _refused(asked: FetchPartition, error: ErrorCode) -> FetchedPartition:
    return FetchedPartition(topic_partition=asked.topic_partition, error=error)


def _may_rest(request: FetchRequest, replica: Replica | None) -> bool:
    """Whether nothing is left to say; a follower that is not yet in sync must go on proving."""
    if request.replica_id == CONSUMER:
        return request.isolation is not Isolation.TXN_COMMITTED
    leader = replica.leader if replica is not None else None
    return leader is not None and request.replica_id in leader.isr.maximal


def _readable_bytes(
    asked: FetchPartition, request: FetchRequest, replica: Replica, end_offset: int
) -> int:
    if request.min_bytes <= 1:
        return 1
    assert replica.log is not None
    return replica.log.readable_bytes(
        asked.fetch_offset, end_offset, max(min(asked.max_bytes, request.min_bytes), 0)
    )


def _read(asked: FetchPartition, request: FetchRequest, replica: Replica) -> FetchedPartition:
    log = replica.log
    assert log is not None
    end_offset = _read_end(replica, request)
    records = None
    if end_offset > asked.fetch_offset:
        records = LogRead(
            asked.fetch_offset,
            end_offset,
            max(asked.max_bytes, 0),
            request.isolation is Isolation.TXN_COMMITTED and request.replica_id == CONSUMER,
        )
    return FetchedPartition(
        topic_partition=asked.topic_partition,
        high_watermark=replica.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        records=records,
    )


def _read_end(replica: Replica, request: FetchRequest) -> int:
    """Exclusive: followers read all there is, consumers what is committed."""
    log = replica.log
    assert log is not None
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    if request.isolation is Isolation.TXN_COMMITTED:
        return min(log.last_stable_offset, replica.high_watermark)
    return replica.high_watermark
