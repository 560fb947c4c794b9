"""What a member must remember over a crash: the epoch, its leader, and the vote given in it.

The file `quorum-state` holds exactly this (replog.storage.quorum_state writes it).
"""

from __future__ import annotations

from replog.types import frozen


@frozen
class ElectionState:
    """Invariant: a member votes at most once an epoch, so `voted_id` changes with `leader_epoch`
    alone, and `leader_id` is set at most once in it.
    """

    leader_epoch: int = 0
    leader_id: int | None = None
    voted_id: int | None = None
