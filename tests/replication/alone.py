"""One follower whose leader is played by the test."""

from replog.messages import (
    FetchedPartition,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from replog.registrations import BrokerRegistration
from replog.replication import events as ev
from replog.replication.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateLog,
)
from replog.replication.follower import FollowerPhase
from replog.replication.incidents import (
    RecordsLost,
)
from tests.replication.core_cluster import PARTITION, CoreCluster
from tests.replication.memory_log import MemoryLog


class Alone:
    """Replica 2 follows 1, which the test plays itself."""

    def __init__(self, log: MemoryLog, *, epoch=5, **lead) -> None:
        self.cluster = CoreCluster({2: log})
        self.cluster.registered[1] = self.cluster.registered[2]

        self.cluster.publish(brokers=(BrokerRegistration(broker_id=1, broker_epoch=1),))
        self.cluster.lead(1, epoch, (1, 2), replicas=(1, 2), **lead)
        self.broker = self.cluster.brokers[2]

    @property
    def log(self) -> MemoryLog:
        return self.cluster.log(2)

    @property
    def follower(self):
        return self.cluster.follower(2)

    @property
    def phase(self) -> FollowerPhase:
        return self.follower.phase

    def hear_of_losses(self) -> None:
        """What the controller does with all that was reported."""
        for told in self.cluster.incidents(RecordsLost):
            self.broker.handle(ev.LossHeard(told.lost))

    def asked(self):
        """The request that waits for our answer."""
        return self.cluster.queue[-1].body

    def answer(self, **said):
        """What the leader says of the partition; returns the effects on the log."""
        self.cluster.effects.clear()
        envelope = self.cluster.queue.pop()
        if isinstance(envelope.body, ListOffsetsRequest):
            response = ListOffsetsResponse(topic_partition=PARTITION, **said)
        else:
            said.setdefault("high_watermark", 0)
            said.setdefault("log_start_offset", 0)
            fetched = FetchedPartition(topic_partition=PARTITION, **said)
            response = FetchResponse(partitions=(fetched,), session_id=9)
        self.broker.handle(ev.ResponseReceived(request_id=envelope.request_id, response=response))
        kinds = (
            AppendAsFollower,
            TruncateLog,
            TruncateFullyAndStartAt,
            SetHighWatermark,
            AdvanceLogStart,
        )
        return [effect for _, effect in self.cluster.effects if isinstance(effect, kinds)]
