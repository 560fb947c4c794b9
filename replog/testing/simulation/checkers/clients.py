"""What clients may see: I7, I10, I11, I19, I20, I21, I22, I34."""

from __future__ import annotations

import uuid
from typing import Any

from replog.messages import (
    CONSUMER,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from replog.replication.fetch_session import FINAL_EPOCH
from replog.testing.simulation.batches import ClientBatch, StoredBatch
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.truth import PartitionTruth, Truth
from replog.testing.simulation.violation import Violation
from replog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, TopicPartition


class ConsumersSeeTheCommitted:
    """I10: nothing above the watermark. I11: the same for ever. I19: no gap. I7: no step back.

    Whatever replica answers, what it gives is what is committed at these offsets.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def fetch_answered(
        self, broker: SimBroker, request: FetchRequest, response: FetchResponse
    ) -> None:
        if request.replica_id != CONSUMER:
            return
        parts = {part.topic_partition: part for part in request.partitions}
        for fetched in response.partitions:
            asked = parts[fetched.topic_partition]
            if fetched.records is not None:
                self._check_history(broker, asked)
            truth = self.truth.partitions.get(fetched.topic_partition)
            log = self.truth.log_of(broker.broker_id, fetched.topic_partition)
            if truth is None or log is None or self.truth.truth_of(log) is not truth:
                continue
            offset = asked.fetch_offset
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._check_out_of_range(log, truth, offset)
            elif fetched.error is ErrorCode.NONE and fetched.high_watermark > truth.high_watermark:
                raise Violation("I7", f"{log} shows a consumer more than is committed: {fetched}")
            if fetched.records is not None:
                self._check_records(log, truth, offset, fetched.records)

    def _check_history(self, broker: SimBroker, asked: FetchPartition) -> None:
        """Who is given more has before it what he says that he has read, whatever may be lost."""
        log = self.truth.log_of(broker.broker_id, asked.topic_partition)
        before = None if log is None else log.batch_at(asked.fetch_offset - 1)
        if asked.last_fetched_epoch == NO_LEADER_EPOCH or before is None:
            return
        if before.leader_epoch != asked.last_fetched_epoch:
            raise Violation(
                "I11",
                f"{log} gives a consumer more, who has read {asked.fetch_offset - 1} in epoch "
                f"{asked.last_fetched_epoch}, and not {before}",
            )

    def _check_out_of_range(self, log: SimLog, truth: PartitionTruth, offset: int) -> None:
        leads = self.truth.claims.get((log.broker_id, truth.name))
        if leads is None or leads != truth.registration.leader_epoch:
            return
        if truth.log_start <= offset <= truth.high_watermark:
            raise Violation(
                "I7", f"{log} leads and tells a consumer that {offset}, once visible, is no offset"
            )

    def _check_records(self, log: SimLog, truth: PartitionTruth, offset: int, records: Any) -> None:
        expected: int | None = None
        for batch in records:
            if batch.last_offset >= truth.high_watermark:
                raise Violation(
                    "I10", f"{log} gives a consumer {batch}; committed: {truth.high_watermark}"
                )
            committed = truth.committed_at(batch.base_offset)
            if committed is not batch and committed != batch:
                raise Violation(
                    "I11", f"{log} gives a consumer {batch}; what is committed is {committed}"
                )
            if batch.base_offset > offset if expected is None else batch.base_offset != expected:
                raise Violation("I19", f"{log} answers a fetch at {offset} with {records}")
            expected = batch.last_offset + 1


class TopicsAnswerForThemselves:
    """I34: what is asked of a topic is done by a replica of that one, and not of its namesake."""

    def fetch_answered(
        self, broker: SimBroker, request: FetchRequest, response: FetchResponse
    ) -> None:
        if request.session_epoch != FINAL_EPOCH:
            return  # a follower's: only what has changed is in it
        ids = {part.topic_partition: part.topic_id for part in request.partitions}
        for fetched in response.partitions:
            self._check(broker, ids[fetched.topic_partition], fetched)

    def produce_answered(
        self, broker: SimBroker, request: ProduceRequest, response: ProduceResponse
    ) -> None:
        for (_, topic_id, _), answer in zip(request.partitions, response.partitions, strict=True):
            self._check(broker, topic_id, answer)

    def records_deleted(
        self, broker: SimBroker, request: DeleteRecordsRequest, response: DeleteRecordsResponse
    ) -> None:
        for (_, topic_id, _), answer in zip(request.partitions, response.partitions, strict=True):
            self._check(broker, topic_id, answer)

    def offset_answered(
        self, broker: SimBroker, request: ListOffsetsRequest, response: ListOffsetsResponse
    ) -> None:
        self._check(broker, request.topic_id, response)

    def _check(self, broker: SimBroker, topic_id: uuid.UUID, answer: Any) -> None:
        held_id = broker.disk.topic_ids.get(answer.topic_partition)
        if answer.error is ErrorCode.NONE and held_id != topic_id:
            raise Violation(
                "I34", f"{broker} has topic {held_id} and is asked for {topic_id}: {answer}"
            )


class ProducersKeepTheirOrder:
    """I20: what is committed was sent, once with idempotence. I21: sequences follow each other.

    A producer id writes to a partition with sequences from 0 on; whoever makes the ids tells us of
    what was sent by `sent`. A batch may come twice if the first one is deleted: copies of the log
    that were made since do not know its producer, in Kafka neither.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.sent: set[tuple[str, ...]] = set()
        """Values of each batch that a client has sent. Never iterated."""
        self.lenient: set[int] = set()
        """Producer ids whose records may be lost: their sequences may jump, never fall."""
        self._last: dict[tuple[object, int], int] = {}
        self._values: dict[object, set[str]] = {}
        """Per topic id and partition: values that idempotent producers have committed."""

    def committed(self, log: SimLog, truth: PartitionTruth, fresh: list[StoredBatch]) -> None:
        partition = (truth.registration.topic_id, truth.name.partition)
        for batch in fresh:
            content = batch.content
            if content.values not in self.sent:
                raise Violation("I20", f"{log} committed {batch}, which nobody sent")
            if content.producer_id == NO_PRODUCER_ID:
                continue
            committed = self._values.setdefault(partition, set())
            repeats = not committed.isdisjoint(content.values)
            if repeats and not self._is_forgotten(truth, batch):
                raise Violation("I20", f"{log} committed {batch}, values of which were before")
            committed.update(content.values)
            key = (partition, content.producer_id)
            expected = self._last.get(key, -1) + 1
            lenient = content.producer_id in self.lenient and content.first_sequence > expected
            if content.first_sequence != expected and not (lenient or repeats):
                raise Violation(
                    "I21",
                    f"{log} committed {batch} of producer {content.producer_id} with sequence "
                    f"{content.first_sequence} where {expected} comes next",
                )
            self._last[key] = content.last_sequence

    def refused(self, name: TopicPartition, batch: ClientBatch) -> None:
        """A leader calls out of order what comes after all that was acknowledged with acks=all.

        It may, where its replica has fetched only what is left: the batch was committed, and
        deleted before its producer heard of that; or what comes right before it is deleted, and an
        older repeat, come late, is all that the replica knows of the producer.
        """
        truth = self.truth.partitions[name]
        if not any(
            known.base_offset < truth.log_start
            and (known.content == batch or _is_right_before(known.content, batch))
            for known in truth.committed
        ):
            raise Violation(
                "I21",
                f"the leader of {name} refuses {batch} as out of order; all before it was "
                f"acknowledged to its producer",
            )

    def _is_forgotten(self, truth: PartitionTruth, repeat: StoredBatch) -> bool:
        """Whether all that `repeat` repeats is deleted."""
        return all(
            batch is repeat
            or batch.content != repeat.content
            or batch.base_offset < truth.log_start
            for batch in truth.committed
        )


def _is_right_before(one: ClientBatch, other: ClientBatch) -> bool:
    """Whether a producer has sent one batch, and then the other."""
    return (one.producer_id, one.producer_epoch, one.last_sequence + 1) == (
        other.producer_id,
        other.producer_epoch,
        other.first_sequence,
    )
