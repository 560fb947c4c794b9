"""Members of a quorum on real logs, without a loop: nothing moves unless told to.

A kill is a process that dies: its log is let go of unclosed, its messages are lost and its peers'
requests fail. Syncs are done when their turn comes. Time jumps to the next deadline.
"""

from __future__ import annotations

import collections
import random
from typing import Any

from replog.config import QuorumOptions
from replog.runtime.metadata_batches import metadata_batch, read_batches
from replog.runtime.quorum_log import QuorumReplicaLog
from replog.runtime.quorum_node import QuorumNode, QuorumPorts
from replog.types import SnapshotId
from replog.wire.metadata_records import TopicRecord

WALL_MS = 1_700_000_000_000


def take_snapshot(log: QuorumReplicaLog, end_offset: int, records: Any) -> SnapshotId | None:
    """These records stand for all below `end_offset` from now on."""
    for _ in log.write_snapshot(end_offset, records, WALL_MS):
        pass
    return log.latest_snapshot


class Heard:
    """A listener that notes what it is told."""

    def __init__(self) -> None:
        self.leader: tuple[int | None, int] | None = None
        self.appended: dict[int, int] = {}
        self.failed: list[int] = []
        self.high_watermark = 0
        self.snapshots: list[Any] = []
        self.incidents: list[Any] = []

    def leader_changed(self, leader_id, leader_epoch, epoch_start_offset, now_ms) -> None:
        self.leader = (leader_id, leader_epoch)

    def records_appended(self, proposal_id, last_offset, now_ms) -> None:
        self.appended[proposal_id] = last_offset

    def proposal_failed(self, proposal_id, now_ms) -> None:
        self.failed.append(proposal_id)

    def committed(self, high_watermark, now_ms) -> None:
        self.high_watermark = high_watermark

    def snapshot_installed(self, snapshot_id, now_ms) -> None:
        self.snapshots.append(snapshot_id)

    def report(self, incident, now_ms) -> None:
        self.incidents.append(incident)


class Member:
    """One member in one run."""

    def __init__(self, world: Members, member_id: int) -> None:
        self.world, self.id = world, member_id
        self.heard = Heard()
        self.log = QuorumReplicaLog.open_in(world.directory(member_id), lambda: WALL_MS)
        self.node = QuorumNode(
            member_id,
            world.voters,
            QuorumPorts(self.log, self, self._flush, lambda: WALL_MS),
            self.heard,
            world.random.randrange,
            world.options,
        )
        self.flushes: list[Any] = []

    @property
    def leads(self) -> bool:
        return self.node.quorum.leader_id == self.id

    def send_to_member(self, request_id, member_id, request) -> None:
        self.world.messages.append((self, member_id, request_id, request))

    def respond_to_member(self, request_id, response) -> None:
        self.world.answer(self, request_id, response)

    def _flush(self, log) -> None:
        self.world.messages.append((self, None, log.sync_target(), None))

    def names(self) -> list[str]:
        """Of the topics in the log, in order."""
        log = self.log
        if log.log_start_offset == log.log_end_offset:
            return []
        piece = log.read(log.log_start_offset, 1 << 30)
        batches = read_batches(piece, log.log_start_offset)
        return [message.name for batch in batches for message in batch.messages]


class Members:
    def __init__(self, tmp_path, voters=(1, 2, 3), observers=(), **options: Any) -> None:
        self.tmp_path, self.voters = tmp_path, voters
        self.options = QuorumOptions(**options)
        self.random = random.Random(7)
        self.now_ms = 1000
        self.messages: collections.deque[Any] = collections.deque()
        self.asked: dict[int, tuple[Member, int]] = {}
        self.cut: set[int] = set()
        self.members: dict[int, Member] = {}
        self.next_id = 0
        for member_id in (*voters, *observers):
            self.start(member_id)

    def directory(self, member_id: int) -> str:
        return str(self.tmp_path / f"node-{member_id}")

    def __getitem__(self, member_id: int) -> Member:
        return self.members[member_id]

    def start(self, member_id: int) -> Member:
        member = self.members[member_id] = Member(self, member_id)
        member.node.start(self.now_ms)
        return member

    def kill(self, member_id: int) -> None:
        member = self.members.pop(member_id)
        member.log.close(flush=False)
        self.messages = collections.deque(m for m in self.messages if m[0] is not member)
        for other in list(self.members.values()):
            other.node.connection_lost(member_id, self.now_ms)

    def answer(self, member: Member, route: int, response) -> None:
        asker, request_id = self.asked.pop(route)
        self.messages.append((member, asker, request_id, response))

    def settle(self) -> None:
        """Deliver until nothing is on its way."""
        while self.messages:
            sender, to, request_id, content = self.messages.popleft()
            if to is None:
                if sender.id in self.members and self.members[sender.id] is sender:
                    sender.log.sync(request_id)
                    sender.log.note_synced(request_id)
                    sender.node.flush_completed(None, self.now_ms)
            elif isinstance(to, Member):
                if {sender.id, to.id} & self.cut or self.members.get(to.id) is not to:
                    continue
                to.node.receive_response(request_id, content, self.now_ms)
            elif to not in self.members:
                sender.node.request_failed(request_id, self.now_ms)
            elif not {sender.id, to} & self.cut:
                self.next_id += 1
                self.asked[self.next_id] = (sender, request_id)
                self.members[to].node.receive_request(self.next_id, content, self.now_ms)

    def pass_time(self, duration_ms: int, until=lambda: False) -> bool:
        end_ms = self.now_ms + duration_ms
        self.settle()
        while not until():
            deadlines = [m.node.next_deadline_ms for m in self.members.values()]
            due = min((d for d in deadlines if d is not None), default=end_ms + 1)
            if due > end_ms:
                self.now_ms = end_ms
                return until()
            self.now_ms = max(self.now_ms, due)
            for member in list(self.members.values()):
                deadline = member.node.next_deadline_ms
                if deadline is not None and deadline <= self.now_ms:
                    member.node.tick(self.now_ms)
            self.settle()
        return True

    @property
    def leader(self) -> Member:
        leaders = [member for member in self.members.values() if member.leads]
        return max(leaders, key=lambda member: member.node.quorum.leader_epoch)

    def elect(self) -> Member:
        assert self.pass_time(10_000, lambda: any(m.leads for m in self.members.values()))
        return self.leader

    def propose(self, *names: str, proposal_id: int = 1) -> None:
        records = [TopicRecord(name=name, topic_id=bytes(16)) for name in names]
        self.propose_records(records, proposal_id)

    def propose_records(self, records, proposal_id: int = 1) -> None:
        leader = self.leader
        epoch = leader.node.quorum.leader_epoch
        leader.node.propose(proposal_id, epoch, metadata_batch(records, WALL_MS), self.now_ms)

    def level(self) -> bool:
        """Whether everybody has the leader's whole log, and knows it to be committed."""
        end = self.leader.log.log_end_offset
        return all(
            m.log.log_end_offset == end == m.log.high_watermark for m in self.members.values()
        )
