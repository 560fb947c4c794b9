"""Messages between replicas of one process: a queue, first in, first out.

Objects are handed over as they are: records stay the sender's read view, with no copy. A message to
a replica that is down is lost, as on a broken connection.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from replog.messages import Message


class Envelope(NamedTuple):
    """A message on its way."""

    sender: int
    receiver: int
    message: Message


class MemoryTransport:
    """What is on its way between all replicas of a group."""

    def __init__(self) -> None:
        self._queue: collections.deque[Envelope] = collections.deque()

    def __len__(self) -> int:
        return len(self._queue)

    def send(self, sender: int, receiver: int, message: Message) -> None:
        self._queue.append(Envelope(sender, receiver, message))

    def next(self) -> Envelope | None:
        """Take the oldest message off the queue; None if there is none."""
        return self._queue.popleft() if self._queue else None

    def disconnect(self, replica_id: int) -> None:
        """Lose all that is on its way from and to `replica_id`."""
        self._queue = collections.deque(
            envelope
            for envelope in self._queue
            if replica_id not in (envelope.sender, envelope.receiver)
        )
