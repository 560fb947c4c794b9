"""Committed changes of the metadata for brokers that ask for deltas instead of the log.

The latest `DELTAS_KEPT` are kept; who asks for older ones gets the whole instead. A delta is taken
when it is decided and handed out when it is committed, so that nobody acts on what may be lost.
"""

from __future__ import annotations

import bisect
from collections import deque
from typing import NamedTuple

from replog.controller.effects import ControllerEffect, Respond
from replog.controller.metadata_image import MetadataImage
from replog.messages import MetadataFetchRequest, MetadataFetchResponse
from replog.registrations import MetadataDelta

DELTAS_KEPT = 10_000


class _WaitingFetch(NamedTuple):
    version: int
    deadline_ms: int


class MetadataFeed:
    """Invariant: `version` <= image.end_offset, and equal where nothing is in flight."""

    def __init__(self, image: MetadataImage) -> None:
        self.version = 0
        """All below this offset is committed."""
        self._image = image
        self._first_version = 0
        """Whoever has applied at least this much needs no whole."""
        self._deltas: deque[MetadataDelta] = deque()
        self._decided: deque[MetadataDelta] = deque()
        self._fetches: dict[int, _WaitingFetch] = {}

    def begin(self, version: int) -> None:
        """Only what comes after this version is known as deltas."""
        self.version = self._first_version = version
        self._deltas.clear()
        self._decided.clear()
        self._image.take_delta()

    def decided(self) -> None:
        """Take what the last step has changed."""
        delta = self._image.take_delta()
        if delta is not None:
            self._decided.append(delta)

    def committed(self, version: int) -> None:
        """Hand out what lies below this offset from now on."""
        self.version = version
        while self._decided and self._decided[0].version <= version:
            self._deltas.append(self._decided.popleft())
            if len(self._deltas) > DELTAS_KEPT:
                self._first_version = self._deltas.popleft().version

    def fetch(self, request_id: int, request: MetadataFetchRequest, now_ms: int) -> None:
        """Answered by `answers`, now or later."""
        self._fetches[request_id] = _WaitingFetch(request.version, now_ms + request.wait_ms_max)

    @property
    def next_deadline_ms(self) -> int | None:
        """When a fetch has waited long enough."""
        return min((fetch.deadline_ms for fetch in self._fetches.values()), default=None)

    def answers(self, now_ms: int) -> list[ControllerEffect]:
        """Answer who lacks a delta, and who has waited as long as it wished."""
        answers: list[ControllerEffect] = []
        for request_id, fetch in list(self._fetches.items()):
            deltas = self._after(fetch.version)
            if deltas or fetch.deadline_ms <= now_ms:
                del self._fetches[request_id]
                answers.append(Respond(request_id, MetadataFetchResponse(deltas=deltas)))
        return answers

    def drop(self) -> list[int]:
        """Forget all that wait; their ids."""
        waiting = list(self._fetches)
        self._fetches.clear()
        return waiting

    def _after(self, version: int) -> tuple[MetadataDelta, ...]:
        if version and version >= self._first_version:
            first = bisect.bisect_right(self._deltas, version, key=lambda delta: delta.version)
            return tuple(self._deltas[place] for place in range(first, len(self._deltas)))
        if self._image.end_offset != self.version:
            return ()  # not before what is in flight is committed
        return (self._image.whole(),)
