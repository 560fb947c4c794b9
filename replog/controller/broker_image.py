"""One broker as the metadata log tells it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import hashlib

from replog.registrations import BrokerRegistration, Listener
from replog.wire.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)

FENCE = 1
UNFENCE = -1
UNCHANGED = 0
BEGIN_SHUTDOWN = 1


def raw_incarnation(incarnation_id: str) -> bytes:
    """The 16 bytes that stand for an incarnation in records: its UUID's if it is one in Kafka's
    text form, else a digest.
    """
    if len(incarnation_id) == 22:
        with contextlib.suppress(binascii.Error, ValueError):
            raw = base64.urlsafe_b64decode(incarnation_id + "==")
            # Other texts of that length can decode to the same bytes.
            if len(raw) == 16 and base64.urlsafe_b64encode(raw).decode() == incarnation_id + "==":
                return raw
    return hashlib.blake2b(incarnation_id.encode(), digest_size=16).digest()


class BrokerImage:
    """A registered broker, changed by replaying records only."""

    __slots__ = ("_earlier", "directory", "incarnation", "is_over", "registration")

    def __init__(self, record: RegisterBrokerRecord, before: BrokerImage | None = None) -> None:
        """before: the broker's registration so far."""
        self.incarnation = record.incarnation_id
        self.directory = record.log_dirs[0] if record.log_dirs else None
        """The id of the directory that its logs are in; None: it did not say."""
        self._earlier = None if before is None else before.active_epoch
        self.is_over = False
        """It took part under this epoch, and was fenced: only another epoch lets it back."""
        self.registration = BrokerRegistration(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            listeners=tuple(
                Listener(
                    name=found.name,
                    host=found.host,
                    port=found.port,
                    protocol=found.security_protocol,
                )
                for found in record.end_points
            ),
        )

    @property
    def active_epoch(self) -> int | None:
        """The latest epoch under which the broker has taken part; None: it never has."""
        if self.is_over or not self.registration.fenced:
            return self.registration.broker_epoch
        return self._earlier

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Take what has changed; a broker that is fenced is not shutting down any more."""
        before = self.registration
        fenced = before.fenced
        if record.fenced != UNCHANGED:
            fenced = record.fenced == FENCE
        leaving = before.in_controlled_shutdown or record.in_controlled_shutdown == BEGIN_SHUTDOWN
        if record.fenced == FENCE:
            leaving = False
        self.is_over = fenced and (self.is_over or not before.fenced)
        self.registration = BrokerRegistration(
            broker_id=before.broker_id,
            broker_epoch=before.broker_epoch,
            rack=before.rack,
            fenced=fenced,
            in_controlled_shutdown=leaving,
            listeners=before.listeners,
        )

    def records(self) -> list[RegisterBrokerRecord | BrokerRegistrationChangeRecord]:
        """The state as records of a snapshot.

        Kafka's record has no place for `is_over`: a fence behind a live registration says it. Nor
        has it one for an earlier epoch in which the broker took part: a live registration of that
        epoch comes first.
        """
        found = self.registration
        own = register_record(found, self.incarnation, self.directory)
        if not self.is_over:
            if self.active_epoch in {None, found.broker_epoch}:
                return [own]
            earlier = dataclasses.replace(
                found, broker_epoch=self.active_epoch, fenced=False, in_controlled_shutdown=False
            )
            return [register_record(earlier, self.incarnation, self.directory), own]
        live = dataclasses.replace(found, fenced=False)
        return [
            register_record(live, self.incarnation, self.directory),
            BrokerRegistrationChangeRecord(
                broker_id=found.broker_id, broker_epoch=found.broker_epoch, fenced=FENCE
            ),
        ]


def register_record(
    registration: BrokerRegistration, incarnation: bytes, directory: bytes | None = None
) -> RegisterBrokerRecord:
    """The record that registers a broker."""
    return RegisterBrokerRecord(
        broker_id=registration.broker_id,
        incarnation_id=incarnation,
        broker_epoch=registration.broker_epoch,
        end_points=tuple(
            BrokerEndpoint(
                name=found.name,
                host=found.host,
                port=found.port,
                security_protocol=found.protocol,
            )
            for found in registration.listeners
        ),
        rack=registration.rack,
        fenced=registration.fenced,
        in_controlled_shutdown=registration.in_controlled_shutdown,
        log_dirs=() if directory is None else (directory,),
    )
