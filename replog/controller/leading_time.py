"""How long a broker may lead without a word from the controller: for as long as its session lasts.

    leads ── session over, or epoch refused ──> leads not ── heartbeat answered ──> leads
                                                    └── next epoch's metadata applied ──> leads

The controller replaces the leaders of a broker whose session has run out; by then the broker has
stopped by its own clock, because it counts from when it asked, and the controller from when it
heard. A request that is refused at once extends the time: where no controller runs, nobody replaces
anybody. In a split the one that refuses may have resigned while another replaces: then followers'
epochs end the leader's term.
"""

from __future__ import annotations

from replog.config import LONG_MAX


class LeadingTime:
    """One broker's. Methods that say whether it leads again, or no more, say so once."""

    __slots__ = ("_asked_ms", "_from_version", "_session_ms", "may_lead", "until_ms")

    def __init__(self, session_ms: int) -> None:
        self.may_lead = True
        self.until_ms = LONG_MAX
        """When it must have stopped; LONG_MAX before it is registered, and while it does not lead.
        """
        self._session_ms = session_ms
        self._asked_ms = 0
        self._from_version: int | None = None
        """Metadata that gives it its next epoch, once the one before was refused."""

    def asked(self, now_ms: int) -> None:
        """It has sent the controller what renews a session."""
        self._asked_ms = now_ms

    def heard(self) -> bool:
        """That was answered; whether it leads again."""
        return self._resume()

    def refused_at_once(self, now_ms: int) -> None:
        """Nobody is there who could have answered."""
        if self.until_ms != LONG_MAX:
            self.until_ms = max(self.until_ms, now_ms + self._session_ms)

    def has_run_out(self, now_ms: int) -> bool:
        """Whether it leads no more because its time is up."""
        return now_ms >= self.until_ms and self._stop()

    def lost_epoch(self) -> bool:
        """The controller has refused its epoch; whether it led until now."""
        self._from_version = LONG_MAX
        return self._stop()

    def got_epoch(self, version: int, applied: int) -> bool:
        """It is registered in this version of the metadata; whether it leads again."""
        if self._from_version is not None:
            self._from_version = version
        return self.applied(applied) or self._resume()

    def applied(self, version: int) -> bool:
        """It has obeyed this much of the metadata; whether it leads again."""
        if self._from_version is None or version < self._from_version:
            return False
        self._from_version = None
        return self._resume()

    def _resume(self) -> bool:
        if self._from_version is not None:
            return False
        self.until_ms = self._asked_ms + self._session_ms
        resumes, self.may_lead = not self.may_lead, True
        return resumes

    def _stop(self) -> bool:
        self.until_ms = LONG_MAX
        stops, self.may_lead = self.may_lead, False
        return stops
