"""What a member of the quorum did, for operators: each with its cause."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

from replog.types import frozen

if TYPE_CHECKING:
    from replog.errors import ReplogError
    from replog.messages import ErrorCode
    from replog.types import SnapshotId


class CampaignCause(enum.Enum):
    """Why a voter asked for votes."""

    ONLY_VOTER = "it is the only voter"
    NO_LEADER_FOUND = "no leader made itself known in time"
    LEADER_SILENT = "the leader answered no fetch in time"
    LEADER_GONE = "the leader resigned, or its connections were reset"
    VOTE_LOST = "the last election had no winner"


class ResignCause(enum.Enum):
    """Why a leader gave up."""

    ASKED = "it was asked to"
    RESTARTED = "it comes back from a crash, which may have taken records of its epoch"
    QUORUM_SILENT = "no majority of the voters fetched in time"
    APPEND_FAILED = "it could not append to its log"


@frozen
class CampaignBegun:
    """A voter asks whether it would be elected, after `leader_epoch`."""

    leader_epoch: int
    cause: CampaignCause


@frozen
class PromiseRefused:
    """There is no room to write down what a member would promise: it neither votes nor leads, nor
    follows anybody, beyond `leader_epoch`, which is on its disk. It tries again by itself.
    """

    leader_epoch: int
    error: ReplogError


@frozen
class PromisesForgotten:
    """A voter does not know what it has promised, and abstains; `message` says until when."""

    message: str


@frozen
class VotesAgain:
    """A voter that had forgotten its promises can break none of them any more."""

    leader_epoch: int


@frozen
class OlderMetadataRefused:
    """A leader lacks what is known to be committed: nothing is taken from it, nothing cut."""

    leader_id: int
    leader_epoch: int
    message: str


@frozen
class LeaderResigned:
    """A leader takes no more records; who is to follow is asked to campaign."""

    leader_epoch: int
    cause: ResignCause
    error: ReplogError | None = None


@frozen
class MetadataLogTruncated:
    """A follower cut records that were never committed and that its leader does not have."""

    leader_id: int
    leader_epoch: int
    from_offset: int
    to_offset: int


@frozen
class FetchFailed:
    """A follower or observer could not go on; it tries again."""

    member_id: int
    error: ErrorCode | ReplogError


@frozen
class SnapshotFetched:
    """A member that was too far behind has loaded a snapshot instead of records."""

    leader_id: int
    snapshot_id: SnapshotId


QuorumIncident: TypeAlias = (
    CampaignBegun
    | PromiseRefused
    | PromisesForgotten
    | VotesAgain
    | OlderMetadataRefused
    | LeaderResigned
    | MetadataLogTruncated
    | FetchFailed
    | SnapshotFetched
)
