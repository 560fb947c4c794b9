"""What is committed stays, everywhere it must be: I1, I2, I3, I6, I8 and part of I4."""

from __future__ import annotations

from replog.messages import Acks, ErrorCode, ProduceRequest, ProduceResponse
from replog.registrations import PartitionRegistration
from replog.testing.simulation.batches import StoredBatch
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.truth import PartitionTruth, Truth
from replog.testing.simulation.violation import Violation


class CommittedIsKept:
    """I1: every in-sync replica has all that is committed. I2: so has every leader."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def committed(self, log: SimLog, truth: PartitionTruth, fresh: list[StoredBatch]) -> None:
        registration = truth.registration
        earlier = len(truth.committed) - len(fresh) - 1
        if earlier >= 0:
            last = truth.committed[earlier]
            ours = log.batch_at(last.base_offset)
            if ours is not None and ours.leader_epoch != last.leader_epoch:
                raise Violation("I2", f"{log} commits {fresh[0]} behind {ours}, not behind {last}")
        for broker_id in registration.isr:
            incomplete = (broker_id, truth.name) in self.truth.incomplete
            if broker_id != log.broker_id and not incomplete:
                self._check(truth, broker_id, "I1")

    def registered(self, truth: PartitionTruth, before: PartitionRegistration | None) -> None:
        registration = truth.registration
        if registration.leader_id is None:
            return  # those of its members that lost their tails wait for the others
        if before is None or registration.leader_epoch != before.leader_epoch:
            self._check(truth, registration.leader_id, "I2")
        for broker_id in registration.isr:
            self._check(truth, broker_id, "I1")

    def truncated(self, log: SimLog, truth: PartitionTruth, old_end: int, watermark: int) -> None:
        if log.broker_id in truth.registration.isr and truth.registration.leader_id is not None:
            self._check(truth, log.broker_id, "I1")

    def claimed(self, log: SimLog, truth: PartitionTruth, leader_epoch: int) -> None:
        """A broker begins to act as leader; of the latest epoch, if it is to be believed."""
        if leader_epoch == truth.registration.leader_epoch:
            self._check(truth, log.broker_id, "I2")

    def _check(self, truth: PartitionTruth, broker_id: int, invariant: str) -> None:
        if not self.truth.vouches(broker_id, truth.name):
            return
        log = self.truth.log_of(broker_id, truth.name)
        if log is None:
            if truth.high_watermark > truth.log_start:
                raise Violation(
                    invariant,
                    f"broker {broker_id} has no log of {truth.name}, of which offsets up to "
                    f"{truth.high_watermark} are committed: {truth.registration}",
                )
            return
        if self.truth.truth_of(log) is truth and not truth.holds_committed(log):
            raise Violation(
                invariant,
                f"{log} does not hold all that is committed up to {truth.high_watermark}, "
                f"in {truth.registration}",
            )


class EnoughCopies:
    """I8: what becomes committed is on min_insync_replicas disks; synced in commit mode (I3)."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def committed(self, log: SimLog, truth: PartitionTruth, fresh: list[StoredBatch]) -> None:
        registration = truth.registration
        last = fresh[-1]
        needs_sync = registration.config.log.flush_mode == "commit"
        copies = 0
        for broker_id in registration.replicas:
            if (broker_id, truth.name) in self.truth.incomplete:
                copies += 1  # it had one when it asked for more
                continue
            other = self.truth.log_of(broker_id, truth.name)
            found = None if other is None else other.batch_at(last.base_offset)
            if other is None or found is None or found.leader_epoch != last.leader_epoch:
                continue
            if needs_sync and other.durable_end_offset <= last.last_offset:
                if broker_id in registration.isr:
                    raise Violation(
                        "I3",
                        f"{log} counts offset {last.last_offset} as committed, which {other} has "
                        f"not synced beyond {other.durable_end_offset}",
                    )
                continue
            copies += 1
        if copies < registration.min_insync_replicas:
            raise Violation(
                "I8",
                f"{log} counts offset {last.last_offset} as committed, which only {copies} "
                f"replicas have: {registration}",
            )


class NoZombieCommits:
    """I6: what a leader of the past appends once a newer one is obeyed, it cannot commit.

    It may be elected again, in a newer epoch, and then commit what it has.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def leader_appended(self, log: SimLog, truth: PartitionTruth, batch: StoredBatch) -> None:
        newest = truth.newest_accepted_epoch
        if batch.leader_epoch < newest and truth.leader_of_epoch.get(newest) != log.broker_id:
            truth.zombie_batches.add((batch.base_offset, batch.leader_epoch))

    def committed(self, log: SimLog, truth: PartitionTruth, fresh: list[StoredBatch]) -> None:
        if not truth.zombie_batches:
            return
        claim = self.truth.claims.get((log.broker_id, truth.name))
        newest = truth.newest_accepted_epoch
        for batch in fresh:
            key = (batch.base_offset, batch.leader_epoch)
            is_zombie = claim is not None and batch.leader_epoch == claim < newest
            if is_zombie and key in truth.zombie_batches:
                raise Violation(
                    "I6",
                    f"{log} committed {batch}, appended when epoch {truth.newest_accepted_epoch} "
                    f"had begun for others",
                )


class AcknowledgedIsCommitted:
    """I3, I13, I22: acks=all is answered for what is committed, at one place, with min ISR held."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._asked: ProduceRequest | None = None

    def request_taken(self, broker: SimBroker, request: object) -> None:
        self._asked = request if isinstance(request, ProduceRequest) else None

    def leader_appended(self, log: SimLog, truth: PartitionTruth, batch: StoredBatch) -> None:
        if self._asked is None or self._asked.acks != Acks.ALL:
            return
        isr = self.truth.announced.get((log.broker_id, truth.name))
        floor = truth.registration.min_insync_replicas
        if isr is not None and len(isr) < floor:
            raise Violation(
                "I13",
                f"{log} took {batch} with acks=all, and knew that only {isr} are in sync, fewer "
                f"than {floor}",
            )

    def produce_answered(
        self, broker: SimBroker, request: ProduceRequest, response: ProduceResponse
    ) -> None:
        if request.acks != Acks.ALL:
            return
        for (name, _, content), answer in zip(request.partitions, response.partitions, strict=True):
            if answer.error is not ErrorCode.NONE:
                continue
            truth = self.truth.partitions.get(name)
            log = self.truth.log_of(broker.broker_id, name)
            if truth is None or log is None or self.truth.truth_of(log) is not truth:
                continue
            batch = truth.committed_at(answer.base_offset)
            if answer.last_offset >= truth.high_watermark:
                raise Violation(
                    "I3", f"{answer} is acknowledged; committed is up to {truth.high_watermark}"
                )
            if batch is None and answer.base_offset < truth.log_start:
                continue
            if (
                batch is None
                or batch.content != content
                or (batch.base_offset, batch.last_offset)
                != (answer.base_offset, answer.last_offset)
            ):
                raise Violation("I22", f"{answer} is acknowledged; {batch} is committed there")
