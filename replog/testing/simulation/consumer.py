"""A consumer: follows one partition from its start, through leader changes, for ever.

Now and then, when it is level, it begins again at the start of what is left.

It reads from the leader, or from the replica that the leader names. What it is given is checked
where the broker gives it (`checkers.clients`); here it must get on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from replog.messages import (
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetSpec,
)
from replog.testing.simulation.client import Client, Cluster
from replog.testing.simulation.network import Network
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import Scheduler
from replog.testing.simulation.violation import Violation
from replog.types import NO_LEADER_EPOCH, Isolation, TopicPartition

TIMEOUT_US = 3_000_000
READ_AGAIN = 0.05


class Consumer(Client):
    """See the module."""

    def __init__(
        self,
        address: int,
        scheduler: Scheduler,
        network: Network,
        stream: Stream,
        cluster: Cluster,
        partition: TopicPartition,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        rack: str | None = None,
        wait_ms: int = 500,
        backoff_us: int = 200_000,
        on_follower_read: Callable[[], None],
        on_loss: Callable[[], None],
    ) -> None:
        super().__init__(address, scheduler, network, stream)
        self.partition = partition
        self.position = 0
        self.topic_id: uuid.UUID | None = None
        """Of the topic that it reads; of another one under the same name it begins anew."""
        self.epoch = NO_LEADER_EPOCH
        """Of the batch before the position, where it was come to by reading."""
        self.records = 0
        self.reads_again = True
        self._cluster = cluster
        self._isolation = isolation
        self._rack = rack
        self._wait_ms = wait_ms
        self._backoff_us = backoff_us
        self._on_follower_read = on_follower_read
        self._on_loss = on_loss
        self._leader: int | None = None
        self._follower: int | None = None
        """The replica that the leader has named."""
        scheduler.after(stream.below(backoff_us), self._fetch)

    def _fetch(self, _: None) -> None:
        if self._leader is None:
            self._look_up()
        if self._leader is None or self.topic_id is None:
            self._back_off()
            return
        request = FetchRequest(
            partitions=(
                FetchPartition(
                    topic_partition=self.partition,
                    topic_id=self.topic_id,
                    fetch_offset=self.position,
                    last_fetched_epoch=self.epoch,
                ),
            ),
            wait_ms_max=self._wait_ms,
            isolation=self._isolation,
            rack=self._rack,
            max_bytes=self.stream.choice((1, 500, 10_000)),
        )
        target = self._leader if self._follower is None else self._follower
        self.ask(target, request, TIMEOUT_US, self._fetched)

    def _look_up(self) -> None:
        registration = self._cluster.lookup(self.partition)
        if registration is None:
            return
        self._leader = registration.leader_id
        if self.topic_id != registration.topic_id:
            self.topic_id = registration.topic_id
            self._go_on_at(0)

    def _fetched(self, response: FetchResponse | None) -> None:
        if response is None or not response.partitions:
            self._back_off()
            return
        fetched = response.partitions[0]
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._follower is not None:
                self._follower = None
                self._back_off()
                return
            self._seek()
            return
        if fetched.error is not ErrorCode.NONE:
            self._back_off()
            return
        if fetched.diverging_epoch is not None:
            self._lose(fetched)
            return
        if fetched.preferred_read_replica is not None:
            self._follower = fetched.preferred_read_replica
        elif fetched.records is not None:
            self._take(fetched.records)
        elif self.reads_again and self.stream.chance(READ_AGAIN):
            self._seek()
            return
        self._fetch(None)

    def _take(self, records: Any) -> None:
        for batch in records:
            if batch.base_offset > self.position:
                raise Violation(
                    "I19", f"consumer {self.address} at {self.position} was given {records}"
                )
            if batch.last_offset >= self.position:
                self.records += batch.last_offset + 1 - self.position
                self.position = batch.last_offset + 1
                self.epoch = batch.leader_epoch
        if self._follower is not None:
            self._on_follower_read()

    def _lose(self, fetched: FetchedPartition) -> None:
        """What was read is not there; a follower may merely be behind."""
        assert fetched.diverging_epoch is not None
        if self._follower is None:
            self._on_loss()
            self._go_on_at(min(self.position, fetched.diverging_epoch.end_offset))
        self._back_off()

    def _go_on_at(self, offset: int) -> None:
        self.position = offset
        self.epoch = NO_LEADER_EPOCH

    def _seek(self) -> None:
        """Go on at the start of what is left."""
        assert self._leader is not None
        assert self.topic_id is not None
        request = ListOffsetsRequest(
            topic_partition=self.partition, topic_id=self.topic_id, timestamp=OffsetSpec.EARLIEST
        )
        self.ask(self._leader, request, TIMEOUT_US, self._found)

    def _found(self, response: ListOffsetsResponse | None) -> None:
        if response is not None and response.error is ErrorCode.NONE:
            self._go_on_at(response.offset)
        self._back_off()

    def _back_off(self) -> None:
        self._leader = None
        self._follower = None
        self.scheduler.after(
            self._backoff_us // 2 + self.stream.below(self._backoff_us), self._fetch
        )
