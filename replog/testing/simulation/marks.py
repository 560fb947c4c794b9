"""Coverage marks: situations that a set of runs must have met, or its silence means little."""

from __future__ import annotations

from typing import Any

from replog.controller import incidents as controller_incidents
from replog.controller.quorum import incidents as quorum_incidents
from replog.messages import ErrorCode, FetchResponse
from replog.replication.effects import TruncationCause
from replog.replication.incidents import (
    Fenced,
    IsrCause,
    IsrChanged,
    IsrStage,
    LogTruncated,
    ProduceRefused,
    ReplicaFailed,
)
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.truth import PartitionTruth

NAMES = (
    "isr shrunk by the leader",
    "isr expanded",
    "isr proposal refused",
    "truncated at a diverging epoch",
    "truncated more than one epoch at once",
    "truncated without cutting a record",
    "truncated uncommitted records of the own past leadership",
    "log restarted at the leader's start",
    "leader fenced a follower or a follower its leader",
    "produce refused for want of in-sync replicas",
    "produce timed out",
    "produce lost its leader",
    "producer's batch repeated and answered as the first time",
    "consumer asked a new leader above its watermark",
    "consumer read from a follower",
    "consumer told that what it read was lost",
    "broker fenced when its connections broke",
    "broker fenced when its session ran out",
    "controller crashed",
    "controllers lost power all at once",
    "controller resigned for want of a majority",
    "controller campaigned",
    "no room for a controller's promise",
    "metadata log truncated",
    "metadata log cut behind a snapshot",
    "snapshot of the metadata fetched",
    "many nodes restarted within a second",
    "replicas moved",
    "reassignment called off",
    "broker back from an unclean stop",
    "broker back from a clean stop",
    "elected the longest of unclean replicas",
    "elected a replica that nobody vouches for",
    "partition without a leader",
    "power lost with unsynced records",
    "damaged replica set aside",
    "log start advanced",
    "disk full",
    "disk failed",
    "broker paused while it led",
    "broker cut off from the others",
    "one-way partition",
    "topic deleted and created again",
    "topic created again behind a cut",
    "another topic of the name asked for",
    "idempotent producer replaced after a loss",
    "producer crashed with batches unsettled",
)


class Marks:
    """How often each situation was met."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(NAMES, 0)

    def hit(self, name: str) -> None:
        self.counts[name] += 1

    def incident(self, incident: Any) -> None:
        """What a broker has reported."""
        if isinstance(incident, IsrChanged):
            if incident.stage is IsrStage.REFUSED:
                self.hit("isr proposal refused")
            elif incident.stage is IsrStage.COMMITTED:
                if incident.cause is IsrCause.LAGGING:
                    self.hit("isr shrunk by the leader")
                elif incident.cause is IsrCause.CAUGHT_UP:
                    self.hit("isr expanded")
        elif isinstance(incident, LogTruncated):
            if incident.cause is TruncationCause.DIVERGING_EPOCH:
                self.hit("truncated at a diverging epoch")
            elif incident.cause is TruncationCause.OUT_OF_RANGE:
                self.hit("log restarted at the leader's start")
        elif isinstance(incident, Fenced):
            self.hit("leader fenced a follower or a follower its leader")
        elif isinstance(incident, ProduceRefused):
            if incident.error is ErrorCode.REQUEST_TIMED_OUT:
                self.hit("produce timed out")
            elif incident.error is ErrorCode.UNKNOWN_TOPIC_ID:
                self.hit("another topic of the name asked for")
            elif incident.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.hit("produce lost its leader")
            else:
                self.hit("produce refused for want of in-sync replicas")
        elif isinstance(incident, ReplicaFailed):
            pass

    def controller_incident(self, incident: Any) -> None:
        """What a controller has reported."""
        if isinstance(incident, quorum_incidents.LeaderResigned):
            if incident.cause is quorum_incidents.ResignCause.QUORUM_SILENT:
                self.hit("controller resigned for want of a majority")
        elif isinstance(incident, quorum_incidents.CampaignBegun):
            self.hit("controller campaigned")
        elif isinstance(incident, quorum_incidents.PromiseRefused):
            self.hit("no room for a controller's promise")
        elif isinstance(incident, controller_incidents.BrokerFenced):
            if incident.cause is controller_incidents.FenceCause.CONNECTION_LOST:
                self.hit("broker fenced when its connections broke")
            elif incident.cause is controller_incidents.FenceCause.SESSION_EXPIRED:
                self.hit("broker fenced when its session ran out")
        elif isinstance(incident, controller_incidents.BrokerRegistered):
            if incident.previous_epoch is not None:
                clean = not incident.unclean
                self.hit(f"broker back from {'a clean' if clean else 'an unclean'} stop")
        elif isinstance(incident, controller_incidents.LeaderElected):
            if incident.cause is controller_incidents.ElectionCause.LONGEST:
                self.hit("elected the longest of unclean replicas")
            elif incident.cause is controller_incidents.ElectionCause.UNCLEAN:
                self.hit("elected a replica that nobody vouches for")
        elif isinstance(incident, controller_incidents.ReassignmentStepped):
            if incident.cause is controller_incidents.ReassignmentCause.COMPLETED:
                self.hit("replicas moved")
            elif incident.cause is controller_incidents.ReassignmentCause.CANCELLED:
                self.hit("reassignment called off")
        elif isinstance(incident, controller_incidents.PartitionOffline):
            self.hit("partition without a leader")

    def truncated(self, log: SimLog, truth: PartitionTruth, old_end_offset: int) -> None:
        """A log was cut; called after it."""
        if log.log_end_offset == old_end_offset:
            self.hit("truncated without cutting a record")
            return
        gone = sorted(
            epoch
            for epoch, start in truth.epoch_starts.items()
            if log.log_end_offset <= start < old_end_offset
        )
        if len(gone) > 1:
            self.hit("truncated more than one epoch at once")
        if any(truth.leader_of_epoch.get(epoch) == log.broker_id for epoch in truth.epoch_starts):
            self.hit("truncated uncommitted records of the own past leadership")

    def fetch_answered(self, response: FetchResponse) -> None:
        """A broker answers a fetch."""
        for fetched in response.partitions:
            if fetched.error is ErrorCode.OFFSET_NOT_AVAILABLE:
                self.hit("consumer asked a new leader above its watermark")
