"""What brokers, their clients and the controller say to each other: frozen values on any transport.

A request travels under an id of its sender's choice, and its response comes back under the same id,
as on a Kafka connection; nothing else ties them together. Between two brokers messages keep their
order until the connection breaks. Records, acknowledgements, high watermarks and log starts travel
by fetches alone: a follower acknowledges an offset by asking for the next one. Whatever is asked of
a partition names its topic by id, too: by now the same name may stand for another topic (KIP-516).

Outcomes that a peer must expect are values here (`error`, `diverging_epoch`), never exceptions.
Shapes follow Kafka's Fetch, Produce, ListOffsets, DeleteRecords and AlterPartition.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, TypeAlias

from replog.types import (
    NO_LEADER_EPOCH,
    UNKNOWN_OFFSET,
    EpochEndOffset,
    Isolation,
    TopicPartition,
    frozen,
    frozen_positional,
)

if TYPE_CHECKING:
    import uuid

    from replog.registrations import Listener, TopicConfig
    from replog.types import LostRecords

RawBatches: TypeAlias = Any
"""Whole record batches as any buffer (or as a test's own value): opaque to all but the log."""

CONSUMER = -1
"""`replica_id` of a fetch that no replica makes."""
NO_BROKER_EPOCH = -1
NO_SESSION = 0

FETCH_PARTITION_BYTES_MAX = 1024 * 1024
FETCH_RESPONSE_BYTES_MAX = 10 * 1024 * 1024


class Acks(enum.IntEnum):
    """How many replicas must have a record before its producer hears of it."""

    NONE = 0
    LEADER = 1
    ALL = -1


class Durability(enum.Enum):
    """What an acknowledged record has met; each includes the ones before it."""

    LEADER = "leader"
    REPLICATED = "replicated"
    PERSISTED = "persisted"


class ErrorCode(enum.IntEnum):
    """The protocol's errors under Kafka's numbers (its `Errors`)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    TOPIC_AUTHORIZATION_FAILED = 29
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    REASSIGNMENT_IN_PROGRESS = 60
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108


class OffsetSpec(enum.IntEnum):
    """Which end of the leader's log is asked for, as Kafka's ListOffsets numbers them."""

    LATEST = -1
    EARLIEST = -2


@frozen
class FetchPartition:
    """One partition of a fetch.

    A follower's claim: every offset `< fetch_offset` is in its log, and the last one carries
    `last_fetched_epoch` (NO_LEADER_EPOCH: it knows of no epoch). Consumers leave the claim out.
    """

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    fetch_offset: int
    current_leader_epoch: int = NO_LEADER_EPOCH
    last_fetched_epoch: int = NO_LEADER_EPOCH
    log_start_offset: int = UNKNOWN_OFFSET
    max_bytes: int = FETCH_PARTITION_BYTES_MAX


@frozen
class FetchRequest:
    """Ask for records of many partitions; waits up to `wait_ms_max` for `min_bytes` of them.

    Within a session (KIP-227: `session_id` as the first answer gave it, `session_epoch` counting
    from 1) `partitions` are only those whose part has changed, and `forgotten` leave it.
    `session_epoch` 0 asks for a new session with all partitions, -1 for none.
    """

    partitions: tuple[FetchPartition, ...]
    replica_id: int = CONSUMER
    broker_epoch: int = NO_BROKER_EPOCH
    wait_ms_max: int = 500
    min_bytes: int = 1
    max_bytes: int = FETCH_RESPONSE_BYTES_MAX
    isolation: Isolation = Isolation.HIGH_WATERMARK
    rack: str | None = None
    session_id: int = NO_SESSION
    session_epoch: int = -1
    forgotten: tuple[TopicPartition, ...] = ()


@frozen_positional
class LogRead:
    """Records that the shell puts in place of this value when it sends a response.

    Whole batches of [start_offset, end_offset), at most `max_bytes` but at least the first batch if
    nothing precedes it in the response.
    """

    start_offset: int
    end_offset: int
    max_bytes: int
    read_committed: bool = False


@frozen
class FetchedPartition:
    """Records, or a diverging epoch, or an error; never two of them."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = UNKNOWN_OFFSET
    last_stable_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging_epoch: EpochEndOffset | None = None
    preferred_read_replica: int | None = None
    aborted: tuple[Any, ...] = ()
    """Aborted transactions of the range, for read_committed."""
    records: RawBatches | LogRead | None = None


@frozen_positional
class FetchResponse:
    """In a session: only the partitions that have something to say."""

    partitions: tuple[FetchedPartition, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    session_id: int = NO_SESSION


@frozen
class ProduceRequest:
    """Append whole batches, per partition; wait up to `timeout_ms` for what `acks` asks."""

    partitions: tuple[tuple[TopicPartition, uuid.UUID, RawBatches], ...]
    """Each with the id of its topic."""
    acks: int = Acks.ALL
    timeout_ms: int = 30000


@frozen
class ProducedPartition:
    """Records are at [base_offset, last_offset], or `error` and `message` say why not."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    base_offset: int = UNKNOWN_OFFSET
    last_offset: int = UNKNOWN_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    log_append_time_ms: int = -1
    log_start_offset: int = UNKNOWN_OFFSET
    durability: Durability | None = None
    """What the acknowledgement vouches for; None where there is none."""


@frozen_positional
class ProduceResponse:
    """In the order of the request's partitions."""

    partitions: tuple[ProducedPartition, ...]


@frozen
class ListOffsetsRequest:
    """Where does the log start or end, or which offset is at a time: `timestamp` ms or OffsetSpec.

    For a follower the latest offset is the log end, for a consumer what `isolation` lets it see.
    """

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    timestamp: int
    replica_id: int = CONSUMER
    current_leader_epoch: int = NO_LEADER_EPOCH
    isolation: Isolation = Isolation.HIGH_WATERMARK


@frozen
class ListOffsetsResponse:
    """`offset` is UNKNOWN_OFFSET where no record is that late."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    offset: int = UNKNOWN_OFFSET
    timestamp: int = -1
    leader_epoch: int = NO_LEADER_EPOCH


@frozen
class DeleteRecordsRequest:
    """Drop the records below each offset (-1: the high watermark); waits for other replicas."""

    partitions: tuple[tuple[TopicPartition, uuid.UUID, int], ...]
    """Each with the id of its topic."""
    timeout_ms: int = 30000


@frozen
class DeletedRecords:
    """`low_watermark`: the smallest log start of all live replicas."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    low_watermark: int = UNKNOWN_OFFSET


@frozen
class DeleteRecordsResponse:
    """In the order of the request's partitions."""

    partitions: tuple[DeletedRecords, ...]


@frozen
class IsrProposal:
    """A leader's wish for its in-sync set: (broker id, the broker epoch it knows, or -1)."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovering: bool = False
    """Elected unclean, it has yet to make good what that broke (KIP-704); ours has nothing to."""


@frozen
class AlterPartitionRequest:
    """A broker's proposals for partitions that it leads; one such request in flight (KIP-497)."""

    broker_id: int
    broker_epoch: int
    proposals: tuple[IsrProposal, ...]


@frozen
class IsrDecision:
    """What is registered now, or why the proposal was refused."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    leader_id: int | None = None
    leader_epoch: int = NO_LEADER_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    recovering: bool = False


@frozen
class AlterPartitionResponse:
    """Top-level error, or a decision for each proposal in its order."""

    error: ErrorCode = ErrorCode.NONE
    decisions: tuple[IsrDecision, ...] = ()


@frozen
class ReplicaState:
    """How a broker finds one of its logs; `missing`: it is gone, though it had records."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    latest_epoch: int
    log_end_offset: int
    damaged: bool = False
    """Corrupt below the recovery point."""
    missing: bool = False


@frozen
class RegisterBrokerRequest:
    """A broker that has started asks for its epoch.

    `previous_broker_epoch` is what its clean-shutdown marker says, NO_BROKER_EPOCH without one: a
    broker whose last registration had another epoch stopped uncleanly (KIP-966).
    """

    broker_id: int
    incarnation_id: str
    previous_broker_epoch: int = NO_BROKER_EPOCH
    rack: str | None = None
    replicas: tuple[ReplicaState, ...] = ()
    listeners: tuple[Listener, ...] = ()
    cluster_id: str | None = None
    """Of the cluster that its directory belongs to; None: of whichever takes it."""
    directory_id: uuid.UUID | None = None
    """Of the directory that its logs are in; None: it has none."""
    last_broker_epoch: int = NO_BROKER_EPOCH
    """The latest one that was noted in the directory; NO_BROKER_EPOCH: none was."""


@frozen
class RegisterBrokerResponse:
    """The broker stays fenced until a heartbeat says that it has caught up with `version`."""

    error: ErrorCode = ErrorCode.NONE
    broker_epoch: int = NO_BROKER_EPOCH
    version: int = 0


@frozen
class LeaderlessLog:
    """How far a replica's log goes while nobody leads its partition, so that it cannot grow, under
    the `leader_epoch` of the registration without a leader, which the broker obeys.
    """

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    leader_epoch: int
    latest_epoch: int
    log_end_offset: int


@frozen_positional
class DamagedLog:
    """A replica whose log is corrupt below its recovery point."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID | None
    """Damage to the log of a deleted topic is none to another topic of its name."""
    partition_epoch: int
    """What the broker knew of the partition. A replica that was damaged before the controller's
    latest word may have been fetched anew and be in sync again; one that still is says so when it
    has heard that word."""
    leader_epoch: int
    """The latest in which this run of the broker may have fetched into the damaged log: who was
    counted in under a later one was so by what is in the new log. NO_LEADER_EPOCH: none."""


@frozen
class LogSize:
    """How large a replica's log is, of a partition with replicas that are not in sync."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    size_bytes: int


@frozen
class HeartbeatRequest:
    """`version`: metadata the broker has applied. `want_shut_down`: move my leaderships away."""

    broker_id: int
    broker_epoch: int
    first_broker_epoch: int
    """Of this run of the broker: what was fetched before it was another run's affair."""
    version: int
    want_shut_down: bool = False
    damaged: tuple[DamagedLog, ...] = ()
    leaderless: tuple[LeaderlessLog, ...] = ()
    """Its logs of all partitions without a leader: told with each heartbeat, until one is found."""
    sizes: tuple[LogSize, ...] = ()
    lost: tuple[LostRecords, ...] = ()
    """What it has cut since it told last."""


@frozen
class HeartbeatResponse:
    """`should_shut_down`: nothing is led by the broker any more, it may stop."""

    error: ErrorCode = ErrorCode.NONE
    fenced: bool = True
    should_shut_down: bool = False


@frozen
class CreateTopicRequest:
    """`assignment` lists the replicas of each partition; None leaves the placement to us."""

    topic: str
    partitions: int = 1
    replication_factor: int = 1
    assignment: tuple[tuple[int, ...], ...] | None = None
    config: TopicConfig | None = None
    options: tuple[tuple[str, str], ...] = ()
    """Under Kafka's names, as texts; over those of `config`."""


@frozen
class CreateTopicResponse:
    """Answered when it is decided; brokers learn of it by their metadata."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: uuid.UUID | None = None
    version: int = 0


@frozen
class DeleteTopicRequest:
    """Forget a topic and delete its files on every broker."""

    topic: str


@frozen
class DeleteTopicResponse:
    """Answered when it is decided."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    version: int = 0


PartitionRequest: TypeAlias = (
    FetchRequest | ProduceRequest | ListOffsetsRequest | DeleteRecordsRequest
)
PartitionResponse: TypeAlias = (
    FetchResponse | ProduceResponse | ListOffsetsResponse | DeleteRecordsResponse
)
ControllerRequest: TypeAlias = (
    AlterPartitionRequest
    | RegisterBrokerRequest
    | HeartbeatRequest
    | CreateTopicRequest
    | DeleteTopicRequest
)
ControllerResponse: TypeAlias = (
    AlterPartitionResponse
    | RegisterBrokerResponse
    | HeartbeatResponse
    | CreateTopicResponse
    | DeleteTopicResponse
)
Request: TypeAlias = PartitionRequest | ControllerRequest
Response: TypeAlias = PartitionResponse | ControllerResponse
