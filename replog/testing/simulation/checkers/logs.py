"""What one log may look like beside the others: I4, I5 (claims), I7, I9, I17, I18, I19."""

from __future__ import annotations

from replog.testing.simulation.batches import StoredBatch
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.truth import BatchKey, PartitionTruth, Truth
from replog.testing.simulation.violation import Violation
from replog.types import TopicPartition


class LogMatching:
    """I4: (offset, epoch) names one batch, and one batch before it, whoever wrote it.

    By induction two logs that share it are equal up to it. I19: offsets dense, epochs never fall.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def leader_appended(self, log: SimLog, truth: PartitionTruth, batch: StoredBatch) -> None:
        self._check(log, truth, len(log.batches) - 1)

    def follower_appended(
        self, log: SimLog, truth: PartitionTruth, batches: tuple[StoredBatch, ...]
    ) -> None:
        count = len(log.batches)
        for place in range(count - len(batches), count):
            self._check(log, truth, place)

    def _check(self, log: SimLog, truth: PartitionTruth, place: int) -> None:
        batch = log.batches[place]
        before: BatchKey | None = None
        if place:
            last = log.batches[place - 1]
            before = (last.base_offset, last.leader_epoch)
            if last.last_offset + 1 != batch.base_offset or last.leader_epoch > batch.leader_epoch:
                raise Violation("I19", f"{log} has {last} and then {batch}")
        key = (batch.base_offset, batch.leader_epoch)
        known = truth.written.get(key)
        if known is None:
            truth.written[key] = (batch, before)
            return
        other, other_before = known
        if other is not batch and other != batch:
            raise Violation("I4", f"{log} wrote {batch} where another wrote {other}")
        if batch.base_offset <= truth.log_start:
            return  # what precedes it is deleted, and nobody compares it any more
        if before is not None and other_before is not None and before != other_before:
            raise Violation(
                "I4",
                f"{log} has {batch} behind (offset, epoch) {before}, another log behind "
                f"{other_before}",
            )
        if other_before is None and before is not None:
            truth.written[key] = (batch, before)


class OneLeaderPerEpoch:
    """I5: who acts as leader was elected for that epoch, and never for an older one than before."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._latest: dict[tuple[int, TopicPartition, object], int] = {}

    def claimed(self, log: SimLog, truth: PartitionTruth, leader_epoch: int) -> None:
        elected = truth.leader_of_epoch.get(leader_epoch)
        if elected != log.broker_id:
            raise Violation(
                "I5",
                f"{log} acts as leader of epoch {leader_epoch}, for which {elected} was elected",
            )
        key = (log.broker_id, truth.name, truth.registration.topic_id)
        latest = self._latest.get(key, -1)
        if leader_epoch < latest:
            raise Violation("I5", f"{log} leads in epoch {leader_epoch} after epoch {latest}")
        self._latest[key] = leader_epoch

    def leader_appended(self, log: SimLog, truth: PartitionTruth, batch: StoredBatch) -> None:
        if truth.leader_of_epoch.get(batch.leader_epoch) != log.broker_id:
            raise Violation(
                "I5",
                f"{log} wrote {batch}; the leader of that epoch is "
                f"{truth.leader_of_epoch.get(batch.leader_epoch)}",
            )


class WatermarksOnlyRise:
    """I7: a leader's never falls in its epoch. I9: none passes a log's end. I4: all are true."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._led: dict[tuple[int, TopicPartition], tuple[object, int, int]] = {}
        """(broker, partition) -> topic id, epoch, watermark of its latest leadership."""

    def high_watermark_set(self, log: SimLog, truth: PartitionTruth, old: int) -> None:
        key = (log.broker_id, log.topic_partition)
        claim = self.truth.claims.get(key)
        if claim is not None:
            topic_id = truth.registration.topic_id
            known_id, epoch, highest = self._led.get(key, (None, -1, 0))
            if (known_id, epoch) == (topic_id, claim) and log.high_watermark < highest:
                raise Violation(
                    "I7",
                    f"{log} leads epoch {claim}; its high watermark was {highest} before",
                )
            self._led[key] = (topic_id, claim, log.high_watermark)
            return
        if log.high_watermark > truth.high_watermark:
            raise Violation(
                "I7",
                f"{log} follows; no leader has committed more than {truth.high_watermark}",
            )
        self._check_true(log, truth)

    def _check_true(self, log: SimLog, truth: PartitionTruth) -> None:
        """A follower's records below its watermark are the committed ones."""
        last = log.high_watermark - 1
        if last < max(log.log_start_offset, truth.log_start):
            return  # deleted; a leader that has forgotten it cannot say whether ours is the same
        ours, committed = log.batch_at(last), truth.committed_at(last)
        if (
            ours is not None
            and committed is not None
            and ours.leader_epoch != committed.leader_epoch
        ):
            raise Violation("I4", f"{log} counts {ours} as committed, where {committed} is")

    def impossible_order(self, log: SimLog, truth: PartitionTruth, order: str, offset: int) -> None:
        raise Violation("I9", f"{log} was told to {order} {offset}")


class TruncationsAreSafe:
    """I17: no cut below the own watermark. I18: epochs begin where their leaders began them."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def truncated(self, log: SimLog, truth: PartitionTruth, old_end: int, watermark: int) -> None:
        emptied = log.log_end_offset == log.log_start_offset >= watermark
        if log.log_end_offset < watermark and not emptied:
            raise Violation(
                "I17",
                f"{log} was cut from {old_end}; its high watermark was {watermark}",
            )
        self._check_epochs(log, truth)

    def follower_appended(
        self, log: SimLog, truth: PartitionTruth, batches: tuple[StoredBatch, ...]
    ) -> None:
        place = len(log.batches) - len(batches)
        last_epoch = log.batches[place - 1].leader_epoch if place else -1
        for batch in batches:
            if batch.leader_epoch != last_epoch:
                last_epoch = batch.leader_epoch
                self._check_start(log, truth, last_epoch, batch.base_offset)

    def claimed(self, log: SimLog, truth: PartitionTruth, leader_epoch: int) -> None:
        self._check_epochs(log, truth)

    def _check_epochs(self, log: SimLog, truth: PartitionTruth) -> None:
        entries = log.epochs.entries()
        for epoch, start_offset in entries:
            self._check_start(log, truth, epoch, start_offset)
        if entries and entries[-1][1] > log.log_end_offset:
            raise Violation("I18", f"{log} knows of epochs behind its end: {entries}")

    def _check_start(
        self, log: SimLog, truth: PartitionTruth, epoch: int, start_offset: int
    ) -> None:
        began = truth.epoch_starts.get(epoch)
        if began is None or start_offset == began:
            return
        if began < start_offset <= max(log.log_start_offset, truth.log_start):
            # The beginning of the epoch was deleted. A leader that has forgotten it lets a follower
            # keep what it has there, and tells it in the same answer that this is deleted.
            return
        raise Violation(
            "I18",
            f"{log} takes epoch {epoch} to begin at {start_offset}; its leader began it at {began}",
        )
