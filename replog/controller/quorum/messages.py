"""What members of the quorum say to each other; shapes follow Kafka's requests of the same names.

Every response tells the leader and the epoch that its sender knows, so that whoever asks with an
older one learns of it. A log's end is compared as (last epoch, end offset), the epoch first.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from replog.messages import ErrorCode, LogRead, RawBatches
from replog.types import NO_LEADER_EPOCH, UNKNOWN_OFFSET, EpochEndOffset, SnapshotId, frozen


@frozen
class VoteRequest:
    """Elect me: for `candidate_epoch`, or, with `pre_vote`, would you if I raised it (KIP-996)?

    `log_end_offset` and `last_epoch` are those of the candidate's log.
    """

    candidate_id: int
    candidate_epoch: int
    last_epoch: int
    log_end_offset: int
    pre_vote: bool = False


@frozen
class VoteResponse:
    """`vote_granted` is a promise for `leader_epoch`, unless it was asked for a pre-vote."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: int | None = None
    leader_epoch: int = 0
    vote_granted: bool = False


@frozen
class BeginQuorumEpochRequest:
    """I lead this epoch; fetch from me."""

    leader_id: int
    leader_epoch: int


@frozen
class BeginQuorumEpochResponse:
    """Heard, or FENCED_LEADER_EPOCH."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: int | None = None
    leader_epoch: int = 0


@frozen
class EndQuorumEpochRequest:
    """I lead this epoch no more; whoever stands first among the successors should campaign now."""

    leader_id: int
    leader_epoch: int
    preferred_successors: tuple[int, ...] = ()
    """Other voters, the one whose log reached furthest first."""


@frozen
class EndQuorumEpochResponse:
    """Heard, or FENCED_LEADER_EPOCH."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: int | None = None
    leader_epoch: int = 0


class QuorumFetchRequest(NamedTuple):
    """Ask the leader for records; a voter thereby vouches for what it asks to go on from.

    Every offset `< fetch_offset` is synced in the log of `replica_id`, and the last one carries
    `last_fetched_epoch`. The answer waits up to `wait_ms_max` for records, or for a high watermark
    above `high_watermark` (KIP-1166).
    """

    replica_id: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int = NO_LEADER_EPOCH
    high_watermark: int = UNKNOWN_OFFSET
    wait_ms_max: int = 500
    max_bytes: int = 8 * 1024 * 1024
    counts: bool = True
    """False: of a voter that vouches for nothing, as an observer."""
    directory_id: bytes | None = None
    """Of the directory that the log is in."""


class QuorumFetchResponse(NamedTuple):
    """Records, or a diverging epoch, or a snapshot to fetch first, or an error; never two of them.

    `high_watermark` is unknown until the leader has committed a record of its own epoch.
    """

    error: ErrorCode = ErrorCode.NONE
    leader_id: int | None = None
    leader_epoch: int = 0
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging_epoch: EpochEndOffset | None = None
    snapshot_id: SnapshotId | None = None
    records: RawBatches | LogRead | None = None


@frozen
class FetchSnapshotRequest:
    """Ask the leader for bytes of a snapshot from `position` on."""

    replica_id: int
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int = 8 * 1024 * 1024


@frozen
class SnapshotRead:
    """Bytes of a snapshot that the shell puts in place of this value when it sends a response."""

    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@frozen
class FetchSnapshotResponse:
    """Bytes of [position, position + len(chunk)) of a snapshot of `size` bytes, or an error."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: int | None = None
    leader_epoch: int = 0
    snapshot_id: SnapshotId | None = None
    size: int = 0
    position: int = 0
    chunk: Any = b""
    """Bytes; a SnapshotRead until the shell has sent it."""


QuorumRequest: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | QuorumFetchRequest
    | FetchSnapshotRequest
)
QuorumResponse: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | QuorumFetchResponse
    | FetchSnapshotResponse
)
