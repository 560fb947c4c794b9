"""The consumer of one partition: committed records in offset order, whoever leads."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from replog._native.arguments import integer
from replog.client.arguments import (
    INT32_MAX,
    consumers_isolation,
    offset_or_name,
    partition_of,
)
from replog.client.connection import answer_to, metadata_change
from replog.client.protocol_errors import RETRIABLE, error_of
from replog.errors import (
    LogDivergedError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UsageError,
    shown,
)
from replog.messages import (
    ErrorCode,
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    OffsetSpec,
)
from replog.types import NO_LEADER_EPOCH, UNKNOWN_OFFSET, Isolation, Record, TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import AsyncIterator, Iterator, Sequence

    import pyarrow as pa

    from replog.client.connection import ClusterConnection
    from replog.messages import FetchedPartition, FetchResponse, ListOffsetsResponse
    from replog.registrations import PartitionRegistration
    from replog.types import EpochEndOffset

Start = int | Literal["earliest", "latest"]
RETRY_BACKOFF_MS = 100
FETCH_BYTES_MAX = 1024 * 1024
PREFERENCE_MS_MAX = 300_000
"""How long a replica is read from before the leader is asked again: Kafka's metadata.max.age.ms."""
LEADER_ONLY_MS = 5_000
"""How long the leader is read from when the replica that it has named did not serve."""


class _Preference(NamedTuple):
    """The replica that a leader has named, in our rack (KIP-392)."""

    replica_id: int
    leader_epoch: int
    until_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumedRecords:
    """Records of [start_offset, end_offset) as they were fetched; decoded when asked for.

    They pin the files of the broker that served them, and stay readable as long as this lives.
    """

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    high_watermark: int
    _slice: Any
    _bound: int
    _aborted: Sequence[Any]

    def records(self) -> Iterator[Record]:
        """One object per record; those of aborted transactions are left out as isolation says."""
        found: Iterator[Record] = self._slice.records(
            end_offset=self._bound, aborted=self._aborted, record_type=Record
        )
        return found

    def to_arrow(
        self, *, columns: Sequence[str] | None = None, zero_copy: bool = False
    ) -> pa.RecordBatch:
        """As an Arrow record batch; columns as `replog.Log.to_arrow` has them."""
        return self._slice.to_arrow(
            end_offset=self._bound, columns=columns, zero_copy=zero_copy, aborted=self._aborted
        )


class Consumer:
    """Reads one partition. Iterate for records, or over `slices` for whole fetches.

    Follows leaders as they change. `position` is the offset behind the record, or the slice, that
    was handed out last; it may be set between two reads. A read that is called off (a timeout, a
    `break`) loses nothing: the next one goes on at the position. It reads the topic that has the
    name at the first read, and nothing of one that is created under that name later.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        topic_partition: TopicPartition,
        *,
        start: Start = "earliest",
        timestamp: int | None = None,
        end: int | Literal["latest"] | None = None,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
        fetch_bytes_max: int = FETCH_BYTES_MAX,
        wait_ms_max: int = 500,
        rack: str | None = None,
    ) -> None:
        """start: the first offset, or an end of the log as it is at the first read.

        timestamp: instead of start, the first record that late (ms). end: exclusive; "latest" for
        what is committed at the first read, None to wait for more for ever. rack:
        where this consumer is; with `ReplicationOptions.rack_aware_reads` it reads from an in-sync
        replica in it, and from the leader where there is none. Raises UsageError.
        """
        self.topic_partition = partition_of(*topic_partition)
        whose = f"a consumer of {self.topic_partition}"
        self._whose = whose
        self._position: int | None = None
        self._epoch = NO_LEADER_EPOCH
        """Of the batch before the position, by which the leader can tell whether its log holds what
        was read; NO_LEADER_EPOCH where the position was not come to by reading."""
        self._start = offset_or_name(start, "start", ("earliest", "latest"), whose)
        self._timestamp = None if timestamp is None else integer(timestamp, "timestamp", whose)
        if timestamp is not None and start != "earliest":
            raise UsageError(
                f"expected start or timestamp for {whose}, found both ({shown(start)} and "
                f"{timestamp}); give the one to begin at",
                argument="timestamp",
            )
        last = None if end is None else offset_or_name(end, "end", ("latest",), whose)
        self.end: int | None = last if isinstance(last, int) else None
        self._ends_at_latest = last == "latest"
        self._connection = connection
        self._isolation = consumers_isolation(isolation)
        self._fetch_bytes_max = integer(
            fetch_bytes_max, "fetch_bytes_max", whose, low=1, high=INT32_MAX
        )
        self._wait_ms_max = integer(wait_ms_max, "wait_ms_max", whose, high=INT32_MAX)
        if rack is not None and not isinstance(rack, str):
            raise UsageError(
                f"expected rack to be a name (str) or None for {whose}, found {shown(rack)}",
                argument="rack",
            )
        self._rack = rack
        self._topic_id: uuid.UUID | None = None
        """Of the topic that is read; None before the first read."""
        self._preference: _Preference | None = None
        self._unread: tuple[Iterator[Record], int, int] | None = None
        """Records of the slice that is being handed out one by one, where it ends, and the leader
        epoch of its last batch."""
        self._keeps_to_leader_until_s = 0.0
        """The replica that the leader has named does not serve us."""

    @property
    def position(self) -> int | None:
        """The next offset; None before the first read. Raises UsageError when set to no offset."""
        return self._position

    @position.setter
    def position(self, offset: int | None) -> None:
        number = None if offset is None else integer(offset, "position", self._whose)
        self._go_on_at(number, NO_LEADER_EPOCH)

    def _go_on_at(self, position: int | None, epoch: int) -> None:
        self._position, self._epoch = position, epoch
        self._unread = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record; ends at `end`. Raises what next_slice raises, and CorruptBatchError."""
        while True:
            record = self.next_of_slice()
            if record is not None:
                return record
            if not await self.fetch_slice():
                raise StopAsyncIteration

    def next_of_slice(self) -> Record | None:
        """The next record of what was fetched last; None where all of it was handed out."""
        if self._unread is None:
            return None
        records, end_offset, epoch = self._unread
        try:
            record = next(records, None)
        except BaseException:
            self._unread = None  # read again, it fails again
            raise
        if record is None:
            self._go_on_at(end_offset, epoch)
            return None
        self._position, self._epoch = record.offset + 1, record.leader_epoch
        return record

    async def fetch_slice(self) -> bool:
        """Fetch what `next_of_slice` hands out next; False once `end` is reached."""
        found = await self._next()
        if found is None:
            return False
        consumed, epoch = found
        self._position = consumed.start_offset
        self._unread = (consumed.records(), consumed.end_offset, epoch)
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held between two reads."""

    async def slices(self) -> AsyncIterator[ConsumedRecords]:
        """Fetch after fetch, up to `end`."""
        while (consumed := await self.next_slice()) is not None:
            yield consumed

    async def next_slice(self) -> ConsumedRecords | None:
        """The records of the next fetch that brings any; None once `end` is reached.

        Raises OffsetOutOfRangeError where the position is not in the log, LogDivergedError where an
        unclean election has lost what was read before it, UnknownTopicIdError where the name is
        another topic's by now, and what the leader refuses for good. They are raised again until
        the position is set.
        """
        found = await self._next()
        if found is None:
            return None
        consumed, epoch = found
        self._go_on_at(consumed.end_offset, epoch)
        return consumed

    async def _next(self) -> tuple[ConsumedRecords, int] | None:
        """A slice at the position, which stays, and the leader epoch of its last batch."""
        position = await self._settled_position()
        while self.end is None or position < self.end:
            fetched = await self._fetch(position)
            if fetched is None:
                continue
            consumed = self._consumed(position, fetched)
            if consumed is not None:
                records: Any = fetched.records
                return consumed, records.epoch_before(consumed.end_offset)
        return None

    async def _settled_position(self) -> int:
        ends_at = None
        if self._ends_at_latest:
            self.end = ends_at = (await self._list_offsets(OffsetSpec.LATEST)).offset
            self._ends_at_latest = False
        if self.position is None:
            self.position = await self._first_offset()
        if ends_at is not None and self.position > ends_at:
            raise OffsetOutOfRangeError(
                f"expected {self._whose} to begin at offset {ends_at} at most, where what is "
                f"committed ends, found {self.position}; begin at an offset of the log",
                offset=self.position,
                topic_partition=str(self.topic_partition),
            )
        return self.position

    async def _first_offset(self) -> int:
        if self._timestamp is not None:
            found = await self._list_offsets(self._timestamp)
            if found.offset != UNKNOWN_OFFSET:
                return found.offset
            return (await self._list_offsets(OffsetSpec.LATEST)).offset
        if isinstance(self._start, int):
            return self._start
        spec = OffsetSpec.EARLIEST if self._start == "earliest" else OffsetSpec.LATEST
        return (await self._list_offsets(spec)).offset

    async def _list_offsets(self, timestamp: int) -> ListOffsetsResponse:
        while True:
            response: ListOffsetsResponse | None = None
            registration = self._registration()
            leader_id = registration.leader_id
            if leader_id is not None:
                request = ListOffsetsRequest(
                    topic_partition=self.topic_partition,
                    topic_id=registration.topic_id,
                    timestamp=timestamp,
                    isolation=self._isolation,
                )
                response = await answer_to(self._connection, leader_id, request)
            if response is not None and response.error is ErrorCode.NONE:
                return response
            if response is not None:
                self._check_retriable(response.error)
            await metadata_change(self._connection, RETRY_BACKOFF_MS)

    def _registration(self) -> PartitionRegistration:
        """Of the topic that is read, not merely of its name."""
        registration = self._connection.partition(self.topic_partition)
        if self._topic_id is None:
            self._topic_id = registration.topic_id
        if registration.topic_id != self._topic_id:
            raise UnknownTopicIdError(
                f"expected topic {self.topic_partition.topic!r} of id {self._topic_id}, which this "
                f"consumer reads, found it deleted and another one of that name, of id "
                f"{registration.topic_id}; open another consumer to read that one",
                topic_partition=str(self.topic_partition),
            )
        return registration

    async def _fetch(self, position: int) -> FetchedPartition | None:
        """The records from `position` on; None where it is worth another try."""
        registration = self._registration()
        leader_id = registration.leader_id
        replica_id = self._preferred(registration)
        response: FetchResponse | None = None
        if leader_id is not None:
            keeps_to_leader = self._connection.loop.time() < self._keeps_to_leader_until_s
            request = FetchRequest(
                partitions=(
                    FetchPartition(
                        topic_partition=self.topic_partition,
                        topic_id=registration.topic_id,
                        fetch_offset=position,
                        current_leader_epoch=registration.leader_epoch,
                        last_fetched_epoch=self._epoch,
                        max_bytes=self._fetch_bytes_max,
                    ),
                ),
                wait_ms_max=self._wait_ms_max,
                isolation=self._isolation,
                rack=None if keeps_to_leader else self._rack,
            )
            response = await self._answer(leader_id, replica_id, request)
        if response is None:
            if replica_id is not None:
                self._keep_to_leader()
            await metadata_change(self._connection, RETRY_BACKOFF_MS)
            return None
        error = response.error
        diverging: EpochEndOffset | None = None
        if error is ErrorCode.NONE and response.partitions:
            error = response.partitions[0].error
            diverging = response.partitions[0].diverging_epoch
        if diverging is not None and replica_id is None:
            raise self._diverged(position, diverging)
        if error is ErrorCode.NONE and diverging is None:
            return self._followed(registration, response)
        if replica_id is None:
            self._check_retriable(error)
        else:
            self._keep_to_leader()
        await metadata_change(self._connection, RETRY_BACKOFF_MS)
        return None

    def _preferred(self, registration: PartitionRegistration) -> int | None:
        """The replica to read from in place of the leader."""
        preference = self._preference
        if preference is None:
            return None
        if (
            preference.leader_epoch != registration.leader_epoch
            or preference.replica_id not in registration.isr
            or preference.until_s <= self._connection.loop.time()
        ):
            self._preference = None
            return None
        return preference.replica_id

    def _keep_to_leader(self) -> None:
        """What a follower refuses its leader may know better, and has the last word. Asked with our
        rack it would name the same follower again.
        """
        self._preference = None
        self._keeps_to_leader_until_s = self._connection.loop.time() + LEADER_ONLY_MS / 1000

    def _followed(
        self, registration: PartitionRegistration, response: FetchResponse
    ) -> FetchedPartition | None:
        """What was fetched; None where the leader has named a replica to ask instead."""
        if not response.partitions:
            return None
        fetched = response.partitions[0]
        if fetched.preferred_read_replica is None:
            return fetched
        if fetched.preferred_read_replica not in registration.isr:
            self._keep_to_leader()  # one of the two has not heard the latest
            return None
        self._preference = _Preference(
            fetched.preferred_read_replica,
            registration.leader_epoch,
            self._connection.loop.time() + PREFERENCE_MS_MAX / 1000,
        )
        return None

    async def _answer(
        self, leader_id: int, replica_id: int | None, request: FetchRequest
    ) -> FetchResponse | None:
        """Of the replica, or of the leader where it is None.

        None if the connection broke, another broker has come to lead, or the replica is not in sync
        any more.
        """
        loop = self._connection.loop
        future = loop.create_future()

        def answered(response: Any) -> None:
            if not future.done():
                future.set_result(response)

        def changed() -> None:
            if not self._serves(leader_id, replica_id):
                answered(None)

        unsubscribe = self._connection.on_metadata_change(changed)
        asked = leader_id if replica_id is None else replica_id
        request_id = self._connection.ask(asked, request, answered)
        try:
            response: FetchResponse | None = await future
        except BaseException:
            self._connection.give_up(request_id)
            raise
        finally:
            unsubscribe()
        if response is None:
            self._connection.give_up(request_id)
        return response

    def _serves(self, leader_id: int, replica_id: int | None) -> bool:
        try:
            registration = self._registration()
        except UnknownTopicOrPartitionError:
            return False
        return registration.leader_id == leader_id and (
            replica_id is None or replica_id in registration.isr
        )

    def _consumed(self, position: int, fetched: FetchedPartition) -> ConsumedRecords | None:
        records: Any = fetched.records
        if records is None or not len(records):
            return None
        bound = fetched.high_watermark
        if self._isolation is Isolation.TXN_COMMITTED:
            bound = fetched.last_stable_offset
        if self.end is not None:
            bound = min(bound, self.end)
        end_offset = min(records.end_offset, bound)
        if end_offset <= position:
            return None
        return ConsumedRecords(
            self.topic_partition,
            position,
            end_offset,
            fetched.high_watermark,
            records,
            bound,
            fetched.aborted,
        )

    def _diverged(self, position: int, diverging: EpochEndOffset) -> LogDivergedError:
        parts_at = min(position, diverging.end_offset)
        return LogDivergedError(
            f"expected {self.topic_partition} to hold what was read of it up to offset {position}, "
            f"in leader epoch {self._epoch}, found other records from offset {parts_at} on: an "
            f"election of a replica without them has lost those that were read; set the position "
            f"to go on",
            topic_partition=str(self.topic_partition),
            offset=position,
            leader_epoch=self._epoch,
            diverging_offset=parts_at,
        )

    def _check_retriable(self, error: ErrorCode) -> None:
        if error not in RETRIABLE:
            raise error_of(
                error,
                f"expected to read {self.topic_partition} at offset {self.position}, the leader "
                f"answered {error.name}; see where the log starts and ends",
                topic_partition=str(self.topic_partition),
                offset=self.position,
            )
