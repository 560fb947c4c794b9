"""Validated options of a log. Names and defaults are Kafka's (facts 12 and 18.2), in snake_case."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, Self, get_args, get_type_hints

from replog.errors import UsageError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
FLUSH_INTERVAL_MS = 1000

FlushMode = Literal["os", "interval", "commit"]
CompressionType = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
MessageTimestampType = Literal["CreateTime", "LogAppendTime"]

_KAFKA_ALIASES = {"internal.segment.bytes": "segment_bytes"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Options of one partition's log. Sizes in bytes, times in ms, -1 for "no limit".

    flush_mode: `os` leaves syncing to flush() and the system, as Kafka's default does; `interval`
    also syncs on the first append after flush_ms (1 s unless set); `commit` syncs before an append
    returns.
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

    def __post_init__(self) -> None:
        floors = {
            "segment_bytes": 14,
            "segment_ms": 1,
            "segment_index_bytes": 4,
            "index_interval_bytes": 0,
            "max_message_bytes": 0,
            "retention_ms": -1,
            "retention_bytes": -1,
            "flush_messages": 1,
            "decompressed_bytes_max": 1,
        }
        for name, floor in floors.items():
            found = getattr(self, name)
            if not isinstance(found, int) or found < floor:
                raise UsageError(f"expected {name} to be an integer >= {floor}, found {found!r}")
        if self.segment_bytes > INT_MAX:
            raise UsageError(f"expected segment_bytes <= {INT_MAX}, found {self.segment_bytes}")
        self._check_choice("flush_mode", get_args(FlushMode))
        if self.flush_mode == "interval" and self.flush_ms == LONG_MAX:
            object.__setattr__(self, "flush_ms", FLUSH_INTERVAL_MS)
        self._check_choice("compression_type", get_args(CompressionType))
        self._check_choice("message_timestamp_type", get_args(MessageTimestampType))
        if not self.cleanup_policies <= {"delete", "compact"}:
            raise UsageError(
                f"expected cleanup_policy delete, compact or both, found {self.cleanup_policy!r}"
            )

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        found = getattr(self, name)
        if found not in choices:
            raise UsageError(f"expected {name} to be one of {', '.join(choices)}, found {found!r}")

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
        """Read Kafka's topic configuration; options that replog does not have are left out."""
        hints = get_type_hints(cls)
        options: dict[str, object] = {}
        for key, text in topic_config.items():
            name = _KAFKA_ALIASES.get(key, key.replace(".", "_"))
            if name not in hints:
                continue
            try:
                options[name] = int(text) if hints[name] in (int, int | None) else text
            except ValueError as error:
                raise UsageError(f"expected an integer for {key}, found {text!r}") from error
        return cls(**options)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationOptions:
    """Options of a broker's replicas. Names and defaults are Kafka's (facts 12); times in ms."""

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Options of the controller and of brokers' sessions with it; times in ms."""

    broker_session_timeout_ms: int = 9000
    broker_heartbeat_interval_ms: int = 2000
    metadata_fetch_wait_max_ms: int = 500


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOptions:
    """Options of the controllers' quorum: Kafka's `controller.quorum.*` (facts 12); times in ms."""

    election_timeout_ms: int = 1000
    """A voter that knows no leader campaigns after one to two of these."""
    fetch_timeout_ms: int = 2000
    """A follower that no fetch succeeds for campaigns; a leader resigns after one and a half."""
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_wait_max_ms: int = 500
    fetch_max_bytes: int = 8388608
