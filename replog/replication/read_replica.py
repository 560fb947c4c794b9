"""Which replica a consumer is sent to: one in its own rack that has what it asks for (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replog.replication.cluster_view import ClusterView
    from replog.replication.leader import Leader


def preferred_read_replica(
    leader: Leader, cluster: ClusterView, rack: str | None, fetch_offset: int
) -> int | None:
    """None: the leader itself serves.

    Of the in-sync followers in the consumer's rack that hold `fetch_offset`: the furthest, then the
    one most lately level with us, then the highest id.
    """
    if rack is None or cluster.rack_of(cluster.broker_id) == rack:
        return None
    candidates = [
        (follower.log_end_offset, follower.last_caught_up_ms, follower.replica_id)
        for follower in leader.followers.values()
        if follower.replica_id in leader.isr.isr
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        and cluster.rack_of(follower.replica_id) == rack
        and cluster.is_alive(follower.replica_id)
    ]
    return max(candidates)[2] if candidates else None
