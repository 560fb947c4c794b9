"""The brokers as this one knows them: who is there, and who may count as in sync."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.registrations import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replog.registrations import BrokerRegistration


class ClusterView:
    """The latest registration of each broker, and our own epoch."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self._brokers: dict[int, BrokerRegistration] = {}

    def apply(self, brokers: Iterable[BrokerRegistration]) -> None:
        """Take in registrations; a broker's older epoch never replaces a newer one (I5)."""
        for broker in brokers:
            known = self._brokers.get(broker.broker_id)
            if known is None or known.broker_epoch <= broker.broker_epoch:
                self._brokers[broker.broker_id] = broker

    def is_alive(self, broker_id: int) -> bool:
        """Registered and not fenced."""
        broker = self._brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def rack_of(self, broker_id: int) -> str | None:
        broker = self._brokers.get(broker_id)
        return broker.rack if broker is not None else None

    def may_be_in_sync(self, broker_id: int, fetched_with_epoch: int) -> bool:
        """Whether the incarnation that fetched may be in an in-sync set (KIP-841, KIP-903)."""
        broker = self._brokers.get(broker_id)
        return (
            broker is not None
            and broker.eligible
            and fetched_with_epoch in {NO_BROKER_EPOCH, broker.broker_epoch}
        )

    def is_replaced(self, broker_id: int, fetched_with_epoch: int) -> bool:
        """Whether a later incarnation of the broker than the one that fetches is registered."""
        if fetched_with_epoch == NO_BROKER_EPOCH:
            return False
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.broker_epoch > fetched_with_epoch
