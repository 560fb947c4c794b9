"""How fast replicas out of sync may fetch: what a reassignment moves leaves room for others.

One rate for all such replicas of a broker, Kafka's `follower.replication.throttled.rate` (KIP-73).
What was fetched beyond it is paid for by a pause of the replica that fetched it; one in sync never
pauses, so acknowledgements do not wait. Leaders limit nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

FOLLOWER_RATE = "follower.replication.throttled.rate"


class ReplicationThrottle:
    """The rate of one broker, and how far what was fetched is ahead of it."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._rates: dict[int | None, int] = {}
        """Bytes per second, of a broker or, under None, of all."""
        self._paid_until_ms = 0.0
        """When what has been fetched so far would have been at the rate."""

    @property
    def bytes_per_s(self) -> int | None:
        """The rate that holds here; None: no limit."""
        return self._rates.get(self._broker_id, self._rates.get(None))

    def configure(self, options: Iterable[tuple[int | None, str, str | None]]) -> None:
        """Take in options of brokers as the metadata tells them."""
        for broker_id, option, text in options:
            if option != FOLLOWER_RATE or broker_id not in {None, self._broker_id}:
                continue
            if text is None:
                self._rates.pop(broker_id, None)
            else:
                self._rates[broker_id] = int(text)

    def pause_ms(self, size_bytes: int, now_ms: int) -> int:
        """How long to wait after so many bytes have come."""
        rate = self.bytes_per_s
        if rate is None:
            return 0
        self._paid_until_ms = max(self._paid_until_ms, now_ms) + size_bytes * 1000 / rate
        return self.owed_ms(now_ms)

    def owed_ms(self, now_ms: int) -> int:
        """How long until nobody pauses any more."""
        return max(int(self._paid_until_ms - now_ms), 0)
