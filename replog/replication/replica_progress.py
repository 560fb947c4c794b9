"""The leader's view of one follower, learned from nothing but its fetches, as Kafka's Replica."""

from __future__ import annotations

from replog.registrations import NO_BROKER_EPOCH
from replog.types import UNKNOWN_OFFSET

NEVER_MS = -(2**62)


class ReplicaProgress:
    """How far one follower is.

    The offset it asks for is its log end offset: all below is in its log.
    """

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_offset_then",
        "log_end_offset",
        "log_start_offset",
        "replica_id",
    )

    def __init__(self, replica_id: int, *, log_end_offset: int = UNKNOWN_OFFSET) -> None:
        self.replica_id = replica_id
        self.log_end_offset = log_end_offset
        """UNKNOWN_OFFSET before its first fetch."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = NEVER_MS
        """When it was last level with us, as far as its fetches prove."""
        self.last_fetch_ms = NEVER_MS
        """When its previous fetch came. Those that prove nothing do not count (KAFKA-13141)."""
        self.leader_end_offset_then = UNKNOWN_OFFSET
        """Our log end offset at that time."""
        self.broker_epoch = NO_BROKER_EPOCH
        """The incarnation that made it."""

    def record_fetch(
        self,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> bool:
        """Take in a fetch whose claim holds; returns whether the log end offset changed.

        A follower that reaches today what we had at its previous fetch was level with us then, even
        if records never stop coming.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif (
            fetch_offset >= self.leader_end_offset_then
            and self.last_fetch_ms > self.last_caught_up_ms
        ):
            self.last_caught_up_ms = self.last_fetch_ms
        changed = fetch_offset != self.log_end_offset
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset_then = max(self.leader_end_offset_then, leader_end_offset)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch
        return changed

    def still_level(self, fetch_ms: int) -> None:
        """Its fetch at that time asked for the same again, and we had no more: it was level."""
        self.last_caught_up_ms = max(self.last_caught_up_ms, fetch_ms)
        self.last_fetch_ms = max(self.last_fetch_ms, fetch_ms)

    def begin_epoch(
        self, leader_end_offset: int, now_ms: int, *, in_isr: bool, re_elected: bool
    ) -> None:
        """A new leader epoch: those in the ISR have the whole lag time from now on to be heard of.

        A leader that is elected again in the next epoch keeps what it knows; a new one, and one
        that has missed an epoch, knows nothing (fluss#3698).
        """
        self.last_caught_up_ms = now_ms if in_isr else NEVER_MS
        if re_elected:
            self.leader_end_offset_then = leader_end_offset
            self.last_fetch_ms = now_ms if in_isr else NEVER_MS
            return
        self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
        self.leader_end_offset_then = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.broker_epoch = NO_BROKER_EPOCH

    def is_caught_up(self, leader_end_offset: int, lag_ms_max: int, now_ms: int) -> bool:
        """Level with the leader now, or within the lag time."""
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_ms_max
        )
