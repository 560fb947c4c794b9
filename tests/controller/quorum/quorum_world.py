"""A quorum in one thread: members, disks, a network and a clock, all owned by a seed.

Faults it injects: messages lost, repeated, late and out of order; links cut one way or both; a
member killed between any two effects, losing what was not synced, or whose kill nobody notices;
syncs that take their time; appends, snapshots and promises that are refused; snapshots taken at any
moment. Requests of a dead run may still arrive, answers to it do not. Not injected: disks that lose
what they synced, clocks that run backwards.
"""

from __future__ import annotations

import dataclasses
import heapq
import random

from replog.config import QuorumOptions
from replog.controller.events import RequestFailed, Tick
from replog.controller.quorum import effects as fx
from replog.controller.quorum.election_state import ElectionState
from replog.controller.quorum.events import (
    AppendFailed,
    LogFlushed,
    LogTruncated,
    MemberConnectionLost,
    PromiseFailed,
    QuorumRequestReceived,
    QuorumResponseReceived,
    RecordsAppended,
    RecordsProposed,
    ResignWanted,
    SnapshotInstalled,
    SnapshotRefused,
)
from replog.controller.quorum.messages import FetchSnapshotResponse, QuorumFetchResponse
from replog.controller.quorum.quorum import Quorum
from replog.controller.quorum.roles import Leader
from replog.errors import CorruptFileError, NoSpaceError
from tests.controller.quorum.memory_quorum_log import Entry, MemoryQuorumLog
from tests.controller.quorum.quorum_checkers import Checkers

OPTIONS = QuorumOptions(
    election_timeout_ms=150,
    fetch_timeout_ms=300,
    request_timeout_ms=120,
    retry_backoff_ms=5,
    fetch_wait_max_ms=60,
    fetch_max_bytes=3,
)


class Faults:
    """Rates of [0, 1]; all zero is a calm network."""

    def __init__(
        self, *, loss=0.0, repeat=0.0, slow=0.0, crash=0.0, refuse=0.0, full=0.0, delay_ms_max=3
    ) -> None:
        self.loss, self.repeat, self.slow, self.crash = loss, repeat, slow, crash
        self.refuse, self.full = refuse, full
        self.delay_ms_max = delay_ms_max


class Member:
    """`quorum` is None while it is down."""

    def __init__(self, world: World, member_id: int) -> None:
        self.world = world
        self.id = member_id
        self.log = MemoryQuorumLog()
        self.persisted = ElectionState()
        self.wiped = False
        """Its disk is another one than it had, and it has promised nothing since."""
        self.directory = 0
        self.quorum: Quorum | None = None
        self.run = 0
        self.tick_ms: int | None = None
        self.asked: dict[int, object] = {}

    @property
    def leads(self) -> bool:
        return self.quorum is not None and isinstance(self.quorum.role, Leader)


class World:
    def __init__(self, voters=3, observers=0, seed=0, faults=None) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.now_ms = 0
        self.queue: list = []
        self.sequence = 0
        self.voters = tuple(range(1, voters + 1))
        everybody = (*self.voters, *range(101, 101 + observers))
        self.checkers = Checkers(self.voters, OPTIONS.fetch_timeout_ms)
        self.members = {member_id: Member(self, member_id) for member_id in everybody}
        self.cut: set[tuple[int, int]] = set()
        self.routes: dict[int, tuple[int, int, int]] = {}
        self.proposals = 0
        self.trace: list[str] = []
        for member_id in everybody:
            self.start(member_id)

    # -- members

    def start(self, member_id: int) -> None:
        member = self.members[member_id]
        assert member.quorum is None
        member.run += 1
        member.asked = {}
        if member.wiped:
            self.checkers.wiped(member_id)
        draw = self.random.randrange
        member.quorum = Quorum(
            member_id,
            self.voters,
            member.log,
            draw,
            OPTIONS,
            has_forgotten=member.wiped,
            directory_id=b"%d" % member.directory,
        )
        self._carry_out(member, member.quorum.start(member.persisted, self.now_ms))

    def kill(self, member_id: int, *, noticed: bool | None = None) -> None:
        member = self.members[member_id]
        if member.quorum is None:
            return
        member.quorum = None
        unsynced = member.log.log_end_offset - member.log.synced_end_offset
        member.log.crash(self.random.randint(0, unsynced))
        if noticed is None:
            noticed = self.random.random() < 0.5
        for peer in self.members.values():
            if noticed and peer is not member:
                self._at(1, peer.id, peer.run, MemberConnectionLost(member_id=member_id))

    def wipe(self, member_id: int) -> bool:
        """Replace the disk of a member by an empty one; of one voter at a time, since a majority
        must remember.
        """
        if len(self.voters) < 3 or any(one.wiped for one in self.members.values()):
            return False
        self.kill(member_id)
        member = self.members[member_id]
        member.log, member.persisted = MemoryQuorumLog(), ElectionState()
        member.wiped = member_id in self.voters
        self.checkers.wiped(member_id)
        member.directory += 1
        return True

    def step(self, member: Member, event) -> None:
        if member.quorum is None:
            return
        if isinstance(event, QuorumRequestReceived):
            member.asked[event.request_id] = event.request
            self.checkers.received(member, event.request, self.now_ms)
        self._carry_out(member, member.quorum.step(event, self.now_ms))

    def _carry_out(self, member: Member, effects) -> None:
        self.checkers.stepped(member, effects, self.now_ms)
        completions: list = []
        for effect in effects:
            if self.faults.crash and self.random.random() < self.faults.crash:
                self.kill(member.id)
                return
            if isinstance(effect, fx.PersistQuorumState) and self._has_no_room():
                undone = tuple(effects[effects.index(effect) + 1 :])
                error = NoSpaceError("the disk is full")
                completions.append(PromiseFailed(error=error, undone=undone))
                break
            self.checkers.about_to(member, effect, self._question(member, effect))
            self._carry_out_one(member, effect, completions)
        for completion in completions:
            self.step(member, completion)
            if member.quorum is None:
                return
        member.tick_ms = member.quorum.next_deadline_ms
        if member.tick_ms is not None:
            self._at(member.tick_ms - self.now_ms, member.id, member.run, Tick())

    def _question(self, member: Member, effect):
        if isinstance(effect, fx.RespondToMember):
            return member.asked.pop(effect.request_id)
        return None

    def _carry_out_one(self, member: Member, effect, completions: list) -> None:
        log = member.log
        start = log.log_end_offset
        match effect:
            case fx.PersistQuorumState(state):
                member.persisted, member.wiped = state, False
            case fx.AppendLeaderChange(epoch, leader, _, _):
                completions.append(self._append(log, [Entry(epoch, f"leader {leader}")]))
            case fx.AppendAsLeader(_, epoch, batches):
                completions.append(self._append(log, [Entry(epoch, p) for p in batches]))
            case fx.AppendAsFollower(batches):
                completions.append(self._append(log, batches))
            case fx.TruncateLog(offset):
                self.checkers.cut(log, offset)
                log.truncate_to(offset)
                completions.append(LogTruncated())
            case fx.FlushLog():
                self._at(self._delay_ms(), member.id, member.run, ("flushed", log.log_end_offset))
            case fx.SetHighWatermark(offset):
                log.high_watermark = offset
            case fx.WriteSnapshotChunk(_, position, chunk):
                log.write_chunk(position, chunk)
            case fx.InstallSnapshot(snapshot_id):
                if self.random.random() < self.faults.refuse * 10:
                    completions.append(SnapshotRefused(error=CorruptFileError("damaged")))
                else:
                    self.checkers.cut(log, snapshot_id.end_offset)
                    log.install(snapshot_id)
                    start = 0
                    completions.append(SnapshotInstalled())
            case fx.SendToMember(request_id, to, request):
                self._send(member, to, self._route(member, request_id), request)
            case fx.RespondToMember(request_id, response):
                self._answer(member, request_id, self._filled(log, response))
            case fx.LeaderChanged() | fx.ReportQuorum() | fx.RefuseProposal():
                self.trace.append(f"{self.now_ms} {member.id} {effect}")
        self.checkers.wrote(log, start)

    def _has_no_room(self) -> bool:
        return self.faults.full > 0 and self.random.random() < self.faults.full

    def _append(self, log: MemoryQuorumLog, entries):
        if self.random.random() < self.faults.refuse:
            return AppendFailed(error=NoSpaceError("the disk is full"))
        log.append(entries)
        return RecordsAppended()

    # -- network

    def _at(self, delay_ms: int, member_id: int, run: int | None, what) -> None:
        self.sequence += 1
        due = self.now_ms + max(0, delay_ms)
        heapq.heappush(self.queue, (due, self.sequence, member_id, run, what))

    def _route(self, member: Member, request_id: int) -> int:
        self.sequence += 1
        self.routes[self.sequence] = (member.id, member.run, request_id)
        return self.sequence

    def _delay_ms(self) -> int:
        if self.random.random() < self.faults.slow:
            return self.random.randint(0, 400)
        return self.random.randint(0, self.faults.delay_ms_max)

    def _send(self, member: Member, to: int, route: int, request) -> None:
        if (member.id, to) in self.cut or self.random.random() < self.faults.loss:
            return
        if self.members[to].quorum is None:
            if self.random.random() < 0.5:
                failed = RequestFailed(request_id=self.routes[route][2])
                self._at(1, member.id, member.run, failed)
            return
        for _ in range(2 if self.random.random() < self.faults.repeat else 1):
            self.sequence += 1
            self.routes[self.sequence] = self.routes[route]
            arrival = QuorumRequestReceived(request_id=self.sequence, request=request)
            self._at(self._delay_ms(), to, None, arrival)

    def _answer(self, member: Member, route: int, response) -> None:
        to, run, request_id = self.routes.pop(route)
        if (member.id, to) in self.cut or self.random.random() < self.faults.loss:
            return
        arrival = QuorumResponseReceived(request_id=request_id, response=response)
        self._at(self._delay_ms(), to, run, arrival)

    def _filled(self, log: MemoryQuorumLog, response):
        """What the shell puts in place of reads."""
        if isinstance(response, QuorumFetchResponse) and response.records is not None:
            read = response.records
            records = log.read(read.start_offset, read.end_offset, read.max_bytes)
            return response._replace(records=records)
        if isinstance(response, FetchSnapshotResponse) and response.snapshot_id is not None:
            read = response.chunk
            end = min(read.position + read.max_bytes, read.snapshot_id.end_offset)
            return dataclasses.replace(response, chunk=tuple(log.entries[read.position : end]))
        return response

    def isolate(self, *member_ids: int) -> None:
        """Cut these from all the others, both ways; among themselves they talk."""
        for one in self.members:
            for other in self.members:
                if (one in member_ids) != (other in member_ids):
                    self.cut.add((one, other))

    def heal(self) -> None:
        self.cut.clear()

    # -- time

    def run_for(self, duration_ms: int, *, until=None) -> bool:
        """Whether `until` came true; without it, True."""
        if until is not None and until():
            return True
        end_ms = self.now_ms + duration_ms
        while self.queue and self.queue[0][0] <= end_ms:
            self.now_ms, _, member_id, run, what = heapq.heappop(self.queue)
            self._deliver(self.members[member_id], run, what)
            if until is not None and until():
                return True
        self.now_ms = end_ms
        return until is None

    def _deliver(self, member: Member, run: int | None, what) -> None:
        if member.quorum is None or run not in {None, member.run}:
            return
        if isinstance(what, Tick) and member.tick_ms is not None and member.tick_ms > self.now_ms:
            return
        if type(what) is tuple:
            member.log.sync(what[1])
            what = LogFlushed()
        self.step(member, what)

    # -- what a test asks

    @property
    def leaders(self) -> list[Member]:
        return [member for member in self.members.values() if member.leads]

    @property
    def leader(self) -> Member:
        """The one of the latest epoch."""
        return max(self.leaders, key=lambda member: member.quorum.leader_epoch)

    def elect(self) -> Member:
        assert self.run_for(5000, until=lambda: bool(self.leaders))
        return self.leader

    def propose(self, member: Member, count: int = 1) -> None:
        payloads = []
        for _ in range(count):
            self.proposals += 1
            payloads.append(self.proposals)
        epoch = member.quorum.leader_epoch
        proposed = RecordsProposed(proposal_id=1, leader_epoch=epoch, batches=payloads)
        self.step(member, proposed)

    def resign(self, member: Member) -> None:
        self.step(member, ResignWanted(leader_epoch=member.quorum.leader_epoch))

    def level(self) -> bool:
        """One leader, every member up, and all of the leader's log committed everywhere."""
        if any(member.quorum is None for member in self.members.values()):
            return False
        leading = [
            m for m in self.leaders if m.quorum.leader_epoch == self.leader.quorum.leader_epoch
        ]
        if len(leading) != 1 or len(self.leaders) != 1:
            return False
        end = leading[0].log.log_end_offset
        return all(
            member.log.entries == leading[0].log.entries and member.log.high_watermark == end
            for member in self.members.values()
        )
