"""One replica of one partition: its log, what the controller says of it, and the role it plays."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replog.registrations import PartitionRegistration
    from replog.replication.fetch_session import ServedSession
    from replog.replication.fetch_waits import FetchWait
    from replog.replication.follower import Follower
    from replog.replication.leader import Leader
    from replog.replication.log_view import LogView


class Role(enum.Enum):
    """What a replica does at present."""

    LEADER = "leader"
    FOLLOWER = "follower"
    IDLE = "waits for a leader to be elected"
    OFFLINE = "its log cannot be used"


class Replica:
    """At most one of `leader` and `follower` is set; neither while `log` is None."""

    __slots__ = (
        "failed_log",
        "fetch_waits",
        "follower",
        "is_replacing",
        "leader",
        "log",
        "registration",
        "sessions",
    )

    def __init__(self, registration: PartitionRegistration, log: LogView | None) -> None:
        self.registration = registration
        """The latest that was applied; its epochs never go back (I5)."""
        self.log = log
        """None: it cannot be used."""
        self.failed_log: LogView | None = None
        """The one that failed while it was used."""
        self.is_replacing = False
        """The damaged log is being set aside."""
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.fetch_waits: dict[int, FetchWait] = {}
        """Fetches outside sessions that wait for something here, by request id, oldest first."""
        self.sessions: dict[int, ServedSession] = {}
        """Sessions that have this partition, by their ids."""

    @property
    def role(self) -> Role:
        if self.log is None:
            return Role.OFFLINE
        if self.leader is not None:
            return Role.LEADER
        return Role.FOLLOWER if self.follower is not None else Role.IDLE

    @property
    def high_watermark(self) -> int:
        """As it stands within a step."""
        if self.leader is not None:
            return self.leader.high_watermark
        if self.follower is not None:
            return self.follower.high_watermark
        return self.log.high_watermark if self.log is not None else 0
