"""What can happen to the controller, and to a broker's session with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from replog.types import frozen, frozen_positional

if TYPE_CHECKING:
    from replog.messages import ControllerResponse, DamagedLog, LeaderlessLog
    from replog.registrations import MetadataDelta
    from replog.types import LostRecords, TopicPartition


@frozen
class RequestReceived:
    """A broker or a client asks; `request_id` is the caller's, unique among those unanswered."""

    request_id: int
    sender: int | None
    """The broker at the other end of the connection; None for a client."""
    request: Any
    """A ControllerRequest or an AdminRequest."""


@frozen
class ConnectionLost:
    """All connections of a broker were reset, as those of a dead process are.

    Its requests still unanswered need no answer any more.
    """

    broker_id: int


@frozen
class LeadershipGained:
    """This controller's member leads the quorum. All below `end_offset` is committed and has been
    applied here; the next record stands there.
    """

    controller_epoch: int
    end_offset: int


@frozen_positional
class LeadershipLost:
    """It does so no more, or could not append what the controller decided."""


@frozen_positional
class RecordsAppended:
    """AppendRecords is in the leader's log; `last_offset` is that of its last record."""

    last_offset: int


@frozen_positional
class Committed:
    """Offsets below `high_watermark` are committed."""

    high_watermark: int


@frozen_positional
class Tick:
    """Time has passed: whatever was due by now is done. See `next_deadline_ms`."""


@frozen
class ResponseReceived:
    """The answer to the session's SendToController of this id."""

    request_id: int
    response: ControllerResponse


@frozen
class RequestFailed:
    """The session's request got no answer: its connection broke, or could not be made."""

    request_id: int


@frozen_positional
class ShutdownWanted:
    """The broker wants to stop, and asks that its leaderships be moved away first."""


@frozen_positional
class ReplicaDamaged:
    """A log of this broker was found corrupt while it runs; the controller must hear of it."""

    log: DamagedLog


@frozen_positional
class RecordsToCut:
    """A log of this broker will be cut because of an unclean election, once the controller has
    heard what of it (`CutLosses`).
    """

    lost: LostRecords


@frozen
class LeadersChanged:
    """This broker has obeyed a delta of the metadata: who leads its partitions now."""

    leaderless: tuple[LeaderlessLog, ...] = ()
    """Nobody; these logs stand still."""
    unopened: tuple[TopicPartition, ...] = ()
    """Nobody, and their logs here are not open."""
    led: tuple[TopicPartition, ...] = ()
    """Somebody, or the partition is gone."""
    damaged: tuple[DamagedLog, ...] = ()
    """Of any of these: logs that are corrupt, as they were before the delta."""


@frozen_positional
class MetadataFollowed:
    """The broker's own copy of the metadata log has gone on by this delta."""

    delta: MetadataDelta


@frozen_positional
class ControllerFound:
    """Another controller leads, or the one that was not to be reached is there again."""


ControllerEvent: TypeAlias = (
    RequestReceived
    | ConnectionLost
    | LeadershipGained
    | LeadershipLost
    | RecordsAppended
    | Committed
    | Tick
)
SessionEvent: TypeAlias = (
    ResponseReceived
    | RequestFailed
    | ShutdownWanted
    | ReplicaDamaged
    | RecordsToCut
    | LeadersChanged
    | MetadataFollowed
    | ControllerFound
    | Tick
)
