"""A local cluster between start and close: controllers, brokers, clients and what ties them."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import weakref
from typing import TYPE_CHECKING, Any

from replog.client.arguments import acks_of
from replog.client.producer import Producer
from replog.client.protocol_errors import error_of
from replog.controller.command_form import fault_of, not_a_command
from replog.controller.refusals import is_command
from replog.errors import RequestTimedOutError, UsageError
from replog.messages import ErrorCode
from replog.runtime.cluster_connection import MemoryConnection, closed_meanwhile
from replog.runtime.cluster_members import ClusterMembers
from replog.runtime.cluster_nodes import format_voters
from replog.runtime.cluster_pump import ClientEndpoint, ClusterPump
from replog.runtime.cluster_view import ClusterView
from replog.runtime.command_outcome import CommandOutcome
from replog.runtime.memory_transport import CLIENT, controller_address
from replog.runtime.quorum_endpoints import QuorumSettings
from replog.storage.kafka_uuid import random_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from replog.admin_messages import AdminRequest
    from replog.client.producer import AcksName
    from replog.config import ControllerOptions, QuorumOptions, ReplicationOptions
    from replog.messages import Acks, ControllerRequest
    from replog.runtime.clock import Clock
    from replog.runtime.cluster_nodes import ClusterLayout
    from replog.types import TopicPartition

TIMEOUT_MS = 30_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What the nodes of a cluster are started with."""

    layout: ClusterLayout
    racks: Mapping[int, str]
    replication: ReplicationOptions
    controller: ControllerOptions
    quorum: QuorumOptions
    clock: Clock


class RunningCluster:
    """See the module. Not for use outside the loop that made it."""

    def __init__(self, options: ClusterOptions, directory: str, cluster_id: str) -> None:
        loop = asyncio.get_running_loop()
        self.view = ClusterView(self._metadata_changed)
        self.pump = ClusterPump(loop, options.clock)
        self.clients = ClientEndpoint(self.pump)
        self.connection = MemoryConnection(loop, options.clock, self.view, self.clients)
        self.members = ClusterMembers(
            self.pump,
            self.view,
            directory,
            options.layout,
            QuorumSettings(
                voters=options.layout.controllers,
                quorum=options.quorum,
                controller=options.controller,
                cluster_id=cluster_id,
                new_id=random_uuid,
                draw_below=random.randrange,
            ),
            racks=options.racks,
            replication=options.replication,
        )
        self._options, self._directory = options, directory
        self.producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        """Those that are in use; one that sends is, whoever else has dropped it."""
        self._untils: set[asyncio.Future[None]] = set()
        self._closed = False
        self._by_acks: dict[Acks, Producer] = {}
        self.pump.transport.attach(CLIENT, self.clients)

    def new_producer(self, **options: Any) -> Producer:
        """One that is closed with the cluster; options as `Producer` has them."""
        made = Producer(self.connection, **options)
        self.producers.add(made)
        return made

    def producer(self, acks: AcksName) -> Producer:
        """The cluster's own producer."""
        asked = acks_of(acks)
        found = self._by_acks.get(asked)
        if found is None:
            found = self._by_acks[asked] = self.new_producer(acks=acks)
        return found

    def has_leader(self, topic_partition: TopicPartition) -> bool:
        """Whether the leader that the controller has decided on takes requests."""
        registration = self.view.partition(topic_partition)
        return (
            registration is not None
            and registration.leader_id is not None
            and self.members.is_leading(
                registration.leader_id, topic_partition, registration.leader_epoch
            )
        )

    async def ask_controller(self, request: ControllerRequest | AdminRequest) -> Any:
        """The active controller's answer. Raises what it refuses, RequestTimedOutError, UsageError.

        A controller that steps down, or dies, is asked no further: its successor is, as soon as
        there is one. What the first of them may have done already is no error of the second: it is
        success, or, where nobody can tell, REQUEST_TIMED_OUT, of the whole or of a part.
        """
        fault = fault_of(request) if is_command(request) else not_a_command(request)
        if fault is not None:
            raise UsageError(fault)
        unsure = False
        outcome = None
        wait_s = (TIMEOUT_MS + getattr(request, "wait_ms_max", 0)) / 1000
        deadline_s = self.pump.loop.time() + wait_s
        while True:
            await self.until(lambda: self.view.active_id is not None, "an active controller")
            outcome = outcome or CommandOutcome(request, self.view.image)
            response = await self._ask_active(request, wait_s)
            if response is not None and response.error is not ErrorCode.NOT_CONTROLLER:
                break
            # One that stepped down may have appended it, and what it appended may be committed yet.
            unsure = True
            if self.pump.loop.time() >= deadline_s:
                raise RequestTimedOutError(
                    f"expected an answer to {type(request).__name__} within {wait_s:.0f} s, found "
                    f"no controller that stays active and answers; see incidents()"
                )
        if unsure:
            response = outcome.settle(response)
        if response.error is not ErrorCode.NONE:
            message = getattr(response, "message", None)
            raise error_of(response.error, message or response.error.name)
        return response

    async def _ask_active(self, request: ControllerRequest | AdminRequest, wait_s: float) -> Any:
        """The answer of the controller that is active now.

        None if its connection breaks, another becomes active, or none comes in time.
        """
        active_id = self.view.active_id
        if active_id is None:
            return None
        future: asyncio.Future[Any] = self.pump.loop.create_future()

        def answered(response: Any) -> None:
            if not future.done():
                future.set_result(response)

        def look() -> None:
            if self.view.active_id not in {None, active_id}:
                answered(None)

        asked = self.clients.ask(controller_address(active_id), request, answered)
        self.pump.after_turn += (look,)
        try:
            return await asyncio.wait_for(future, wait_s)
        except TimeoutError:
            return None
        finally:
            self.clients.give_up(asked)
            self.pump.after_turn = tuple(call for call in self.pump.after_turn if call is not look)

    async def start(self, *, is_new: bool) -> None:
        """Start all nodes, and return when each broker may lead; quicker where all `is_new`.

        Raises MissingLogError where the metadata log is gone, or lacks what a broker's copy has.
        """
        layout, members = self._options.layout, self.members
        format_voters(self._directory, layout)
        for node_id in layout.nodes:
            if is_new:
                members.open_new(node_id)
            else:
                await members.start(node_id)
        what = "every broker to be registered"
        await self.until(members.are_ready, what, found=members.what_is_missing)

    async def until(
        self,
        holds: Callable[[], bool],
        what: str,
        timeout_ms: int = TIMEOUT_MS,
        found: Callable[[], str] = lambda: "that it is not so; see incidents()",
    ) -> None:
        """Return once `holds`, looked at after each turn; what is `found` instead is an error's.

        Raises RequestTimedOutError, ReplicationError if the cluster is closed meanwhile.
        """
        if self._closed:
            raise closed_meanwhile()
        if holds():
            return
        future: asyncio.Future[None] = self.pump.loop.create_future()

        def look() -> None:
            if future.done():
                return
            try:
                if holds():
                    future.set_result(None)
            except Exception as error:  # the caller's to see; the pump must go on
                future.set_exception(error)

        self.pump.after_turn += (look,)
        self._untils.add(future)
        try:
            await asyncio.wait_for(future, timeout_ms / 1000)
        except TimeoutError:
            raise RequestTimedOutError(
                f"expected {what} within {timeout_ms} ms, found {found()}"
            ) from None
        finally:
            self._untils.discard(future)
            self.pump.after_turn = tuple(call for call in self.pump.after_turn if call is not look)

    async def close(self, *, keep_files: bool) -> None:
        """Close the clients first: they must not send to brokers that go.

        What is still asked or waited for raises a ReplicationError. On return, also of one that was
        called off, nobody is at any file.
        """
        self._closed = True
        for producer in list(self.producers):
            producer.close()
        self.clients.close()
        self.connection.close()
        for future in self._untils:
            if not future.done():
                future.set_exception(closed_meanwhile())
        try:
            self.members.close_all(keep_files=keep_files)
        finally:
            self.pump.close()
            await self.members.files.drained()

    def _metadata_changed(self) -> None:
        self.members.watch.look()
        self.connection.metadata_changed()
