"""One broker as the controller keeps it: its registration, and when it was last heard of."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from replog.registrations import BrokerRegistration
from replog.types import TopicPartition

if TYPE_CHECKING:
    import uuid


@dataclasses.dataclass(slots=True, kw_only=True)
class BrokerState:
    """A registered broker. Session times are soft: they are never part of the metadata."""

    registration: BrokerRegistration
    incarnation_id: str
    catch_up_version: int
    """It was fenced at this version, and must have applied it before it is unfenced."""
    applied_version: int = 0
    """Metadata that it says it has applied."""
    heard_ms: int = 0
    """When it was last heard of."""
    session_open: bool = True
    """False once its connections were reset or its shutdown is complete, until it is heard of."""
    shutdown_version: int | None = None
    """Metadata that moved its leaderships away, in a controlled shutdown."""
    logs_found: tuple[tuple[TopicPartition, uuid.UUID], ...] = ()
    """The logs it had when it registered: some may be of topics deleted meanwhile."""

    @property
    def broker_id(self) -> int:
        """Its name, chosen by its owner."""
        return self.registration.broker_id

    @property
    def fenced(self) -> bool:
        """Whether its replicas are kept out of leadership and in-sync sets."""
        return self.registration.fenced

    def heard_of(self, now_ms: int) -> None:
        """It lives."""
        self.heard_ms = now_ms
        self.session_open = True

    def has_session(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether another incarnation of it must be refused, since this one seems alive."""
        return self.session_open and now_ms - self.heard_ms < timeout_ms

    def replace(
        self, *, fenced: bool | None = None, in_controlled_shutdown: bool | None = None
    ) -> BrokerRegistration:
        """Change the registration; None leaves a mark as it is."""
        before = self.registration
        self.registration = dataclasses.replace(
            before,
            fenced=before.fenced if fenced is None else fenced,
            in_controlled_shutdown=(
                before.in_controlled_shutdown
                if in_controlled_shutdown is None
                else in_controlled_shutdown
            ),
        )
        return self.registration
