"""What a member of the quorum asks the world to do: carried out strictly in list order.

In every list PersistQuorumState stands first: no promise is answered, no record appended and
nothing asked of others in an epoch that a crash could make this member forget. Where there is no
room for the promise, nothing of its list is done, and PromiseFailed says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from replog.types import frozen_positional

if TYPE_CHECKING:
    from replog.controller.quorum.election_state import ElectionState
    from replog.controller.quorum.incidents import QuorumIncident
    from replog.controller.quorum.messages import QuorumRequest, QuorumResponse
    from replog.messages import RawBatches
    from replog.types import SnapshotId


@frozen_positional
class PersistQuorumState:
    """Replace the file `quorum-state`, durable before the next effect is begun; PromiseFailed where
    there is no room for it.
    """

    state: ElectionState


@frozen_positional
class LeaderChanged:
    """Tell the controller who leads; None: nobody that is known of.

    A leader may take commands once the high watermark is above `epoch_start_offset`: then it has
    been told of everything that was committed before its epoch.
    """

    leader_id: int | None
    leader_epoch: int
    epoch_start_offset: int | None = None
    """Set where this member leads."""


@frozen_positional
class AppendLeaderChange:
    """Append Kafka's LEADER_CHANGE control record, under this epoch; answered by RecordsAppended
    or AppendFailed.
    """

    leader_epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@frozen_positional
class AppendAsLeader:
    """Append a proposal, assigning offsets and the epoch; RecordsAppended or AppendFailed."""

    proposal_id: int
    leader_epoch: int
    batches: RawBatches


@frozen_positional
class RefuseProposal:
    """This member does not lead that epoch; nothing was or will be appended."""

    proposal_id: int
    leader_id: int | None
    leader_epoch: int


@frozen_positional
class AppendAsFollower:
    """Append batches as they are; answered by RecordsAppended or AppendFailed."""

    batches: RawBatches


@frozen_positional
class TruncateLog:
    """Keep offsets `< offset`, and cut the epoch cache there; answered by LogTruncated."""

    offset: int


@frozen_positional
class FlushLog:
    """Sync what is appended; answered by LogFlushed, not at once."""


@frozen_positional
class SetHighWatermark:
    """Offsets below it are committed: the controller may apply them."""

    high_watermark: int


@frozen_positional
class WriteSnapshotChunk:
    """Put bytes at `position` of a snapshot in the making; position 0 begins it anew."""

    snapshot_id: SnapshotId
    position: int
    chunk: Any


@frozen_positional
class InstallSnapshot:
    """Make the written snapshot durable, and restart the log empty where it ends.

    The high watermark becomes its end, and the controller loads it in place of what it has.
    Answered by SnapshotInstalled or SnapshotRefused.
    """

    snapshot_id: SnapshotId


class SendToMember(NamedTuple):
    """Ask a member; answered by QuorumResponseReceived or RequestFailed, or not at all."""

    request_id: int
    member_id: int
    request: QuorumRequest


class RespondToMember(NamedTuple):
    """Answer the QuorumRequestReceived of this id, once. Reads in it become bytes first."""

    request_id: int
    response: QuorumResponse


@frozen_positional
class ReportQuorum:
    """Tell operators what happened and why."""

    incident: QuorumIncident


QuorumEffect: TypeAlias = (
    PersistQuorumState
    | LeaderChanged
    | AppendLeaderChange
    | AppendAsLeader
    | RefuseProposal
    | AppendAsFollower
    | TruncateLog
    | FlushLog
    | SetHighWatermark
    | WriteSnapshotChunk
    | InstallSnapshot
    | SendToMember
    | RespondToMember
    | ReportQuorum
)
