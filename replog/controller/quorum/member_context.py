"""What the parts of one quorum member share: who it is, its log, its role, what it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.quorum.effects import (
    QuorumEffect,
    ReportQuorum,
    RespondToMember,
    SendToMember,
    SetHighWatermark,
)
from replog.controller.quorum.pending_requests import PendingRequests
from replog.errors import invariant

if TYPE_CHECKING:
    from replog.config import QuorumOptions
    from replog.controller.quorum.incidents import QuorumIncident
    from replog.controller.quorum.messages import QuorumRequest, QuorumResponse
    from replog.controller.quorum.quorum_log import QuorumLog
    from replog.controller.quorum.standing import Standing


class MemberContext:
    """`effects` are those of the step under way, in order."""

    def __init__(
        self,
        log: QuorumLog,
        standing: Standing,
        options: QuorumOptions,
        directory_id: bytes | None = None,
    ) -> None:
        self.directory_id = directory_id
        self.log = log
        self.standing = standing
        self.options = options
        self.requests = PendingRequests(options)
        self.effects: list[QuorumEffect] = []
        self._high_watermark = log.high_watermark

    def send(self, member_id: int, request: QuorumRequest, now_ms: int) -> None:
        """Ask a member that is ready to be asked."""
        request_id = self.requests.sent(member_id, request, now_ms)
        self.effects.append(SendToMember(request_id, member_id, request))

    def respond(self, request_id: int, response: QuorumResponse) -> None:
        """Answer, once."""
        self.effects.append(RespondToMember(request_id, response))

    def report(self, incident: QuorumIncident) -> None:
        """For operators."""
        self.effects.append(ReportQuorum(incident))

    @property
    def high_watermark(self) -> int:
        """What this member knows to be committed; never falls while it runs."""
        return self._high_watermark

    def raise_high_watermark(self, offset: int) -> None:
        """Offsets below it are committed, says the leader, or a majority says so to the leader."""
        if offset > self._high_watermark:
            invariant(
                offset <= self.log.log_end_offset,
                "a high watermark within the log",
                high_watermark=offset,
                log_end_offset=self.log.log_end_offset,
            )
            self._high_watermark = offset
            self.effects.append(SetHighWatermark(offset))

    def snapshot_loaded(self) -> None:
        """The log starts anew behind a snapshot; what that stands for is committed."""
        self._high_watermark = max(self._high_watermark, self.log.high_watermark)
