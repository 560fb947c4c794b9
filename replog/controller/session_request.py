"""One kind of request of a session: at most one is under way, a failed one is made again."""

from __future__ import annotations

BACKOFF_MS_MIN = 100


class SessionRequest:
    """When to send the next one, and which answer counts.

    Invariant: not both under way and waiting for its time. After a failure the pause doubles from
    `BACKOFF_MS_MIN` up to `pause_ms_max`, and an answer resets it.
    """

    __slots__ = ("_due_ms", "_failures", "_hurried", "_pause_ms_max", "_request_id", "_timeout_ms")

    def __init__(self, timeout_ms: int, pause_ms_max: int) -> None:
        self._timeout_ms = timeout_ms
        self._pause_ms_max = pause_ms_max
        self._request_id: int | None = None
        self._due_ms: int | None = None
        """When to send it; while it is under way, when to give up waiting for its answer."""
        self._failures = 0
        self._hurried = False

    @property
    def deadline_ms(self) -> int | None:
        """When something is to be done about it."""
        return self._due_ms

    def want(self, at_ms: int) -> None:
        """Send one at this time; at once if something new was to be said meanwhile."""
        if self._request_id is None:
            self._due_ms = 0 if self._hurried else at_ms
            self._hurried = False

    def hurry(self, now_ms: int) -> None:
        """There is something new to say: send one now, or when the answer under way is here."""
        if self._request_id is not None:
            self._hurried = True
        elif self._failures == 0:
            self._due_ms = now_ms

    def try_again(self, now_ms: int) -> None:
        """Whatever made it fail may be over: do not wait for the end of the pause."""
        if self._request_id is None and self._failures:
            self._failures = 0
            self._due_ms = now_ms

    def due(self, now_ms: int) -> bool:
        """Whether one is to be sent now; one that got no answer in time counts as failed first."""
        if self._due_ms is None or now_ms < self._due_ms:
            return False
        if self._request_id is not None:
            self.failed(self._request_id, now_ms)
            return False
        return True

    def sent(self, request_id: int, now_ms: int) -> int:
        """It is under way under this id."""
        self._request_id = request_id
        self._due_ms = now_ms + self._timeout_ms
        return request_id

    def is_under_way(self, request_id: int) -> bool:
        """Whether this is the request that waits for its answer."""
        return request_id == self._request_id

    def answered(self, request_id: int) -> bool:
        """Whether this is the answer that counts; the next one is sent when it is wanted."""
        if request_id != self._request_id:
            return False
        self._request_id = None
        self._due_ms = None
        self._failures = 0
        return True

    def failed(self, request_id: int, now_ms: int) -> None:
        """It got no answer; make another after a pause."""
        if request_id == self._request_id:
            self._request_id = None
            self.back_off(now_ms)

    def back_off(self, now_ms: int) -> None:
        """Make another after a pause that grows with each failure in a row."""
        pause_ms = min(BACKOFF_MS_MIN << min(self._failures, 16), self._pause_ms_max)
        self._failures += 1
        self._due_ms = now_ms + pause_ms

    def drop(self) -> None:
        """Forget it, and whatever answer comes."""
        self._request_id = None
        self._due_ms = None
        self._failures = 0
        self._hurried = False
