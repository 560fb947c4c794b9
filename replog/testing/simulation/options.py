"""What a seed draws before a run begins; all of it is printed, and may be given by hand instead."""

from __future__ import annotations

import dataclasses

from replog.config import (
    ControllerOptions,
    FlushMode,
    LogConfig,
    QuorumOptions,
    ReplicationOptions,
)
from replog.registrations import TopicConfig
from replog.testing.simulation.network import NetworkOptions
from replog.testing.simulation.prng import Stream

FAULTS = (
    "kill",
    "kill leader",
    "kill all",
    "power",
    "power leader",
    "power all",
    "pause",
    "pause leader",
    "pause controller",
    "crash controller",
    "power controller",
    "power controllers",
    "isolate controller",
    "restart storm",
    "heartbeats lost",
    "deaf broker",
    "deaf leader",
    "shut down",
    "restart at once",
    "cut off",
    "orphan leader",
    "recreate unheard",
    "split",
    "one way",
    "clog",
    "reset",
    "hold request",
    "stall disk",
    "fill disk",
    "fail disk",
    "damage",
    "replace disk",
    "write back",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """One run. Times in ms unless the name says otherwise."""

    duration_s: int = 60
    brokers: int = 3
    replication_factor: int = 3
    min_insync_replicas: int = 2
    partitions: int = 1
    flush_mode: FlushMode = "os"
    racks: bool = False
    moves: bool = False
    """Whether replicas and leaders are moved."""
    unclean: bool = False
    """Whether the topic that comes and goes is led by any live replica, where no other may; what
    that loses is to be told."""
    shuffle: bool = True
    producers: int = 3
    consumers: int = 2
    produce_interval: int = 400
    """Mean time between two batches of one producer."""
    latency_us: int = 500
    quorum_latency_us: int = 0
    """Mean latency of what controllers send and are sent, if that is more."""
    loss: float = 0.0
    reset: float = 0.0
    give_up: int = 3000
    resets_fence: bool = True
    lag_time: int = 4000
    session_timeout: int = 3000
    heartbeat: int = 500
    fetch_wait: int = 500
    fetch_backoff: int = 200
    fetch_bytes: int = 1_048_576
    checkpoint_interval: int = 5000
    request_timeout: int = 10_000
    sync_us: int = 500
    controllers: int = 3
    election_timeout: int = 500
    quorum_fetch_timeout: int = 1000
    quorum_fetch_wait: int = 500
    snapshot_bytes: int = 20_971_520
    """Of committed metadata between two snapshots."""
    fault_interval: int = 2000
    """Mean time between two faults."""
    down_time: int = 2000
    """Mean time until a broker is started again."""
    faults: tuple[str, ...] = FAULTS

    def __str__(self) -> str:
        return " ".join(
            f"{field.name}={','.join(value) if isinstance(value, tuple) else value}"
            for field in dataclasses.fields(self)
            for value in (getattr(self, field.name),)
        ).replace(", ", ",")

    @property
    def network(self) -> NetworkOptions:
        return NetworkOptions(
            latency_mean_us=self.latency_us,
            loss=self.loss,
            reset=self.reset,
            give_up_us=self.give_up * 1000,
        )

    @property
    def replication(self) -> ReplicationOptions:
        return ReplicationOptions(
            replica_lag_time_max_ms=self.lag_time,
            replica_fetch_wait_max_ms=self.fetch_wait,
            replica_fetch_backoff_ms=self.fetch_backoff,
            replica_fetch_max_bytes=self.fetch_bytes,
            replica_fetch_response_max_bytes=4 * self.fetch_bytes,
            replica_high_watermark_checkpoint_interval_ms=self.checkpoint_interval,
            request_timeout_ms=self.request_timeout,
            rack_aware_reads=self.racks,
        )

    @property
    def controller(self) -> ControllerOptions:
        return ControllerOptions(
            broker_session_timeout_ms=self.session_timeout,
            broker_heartbeat_interval_ms=self.heartbeat,
        )

    @property
    def quorum(self) -> QuorumOptions:
        return QuorumOptions(
            election_timeout_ms=self.election_timeout,
            fetch_timeout_ms=self.quorum_fetch_timeout,
            request_timeout_ms=self.quorum_fetch_timeout,
            fetch_wait_max_ms=self.quorum_fetch_wait,
            fetch_max_bytes=max(self.fetch_bytes, 1),
            snapshot_interval_bytes=self.snapshot_bytes,
        )

    @property
    def topic(self) -> TopicConfig:
        return TopicConfig(
            min_insync_replicas=self.min_insync_replicas,
            log=LogConfig(flush_mode=self.flush_mode),
        )

    @property
    def scratch_topic(self) -> TopicConfig:
        """Of the one that comes and goes."""
        return dataclasses.replace(self.topic, unclean_leader_election_enable=self.unclean)


def draw_options(stream: Stream) -> RunOptions:
    """Draw a run; each leaves out some faults, so that the others meet (swarm testing)."""
    brokers = stream.choice((3, 3, 3, 4, 5))
    factor = stream.choice((3, 3, 3, 2, min(brokers, 5)))
    moves = stream.chance(0.6)
    if moves:
        brokers = max(brokers, min(factor + 2, 5))  # replicas that have nowhere to go do not move
    left_out = stream.sample(FAULTS, stream.below(len(FAULTS)))
    if len(left_out) > len(FAULTS) * 2 // 3:
        left_out = []
    session_timeout = stream.choice((1500, 3000, 6000))
    quorum_fetch_timeout = stream.choice((600, 1000, 2000))
    return RunOptions(
        brokers=brokers,
        replication_factor=factor,
        min_insync_replicas=stream.choice((1, 2, 2, 2, max(1, factor - 1), factor)),
        partitions=stream.choice((1, 1, 2, 4)),
        flush_mode=stream.choice(("os", "os", "commit")),
        racks=stream.chance(0.3),
        moves=moves,
        shuffle=stream.chance(0.8),
        producers=stream.between(2, 5),
        consumers=stream.between(1, 3),
        produce_interval=stream.choice((150, 400, 1000)),
        latency_us=stream.choice((100, 500, 500, 3000, 20_000)),
        loss=stream.choice((0.0, 0.0, 0.001, 0.02)),
        reset=stream.choice((0.0, 0.0, 0.0005, 0.005)),
        give_up=stream.choice((1000, 3000, 8000)),
        resets_fence=stream.chance(0.5),
        lag_time=stream.choice((1000, 3000, 6000)),
        session_timeout=session_timeout,
        heartbeat=session_timeout // stream.choice((3, 5)),
        fetch_wait=stream.choice((250, 500, 1000)),
        fetch_backoff=stream.choice((50, 200, 1000)),
        fetch_bytes=stream.choice((1, 300, 1_048_576)),
        checkpoint_interval=stream.choice((500, 5000)),
        sync_us=stream.choice((100, 500, 10_000)),
        controllers=stream.choice((1, 3)),
        election_timeout=stream.choice((200, 500, 1000)),
        quorum_fetch_timeout=quorum_fetch_timeout,
        quorum_fetch_wait=quorum_fetch_timeout // 2,
        snapshot_bytes=stream.choice((10_000, 30_000)),
        fault_interval=stream.choice((700, 1500, 3000)),
        down_time=stream.choice((100, 1000, 4000)),
        faults=tuple(name for name in FAULTS if name not in left_out),
        unclean=stream.chance(0.3),
        quorum_latency_us=stream.choice((0, 0, 30_000)),
    )
