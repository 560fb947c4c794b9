"""Validated options of a log. Names and defaults are Kafka's, in snake_case."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import re
from collections.abc import Mapping
from typing import Literal, Self, TypeAlias, get_args, get_type_hints

from replog.errors import UsageError, shown

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
FLUSH_INTERVAL_MS = 1000

UncleanRecovery = Literal["refuse", "cut"]
FlushMode = Literal["os", "interval", "commit"]
CompressionType = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
MessageTimestampType = Literal["CreateTime", "LogAppendTime"]

CLEANUP_POLICIES = frozenset({"delete", "compact"})

# Both ends inclusive. Kafka's bounds where it has any.
_RANGES = {
    "segment_bytes": (14, INT_MAX),
    "segment_ms": (1, LONG_MAX),
    "segment_jitter_ms": (0, LONG_MAX),
    "segment_index_bytes": (4, INT_MAX),
    "index_interval_bytes": (0, INT_MAX),
    "max_message_bytes": (0, INT_MAX),
    "retention_ms": (-1, LONG_MAX),
    "retention_bytes": (-1, LONG_MAX),
    "file_delete_delay_ms": (0, LONG_MAX),
    "message_timestamp_before_max_ms": (0, LONG_MAX),
    "message_timestamp_after_max_ms": (0, LONG_MAX),
    "flush_messages": (1, LONG_MAX),
    "flush_ms": (0, LONG_MAX),
    "producer_id_expiration_ms": (1, LONG_MAX),
    "decompressed_bytes_max": (1, LONG_MAX),
}
_CHOICES = {
    "flush_mode": get_args(FlushMode),
    "compression_type": get_args(CompressionType),
    "message_timestamp_type": get_args(MessageTimestampType),
    "unclean_recovery": get_args(UncleanRecovery),
}
# Of the codec that compression_type names; for any other, of whatever codec an append names.
_LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
_ANY_LEVEL = (-131072, 22)
_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}\Z")
_KAFKA_ALIASES = {"internal.segment.bytes": "segment_bytes"}
# Kafka's options of a topic that say nothing of one replica's log, or nothing that replog does.
_KAFKA_OTHERS = frozenset(
    (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "delete.retention.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "unclean.leader.election.enable",
    )
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Options of one partition's log. Sizes in bytes, times in ms, -1 for "no limit".

    flush_mode: `os` leaves syncing to flush() and the system, as Kafka's default does; `interval`
    also syncs on the first append after flush_ms (1 s unless set); `commit` syncs before an append
    returns.

    cleanup_policy: `compact` allows the holes that Kafka's cleaner leaves, and keeps what `delete`
    would drop. replog compacts nothing itself: such a log grows.

    unclean_recovery: what opening does after an unclean stop with damage that has whole batches
    behind it, and that replog's own writes cannot have left: `refuse` leaves all as it is and says
    so, `cut` ends the log there, as Kafka does.
    """

    segment_bytes: int = 1073741824
    segment_ms: int = 604800000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10485760
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588
    retention_ms: int = 604800000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60000
    cleanup_policy: str = "delete"
    compression_type: CompressionType = "producer"
    compression_level: int | None = None
    message_timestamp_type: MessageTimestampType = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600000
    flush_mode: FlushMode = "os"
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    producer_id_expiration_ms: int = 86400000
    decompressed_bytes_max: int = 64 * 1024 * 1024
    unclean_recovery: UncleanRecovery = "refuse"

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            object.__setattr__(self, name, _integer(name, getattr(self, name), low, high))
        for name, choices in _CHOICES.items():
            found = getattr(self, name)
            if not isinstance(found, str) or found not in choices:
                raise UsageError(
                    f"expected {name} to be one of {', '.join(choices)}, found {shown(found)}",
                    argument=name,
                )
        if self.flush_mode == "interval" and self.flush_ms == LONG_MAX:
            object.__setattr__(self, "flush_ms", FLUSH_INTERVAL_MS)
        policy: object = self.cleanup_policy
        if not isinstance(policy, str) or not self.cleanup_policies <= CLEANUP_POLICIES:
            raise UsageError(
                f"expected cleanup_policy delete, compact or both with a comma between, found "
                f"{shown(policy)}",
                argument="cleanup_policy",
            )
        if self.compression_level is not None:
            low, high = _LEVELS.get(self.compression_type, _ANY_LEVEL)
            level = _integer("compression_level", self.compression_level, low, high)
            object.__setattr__(self, "compression_level", level)

    @property
    def cleanup_policies(self) -> frozenset[str]:
        """The set that the comma-separated `cleanup_policy` names."""
        return frozenset(part.strip() for part in self.cleanup_policy.split(",") if part.strip())

    @property
    def compacted(self) -> bool:
        """Whether offsets may have gaps and null keys are refused."""
        return "compact" in self.cleanup_policies

    @classmethod
    def from_kafka(cls, topic_config: Mapping[str, str]) -> Self:
        """Read Kafka's topic configuration; options that replog does not have are left out.

        Raises UsageError for what is no mapping of str to str, for a name that no option of Kafka's
        topics has, and for a value out of range.
        """
        if not isinstance(topic_config, Mapping):
            raise UsageError(
                f"expected topic_config to be a mapping of Kafka's names to text, found "
                f"{type(topic_config).__name__}",
                argument="topic_config",
            )
        hints = _hints()
        options: dict[str, object] = {}
        for key, text in topic_config.items():
            if not isinstance(key, str):
                raise UsageError(
                    f"expected the names in topic_config to be str, found {shown(key)}",
                    argument="topic_config",
                )
            name = _KAFKA_ALIASES.get(key, key.replace(".", "_"))
            if name in hints:
                options[name] = _from_text(key, text, number=hints[name] in (int, int | None))
            elif key not in _KAFKA_OTHERS:
                raise UsageError(_no_option(key), argument="topic_config")
        return cls(**options)  # type: ignore[arg-type]


@functools.cache
def _hints() -> dict[str, object]:
    return get_type_hints(LogConfig)


def _no_option(key: str) -> str:
    import difflib  # only here: for a mistake

    names = {name.replace("_", ".") for name in _hints()} | _KAFKA_OTHERS
    close = difflib.get_close_matches(key, sorted(names), 1)
    advice = f"write {close[0]}" if close else "leave it out"
    return f"expected an option of Kafka's topics, found {shown(key)}; {advice}"


def _integer(name: str, found: object, low: int, high: int) -> int:
    """`found` as an int of [low, high]; numpy's integers count, bools do not."""
    number: int | None = None
    if not isinstance(found, bool) and isinstance(found, numbers.Integral):
        number = int(found)
    if number is None or not low <= number <= high:
        raise UsageError(
            f"expected {name} to be an integer from {low} to {high}, found {shown(found)}",
            argument=name,
        )
    return number


def _from_text(key: str, text: object, *, number: bool) -> object:
    """A value of Kafka's configuration; an int is taken where a number stands."""
    if number and isinstance(text, int) and not isinstance(text, bool):
        return text
    if not isinstance(text, str):
        raise UsageError(f"expected text for {key}, found {shown(text)}", argument=key)
    if not number:
        return text.strip()
    if not _DECIMAL.match(text.strip()):
        raise UsageError(f"expected an integer for {key}, found {shown(text)}", argument=key)
    return int(text)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationOptions:
    """Options of a broker's replicas. Names and defaults are Kafka's; times in ms."""

    replica_lag_time_max_ms: int = 30000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1000
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1048576
    replica_fetch_response_max_bytes: int = 10485760
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    request_timeout_ms: int = 30000
    rack_aware_reads: bool = False
    """Let a leader send consumers to an in-sync replica in their own rack (KIP-392)."""

    def __post_init__(self) -> None:
        _check_options(self, least={"replica_fetch_backoff_ms": 0, "replica_fetch_min_bytes": 0})
        _check_order(self, "replica_fetch_wait_max_ms", "replica_lag_time_max_ms")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Options of the controller and of brokers' sessions with it; times in ms."""

    broker_session_timeout_ms: int = 9000
    broker_heartbeat_interval_ms: int = 2000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300000
    leader_imbalance_per_broker_percentage: int = 10
    leader_moves_max: int = 1000
    """The brake: how many leaderships one run of the balance moves."""
    leader_moves_pause_ms: int = 1000
    """How long a run that the brake has stopped waits before it goes on."""

    def __post_init__(self) -> None:
        _check_options(self, least={"leader_imbalance_per_broker_percentage": 0})
        _check_order(self, "broker_heartbeat_interval_ms", "broker_session_timeout_ms")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOptions:
    """Options of the controllers' quorum: Kafka's `controller.quorum.*`; times in ms."""

    election_timeout_ms: int = 1000
    """A voter that knows no leader campaigns after one to two of these."""
    fetch_timeout_ms: int = 2000
    """A follower that no fetch succeeds for campaigns; a leader resigns after one and a half."""
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_wait_max_ms: int = 500
    fetch_max_bytes: int = 8388608
    snapshot_interval_bytes: int = 20971520
    """After so many bytes of committed records a node writes a snapshot, and cuts its log below it:
    Kafka's `metadata.log.max.record.bytes.between.snapshots`."""

    def __post_init__(self) -> None:
        _check_options(self, least={"retry_backoff_ms": 0})
        # A fetch is answered behind its wait: the answer to one of the whole timeout is too late.
        _check_order(self, "fetch_wait_max_ms", "fetch_timeout_ms", margin_ms=1)


Options: TypeAlias = ReplicationOptions | ControllerOptions | QuorumOptions


def _check_options(options: Options, least: Mapping[str, int]) -> None:
    """Each by its default's type; integers of at least 1, unless `least` says otherwise.

    Raises UsageError.
    """
    for field in dataclasses.fields(options):
        found = getattr(options, field.name)
        if not isinstance(field.default, bool):
            number = _integer(field.name, found, least.get(field.name, 1), LONG_MAX)
            object.__setattr__(options, field.name, number)
        elif not isinstance(found, bool):
            raise UsageError(
                f"expected {field.name} to be True or False, found {shown(found)}",
                argument=field.name,
            )


def _check_order(options: Options, shorter: str, longer: str, margin_ms: int = 0) -> None:
    """The longer one waits for what the shorter one makes late. Raises UsageError."""
    found, bound = getattr(options, shorter), getattr(options, longer)
    if found > bound - margin_ms:
        limit = "less than" if margin_ms else "at most"
        raise UsageError(
            f"expected {shorter} to be {limit} {longer} ({bound} ms), found {found} ms; "
            f"otherwise whoever only waits is taken for dead",
            argument=shorter,
        )
