"""Deleted is deleted: I30.

A log start only grows, deletes nothing that is not committed, and nobody says that his log starts
where it does not. Once it was answered that all live replicas have dropped what lies below a low
watermark, no leader is without it, and no consumer is given anything below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from replog.controller.metadata_image import MetadataImage
from replog.messages import (
    CONSUMER,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetSpec,
)
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.truth import PartitionTruth, Truth
from replog.testing.simulation.violation import Violation
from replog.types import UNKNOWN_OFFSET, TopicPartition


class LogStartsOnlyRise:
    """See the module."""

    def __init__(self, truth: Truth, image: Callable[[], MetadataImage]) -> None:
        self.truth = truth
        self._image = image
        self._said: dict[tuple[int, TopicPartition], int] = {}
        """The log start that a broker has told others of, of the log that it has."""

    def log_created(self, log: SimLog) -> None:
        """It has nothing to do with the one that the broker had before."""
        self._said.pop((log.broker_id, log.topic_partition), None)

    def log_start_moved(self, log: SimLog, truth: PartitionTruth, old: int) -> None:
        if log.log_start_offset < old or log.log_start_offset > truth.high_watermark:
            raise Violation(
                "I30",
                f"{log} moved its start from {old}; committed is up to {truth.high_watermark}",
            )

    def claimed(self, log: SimLog, truth: PartitionTruth, leader_epoch: int) -> None:
        if leader_epoch == truth.registration.leader_epoch:
            self._check_deleted(log, truth, log.log_start_offset)

    def broker_sent(self, broker: SimBroker, to: int, request: object) -> None:
        """A follower tells its leader where its logs start."""
        if type(request) is not FetchRequest:
            return
        for asked in request.partitions:
            log = self.truth.log_of(broker.broker_id, asked.topic_partition)
            truth = None if log is None else self.truth.truth_of(log)
            if log is None or truth is None:
                continue
            if asked.log_start_offset > log.log_start_offset:
                raise Violation("I30", f"{log} says that it starts at {asked.log_start_offset}")
            self._say(log, asked.log_start_offset)

    def fetch_answered(
        self, broker: SimBroker, request: FetchRequest, response: FetchResponse
    ) -> None:
        offsets = {part.topic_partition: part.fetch_offset for part in request.partitions}
        for fetched in response.partitions:
            log = self.truth.log_of(broker.broker_id, fetched.topic_partition)
            truth = None if log is None else self.truth.truth_of(log)
            if log is None or truth is None or fetched.log_start_offset == UNKNOWN_OFFSET:
                continue
            self._say(log, fetched.log_start_offset)
            if request.replica_id == CONSUMER and fetched.records is not None:
                self._check_read(log, truth, offsets[fetched.topic_partition])

    def offset_answered(
        self, broker: SimBroker, request: ListOffsetsRequest, response: ListOffsetsResponse
    ) -> None:
        log = self.truth.log_of(broker.broker_id, request.topic_partition)
        truth = None if log is None else self.truth.truth_of(log)
        is_start = request.timestamp == OffsetSpec.EARLIEST and response.error is ErrorCode.NONE
        if log is not None and truth is not None and is_start:
            self._say(log, response.offset)
            self._check_read(log, truth, response.offset)

    def records_deleted(
        self, broker: SimBroker, request: DeleteRecordsRequest, response: DeleteRecordsResponse
    ) -> None:
        for deleted in response.partitions:
            log = self.truth.log_of(broker.broker_id, deleted.topic_partition)
            truth = None if log is None else self.truth.truth_of(log)
            if log is None or truth is None or broker.node is None:
                continue
            if deleted.error is ErrorCode.NONE:
                live = filter(broker.node.host.is_alive, truth.registration.replicas)
                self._check_followed(log, truth, deleted.low_watermark, live)
                truth.low_watermark = max(truth.low_watermark, deleted.low_watermark)

    def _check_followed(
        self, log: SimLog, truth: PartitionTruth, low_watermark: int, live: Iterable[int]
    ) -> None:
        """Whoever is in sync may lead next, or was when too few were left (KIP-966); who lives has
        heard of it (KIP-107). live: by what the leader knows.
        """
        partition = self._image().partition(truth.name)
        eligible = () if partition is None else partition.elr
        for broker_id in (*truth.registration.isr, *eligible, *live):
            other = self.truth.log_of(broker_id, truth.name)
            if other is None or (broker_id, truth.name) in self.truth.incomplete:
                continue
            begins_anew = other.log_end_offset == 0  # one that was lost, and has nothing yet
            if begins_anew or self.truth.truth_of(other) is not truth:
                continue
            if other.log_start_offset < low_watermark:
                raise Violation(
                    "I30", f"{log} answers that all below {low_watermark} is gone; {other} has it"
                )

    def _say(self, log: SimLog, log_start_offset: int) -> None:
        key = (log.broker_id, log.topic_partition)
        known = self._said.get(key, 0)
        if log_start_offset < known:
            raise Violation("I30", f"{log} says that it starts at {log_start_offset}, not {known}")
        self._said[key] = log_start_offset

    def _check_read(self, log: SimLog, truth: PartitionTruth, offset: int) -> None:
        """A leader of the past, or a follower, may not have heard of the deletion."""
        claim = self.truth.claims.get((log.broker_id, truth.name))
        if claim == truth.registration.leader_epoch:
            self._check_deleted(log, truth, offset)

    def _check_deleted(self, log: SimLog, truth: PartitionTruth, offset: int) -> None:
        if offset < truth.low_watermark:
            raise Violation(
                "I30",
                f"{log} leads and has offset {offset}; all below {truth.low_watermark} was deleted",
            )
