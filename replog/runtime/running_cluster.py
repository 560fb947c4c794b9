"""A local cluster between start and close: controller, brokers, clients and what ties them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from replog.client.producer import Producer
from replog.client.protocol_errors import error_of
from replog.controller.model_controller import ModelController
from replog.errors import RequestTimedOutError
from replog.messages import ErrorCode
from replog.runtime.cluster_connection import MemoryConnection
from replog.runtime.cluster_members import ClusterMembers
from replog.runtime.cluster_pump import ClientEndpoint, ClusterPump, ControllerEndpoint
from replog.runtime.memory_transport import CLIENT, CONTROLLER
from replog.storage.kafka_uuid import random_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from replog.client.producer import AcksName
    from replog.config import ControllerOptions, ReplicationOptions
    from replog.messages import ControllerRequest
    from replog.runtime.clock import Clock
    from replog.types import TopicPartition

TIMEOUT_MS = 30_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What the brokers of a cluster are started with."""

    racks: Mapping[int, str]
    replication: ReplicationOptions
    controller: ControllerOptions
    clock: Clock


class RunningCluster:
    """See the module. Not for use outside the loop that made it."""

    def __init__(self, options: ClusterOptions, directory: str, broker_ids: Sequence[int]) -> None:
        loop = asyncio.get_running_loop()
        self.model = ModelController(options.controller, random_uuid)
        self.pump = ClusterPump(loop, options.clock, self._metadata_changed)
        self.controller = ControllerEndpoint(self.pump, self.model)
        self.clients = ClientEndpoint(self.pump)
        self.connection = MemoryConnection(loop, options.clock, self.model, self.clients)
        self.members = ClusterMembers(
            self.pump,
            self.model,
            directory,
            broker_ids,
            racks=options.racks,
            replication=options.replication,
            controller=options.controller,
        )
        self.producers: list[Producer] = []
        self._by_acks: dict[AcksName, Producer] = {}
        self.pump.add_controller(self.controller)
        self.pump.transport.attach(CLIENT, self.clients)

    def producer(self, acks: AcksName) -> Producer:
        """The cluster's own producer."""
        found = self._by_acks.get(acks)
        if found is None:
            found = Producer(self.connection, acks=acks)
            self._by_acks[acks] = found
            self.producers.append(found)
        return found

    def has_leader(self, topic_partition: TopicPartition) -> bool:
        """Whether the leader that the controller has decided on takes requests."""
        registration = self.model.partition(topic_partition)
        return (
            registration is not None
            and registration.leader_id is not None
            and self.members.is_leading(
                registration.leader_id, topic_partition, registration.leader_epoch
            )
        )

    async def ask_controller(self, request: ControllerRequest) -> Any:
        """The controller's answer. Raises what it refuses."""
        future: asyncio.Future[Any] = self.pump.loop.create_future()
        self.clients.ask(CONTROLLER, request, future.set_result)
        response = await future
        if response.error is not ErrorCode.NONE:
            raise error_of(response.error, response.message or response.error.name)
        return response

    async def until(
        self, holds: Callable[[], bool], what: str, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Return once `holds`, looked at after each turn. Raises RequestTimedOutError."""
        if holds():
            return
        future: asyncio.Future[None] = self.pump.loop.create_future()

        def look() -> None:
            if not future.done() and holds():
                future.set_result(None)

        self.pump.after_turn += (look,)
        try:
            await asyncio.wait_for(future, timeout_ms / 1000)
        except TimeoutError:
            raise RequestTimedOutError(
                f"expected {what} within {timeout_ms} ms, found that it is not so; see incidents()"
            ) from None
        finally:
            self.pump.after_turn = tuple(call for call in self.pump.after_turn if call is not look)

    def close(self, *, keep_files: bool) -> None:
        """Close the clients first: they must not send to brokers that go."""
        for producer in self.producers:
            producer.close()
        self.clients.close()
        try:
            self.members.close_all(keep_files=keep_files)
        finally:
            self.pump.close()

    def _metadata_changed(self) -> None:
        self.members.watch.look()
        self.connection.metadata_changed()
