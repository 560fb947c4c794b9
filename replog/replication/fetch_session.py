"""Incremental fetches: both sides of a session remember what was asked and told (KIP-227).

The asker lists only partitions whose part has changed since its last request, the other side only
those with something to say. Each request raises the session's epoch by one, so that a lost or
repeated one is noticed and the session begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.messages import NO_SESSION, ErrorCode
from replog.replication.partition_table import is_same_topic
from replog.replication.replica_progress import NEVER_MS
from replog.types import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replog.messages import FetchedPartition, FetchPartition, FetchRequest
    from replog.replication.deadlines import Patience
    from replog.replication.fetch_waits import FetchWait
    from replog.types import TopicPartition

FULL_EPOCH = 0
"""Session epoch of a request that asks for a new session."""
FINAL_EPOCH = -1
"""Session epoch of a request outside any session; it ends the one it names."""
SESSIONS_MAX = 1000
_EPOCH_MAX = 2**31 - 1
_COUNTER_BITS = 20
_INCARNATION_BITS = 10


class SessionPartition:
    """One partition of a session, on the serving side: what is asked of it, and what was told."""

    __slots__ = ("asked", "high_watermark_told", "log_start_offset_told")

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.high_watermark_told = UNKNOWN_OFFSET
        self.log_start_offset_told = UNKNOWN_OFFSET


class ServedSession:
    """What one asker has asked for and been told.

    A partition rests while there is nothing to say of it: then neither a request nor an answer
    looks at it, however many there are. It stirs when it is asked for otherwise, or moves.
    """

    __slots__ = (
        "broker_epoch",
        "is_over",
        "last_fetch_ms",
        "next_epoch",
        "partitions",
        "patience",
        "replica_id",
        "session_id",
        "stirring",
        "waiting",
    )

    def __init__(self, session_id: int, request: FetchRequest) -> None:
        self.session_id = session_id
        self.replica_id = request.replica_id
        self.broker_epoch = request.broker_epoch
        self.next_epoch = 1
        self.is_over = False
        """Ended by its asker, or put out of the cache."""
        self.last_fetch_ms = NEVER_MS
        """When its latest request came: all that rested then were level then."""
        self.waiting: FetchWait | None = None
        """Its fetch that is not yet answered."""
        self.patience: Patience | None = None
        """With that fetch; of whoever serves the session."""
        self.partitions: dict[TopicPartition, SessionPartition] = {
            asked.topic_partition: SessionPartition(asked) for asked in request.partitions
        }
        self.stirring: dict[TopicPartition, SessionPartition] = dict(self.partitions)
        """Those that do not rest, in the order in which they are served."""

    def update(self, request: FetchRequest) -> None:
        """Take in what an incremental request changes."""
        self.next_epoch = 1 if self.next_epoch == _EPOCH_MAX else self.next_epoch + 1
        for topic_partition in request.forgotten:
            self.partitions.pop(topic_partition, None)
            self.stirring.pop(topic_partition, None)
        for asked in request.partitions:
            known = self.partitions.get(asked.topic_partition)
            if known is None or not is_same_topic(asked.topic_id, known.asked.topic_id):
                known = self.partitions[asked.topic_partition] = SessionPartition(asked)
            else:
                if asked.current_leader_epoch != known.asked.current_leader_epoch:
                    # What was told in the other epoch may have come too late to be taken.
                    known.high_watermark_told = UNKNOWN_OFFSET
                known.asked = asked
            self.stirring[asked.topic_partition] = known

    def stir(self, topic_partition: TopicPartition) -> SessionPartition | None:
        """Something has moved there; returns it if it rested."""
        known = self.partitions.get(topic_partition)
        if known is None or topic_partition in self.stirring:
            return None
        self.stirring[topic_partition] = known
        return known

    def rest(self, topic_partition: TopicPartition) -> None:
        """Nothing is left to say of it until it stirs."""
        self.stirring.pop(topic_partition, None)

    def is_news(self, fetched: FetchedPartition) -> bool:
        """Whether to say it; remembers it as said.

        An error is never remembered, nor a divergence, whose watermarks the asker does not take:
        the partition is told anew when it is over.
        """
        known = self.stirring[fetched.topic_partition]
        if fetched.error is not ErrorCode.NONE or fetched.diverging_epoch is not None:
            known.high_watermark_told = UNKNOWN_OFFSET
            return True
        news = (
            fetched.records is not None
            or fetched.preferred_read_replica is not None
            or fetched.high_watermark != known.high_watermark_told
            or fetched.log_start_offset != known.log_start_offset_told
        )
        known.high_watermark_told = fetched.high_watermark
        known.log_start_offset_told = fetched.log_start_offset
        return news

    def move_to_end(self, topic_partition: TopicPartition) -> None:
        """It had its turn: in the next answer others come first."""
        known = self.stirring.pop(topic_partition)
        self.stirring[topic_partition] = known


class SessionCache:
    """The sessions that a broker serves, at most `sessions_max`, the longest unused goes first."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions: dict[int, ServedSession] = {}
        """Longest unused first."""
        self._of_replicas: dict[int, ServedSession] = {}
        self._sessions_max = sessions_max
        self._created = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, broker_epoch: int) -> ServedSession:
        """A new session with all partitions of the request.

        A replica has one session at most: who asks for another has lost the one before.
        """
        self.drop(request)
        former = self._of_replicas.pop(request.replica_id, None)
        if former is not None and not former.is_over:
            self._end(former)
        while len(self._sessions) >= self._sessions_max:
            self._end(next(iter(self._sessions.values())))
        # Ids of another incarnation of this broker must not come again: what was asked under them
        # may still be on its way.
        self._created = self._created % (2**_COUNTER_BITS - 1) + 1
        incarnation = max(broker_epoch, 0) % 2**_INCARNATION_BITS
        session = ServedSession(incarnation << _COUNTER_BITS | self._created, request)
        self._sessions[session.session_id] = session
        if request.replica_id >= 0:
            self._of_replicas[request.replica_id] = session
        return session

    def resume(self, request: FetchRequest) -> ServedSession | ErrorCode:
        """The session that an incremental request names; or why it cannot go on."""
        session = self._sessions.get(request.session_id)
        if (
            session is None
            or session.replica_id != request.replica_id
            or session.broker_epoch != request.broker_epoch
        ):
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.next_epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        del self._sessions[request.session_id]
        self._sessions[request.session_id] = session
        return session

    def of_replica(self, replica_id: int) -> ServedSession | None:
        """The session of a follower, if it has one."""
        return self._of_replicas.get(replica_id)

    def drop(self, request: FetchRequest) -> None:
        """End the session that a request names, if it is the asker's own."""
        session = self._sessions.get(request.session_id)
        if session is not None and session.replica_id == request.replica_id:
            self._end(session)

    def _end(self, session: ServedSession) -> None:
        del self._sessions[session.session_id]
        session.is_over = True


class AskedSession:
    """The asking side: what the other side remembers of us."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        self.known: dict[TopicPartition, FetchPartition] = {}
        """As we last asked."""

    @property
    def is_incremental(self) -> bool:
        return self.session_id != NO_SESSION

    def begin(self, wanted: Iterable[FetchPartition]) -> tuple[FetchPartition, ...]:
        """Ask for a new session with all that is wanted; returns it."""
        self.known = {asked.topic_partition: asked for asked in wanted}
        return tuple(self.known.values())

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Leave it out from now on; returns whether it was in."""
        return self.known.pop(topic_partition, None) is not None

    def include(self, asked: FetchPartition) -> bool:
        """Ask for it like this from now on; returns whether that is a change."""
        known = self.known.get(asked.topic_partition)
        # What is most often new is looked at first.
        if known is not None and known.fetch_offset == asked.fetch_offset and known == asked:
            return False
        self.known[asked.topic_partition] = asked
        return True

    def answered(self, session_id: int) -> None:
        """The other side has answered under this session id."""
        if self.session_id == NO_SESSION:
            self.session_id = session_id
            self.epoch = 1 if session_id != NO_SESSION else FULL_EPOCH
        else:
            self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def reset(self) -> None:
        """Begin anew with the next request."""
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
