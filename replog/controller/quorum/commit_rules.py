"""What a majority vouches for: offsets that are committed, and that it still follows."""

from __future__ import annotations

from collections.abc import Collection

from replog.controller.quorum.ballot import majority_of


def committed_offset(end_offsets: Collection[int], epoch_start_offset: int) -> int | None:
    """The end of what a majority of the voters has synced; None as long as it proves nothing.

    `end_offsets` has one for each voter, the leader included. Records of earlier epochs are
    committed only together with one of the leader's own, which begins at `epoch_start_offset`: a
    majority alone does not keep them from being overwritten (Raft 5.4.2, KAFKA-12619).
    """
    offset = sorted(end_offsets, reverse=True)[majority_of(len(end_offsets)) - 1]
    return offset if offset > epoch_start_offset else None


def quorum_silent_since(contacts_ms: Collection[int]) -> int | None:
    """When a majority, the leader included, was last complete; None for an only voter.

    `contacts_ms` has one for each voter but the leader.
    """
    others = majority_of(len(contacts_ms) + 1) - 1
    return sorted(contacts_ms, reverse=True)[others - 1] if others else None
