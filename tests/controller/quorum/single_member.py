"""One member at the bench: a test plays all the others, the disk's syncs and the clock."""

from __future__ import annotations

from replog.config import QuorumOptions
from replog.controller.events import RequestFailed, Tick
from replog.controller.quorum import effects as fx
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
    SnapshotInstalled,
)
from replog.controller.quorum.messages import (
    QuorumFetchRequest,
    QuorumFetchResponse,
    VoteRequest,
    VoteResponse,
)
from replog.controller.quorum.quorum import Quorum
from tests.controller.quorum.memory_quorum_log import Entry, MemoryQuorumLog

OPTIONS = QuorumOptions()


class SingleMember:
    """Member 1 of voters 1, 2, 3 unless told otherwise; every draw gives `drawn`."""

    def __init__(self, *, me=1, voters=(1, 2, 3), log=None, state=None, drawn=0, full=None) -> None:
        self.log = log or MemoryQuorumLog()
        self.now_ms = 0
        self.drawn = drawn
        self.persisted = state
        self.refuse_append = None
        self.refuse_promise = full
        """Why no promise can be written down; None: it can."""
        self.last_request_id = 0
        self.sent: list[fx.SendToMember] = []
        self.answers: dict[int, object] = {}
        self.seen: list = []
        self.quorum = Quorum(me, voters, self.log, lambda bound: min(self.drawn, bound - 1))
        self._carry_out(self.quorum.start(state, 0))

    @property
    def role(self):
        return self.quorum.role

    @property
    def role_name(self) -> str:
        return type(self.quorum.role).__name__

    def step(self, event):
        """The effects of this step and of the completions that it led to."""
        before = len(self.seen)
        self._carry_out(self.quorum.step(event, self.now_ms))
        return self.seen[before:]

    def _carry_out(self, effects) -> None:
        completions = []
        for place, effect in enumerate(effects):
            if isinstance(effect, fx.PersistQuorumState) and self.refuse_promise is not None:
                undone = tuple(effects[place + 1 :])
                completions.append(PromiseFailed(error=self.refuse_promise, undone=undone))
                break
            self.seen.append(effect)
            match effect:
                case fx.PersistQuorumState(state):
                    self.persisted = state
                case fx.SendToMember():
                    self.sent.append(effect)
                case fx.RespondToMember(request_id, response):
                    assert request_id not in self.answers
                    self.answers[request_id] = response
                case fx.AppendLeaderChange(epoch, leader, _, _):
                    completions.append(self._append([Entry(epoch, f"leader {leader}")]))
                case fx.AppendAsLeader(_, epoch, batches):
                    completions.append(self._append([Entry(epoch, p) for p in batches]))
                case fx.AppendAsFollower(batches):
                    completions.append(self._append(batches))
                case fx.TruncateLog(offset):
                    self.log.truncate_to(offset)
                    completions.append(LogTruncated())
                case fx.SetHighWatermark(offset):
                    self.log.high_watermark = offset
                case fx.WriteSnapshotChunk(_, position, chunk):
                    self.log.write_chunk(position, chunk)
                case fx.InstallSnapshot(snapshot_id):
                    self.log.install(snapshot_id)
                    completions.append(SnapshotInstalled())
        for completion in completions:
            self._carry_out(self.quorum.step(completion, self.now_ms))

    def _append(self, entries):
        error, self.refuse_append = self.refuse_append, None
        if error is not None:
            return AppendFailed(error=error)
        self.log.append(entries)
        return RecordsAppended()

    # -- what a test does

    def flush(self):
        self.log.sync(self.log.log_end_offset)
        return self.step(LogFlushed())

    def wait(self, duration_ms: int):
        """Ticks at every deadline on the way."""
        end_ms, before = self.now_ms + duration_ms, len(self.seen)
        while (due := self.quorum.next_deadline_ms) is not None and due <= end_ms:
            self.now_ms = due
            self.step(Tick())
        self.now_ms = end_ms
        return self.seen[before:]

    def ask(self, request):
        """The answer; None while it waits."""
        self.last_request_id += 1
        event = QuorumRequestReceived(request_id=self.last_request_id, request=request)
        self.step(event)
        return self.answers.get(self.last_request_id)

    def take(self, kind=None, to=None):
        """The latest request sent, of this kind and to this member, that none took yet."""
        for effect in reversed(self.sent):
            if (kind is None or isinstance(effect.request, kind)) and to in {
                None,
                effect.member_id,
            }:
                self.sent.remove(effect)
                return effect
        raise AssertionError(f"nothing of {kind} to {to} was sent")

    def has_sent(self, kind, to=None) -> bool:
        return any(
            isinstance(effect.request, kind) and to in {None, effect.member_id}
            for effect in self.sent
        )

    def answer(self, sent: fx.SendToMember, response):
        return self.step(QuorumResponseReceived(request_id=sent.request_id, response=response))

    def fail(self, sent: fx.SendToMember):
        return self.step(RequestFailed(request_id=sent.request_id))

    def lose(self, member_id: int):
        return self.step(MemberConnectionLost(member_id=member_id))

    def propose(self, *payloads, epoch=None):
        epoch = self.quorum.leader_epoch if epoch is None else epoch
        return self.step(RecordsProposed(proposal_id=7, leader_epoch=epoch, batches=payloads))

    def effects(self, kind, among=None):
        return [
            effect for effect in (self.seen if among is None else among) if isinstance(effect, kind)
        ]

    # -- short ways

    def vote_on(self, to=2, *, granted=True, epoch=None, leader_id=None):
        """Answer the vote or pre-vote that is asked of `to`."""
        sent = self.take(VoteRequest, to)
        epoch = sent.request.candidate_epoch if epoch is None else epoch
        response = VoteResponse(leader_epoch=epoch, vote_granted=granted, leader_id=leader_id)
        return self.answer(sent, response)

    def campaign(self):
        """Let the deadline of the role pass, and win the pre-vote."""
        while self.role_name != "Prospective":
            self.wait(self.role.deadline_ms - self.now_ms)
        self.vote_on()
        assert self.role_name == "Candidate"

    def lead(self):
        self.campaign()
        self.vote_on()
        assert self.role_name == "Leader"
        self.flush()
        return self.role

    def fetch_as(self, replica_id=2, offset=None, epoch=None, last_epoch=None, **fields):
        offset = self.log.log_end_offset if offset is None else offset
        if last_epoch is None:
            last_epoch = self.log.entries[offset - 1].epoch if offset else -1
        return self.ask(
            QuorumFetchRequest(
                replica_id=replica_id,
                current_leader_epoch=self.quorum.leader_epoch if epoch is None else epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                **fields,
            )
        )

    def fetched(self, records=(), *, sent=None, high_watermark=-1, **fields):
        """Answer the fetch that was sent to the leader."""
        response = QuorumFetchResponse(
            leader_id=self.quorum.leader_id,
            leader_epoch=self.quorum.leader_epoch,
            high_watermark=high_watermark,
            records=tuple(records) or None,
            **fields,
        )
        return self.answer(sent or self.take(QuorumFetchRequest), response)
