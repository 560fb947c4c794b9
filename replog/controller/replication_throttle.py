"""The limit on what reassignments may move: options of brokers and topics, under Kafka's names.

It is kept in the metadata, so that it outlives the controller. What the command of a reassignment
has set is taken back with the last one, which Kafka leaves to a tool that operators must remember
to run; what operators have set themselves, before or meanwhile, stays as they want it. A note
beside the options tells the two apart, for any controller.
"""

from __future__ import annotations

from typing import NamedTuple

from replog.controller.decision import Decision
from replog.controller.metadata_image import BROKER_RESOURCE, EVERY_BROKER, THROTTLE_MARK
from replog.wire.metadata_records import ConfigRecord

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
_RATES = (LEADER_RATE, FOLLOWER_RATE)
_UNSET = "-"


class _Mark(NamedTuple):
    """What a reassignment's command has set, and each rate of before, in the order of `_RATES`."""

    rate: str
    before: tuple[str | None, ...]

    @classmethod
    def parse(cls, text: str) -> _Mark:
        rate, *before = text.split()
        return cls(rate, tuple(None if word == _UNSET else word for word in before))

    def text(self) -> str:
        return " ".join((self.rate, *(word or _UNSET for word in self.before)))


class ReplicationThrottle:
    """One rate for all brokers: bytes per second that replicas out of sync may fetch."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._image = decision.image

    def limit(self, bytes_per_s: int) -> None:
        """Decide on this rate, until nothing is reassigned any more."""
        rate, now = str(bytes_per_s), self._rates()
        if now == (rate,) * len(now):
            return
        mark = _Mark(rate, self._own_rates())
        for option, text in zip(_RATES, now, strict=True):
            if text != rate:
                self._set(option, rate)
        self._set(THROTTLE_MARK, mark.text())

    def settle(self) -> None:
        """Take back what reassignments have set, once nothing is reassigned any more."""
        if self._image.throttle_mark is None or self._image.reassigning:
            return
        wanted = self._own_rates()
        for option, now, text in zip(_RATES, self._rates(), wanted, strict=True):
            if now != text:
                self._set(option, text)
        self._set(THROTTLE_MARK, None)

    def _rates(self) -> tuple[str | None, ...]:
        options = self._image.options.get((BROKER_RESOURCE, EVERY_BROKER), {})
        return tuple(options.get(option) for option in _RATES)

    def _own_rates(self) -> tuple[str | None, ...]:
        """The rates that operators have set: of before, or those changed since."""
        now, text = self._rates(), self._image.throttle_mark
        if text is None:
            return now
        mark = _Mark.parse(text)
        return tuple(
            before if rate == mark.rate else rate
            for rate, before in zip(now, mark.before, strict=True)
        )

    def _set(self, option: str, text: str | None) -> None:
        self._decision.write(
            ConfigRecord(
                resource_type=BROKER_RESOURCE,
                resource_name=EVERY_BROKER,
                name=option,
                value=text,
            )
        )
