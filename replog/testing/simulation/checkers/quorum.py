"""The controllers' quorum against its own truth: I2, I4, I5, I7, I17, I19, I31, and Q1 to Q3.

Beside the invariants of partitions' logs, which hold of the metadata log as well:
- Q1: a voter votes once in an epoch, also across a crash, and has its promise on the disk before it
  tells anybody.
- Q2: what is committed is durable on the disks of a majority of the voters, and stays so.
- Q3: nothing is committed before a record of its leader's own epoch.
"""

from __future__ import annotations

from typing import Any

from replog.controller.quorum.election_state import ElectionState
from replog.controller.quorum.messages import QuorumRequest, QuorumResponse, VoteRequest
from replog.testing.simulation.batches import StoredBatch
from replog.testing.simulation.quorum_truth import QuorumTruth, Run
from replog.testing.simulation.sim_controller import SimController
from replog.testing.simulation.sim_metadata_log import SimMetadataLog
from replog.testing.simulation.truth import BatchKey
from replog.testing.simulation.violation import Violation


class PromisesAreKept:
    """Q1; I5: epochs never fall on a disk, and one leader, in one incarnation, writes in each."""

    def __init__(self, truth: QuorumTruth) -> None:
        self.truth = truth
        self._votes: dict[tuple[int, int], int] = {}
        """(voter, epoch) -> whom it has told that it votes for it."""

    def promised(self, log: SimMetadataLog, before: ElectionState) -> None:
        now = log.promise
        assert now is not None
        if now.leader_epoch < before.leader_epoch:
            raise Violation("I5", f"node {log.broker_id} goes back from {before} to {now}")
        if now.leader_epoch > before.leader_epoch:
            return
        if before.voted_id not in {None, now.voted_id}:
            raise Violation("Q1", f"node {log.broker_id} changes its vote: {before}, then {now}")
        if before.leader_id not in {None, now.leader_id}:
            raise Violation("I5", f"node {log.broker_id} knows two leaders: {before}, then {now}")

    def member_sent(self, machine: SimController, to: int, request: QuorumRequest) -> None:
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self._votes_for(machine, request.candidate_epoch, machine.address)

    def member_answered(
        self, machine: SimController, request: Any, response: QuorumResponse
    ) -> None:
        kept = machine.disk.metadata.promise
        if response.leader_epoch > (kept.leader_epoch if kept else 0):
            raise Violation("Q1", f"{machine} says {response}, on its disk is {kept}")
        if isinstance(request, VoteRequest) and not request.pre_vote:
            granted = getattr(response, "vote_granted", False)
            if granted:
                self._votes_for(machine, response.leader_epoch, request.candidate_id)

    def _votes_for(self, machine: SimController, epoch: int, candidate: int) -> None:
        given = self._votes.setdefault((machine.address, epoch), candidate)
        if given != candidate:
            raise Violation(
                "Q1", f"{machine} votes for {candidate} in epoch {epoch}, in which {given} had it"
            )
        kept = machine.disk.metadata.promise
        if kept is None or (kept.leader_epoch, kept.voted_id) != (epoch, candidate):
            raise Violation(
                "Q1", f"{machine} votes for {candidate} in epoch {epoch}, on its disk is {kept}"
            )

    def metadata_appended(
        self, log: SimMetadataLog, batches: tuple[StoredBatch, ...], leader: Run | None
    ) -> None:
        if leader is None:
            return
        known = self.truth.leader_of_epoch[batches[0].leader_epoch]
        if known != leader:
            raise Violation(
                "I5", f"{leader} writes {batches[0]} in an epoch that {known} leads (node, run)"
            )


class MetadataLogsMatch:
    """I4: (offset, epoch) names one batch, and one batch before it, in every copy of the log.

    By induction two copies that share it are equal up to it. I19: offsets dense, epochs never fall.
    """

    def __init__(self, truth: QuorumTruth) -> None:
        self.truth = truth
        self._written: dict[BatchKey, tuple[StoredBatch, BatchKey | None]] = {}

    def metadata_appended(
        self, log: SimMetadataLog, batches: tuple[StoredBatch, ...], leader: Run | None
    ) -> None:
        count = len(log.batches)
        for place in range(count - len(batches), count):
            self._check(log, place)

    def _check(self, log: SimMetadataLog, place: int) -> None:
        batch = log.batches[place]
        before: BatchKey | None = None
        if place:
            last = log.batches[place - 1]
            before = (last.base_offset, last.leader_epoch)
            if last.last_offset + 1 != batch.base_offset or last.leader_epoch > batch.leader_epoch:
                raise Violation("I19", f"{log} has {last} and then {batch}")
        key = (batch.base_offset, batch.leader_epoch)
        known, known_before = self._written.setdefault(key, (batch, before))
        if known is not batch:
            raise Violation("I4", f"{log} has {batch} where another copy has {known}")
        if known_before is None:
            self._written[key] = (batch, before)
        elif before is not None and before != known_before:
            raise Violation(
                "I4",
                f"{log} has {batch} behind (offset, epoch) {before}, another copy behind "
                f"{known_before}",
            )


class CommittedMetadataStays:
    """I31: every copy knows as committed a prefix of what is. I2: a leader begins with all of it
    that earlier epochs have committed; one that is slow to begin may find a later epoch at work.

    Q2, Q3; I7 and I17: what a member knows as committed never shrinks, and is never cut.
    """

    def __init__(self, truth: QuorumTruth) -> None:
        self.truth = truth

    def epoch_begun(self, log: SimMetadataLog, epoch: int) -> None:
        end_offset = self.truth.committed_before(epoch)
        if not self.truth.holds(log, end_offset):
            raise Violation(
                "I2", f"{log} leads epoch {epoch} without what is committed up to {end_offset}"
            )

    def metadata_committed(self, log: SimMetadataLog, fresh: list[StoredBatch]) -> None:
        promise = log.promise
        epoch = -1 if promise is None else promise.leader_epoch
        if not self.truth.leads(log, epoch):
            raise Violation("I31", f"{log} knows as committed what no leader has said to be")
        if not fresh or fresh[-1].leader_epoch != epoch:
            raise Violation(
                "Q3", f"{log}, leader of epoch {epoch}, commits {fresh} with no record of its own"
            )
        self._demand_copies()

    def metadata_known(self, log: SimMetadataLog, old: int) -> None:
        if log.high_watermark < old:
            raise Violation("I7", f"{log} had known up to {old} as committed")
        if not self.truth.holds(log, log.high_watermark):
            raise Violation(
                "I31",
                f"{log} takes for committed what is not: "
                f"{self.truth.committed_at(log.high_watermark - 1)} is",
            )

    def metadata_cut(self, log: SimMetadataLog, old_end: int, watermark: int) -> None:
        if log.log_end_offset < watermark:
            raise Violation("I17", f"{log} was cut below {watermark}, which it knew as committed")
        self._demand_copies()

    def controller_ended(self, machine: SimController, how: str) -> None:
        self._demand_copies()

    def _demand_copies(self) -> None:
        end = self.truth.end_offset
        logs = [self.truth.log_of(voter) for voter in self.truth.voters]
        having = [
            log for log in logs if log.durable_end_offset >= end and self.truth.holds(log, end)
        ]
        if len(having) < self.truth.majority:
            raise Violation("Q2", f"what is committed up to {end} is durable on {having} alone")
