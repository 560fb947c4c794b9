"""What an operator asks about afterwards: each with its cause and the figures that led to it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

from replog.types import frozen

if TYPE_CHECKING:
    from replog.messages import ErrorCode
    from replog.replication.effects import TruncationCause
    from replog.types import LostRecords, TopicPartition


class IsrCause(enum.Enum):
    """Why an in-sync set changes."""

    LAGGING = "it has not caught up within replica_lag_time_max_ms"
    CAUGHT_UP = "it has reached the high watermark and the start of the leader epoch"
    CONTROLLER = "the controller decided it"


class IsrStage(enum.Enum):
    """How far a change has come."""

    PROPOSED = "proposed"
    COMMITTED = "committed"
    REFUSED = "refused"


@frozen
class ReplicaLag:
    """How far behind the leader a replica is, as the leader sees it."""

    replica_id: int
    log_end_offset: int | None
    """None: it has not fetched in this leadership."""
    lag_offsets: int | None
    caught_up_ms_ago: int | None
    """Time since it was last level with the leader."""
    fetched_ms_ago: int | None
    in_isr: bool


@frozen
class IsrChanged:
    """The in-sync set grew or shrank, or a wish for it was refused."""

    topic_partition: TopicPartition
    leader_epoch: int
    stage: IsrStage
    cause: IsrCause
    before: tuple[int, ...]
    after: tuple[int, ...]
    replicas: tuple[ReplicaLag, ...]
    """Those that joined or left."""
    high_watermark: int
    log_end_offset: int
    error: ErrorCode | None = None


@frozen
class LogTruncated:
    """A follower gave up offsets [new_end_offset, old_end_offset)."""

    topic_partition: TopicPartition
    leader_epoch: int
    leader_id: int
    cause: TruncationCause
    old_end_offset: int
    new_end_offset: int
    high_watermark: int


@frozen
class RecordsLost:
    """A follower has records that a leader from an unclean election does not have; it cuts them as
    soon as the controller has heard what will be lost.
    """

    topic_partition: TopicPartition
    lost: LostRecords


@frozen
class Fenced:
    """A request or an order was refused for its epoch, here or by a peer (`by_peer`)."""

    topic_partition: TopicPartition
    error: ErrorCode
    leader_epoch: int
    found_epoch: int
    peer_id: int | None
    by_peer: bool = False


@frozen
class ProduceRefused:
    """A produce was refused, timed out, or lost its leader while it waited."""

    topic_partition: TopicPartition
    error: ErrorCode
    leader_epoch: int
    isr: tuple[int, ...]
    min_insync_replicas: int
    required_offset: int | None = None
    high_watermark: int | None = None
    held_back_by: tuple[ReplicaLag, ...] = ()


@frozen
class AppendRefused:
    """A follower's log does not take what the leader sent from this offset on, and the follower
    asks for it again and again; told once for each `message`, which names the cause.
    """

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    log_end_offset: int
    message: str


@frozen
class ReplicaFailed:
    """A replica stopped following, or its log cannot be used; `message` names offsets or files."""

    topic_partition: TopicPartition
    leader_epoch: int
    message: str


@frozen
class LeadershipChanged:
    """This broker's role for a partition changed."""

    topic_partition: TopicPartition
    leader_id: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    high_watermark: int
    log_end_offset: int
    unclean: bool = False


@frozen
class LeadingStopped:
    """This broker refuses what is asked of it as the leader of these partitions: another may lead
    them by now. `message` says why.
    """

    broker_epoch: int
    led: tuple[TopicPartition, ...]
    message: str


@frozen
class LeadingResumed:
    """It is what the metadata says again."""

    broker_epoch: int


Incident: TypeAlias = (
    IsrChanged
    | LogTruncated
    | Fenced
    | ProduceRefused
    | AppendRefused
    | ReplicaFailed
    | LeadershipChanged
    | RecordsLost
    | LeadingStopped
    | LeadingResumed
)


@frozen
class Uncommitted:
    """Why `offset` is not committed: the replicas that hold it back, and the floor not met."""

    topic_partition: TopicPartition
    offset: int
    high_watermark: int
    log_end_offset: int
    isr: tuple[int, ...]
    min_insync_replicas: int
    held_back_by: tuple[ReplicaLag, ...]

    @property
    def under_min_isr(self) -> bool:
        """Whether the high watermark stands still for want of in-sync replicas."""
        return len(self.isr) < self.min_insync_replicas
