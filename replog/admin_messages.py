"""What operators ask of the controller, and its answers: frozen values on any transport.

As `messages` has it: outcomes are values (`error`, `message`), never exceptions. A request that
names several topics or partitions gets an answer for each, in its order; one that is refused
changes nothing. Shapes follow Kafka's CreateTopics, CreatePartitions, IncrementalAlterConfigs,
ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

from replog.messages import CreateTopicRequest, CreateTopicResponse, ErrorCode
from replog.types import EpochRange, TopicPartition, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class CreateTopicsRequest:
    """Create all of these in one decision; each is checked by itself.

    The answer comes when every replica of every topic has started, but after `wait_ms_max` at the
    latest: then REQUEST_TIMED_OUT names those that have not. 0 does not wait.
    """

    topics: tuple[CreateTopicRequest, ...]
    wait_ms_max: int = 0
    validate_only: bool = False


@frozen
class CreateTopicsResponse:
    """In the order of the request's topics."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topics: tuple[CreateTopicResponse, ...] = ()


@frozen
class CreatePartitionsRequest:
    """Let a topic have `count` partitions; `assignment` lists the replicas of each new one."""

    topic: str
    count: int
    assignment: tuple[tuple[int, ...], ...] | None = None
    validate_only: bool = False


@frozen
class AdminResponse:
    """Whether it is done; `message` says why not."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    version: int = 0
    """Metadata that has it."""


class ResourceKind(enum.IntEnum):
    """What options belong to, as Kafka numbers it."""

    TOPIC = 2
    BROKER = 4


@frozen
class AlterOptionsRequest:
    """Set options under Kafka's names, as texts; None sets one back to its default.

    name: the topic, or the broker's id; of brokers "" stands for all of them.
    """

    kind: ResourceKind
    name: str
    options: Mapping[str, str | None]
    validate_only: bool = False


class ElectionKind(enum.IntEnum):
    """As Kafka numbers it."""

    PREFERRED = 0
    UNCLEAN = 1


@frozen
class ElectLeadersRequest:
    """Elect the preferred leaders of these partitions, or of all; or, at last, any live replica."""

    kind: ElectionKind
    partitions: tuple[TopicPartition, ...] | None = None


@frozen
class PartitionResult:
    """What became of one partition of a request."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@frozen
class PartitionResults:
    """In the order of the request's partitions."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partitions: tuple[PartitionResult, ...] = ()


@frozen
class Reassignment:
    """Where a partition's replicas are to be; None calls off what is under way."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...] | None


@frozen
class ReassignPartitionsRequest:
    """Move replicas. The same again goes on with what is under way, another one replaces it.

    throttle_bytes_per_s: for all reassignments under way together, on each broker; None leaves it.
    """

    partitions: tuple[Reassignment, ...]
    throttle_bytes_per_s: int | None = None


@frozen
class ListReassignmentsRequest:
    """What is under way, of these partitions or of all."""

    partitions: tuple[TopicPartition, ...] | None = None


@frozen
class ReassignmentProgress:
    """One reassignment under way; None: not known yet."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    in_sync: tuple[int, ...]
    bytes_left: int | None
    seconds_left: float | None


@frozen
class ListReassignmentsResponse:
    """Only partitions with a reassignment under way."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    reassignments: tuple[ReassignmentProgress, ...] = ()


@frozen
class BalanceLeadersRequest:
    """Move leaderships back to preferred leaders now, if brokers are that far from it.

    `threshold_percent`: of a broker's preferred partitions, how many others may lead. `moves_max`
    is the brake. `dry_run` only says what would be moved.
    """

    threshold_percent: int | None = None
    moves_max: int | None = None
    dry_run: bool = False


@frozen
class LeaderMove:
    """One leadership that a balance moves, or would move."""

    topic_partition: TopicPartition
    from_broker: int | None
    to_broker: int


@frozen
class BalanceLeadersResponse:
    """`left`: how many more would be moved but for the brake."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    moves: tuple[LeaderMove, ...] = ()
    left: int = 0


@frozen
class DescribePartitionsRequest:
    """How these partitions, or all that nobody leads, are doing."""

    partitions: tuple[TopicPartition, ...] | None = None


@frozen
class PartitionStatus:
    """One partition as the controller sees it. `message` says what a partition without a leader
    waits for; None for one that is led.
    """

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    state: str = "NonExistent"
    replica_states: tuple[tuple[int, str], ...] = ()
    leader_id: int | None = None
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    """Out of sync, but holding all that is committed (KIP-966)."""
    suspect: tuple[int, ...] = ()
    """Back from an unclean stop: not one of them alone vouches for anything."""
    damaged: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    """In sync when they stopped, and back without the log that they had."""
    message: str | None = None


@frozen
class DescribePartitionsResponse:
    """In the order of the request's partitions."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partitions: tuple[PartitionStatus, ...] = ()


@frozen
class DescribeLossesRequest:
    """What unclean elections have lost, of these partitions or of all."""

    partitions: tuple[TopicPartition, ...] | None = None


@frozen
class LostRange:
    """Offsets that a broker held and has cut."""

    broker_id: int
    range: EpochRange


@frozen
class UncleanElection:
    """One election of a replica that nobody vouched for, and what it has lost of what the others'
    logs held. Exact once nobody is `awaited`, but for what only the `untold` had.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    leader_id: int | None
    log_end_offset: int | None
    """Of the new leader's log when it was elected; None if it had not told."""
    lost: tuple[EpochRange, ...]
    """Of all brokers together; offsets below `committed_end_offset` had been committed for certain.
    Those behind may have been: a broker that is killed forgets what it learnt last.
    """
    committed_end_offset: int
    held_by: tuple[LostRange, ...]
    awaited: tuple[int, ...]
    """Replicas that have not caught up since: they may hold more, and yet tell."""
    untold: tuple[int, ...]
    """Replicas that came back without their log, with a damaged one, or not at all, because the
    partition was moved away: what they held and had not told they never will.
    """


@frozen
class DescribeLossesResponse:
    """By topic, partition and leader epoch."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    elections: tuple[UncleanElection, ...] = ()


@frozen
class StateChangesRequest:
    """What brokers were asked to do of late: of one partition or broker, or all."""

    topic_partition: TopicPartition | None = None
    broker_id: int | None = None


@frozen
class StateChangeRow:
    """One broker's part in one change. Times are of the controller's clock, in ms; None: not yet.

    All are None for what was decided before this controller was the active one: when its brokers
    obeyed is not known.
    """

    topic_partition: TopicPartition
    broker_id: int
    kind: str
    leader_epoch: int
    state: str
    requested_ms: int | None
    received_ms: int | None
    completed_ms: int | None


@frozen
class StateChangesResponse:
    """`changes`: oldest first. `queued`: (broker id, how much it has still to do)."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    changes: tuple[StateChangeRow, ...] = ()
    queued: tuple[tuple[int, int], ...] = ()


@frozen
class UnregisterBrokerRequest:
    """Forget a broker for good; it must hold no replica."""

    broker_id: int


AdminRequest: TypeAlias = (
    CreateTopicsRequest
    | CreatePartitionsRequest
    | AlterOptionsRequest
    | ElectLeadersRequest
    | ReassignPartitionsRequest
    | ListReassignmentsRequest
    | BalanceLeadersRequest
    | DescribePartitionsRequest
    | DescribeLossesRequest
    | StateChangesRequest
    | UnregisterBrokerRequest
)
AdminAnswer: TypeAlias = (
    CreateTopicsResponse
    | AdminResponse
    | PartitionResults
    | ListReassignmentsResponse
    | BalanceLeadersResponse
    | DescribePartitionsResponse
    | DescribeLossesResponse
    | StateChangesResponse
)
