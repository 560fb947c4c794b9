"""C6: what unclean elections have lost is told, exactly.

Where any live replica may lead, what is committed has no one truth while two leaders do not know of
each other. So all is noted that any replica has ever taken for committed; once the replicas are
alike again, each batch of that is there, or told as lost; and the latest election has lost nothing
that is there. What an earlier one has lost may be there again, if a later one chose a replica that
had it still. Nothing may be missing unless the report itself names a replica that can tell it no
more, or the last disk that had it was lost; and nobody is awaited who is in sync.
"""

from __future__ import annotations

import uuid

from replog.admin_messages import DescribeLossesRequest, UncleanElection
from replog.controller.decision import Decision
from replog.controller.metadata_image import MetadataImage
from replog.controller.unclean_losses import ELECTIONS_MAX, UncleanLosses
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.truth import BatchKey, PartitionTruth, Truth
from replog.testing.simulation.violation import Violation
from replog.types import TopicPartition


class LossesAreTold:
    """See the module."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._committed: dict[tuple[uuid.UUID, int], dict[BatchKey, None]] = {}
        """By topic id and partition: what some replica has taken for committed."""
        self._gone: set[tuple[uuid.UUID, int, BatchKey]] = set()
        """What of that went with a disk, while no other had it. Never iterated."""

    def committed_loosely(self, log: SimLog, truth: PartitionTruth, old: int) -> None:
        """A replica takes more for committed than up to `old`."""
        key = (truth.registration.topic_id, truth.name.partition)
        known = self._committed.setdefault(key, {})
        for batch in reversed(log.batches):
            if batch.last_offset < old:
                break
            if batch.last_offset < log.high_watermark:
                known[batch.base_offset, batch.leader_epoch] = None

    def disk_lost(self, broker_id: int, topic_partition: TopicPartition) -> None:
        """A broker's copy is incomplete, or damaged."""
        truth = self.truth.partitions.get(topic_partition)
        if truth is None or not truth.may_lose:
            return
        topic = (truth.registration.topic_id, topic_partition.partition)
        there = {
            (batch.base_offset, batch.leader_epoch)
            for other in self.truth.brokers
            if other != broker_id and (other, topic_partition) not in self.truth.incomplete
            for log in [self.truth.log_of(other, topic_partition)]
            if log is not None and self.truth.loose_truth_of(log) is truth
            for batch in log.batches
        }
        for key in self._committed.get(topic, ()):
            if key not in there:
                self._gone.add((*topic, key))

    def check(self, image: MetadataImage) -> None:
        """At the end, when all replicas are alike: hold the report against what is there."""
        report = UncleanLosses(Decision(image)).describe(DescribeLossesRequest())
        for truth in self.truth.partitions.values():
            if truth.may_lose:
                elections = [one for one in report.elections if one.topic_partition == truth.name]
                self._check(truth, elections)

    def _check(self, truth: PartitionTruth, elections: list[UncleanElection]) -> None:
        leader_id = truth.registration.leader_id
        assert leader_id is not None
        log = self.truth.log_of(leader_id, truth.name)
        assert log is not None
        there = {(batch.base_offset, batch.leader_epoch): batch for batch in log.batches}
        for key, batch in there.items():
            if _is_told(key, elections[-1:]):
                raise Violation("C6", f"{batch} is told as lost, and is there: {elections}")
        for election in elections:
            if not set(election.awaited).isdisjoint(truth.registration.isr):
                raise Violation("C6", f"who is in sync of {truth.name} is awaited: {election}")
        if (
            len(elections) >= ELECTIONS_MAX  # older ones were dropped with what they lost
            or any(election.awaited or election.untold for election in elections)
        ):
            return
        topic = (truth.registration.topic_id, truth.name.partition)
        for key in self._committed.get(topic, ()):
            if (
                key not in there
                and (*topic, key) not in self._gone
                and not _is_told(key, elections)
            ):
                raise Violation(
                    "C6",
                    f"{truth.name} has lost what was committed at (offset, epoch) {key}, and "
                    f"nobody tells: {elections}",
                )


def _is_told(key: BatchKey, elections: list[UncleanElection]) -> bool:
    offset, epoch = key
    return any(
        one.epoch == epoch and one.start_offset <= offset < one.end_offset
        for election in elections
        for one in election.lost
    )
