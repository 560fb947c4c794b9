"""Requests that await their answer: one a member, given up in time, made again after a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from replog.config import QuorumOptions
    from replog.controller.quorum.messages import QuorumRequest


class PendingRequest(NamedTuple):
    """Sent to `member_id`; worthless at `deadline_ms`."""

    request_id: int
    member_id: int
    request: QuorumRequest
    deadline_ms: int


class PendingRequests:
    """Invariant: a member is not both asked and paused for.

    What was asked in an earlier role or epoch is forgotten with it (`clear`), so that an answer
    that comes late is told by its request id and dropped.
    """

    def __init__(self, options: QuorumOptions) -> None:
        self._timeout_ms = options.request_timeout_ms
        self._pause_ms = options.retry_backoff_ms
        self._last_id = 0
        self._by_member: dict[int, PendingRequest] = {}
        self._paused_until_ms: dict[int, int] = {}

    def ready(self, member_id: int, now_ms: int) -> bool:
        """Whether the member may be asked now."""
        return (
            member_id not in self._by_member and self._paused_until_ms.get(member_id, 0) <= now_ms
        )

    def sent(self, member_id: int, request: QuorumRequest, now_ms: int) -> int:
        """The id of a new request to a member that is `ready`."""
        self._last_id += 1
        self._paused_until_ms.pop(member_id, None)
        self._by_member[member_id] = PendingRequest(
            self._last_id, member_id, request, now_ms + self._timeout_ms
        )
        return self._last_id

    def answered(self, request_id: int) -> PendingRequest | None:
        """What this is the answer to; None if nobody waits for it any more."""
        for pending in self._by_member.values():
            if pending.request_id == request_id:
                return self._by_member.pop(pending.member_id)
        return None

    def pause(self, member_id: int, now_ms: int) -> None:
        """Let the member be for a while: it failed, or had nothing useful to say."""
        self._by_member.pop(member_id, None)
        self._paused_until_ms[member_id] = now_ms + self._pause_ms

    @property
    def any_asked(self) -> bool:
        """Whether any answer is awaited."""
        return bool(self._by_member)

    def expired(self, now_ms: int) -> list[int]:
        """Members that did not answer in time."""
        return [
            pending.member_id
            for pending in self._by_member.values()
            if pending.deadline_ms <= now_ms
        ]

    def asked(self, member_id: int) -> bool:
        """Whether an answer of this member is awaited."""
        return member_id in self._by_member

    def clear(self) -> None:
        """No answer counts any more, and everybody may be asked."""
        self._by_member.clear()
        self._paused_until_ms.clear()

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When a request expires or a pause ends."""
        first_ms = None
        for pending in self._by_member.values():
            if first_ms is None or pending.deadline_ms < first_ms:
                first_ms = pending.deadline_ms
        for until_ms in self._paused_until_ms.values():
            if until_ms > now_ms and (first_ms is None or until_ms < first_ms):
                first_ms = until_ms
        return first_ms
