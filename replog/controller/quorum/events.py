"""What can happen to a member of the quorum, besides its controller's `Tick` and `RequestFailed`.

Every effect that names a completion here gets it before the member is stepped with anything else;
only LogFlushed may come later, and PersistQuorumState has one only where there is no room for it.
If an effect's failure has no event, the shell stops the member: what it could not write it must not
act upon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from replog.controller.events import RequestFailed, Tick
from replog.types import frozen, frozen_positional

if TYPE_CHECKING:
    from replog.controller.quorum.effects import QuorumEffect
    from replog.controller.quorum.messages import QuorumRequest, QuorumResponse
    from replog.errors import ReplogError
    from replog.messages import RawBatches


class QuorumRequestReceived(NamedTuple):
    """Another member asks; `request_id` is the caller's, unique among those unanswered."""

    request_id: int
    request: QuorumRequest


class QuorumResponseReceived(NamedTuple):
    """The answer to our SendToMember of this id, made by this very run of the member."""

    request_id: int
    response: QuorumResponse


@frozen
class MemberConnectionLost:
    """All connections with a member were reset, as those of a dead process are."""

    member_id: int


@frozen
class RecordsProposed:
    """The controller wants records appended, as the leader of the epoch that it knows."""

    proposal_id: int
    leader_epoch: int
    batches: RawBatches


@frozen
class ResignWanted:
    """The controller cannot go on, or the process stops; older epochs are ignored."""

    leader_epoch: int


@frozen
class PromiseFailed:
    """There was no room for `quorum-state`: it is as it was, and `undone`, the effects behind it in
    the same list, were not carried out.
    """

    error: ReplogError
    undone: tuple[QuorumEffect, ...]


@frozen_positional
class RecordsAppended:
    """AppendLeaderChange, AppendAsLeader or AppendAsFollower is done; the log's end has moved."""


@frozen
class AppendFailed:
    """Nothing was appended."""

    error: ReplogError


@frozen_positional
class LogTruncated:
    """TruncateLog is done; AppendFailed where there was no room for it."""


@frozen_positional
class LogFlushed:
    """FlushLog is done: the log's synced_end_offset has moved."""


@frozen_positional
class SnapshotInstalled:
    """InstallSnapshot is done: the log is empty and starts where the snapshot ends."""


@frozen
class SnapshotRefused:
    """The fetched snapshot is damaged, or could not be written; it was thrown away."""

    error: ReplogError


QuorumEvent: TypeAlias = (
    QuorumRequestReceived
    | QuorumResponseReceived
    | RequestFailed
    | MemberConnectionLost
    | RecordsProposed
    | ResignWanted
    | PromiseFailed
    | RecordsAppended
    | AppendFailed
    | LogTruncated
    | LogFlushed
    | SnapshotInstalled
    | SnapshotRefused
    | Tick
)
