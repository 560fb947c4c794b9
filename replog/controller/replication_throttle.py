"""The limit on what reassignments may move: options of brokers and topics, under Kafka's names.

It is kept in the metadata, so that it outlives the controller; and taken back with the last
reassignment, which Kafka leaves to a tool that operators must remember to run.
"""

from __future__ import annotations

from replog.controller.decision import Decision
from replog.controller.metadata_image import BROKER_RESOURCE, EVERY_BROKER
from replog.wire.metadata_records import ConfigRecord

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class ReplicationThrottle:
    """One rate for all brokers: bytes per second that replicas out of sync may fetch."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._image = decision.image

    @property
    def bytes_per_s(self) -> int | None:
        """The rate; None: no limit."""
        options = self._image.options.get((BROKER_RESOURCE, EVERY_BROKER), {})
        text = options.get(FOLLOWER_RATE)
        return None if text is None else int(text)

    def limit(self, bytes_per_s: int) -> None:
        """Decide on this rate."""
        if self.bytes_per_s != bytes_per_s:
            self._set(str(bytes_per_s))

    def settle(self) -> None:
        """Take the limit back once nothing is reassigned any more."""
        if self.bytes_per_s is not None and not self._image.reassigning:
            self._set(None)

    def _set(self, text: str | None) -> None:
        for option in (LEADER_RATE, FOLLOWER_RATE):
            self._decision.write(
                ConfigRecord(
                    resource_type=BROKER_RESOURCE,
                    resource_name=EVERY_BROKER,
                    name=option,
                    value=text,
                )
            )
