"""Brokers' lives as the controller sees them: registration, heartbeats, fencing, shutdown.

A broker registers (fenced), catches up with the metadata of that version, and is unfenced. It is
fenced again when its session runs out or its connections are reset. That ends its epoch: whatever
it says under it is refused, and it takes part again once it has registered anew and caught up with
that. Before it stops it asks for a controlled shutdown: its leaderships move, and it may go when
every live broker has heard of it (KIP-631).
"""

from __future__ import annotations

import functools

from replog.admin_messages import AdminResponse, UnregisterBrokerRequest
from replog.config import ControllerOptions
from replog.controller.broker_contacts import BrokerContact, BrokerContacts
from replog.controller.broker_image import (
    BEGIN_SHUTDOWN,
    FENCE,
    UNFENCE,
    BrokerImage,
    raw_incarnation,
    register_record,
)
from replog.controller.copy_identity import (
    Copies,
    Return,
    judge,
    raw_directory,
)
from replog.controller.decision import Decision
from replog.controller.incidents import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    FenceCause,
)
from replog.controller.leader_selection import LogEnd
from replog.controller.partition_control import PartitionControl
from replog.controller.partition_image import PartitionImage
from replog.messages import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from replog.registrations import BrokerRegistration
from replog.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
)


class BrokerControl:
    """Carries out what brokers say of themselves."""

    def __init__(
        self,
        decision: Decision,
        partitions: PartitionControl,
        contacts: BrokerContacts,
        options: ControllerOptions,
        cluster_id: str | None,
    ) -> None:
        self._decision = decision
        self._image = decision.image
        self._partitions = partitions
        self._cluster_id = cluster_id
        self._timeout_ms = options.broker_session_timeout_ms
        self.contacts = contacts

    def register(self, request: RegisterBrokerRequest, now_ms: int) -> RegisterBrokerResponse:
        """Give a started broker its epoch: the offset of the record that registers it."""
        known = self._image.brokers.get(request.broker_id)
        if (
            request.cluster_id is not None
            and self._cluster_id is not None
            and request.cluster_id != self._cluster_id
        ):
            return RegisterBrokerResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID)
        incarnation = raw_incarnation(request.incarnation_id)
        is_same = known is not None and known.incarnation == incarnation
        if known and is_same and not known.is_over:
            # The first answer was lost or late: it is the same process, and so the same epoch.
            contact = self.contacts[request.broker_id]
            contact.heard_of(now_ms)
            return RegisterBrokerResponse(
                broker_epoch=known.registration.broker_epoch, version=contact.catch_up_version
            )
        if (
            known
            and not is_same
            and self.contacts[request.broker_id].has_session(now_ms, self._timeout_ms)
        ):
            return RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        previous_epoch = known.registration.broker_epoch if known else None
        registration = BrokerRegistration(
            broker_id=request.broker_id,
            broker_epoch=self._decision.next_offset,
            rack=request.rack,
            fenced=True,
            listeners=request.listeners,
        )
        back = Return.AS_IT_WAS if is_same else judge(known, request)
        directory = raw_directory(request)
        self._decision.write(register_record(registration, incarnation, directory))
        self._decision.report(
            BrokerRegistered(
                broker_id=request.broker_id,
                broker_epoch=registration.broker_epoch,
                previous_epoch=previous_epoch,
                unclean=back is not Return.AS_IT_WAS,
                other_directory=back is Return.OTHER,
            )
        )
        if not is_same:
            # A process that never stopped has its logs as they were.
            self._judge_logs(request, known, back)
        version = self._decision.next_offset
        self.contacts.add(
            request.broker_id, BrokerContact(heard_ms=now_ms, catch_up_version=version)
        )
        return RegisterBrokerResponse(broker_epoch=registration.broker_epoch, version=version)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Hear that a broker lives, how far it is, and what it wants."""
        broker = self._image.brokers.get(request.broker_id)
        if broker is None:
            return HeartbeatResponse(error=ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.registration.broker_epoch != request.broker_epoch:
            return HeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH)
        if broker.is_over and not request.want_shut_down:
            return HeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH)
        contact = self.contacts[request.broker_id]
        was_there = contact.session_open
        contact.heard_of(now_ms)
        self.contacts.applied(request.broker_id, request.version)
        self._hear_of_logs(request)
        if request.want_shut_down:
            return self._shut_down(broker, contact, now_ms)
        if broker.registration.fenced and request.version >= contact.catch_up_version:
            self._unfence(broker)
        elif not was_there and not broker.registration.fenced:
            self._elect_for(request.broker_id)
        return HeartbeatResponse(fenced=broker.registration.fenced)

    def connection_lost(self, broker_id: int, now_ms: int) -> None:
        """Its process is gone, most likely: fence it now; if not, it registers again."""
        contact = self.contacts.get(broker_id)
        if contact is None:
            return
        contact.session_open = False
        broker = self._image.brokers[broker_id]
        if not broker.registration.fenced:
            self._fence(broker, FenceCause.CONNECTION_LOST, now_ms)

    def expire(self, now_ms: int) -> None:
        """Fence the brokers that have been silent for too long."""
        for broker_id in self.contacts.silent(now_ms):
            self._fence(self._image.brokers[broker_id], FenceCause.SESSION_EXPIRED, now_ms)

    def unregister(self, request: UnregisterBrokerRequest) -> AdminResponse:
        """Forget a broker that is gone for good."""
        broker = self._image.brokers.get(request.broker_id)
        if broker is None:
            return AdminResponse(
                error=ErrorCode.BROKER_ID_NOT_REGISTERED,
                message=(
                    f"expected a registered broker, found {request.broker_id}; known are "
                    f"{sorted(self._image.brokers)}"
                ),
            )
        held = self._image.held_by.get(request.broker_id)
        if held or not broker.registration.fenced:
            return AdminResponse(
                error=ErrorCode.INVALID_REQUEST,
                message=(
                    f"expected a broker that is stopped and holds no replica, found "
                    f"{request.broker_id} with {len(held or ())} replicas, "
                    f"{'stopped' if broker.registration.fenced else 'running'}; reassign its "
                    f"partitions and stop it first"
                ),
            )
        self._decision.write(
            UnregisterBrokerRecord(
                broker_id=request.broker_id, broker_epoch=broker.registration.broker_epoch
            )
        )
        self.contacts.remove(request.broker_id)
        return AdminResponse(version=self._decision.next_offset)

    def _hear_of_logs(self, request: HeartbeatRequest) -> None:
        for log in request.damaged:
            partition = self._image.partition(log.topic_partition)
            if (
                partition is not None
                and partition.topic.topic_id == log.topic_id
                and partition.partition_epoch == log.partition_epoch
                and request.broker_id in partition.replicas
                and request.broker_id not in self._partitions.reports.damaged(partition)
                and not partition.has_joined_since(
                    request.broker_id, request.first_broker_epoch, log.leader_epoch
                )
            ):
                self._partitions.losses.gone(partition, (request.broker_id,))
                self._found_damaged(partition, request.broker_id)
        for told in request.leaderless:
            partition = self._image.partition(told.topic_partition)
            if partition is None or partition.topic.topic_id != told.topic_id:
                continue
            end = LogEnd(told.latest_epoch, told.log_end_offset)
            heard = functools.partial(
                self._partitions.told_end, partition, request.broker_id, told.leader_epoch, end
            )
            self._partitions.attempt(partition, heard)
        for lost in request.lost:
            partition = self._image.partition(lost.topic_partition)
            if partition is not None and partition.topic.topic_id == lost.topic_id:
                self._partitions.losses.told(partition, request.broker_id, lost)

    def _judge_logs(
        self, request: RegisterBrokerRequest, known: BrokerImage | None, back: Return
    ) -> None:
        """What the broker found on its disks decides what its replicas may vouch for.

        A log that is missing, though nothing says that it held records, is as suspect as one after
        an unclean stop.
        """
        found = {(log.topic_partition, log.topic_id): log for log in request.replicas}
        copies = Copies(known, request, back)
        broker_id = request.broker_id
        for partition in self._held_by(broker_id):
            log = found.get((partition.name, partition.topic.topic_id))
            copy = copies.judge(log, partition.lost.get(broker_id))
            damaged = log is not None and log.damaged
            if damaged or copy.lost is not None or log is None:
                self._partitions.losses.gone(partition, (broker_id,))
            if damaged and copy.lost is None:
                self._found_damaged(partition, broker_id)
            else:
                returned = functools.partial(self._partitions.returned, partition, broker_id, copy)
                self._partitions.attempt(partition, returned)

    def _found_damaged(self, partition: PartitionImage, broker_id: int) -> None:
        found = functools.partial(self._partitions.found_damaged, partition, broker_id)
        self._partitions.attempt(partition, found)

    def _held_by(self, broker_id: int) -> list[PartitionImage]:
        return list(self._image.held_by.get(broker_id, ()))

    def _unfence(self, broker: BrokerImage) -> None:
        broker_id = broker.registration.broker_id
        self._change(broker, fenced=UNFENCE)
        self._decision.report(
            BrokerUnfenced(broker_id=broker_id, broker_epoch=broker.registration.broker_epoch)
        )
        self._elect_for(broker_id)

    def _elect_for(self, broker_id: int) -> None:
        """A broker may lead from now on."""
        for partition in list(self._image.leaderless):
            if broker_id in partition.replicas:
                settle = functools.partial(self._partitions.settle, partition)
                self._partitions.attempt(partition, settle)

    def _fence(self, broker: BrokerImage, cause: FenceCause, now_ms: int) -> None:
        broker_id = broker.registration.broker_id
        contact = self.contacts[broker_id]
        self._change(broker, fenced=FENCE)
        self._decision.report(
            BrokerFenced(
                broker_id=broker_id,
                broker_epoch=broker.registration.broker_epoch,
                cause=cause,
                silent_ms=now_ms - contact.heard_ms,
            )
        )
        for partition in self._held_by(broker_id):
            if broker_id in partition.isr:
                settle = functools.partial(self._partitions.settle, partition, leaving=broker_id)
                self._partitions.attempt(partition, settle)

    def _shut_down(
        self, broker: BrokerImage, contact: BrokerContact, now_ms: int
    ) -> HeartbeatResponse:
        fenced = broker.registration.fenced
        broker_id = broker.registration.broker_id
        if not fenced and contact.shutdown_version is None:
            self._change(broker, in_controlled_shutdown=BEGIN_SHUTDOWN)
            for partition in self._held_by(broker_id):
                if broker_id in partition.isr:
                    hand_over = functools.partial(self._partitions.hand_over, partition, broker_id)
                    self._partitions.attempt(partition, hand_over)
            contact.shutdown_version = self._decision.next_offset
        if not fenced and not self._handed_over(contact):
            return HeartbeatResponse(fenced=False)
        if not fenced:
            self._fence(broker, FenceCause.SHUT_DOWN, now_ms)
        contact.session_open = False
        return HeartbeatResponse(fenced=True, should_shut_down=True)

    def _handed_over(self, leaving: BrokerContact) -> bool:
        """Whether every live broker knows that another leads what this one led."""
        version = leaving.shutdown_version
        return version is not None and all(
            self.contacts[broker_id].applied_version >= version
            for broker_id, broker in self._image.brokers.items()
            if broker.registration.eligible
        )

    def _change(
        self, broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0
    ) -> None:
        self._decision.write(
            BrokerRegistrationChangeRecord(
                broker_id=broker.registration.broker_id,
                broker_epoch=broker.registration.broker_epoch,
                fenced=fenced,
                in_controlled_shutdown=in_controlled_shutdown,
            )
        )
