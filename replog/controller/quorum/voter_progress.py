"""What a leader knows of another voter, all of it from that voter's own fetches."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True, kw_only=True)
class VoterProgress:
    """`end_offset` is what the voter vouched for last; it may step back if the voter lost it."""

    end_offset: int = -1
    """Offsets below it are synced there; -1 until its first fetch in this epoch."""
    contact_ms: int
    """When it last fetched in this epoch; the epoch's begin until then."""
    directory_id: bytes | None = None
    """The only one in whose name it vouches, once it has lost another in this epoch."""
    told_ms: int | None = None
    """When it was last told that the epoch has begun."""
