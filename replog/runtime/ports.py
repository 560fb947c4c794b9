"""What a broker needs of the world around it: a log store, a network, a place that syncs files.

`BrokerNode` is driven by one caller at a time and never waits, so the same class runs over files
and asyncio, and over a simulated disk, network and clock. Time comes in with each call as `now_ms`
(monotonic); the stores and logs keep the calendar's time for records themselves.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING, Any, Protocol

from replog.replication.log_view import LogView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from replog.messages import (
        ControllerRequest,
        PartitionRequest,
        PartitionResponse,
        RawBatches,
        ReplicaState,
    )
    from replog.registrations import PartitionRegistration
    from replog.types import TopicPartition


class AppendedRange(Protocol):
    """Where an append has gone: [base_offset, last_offset]."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def log_append_time_ms(self) -> int:
        """-1 where the records keep their producer's time."""

    @property
    def duplicate(self) -> bool:
        """Whether the producer had sent the batch before: the offsets are those of then."""


class ReplicatedLog(LogView, Protocol):
    """A log as the executor drives it. Every method raises ReplogError, and only that."""

    @property
    def size_bytes(self) -> int:
        """Of all records that it has."""

    def append_as_leader(self, batches: RawBatches, leader_epoch: int) -> AppendedRange:
        """Append in memory order, not synced: syncing is the flush scheduler's."""

    def append_as_follower(self, batches: RawBatches) -> Any: ...

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> Any:
        """Durable before the first record of that epoch is."""

    def read(self, start_offset: int, max_bytes: int, end_offset: int) -> RawBatches:
        """Batches below `end_offset` from the one that holds `start_offset` on; has a length.

        About `max_bytes`: the last batch may be cut there, the first never is.
        """

    def aborted_transactions(self, start_offset: int, end_offset: int) -> Sequence[Any]: ...

    def set_high_watermark(self, offset: int) -> Any: ...

    def truncate_to(self, offset: int) -> Any: ...

    def truncate_fully_and_start_at(self, offset: int) -> Any: ...

    def truncate_prefix_to(self, offset: int) -> Any:
        """Raise the log start to `offset`."""


class LogStore(Protocol):
    """The logs of one broker. Methods raise StorageError where a log or the disk is to blame."""

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch in the clean-shutdown marker that was found at start; NO_BROKER_EPOCH: none."""

    @property
    def last_broker_epoch(self) -> int:
        """The latest epoch that was noted in the directory at start; NO_BROKER_EPOCH: none."""

    @property
    def directory_id(self) -> uuid.UUID | None:
        """Of the directory: another one has another."""

    def missing(self, topics: Mapping[uuid.UUID, str]) -> Collection[TopicPartition]:
        """Partitions that held records, and whose logs are not there.

        topics: the names of topics by their ids, as far as the broker knows them. What lies in a
        directory of another topic's name is not that one's log: the directories were exchanged.
        """

    def note_broker_epoch(self, broker_epoch: int) -> None:
        """The broker is about to take part under this epoch; durable on return, if it can be.

        Raises StorageError for a disk that has failed.
        """

    def replica_states(self) -> tuple[ReplicaState, ...]:
        """Every log as it was found at start, damaged ones too."""

    def get(self, topic_partition: TopicPartition) -> ReplicatedLog | None:
        """The open log; None where there is none, or one that cannot be used."""

    def topic_id(self, topic_partition: TopicPartition) -> uuid.UUID | None:
        """Whose the log is, open or damaged; None where there is none."""

    def open(self, registration: PartitionRegistration) -> ReplicatedLog:
        """The partition's log, created if there is none. One of another topic id is deleted first,
        or, where that topic is known by another name, set aside.

        Raises CorruptBatchError or CorruptFileError for a damaged one, each time it is asked, and
        MissingLogError for a missing one while nobody leads: an empty one in its place would be
        taken for it.
        """

    def settle_ahead(self, appends: Sequence[tuple[TopicPartition, RawBatches]]) -> None:
        """These will be appended next, as a follower does it: what must be on disk before may be
        written for all of them at once. Raises nothing: each append sees for itself.
        """

    def set_aside(self, topic_partition: TopicPartition) -> ReplicatedLog:
        """Move the log's files aside, keeping them, and begin an empty one of the same topic id."""

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete the log's files, also of a damaged one; nothing where there is none."""

    def set_aside_strays(self, held: Callable[[TopicPartition], bool]) -> None:
        """Move aside, never deleting them, the logs of partitions that are not `held` any more."""

    def checkpoint_high_watermarks(self) -> None:
        """Persist the high watermark of every log."""

    def close(self, broker_epoch: int) -> None:
        """Flush and close everything, leaving the clean-shutdown marker with `broker_epoch`."""


class Network(Protocol):
    """Where requests go, and answers to requests. Each call returns at once.

    Ids are the sender's. An answer comes back by `BrokerNode.receive_response` under the same id; a
    broken connection by `request_failed`, for each request that was waiting on it.
    """

    def send_to_broker(self, request_id: int, to: int, request: PartitionRequest) -> None: ...

    def send_to_controller(self, request_id: int, request: ControllerRequest) -> None: ...

    def respond(self, request_id: int, response: PartitionResponse) -> None:
        """Answer the request that `BrokerNode.receive_request` brought under this id."""


class FlushScheduler(Protocol):
    """Where files are synced without making the broker wait (flush.mode=commit)."""

    def flush(self, topic_partition: TopicPartition, log: Any) -> None:
        """See that all that `log` holds now is synced, then call `BrokerNode.flush_completed`.

        `log` is one of the store's own, so that store and scheduler agree on how it is synced.
        Flushes of one log may be shared: one sync answers all that were asked before it began.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Ports:
    """All of them together, for one broker."""

    store: LogStore
    network: Network
    flushes: FlushScheduler
