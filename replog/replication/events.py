"""What can happen to a replica, besides the messages of `replog.messages`.

The caller carries out all effects of one step, in order, and feeds back their completions before it
steps anything else into the same replica; the core relies on it and never sees a half-done effect.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from replog.messages import Acks, Message, RawBatches

if TYPE_CHECKING:
    from replog.errors import ReplogError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipChange:
    """The controller's order: who leads, in which epoch, over which in-sync replicas.

    Invariant: leader_id is None or in isr; isr is a subset of replicas.
    """

    leader_id: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """A client's batches to append; `request_id` is the caller's, unique among those waiting."""

    request_id: int
    batches: RawBatches
    acks: Acks


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAppendCompleted:
    """AppendAsLeader is done: the batches took [base_offset, last_offset]."""

    request_id: int
    base_offset: int
    last_offset: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAppendFailed:
    """AppendAsLeader was refused; nothing was appended."""

    request_id: int
    error: ReplogError


@dataclasses.dataclass(frozen=True, slots=True)
class FollowerAppendCompleted:
    """AppendAsFollower is done; the log's end has moved."""


@dataclasses.dataclass(frozen=True, slots=True)
class FollowerAppendFailed:
    """AppendAsFollower was refused; nothing was appended."""

    error: ReplogError


@dataclasses.dataclass(frozen=True, slots=True)
class TruncationCompleted:
    """TruncateLog or TruncateFullyAndStartAt is done."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: waits and back-offs whose deadline is reached end."""


Completion: TypeAlias = (
    LeaderAppendCompleted
    | LeaderAppendFailed
    | FollowerAppendCompleted
    | FollowerAppendFailed
    | TruncationCompleted
)
Event: TypeAlias = LeadershipChange | Produce | Completion | Tick | Message
