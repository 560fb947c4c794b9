"""How many batches of one producer may be on their way to one partition: a pure decision.

A leader remembers the last five batches of a producer and refuses a gap in their sequence, so up
to five may be sent without waiting. But a leader that does not know the producer takes any
sequence (Kafka's rule, KIP-360): a new one, and one whose copy began behind the producer's
records, where those were deleted. If such a leader refused the first of several batches and took
the second, they would change places. So one batch goes ahead alone, after every change of leader,
failure or new producer id, and the others follow once it is acknowledged. Kafka's producer does so
only with batches that it repeats (KAFKA-5494; KAFKA-15591 is what follows for new ones).
"""

from __future__ import annotations

from typing import NamedTuple

IN_FLIGHT_MAX = 5
"""As many batches of a producer as a leader remembers."""


class Leadership(NamedTuple):
    """Who leads, and since when: the same broker elected again may have come back empty."""

    leader_id: int
    leader_epoch: int


class ProduceWindow:
    """Says of each batch whether it may be sent. `order` numbers a lane's batches, gaps allowed."""

    __slots__ = ("_ahead", "_in_flight_max", "_known_to")

    def __init__(self, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self._in_flight_max = in_flight_max
        self._known_to: Leadership | None = None
        """Has acknowledged a batch of this producer id since the last failure."""
        self._ahead: tuple[int, Leadership] | None = None
        """The batch that travels alone, and to whom."""

    def may_send(
        self, order: int, leadership: Leadership, in_flight: int, oldest_order: int
    ) -> bool:
        """Whether the batch may go, beside `in_flight` others of which `oldest_order` is first."""
        if in_flight == 0:
            return True
        return (
            leadership == self._known_to
            and in_flight < self._in_flight_max
            and order < oldest_order + self._in_flight_max
        )

    def sent(self, order: int, leadership: Leadership) -> None:
        """The batch is on its way."""
        if leadership != self._known_to:
            self._ahead = (order, leadership)

    def acknowledged(self, order: int) -> None:
        """The batch is in the leader's log, and its producer known there."""
        if self._ahead is not None and self._ahead[0] == order:
            self._known_to = self._ahead[1]
            self._ahead = None

    def close(self) -> None:
        """A batch failed, a connection broke or the producer id is new: nothing is known now."""
        self._known_to = None
        self._ahead = None
