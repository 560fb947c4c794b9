"""C6: what unclean elections have lost is told, exactly.

Where any live replica may lead, what is committed has no one truth while two leaders do not know of
each other. So all is noted that any replica has ever taken for committed; once the replicas are
alike again, each batch of that is there, or told as lost; and the latest election has lost nothing
that is there. What an earlier one has lost may be there again, if a later one chose a replica that
had it still. A broker that dies between its cut and the word of it takes that along, as a lost disk
does.
"""

from __future__ import annotations

import uuid

from replog.admin_messages import DescribeLossesRequest, UncleanElection
from replog.controller.decision import Decision
from replog.controller.metadata_image import MetadataImage
from replog.controller.unclean_losses import ELECTIONS_MAX, UncleanLosses
from replog.replication.incidents import RecordsLost
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.truth import BatchKey, PartitionTruth, Truth
from replog.testing.simulation.violation import Violation
from replog.types import EpochRange


class LossesAreTold:
    """See the module."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._committed: dict[tuple[uuid.UUID, int], dict[BatchKey, None]] = {}
        """By topic id and partition: what some replica has taken for committed."""
        self._cut: list[tuple[int, int, RecordsLost]] = []
        """What brokers have said that they cut, by broker and its run."""

    def committed_loosely(self, log: SimLog, truth: PartitionTruth, old: int) -> None:
        """A replica takes more for committed than up to `old`."""
        key = (truth.registration.topic_id, truth.name.partition)
        known = self._committed.setdefault(key, {})
        for batch in reversed(log.batches):
            if batch.last_offset < old:
                break
            if batch.last_offset < log.high_watermark:
                known[batch.base_offset, batch.leader_epoch] = None

    def broker_reported(self, broker: SimBroker, incident: object) -> None:
        """A broker has put something in its journal."""
        if isinstance(incident, RecordsLost):
            self._cut.append((broker.broker_id, broker.incarnation, incident))

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
        if (
            truth.disk_lost
            or len(elections) >= ELECTIONS_MAX
            or any(election.awaited for election in elections)
        ):
            return  # who could tell has no more to tell, has yet to tell it, or it is dropped
        topic = (truth.registration.topic_id, truth.name.partition)
        for key in self._committed.get(topic, ()):
            if key not in there and not _is_told(key, elections) and not self._died_with(key):
                raise Violation(
                    "C6",
                    f"{truth.name} has lost what was committed at (offset, epoch) {key}, and "
                    f"nobody tells: {elections}",
                )

    def _died_with(self, key: BatchKey) -> bool:
        """Whether a broker has cut it in a run that is over."""
        return any(
            incarnation < self.truth.brokers[broker_id].incarnation and _is_in(key, incident.ranges)
            for broker_id, incarnation, incident in self._cut
        )


def _is_told(key: BatchKey, elections: list[UncleanElection]) -> bool:
    return any(_is_in(key, election.lost) for election in elections)


def _is_in(key: BatchKey, ranges: tuple[EpochRange, ...]) -> bool:
    offset, epoch = key
    return any(one.epoch == epoch and one.start_offset <= offset < one.end_offset for one in ranges)
