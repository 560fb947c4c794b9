"""The brokers of an in-process cluster: started, killed, paused, cut off, stopped, restarted.

What has happened to whom is kept here; misuse is told as such, naming what the broker is doing.
"""

from __future__ import annotations

import asyncio
import enum
import os
import time
from typing import TYPE_CHECKING

from replog.errors import UsageError
from replog.messages import ErrorCode
from replog.runtime.cluster_pump import BrokerEndpoint, ClusterPump
from replog.runtime.failover_watch import FailoverWatch
from replog.runtime.journal import Journal, JournalEntry
from replog.runtime.log_store import DirectoryLogStore
from replog.runtime.memory_transport import CONTROLLER
from replog.storage.kafka_uuid import format_uuid, random_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replog.config import ControllerOptions, LogConfig, ReplicationOptions
    from replog.controller.model_controller import ModelController
    from replog.runtime.broker_node import BrokerNode
    from replog.runtime.failover_watch import Fault
    from replog.types import TopicPartition


class MemberState(enum.Enum):
    """What a broker is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"


class ClusterMembers:
    """All brokers of one cluster. Not for use outside the pump's thread."""

    def __init__(
        self,
        pump: ClusterPump,
        model: ModelController,
        directory: str,
        broker_ids: Sequence[int],
        *,
        racks: Mapping[int, str],
        replication: ReplicationOptions,
        controller: ControllerOptions,
    ) -> None:
        self.ids = tuple(broker_ids)
        self.directory = directory
        self.cluster_id = format_uuid(random_uuid())
        self.configs: dict[str, LogConfig] = {}
        """Options of the topics' logs, for brokers that start again."""
        self.states = dict.fromkeys(self.ids, MemberState.STOPPED)
        self.watch = FailoverWatch(model.partition, self.is_leading, time.perf_counter)
        self._pump = pump
        self._model = model
        self._racks = dict(racks)
        self._replication = replication
        self._controller = controller
        self._journals = {broker_id: Journal(broker_id) for broker_id in self.ids}
        self._runs = 0
        self._cuts: set[frozenset[int]] = set()
        pump.after_turn += (self.watch.look,)

    def node(self, broker_id: int) -> BrokerNode:
        """A broker that runs or is paused. Raises UsageError for any other."""
        self.check_id(broker_id)
        endpoint = self._pump.brokers.get(broker_id)
        if endpoint is None:
            raise UsageError(
                f"expected a running broker, found {broker_id} {self.states[broker_id].value}; "
                f"restart it first"
            )
        return endpoint.node

    def log_directory(self, broker_id: int) -> str:
        """Where a broker keeps its logs, also while it does not run."""
        self.check_id(broker_id)
        return os.path.join(self.directory, f"broker-{broker_id}")

    def journal(self, broker_id: int) -> Journal:
        """Incidents of all runs of a broker."""
        return self._journals[broker_id]

    def entries(self, topic_partition: TopicPartition | None) -> list[JournalEntry]:
        """Incidents of all brokers, by time."""
        found = [
            entry
            for journal in self._journals.values()
            for entry in journal.incidents(topic_partition)
        ]
        return sorted(found, key=lambda entry: entry.at_ms)

    def is_leading(self, broker_id: int, topic_partition: TopicPartition, epoch: int) -> bool:
        """Whether a broker takes requests as the partition's leader in this epoch."""
        endpoint = self._pump.brokers.get(broker_id)
        if endpoint is None or endpoint.paused:
            return False
        leader = endpoint.node.host.leader(topic_partition)
        return leader is not None and leader.leader_epoch >= epoch

    def is_ready(self, broker_id: int) -> bool:
        """Whether the controller lets a broker lead."""
        registered = self._model.broker(broker_id)
        endpoint = self._pump.brokers.get(broker_id)
        return (
            registered is not None
            and endpoint is not None
            and registered.eligible
            and registered.broker_epoch == endpoint.node.broker_epoch
        )

    def open_new(self, broker_id: int) -> None:
        """Start a broker in a new directory: quick, on this thread."""
        self._add(broker_id, self._open_store(broker_id))

    async def start(self, broker_id: int) -> None:
        """Start a broker that does not run; its recovery runs in a thread."""
        self.check_id(broker_id)
        if self.states[broker_id] not in {MemberState.STOPPED, MemberState.KILLED}:
            raise UsageError(
                f"expected a broker that does not run, found {broker_id} "
                f"{self.states[broker_id].value}; kill or stop it first"
            )
        self._add(broker_id, await asyncio.to_thread(self._open_store, broker_id))

    def kill(self, broker_id: int) -> None:
        """Let a broker die as its process would."""
        self.node(broker_id)
        self._lose(broker_id, "killed")
        self._pump.drop_broker(broker_id)
        self.states[broker_id] = MemberState.KILLED

    def pause(self, broker_id: int) -> None:
        """Let a broker stand still; nobody is told."""
        self._expect(broker_id, MemberState.RUNNING)
        self._lose(broker_id, "paused")
        self._pump.pause(broker_id)
        self.states[broker_id] = MemberState.PAUSED

    def resume(self, broker_id: int) -> None:
        """Let a paused broker go on."""
        self._expect(broker_id, MemberState.PAUSED)
        self.watch.returned(broker_id)
        self.states[broker_id] = MemberState.RUNNING
        self._pump.resume(broker_id)

    async def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly: leaderships moved away, logs flushed, closed and marked clean."""
        self._expect(broker_id, MemberState.RUNNING)
        self.states[broker_id] = MemberState.STOPPING
        self._lose(broker_id, "stopped")
        endpoint = self._pump.brokers[broker_id]
        ended: asyncio.Future[None] = self._pump.loop.create_future()
        endpoint.when_ended(lambda: None if ended.done() else ended.set_result(None))
        self._pump.run(endpoint, endpoint.node.shut_down, self._pump.clock.monotonic_ms())
        await ended
        if self._pump.brokers.get(broker_id) is not endpoint:
            return  # killed meanwhile
        self._pump.remove_broker(broker_id)
        await asyncio.to_thread(endpoint.node.close)
        self.states[broker_id] = MemberState.STOPPED

    def close_all(self, *, keep_files: bool) -> None:
        """Take all brokers off; close their logs cleanly only if the files are to be kept."""
        for broker_id in list(self._pump.brokers):
            endpoint = self._pump.remove_broker(broker_id)
            if keep_files:
                endpoint.node.close()
            else:
                endpoint.store.abandon()
            self.states[broker_id] = MemberState.STOPPED

    def cut(self, one: int, other: int) -> None:
        """Let nothing through between two nodes."""
        self._pump.transport.cut(one, other)
        self._cuts.add(frozenset((one, other)))
        if CONTROLLER in {one, other}:
            self._lose(one if other == CONTROLLER else other, "partitioned")

    def join(self, one: int, other: int) -> None:
        """Undo one `cut`."""
        self._cuts.discard(frozenset((one, other)))
        self._pump.transport.join(one, other)
        for broker_id in {one, other} - {CONTROLLER}:
            self.watch.returned(broker_id)

    def join_all(self) -> None:
        """Undo every `cut`."""
        for pair in list(self._cuts):
            self.join(*pair)

    def check_id(self, broker_id: int) -> None:
        """Raise UsageError unless the cluster has such a broker."""
        if broker_id not in self.states:
            raise UsageError(f"expected one of the brokers {list(self.ids)}, found {broker_id!r}")

    def _expect(self, broker_id: int, state: MemberState) -> None:
        self.check_id(broker_id)
        if self.states[broker_id] is not state:
            raise UsageError(
                f"expected broker {broker_id} to be {state.value}, found it "
                f"{self.states[broker_id].value}"
            )

    def _lose(self, broker_id: int, fault: Fault) -> None:
        led = [
            name
            for topic in self._model.topics()
            for name in self._model.partitions_of(topic)
            if (held := self._model.partition(name)) is not None and held.leader_id == broker_id
        ]
        self.watch.lost(broker_id, fault, led)

    def _open_store(self, broker_id: int) -> DirectoryLogStore:
        return DirectoryLogStore.at(
            self.log_directory(broker_id),
            broker_id,
            self.cluster_id,
            self.configs,
            self._pump.clock.wall_ms,
        )

    def _add(self, broker_id: int, store: DirectoryLogStore) -> None:
        self._runs += 1
        endpoint = BrokerEndpoint(
            self._pump,
            store,
            broker_id,
            incarnation_id=f"{broker_id}.{self._runs}",
            replication=self._replication,
            controller=self._controller,
            rack=self._racks.get(broker_id),
            journal=self._journals[broker_id],
        )
        endpoint.when_ended(lambda: self._ended(endpoint))
        self.states[broker_id] = MemberState.RUNNING
        self._pump.add_broker(endpoint)

    def _ended(self, endpoint: BrokerEndpoint) -> None:
        """A broker that the controller has refused for good must not go on."""
        ended = endpoint.node.ended
        if ended is not None and ended.error is not ErrorCode.NONE:
            self._pump.drop_broker(endpoint.broker_id)
            self.states[endpoint.broker_id] = MemberState.KILLED
