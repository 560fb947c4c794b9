"""What must hold of a quorum after every step, told from what its members say and keep.

The checkers keep their own model and never ask a member whether it is right.
"""

from __future__ import annotations

from collections import defaultdict

from replog.controller.quorum.effects import (
    PersistQuorumState,
    RespondToMember,
    SendToMember,
    SetHighWatermark,
)
from replog.controller.quorum.messages import (
    FetchSnapshotRequest,
    QuorumFetchRequest,
    VoteRequest,
)
from replog.controller.quorum.roles import Leader
from replog.messages import ErrorCode


class Violation(AssertionError):  # noqa: N818 - as InvariantViolation is called
    """An invariant of the quorum does not hold."""


def demand(condition: bool, claim: str, **facts) -> None:
    if not condition:
        raise Violation(f"{claim}: {facts}")


class Checkers:
    """All of them, fed by the world."""

    def __init__(self, voters, fetch_timeout_ms: int) -> None:
        self.voters = voters
        self.majority = len(voters) // 2 + 1
        self.silence_ms = fetch_timeout_ms * 3 // 2
        self.leader_of: dict[int, tuple[int, int]] = {}
        self.vote_of: dict[tuple[int, int], int] = {}
        self.said_epoch: dict[int, int] = defaultdict(int)
        self.written: dict[tuple[int, int], tuple] = {}
        self.committed: list = []
        self.high_watermark_in: dict[int, int] = defaultdict(int)
        self.contacts: dict[tuple[int, int], dict[int, int]] = {}
        self.elections = 0

    # -- fed before and after each step

    def received(self, member, request, now_ms: int) -> None:
        """A majority's fetches keep a leader in office: remember who fetched and when."""
        if isinstance(request, QuorumFetchRequest | FetchSnapshotRequest):
            key = (member.id, request.current_leader_epoch)
            if key in self.contacts and request.replica_id in self.voters:
                self.contacts[key][request.replica_id] = now_ms

    def wiped(self, member_id: int) -> None:
        """It knows no epoch any more; the votes that it has given stay given."""
        self.said_epoch[member_id] = 0

    def stepped(self, member, effects, now_ms: int) -> None:
        role = member.quorum.role
        for place, effect in enumerate(effects):
            if isinstance(effect, PersistQuorumState):
                demand(place == 0, "promises are persisted first", effects=effects)
        demand(
            role.leader_epoch >= self.said_epoch[member.id],
            "epochs never fall",
            member=member.id,
            epoch=role.leader_epoch,
            said=self.said_epoch[member.id],
        )
        on_disk = (member.persisted.leader_epoch, member.persisted.leader_id)
        if isinstance(role, Leader) and on_disk == (role.leader_epoch, member.id):
            # Before that only this process has been told, and it may be taken back.
            self._leads(member, role, now_ms)

    def _leads(self, member, role, now_ms: int) -> None:
        epoch = role.leader_epoch
        run = (member.id, member.run)
        known = self.leader_of.setdefault(epoch, run)
        demand(known == run, "one run of one leader an epoch", epoch=epoch, both=(known, run))
        key = (member.id, epoch)
        if key not in self.contacts:
            self.elections += 1
            self.contacts[key] = dict.fromkeys(set(self.voters) - {member.id}, now_ms)
            demand(
                member.log.entries[: len(self.committed)] == self.committed,
                "a leader has all that is committed",
                leader=member.id,
                epoch=epoch,
                log=member.log.entries,
                committed=self.committed,
            )
        if self.majority > 1:
            latest = sorted(self.contacts[key].values(), reverse=True)[self.majority - 2]
            demand(
                now_ms <= latest + self.silence_ms,
                "a leader that no majority fetches from resigns",
                leader=member.id,
                epoch=epoch,
                silent_ms=now_ms - latest,
            )

    # -- fed before an effect is carried out

    def about_to(self, member, effect, asked) -> None:
        """`asked` is the request that a response answers."""
        if isinstance(effect, SendToMember):
            request = effect.request
            epoch = getattr(request, "leader_epoch", None)
            if isinstance(request, VoteRequest):
                epoch = request.candidate_epoch
                if not request.pre_vote:
                    self._voted(member.id, epoch, member.id)
            elif epoch is None:
                epoch = request.current_leader_epoch
            self._says(member, epoch)
        elif isinstance(effect, RespondToMember):
            response = effect.response
            self._says(member, response.leader_epoch)
            if isinstance(asked, VoteRequest) and response.vote_granted and not asked.pre_vote:
                self._voted(member.id, response.leader_epoch, asked.candidate_id)
            if isinstance(asked, QuorumFetchRequest) and response.error == ErrorCode.NONE:
                demand(
                    asked.current_leader_epoch == response.leader_epoch
                    and self.leader_of.get(response.leader_epoch) == (member.id, member.run),
                    "only a member of the leader's own epoch is served",
                    asked=asked,
                    response=response,
                )
        elif isinstance(effect, SetHighWatermark):
            self._commits(member, effect.high_watermark)

    def _says(self, member, epoch: int) -> None:
        demand(
            epoch >= self.said_epoch[member.id], "epochs never fall", member=member.id, epoch=epoch
        )
        self.said_epoch[member.id] = epoch
        demand(
            member.wiped or member.persisted.leader_epoch >= epoch,
            "an epoch is persisted before it is spoken of",
            member=member.id,
            epoch=epoch,
            persisted=member.persisted,
        )

    def _voted(self, voter: int, epoch: int, candidate: int) -> None:
        given = self.vote_of.setdefault((voter, epoch), candidate)
        demand(
            given == candidate,
            "one vote an epoch",
            voter=voter,
            epoch=epoch,
            both=(given, candidate),
        )

    def _commits(self, member, offset: int) -> None:
        role, log = member.quorum.role, member.log
        demand(offset <= log.log_end_offset, "a high watermark within the log", member=member.id)
        if offset > len(self.committed):
            demand(isinstance(role, Leader), "the leader commits first", member=member.id)
            durable = [
                voter
                for voter, peer in member.world.members.items()
                if voter in self.voters
                and (
                    # What it had vouched for may count until it is heard of again.
                    peer.wiped
                    or (
                        peer.log.synced_end_offset >= offset
                        and peer.log.entries[:offset] == log.entries[:offset]
                    )
                )
            ]
            demand(
                len(durable) >= self.majority,
                "what is committed is synced by a majority",
                offset=offset,
                leader=member.id,
                durable=durable,
            )
            demand(
                log.entries[offset - 1].epoch == role.leader_epoch,
                "nothing is committed before a record of the leader's own epoch",
                offset=offset,
                leader=member.id,
                epoch=role.leader_epoch,
            )
            self.committed.extend(log.entries[len(self.committed) : offset])
        demand(
            log.entries[:offset] == self.committed[:offset],
            "committed records never change",
            member=member.id,
            offset=offset,
        )
        if isinstance(role, Leader):
            epoch = role.leader_epoch
            demand(
                offset > self.high_watermark_in[epoch],
                "high watermarks rise within an epoch",
                epoch=epoch,
            )
            self.high_watermark_in[epoch] = offset
        demand(offset > log.high_watermark, "high watermarks rise", member=member.id)

    def wrote(self, log, start_offset: int) -> None:
        """Log matching: an offset and epoch name one record, and one record before it."""
        for offset in range(start_offset, log.log_end_offset):
            entry = log.entries[offset]
            before = log.entries[offset - 1] if offset else None
            found = self.written.setdefault((offset, entry.epoch), (entry, before))
            demand(
                found == (entry, before),
                "an offset and epoch name one record everywhere",
                offset=offset,
                both=(found, (entry, before)),
            )

    def cut(self, log, offset: int) -> None:
        demand(
            offset >= log.high_watermark,
            "what is known to be committed is never cut",
            cut_to=offset,
            high_watermark=log.high_watermark,
        )
