"""When brokers were last heard of, and how far they are: soft, a new controller begins it anew."""

from __future__ import annotations

import dataclasses

from replog.controller.metadata_image import MetadataImage


@dataclasses.dataclass(slots=True, kw_only=True)
class BrokerContact:
    """One registered broker. Times are of one monotonic clock, in ms; versions are end offsets."""

    heard_ms: int
    catch_up_version: int
    """It was registered at this version, and must have applied it before it is unfenced."""
    applied_version: int = 0
    """Metadata that it says it has applied."""
    has_told: bool = False
    """It has said so at all, to this controller."""
    session_open: bool = True
    """False once its connections were reset or its shutdown is complete, until it is heard of."""
    shutdown_version: int | None = None
    """Metadata that moved its leaderships away, in a controlled shutdown."""

    def heard_of(self, now_ms: int) -> None:
        """It lives."""
        self.heard_ms = now_ms
        self.session_open = True

    def has_session(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether another incarnation of it must be refused, since this one seems alive."""
        return self.session_open and now_ms - self.heard_ms < timeout_ms


class BrokerContacts:
    """All registered brokers. Invariant, while active: the image's brokers, and no other."""

    def __init__(self, image: MetadataImage, timeout_ms: int) -> None:
        self._image = image
        self._timeout_ms = timeout_ms
        self._contacts: dict[int, BrokerContact] = {}
        self.changes = 0
        """Grows whenever a broker has applied more, or is another."""

    def __getitem__(self, broker_id: int) -> BrokerContact:
        return self._contacts[broker_id]

    def get(self, broker_id: int) -> BrokerContact | None:
        """None for one that is not registered."""
        return self._contacts.get(broker_id)

    def is_there(self, broker_id: int) -> bool:
        """Whether a broker may lead, and this controller has heard of it.

        What the metadata say of one that has not been heard of yet may be as old as they are: with
        a whole cluster that was closed or lost its power it is of processes that are gone.
        """
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.session_open and self._image.is_live(broker_id)

    def begin(self, now_ms: int) -> None:
        """Another controller knew when it had heard of whom: all sessions begin anew.

        Nobody has been heard of here, so a broker that comes back from a crash that took the
        controller as well need not wait for the session of the process that it was.
        """
        version = self._image.end_offset
        self.changes += 1
        self._contacts = {
            broker_id: BrokerContact(
                heard_ms=now_ms,
                catch_up_version=version,
                session_open=False,
                shutdown_version=version if known.registration.in_controlled_shutdown else None,
            )
            for broker_id, known in self._image.brokers.items()
        }

    def add(self, broker_id: int, contact: BrokerContact) -> None:
        """A broker has registered."""
        self.changes += 1
        self._contacts[broker_id] = contact

    def remove(self, broker_id: int) -> None:
        """A broker was unregistered."""
        self.changes += 1
        self._contacts.pop(broker_id, None)

    def applied(self, broker_id: int, version: int) -> None:
        """It says that it has applied this much."""
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.has_told = True
        if contact is not None and version > contact.applied_version:
            self.changes += 1
            contact.applied_version = min(version, self._image.end_offset)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first session runs out."""
        first_ms = None
        brokers = self._image.brokers
        for broker_id, contact in self._contacts.items():
            is_first = first_ms is None or contact.heard_ms < first_ms
            if is_first and not brokers[broker_id].registration.fenced:
                first_ms = contact.heard_ms
        return None if first_ms is None else first_ms + self._timeout_ms

    def silent(self, now_ms: int) -> list[int]:
        """The brokers whose sessions have run out, in order."""
        return [
            broker_id
            for broker_id, contact in sorted(self._contacts.items())
            if now_ms - contact.heard_ms >= self._timeout_ms
            and not self._image.brokers[broker_id].registration.fenced
        ]
