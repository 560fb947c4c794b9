"""A fetch that waits at the serving side for bytes, or for its time to run out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from replog.messages import FetchPartition, FetchRequest
    from replog.replication.deadlines import Timer
    from replog.replication.fetch_session import ServedSession


class FetchWait:
    """One request, with the partitions that it stands for; `timer` where it has no session."""

    __slots__ = ("request", "request_id", "session", "timer")

    def __init__(
        self, request_id: int, request: FetchRequest, session: ServedSession | None
    ) -> None:
        self.request_id = request_id
        self.request = request
        self.session = session
        self.timer: Timer | None = None

    def partitions(self) -> Collection[FetchPartition]:
        """Those to look at, in the order in which they are served."""
        if self.session is None:
            return self.request.partitions
        return [known.asked for known in self.session.stirring.values()]
