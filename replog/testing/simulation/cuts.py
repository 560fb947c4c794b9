"""Which links a fault cuts: pairs of source and target, one after the other in one tuple."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replog.testing.simulation.prng import Stream


def between(ones: Iterable[int], others: Iterable[int]) -> tuple[int, ...]:
    """Both ways between two groups."""
    return tuple(end for one in ones for other in others for end in (one, other, other, one))


def links_cut(
    kind: str, broker_id: int, addresses: Sequence[int], voters: Sequence[int], stream: Stream
) -> tuple[int, ...] | None:
    """Those that a fault of this kind cuts, where it is one broker's; None: it cuts none."""
    match kind:
        case "cut off":
            return between((broker_id,), [other for other in addresses if other != broker_id])
        case "orphan leader":
            # The controllers lose it, its followers do not.
            return between((broker_id,), voters)
        case "heartbeats lost":
            return tuple(end for voter in voters for end in (broker_id, voter))
        case "deaf broker" | "deaf leader":
            # Its heartbeats arrive, and it hears of nothing: it goes on as it did, until its time
            # as a leader is up, while the others obey what was decided since.
            return tuple(end for voter in voters for end in (voter, broker_id))
        case "split":
            one = [address for address in addresses if stream.chance(0.5)]
            return between(one, [address for address in addresses if address not in one])
        case "one way":
            return tuple(stream.sample(addresses, 2))
    return None
