"""A controller that crashes at every decision of every operation is followed by one that resumes.

Method: a day in the life of a cluster is played with a crash at the n-th batch, for every n: lost
with the controller, or in the log although nobody was told. Whoever asked is told NOT_CONTROLLER
once, and asks again. At the end the cluster is as it would have been without the crash.
"""

import pytest

from replog.admin_messages import (
    AlterOptionsRequest,
    BalanceLeadersRequest,
    CreatePartitionsRequest,
    ElectionKind,
    ElectLeadersRequest,
    ListReassignmentsRequest,
    Reassignment,
    ReassignPartitionsRequest,
    ResourceKind,
)
from replog.controller.effects import AppendRecords, ReloadState, Respond
from replog.controller.events import Committed, LeadershipLost, RequestReceived
from replog.messages import (
    AlterPartitionRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    ErrorCode,
    HeartbeatRequest,
    IsrProposal,
    RegisterBrokerRequest,
)
from replog.types import TopicPartition
from tests.controller import conversation
from tests.controller.one_voter import OneVoter, assert_same_image

BROKERS = (0, 1, 2, 3)


class CrashingVoter(OneVoter):
    """Loses its controller at the n-th batch; `keep` says whether the batch is in the log."""

    def __init__(self, *arguments, crash_at, keep):
        self.crash_at = crash_at
        self.keep = keep
        super().__init__(*arguments)

    def carry_out(self, effects, now_ms):
        left = []
        while effects:
            left += [effect for effect in effects if not isinstance(effect, AppendRecords)]
            appends = [effect for effect in effects if isinstance(effect, AppendRecords)]
            effects = []
            for append in appends:
                if len(self.batches) + 1 == self.crash_at:
                    return left + self._crash(append, now_ms)
                self._append(append, now_ms)
                effects = self.controller.step(Committed(len(self.log)), now_ms)
        return left

    def _crash(self, append, now_ms):
        self.crash_at = None
        lost = self.controller.step(LeadershipLost(), now_ms)
        assert isinstance(lost[-1], ReloadState)
        log = [*self.log, *append.records] if self.keep else list(self.log)
        return [*lost[:-1], *self.take_over(log, now_ms)]


class Day:
    """One life of a cluster; every request is made again until a controller answers it."""

    def __init__(self, crash_at=None, keep=False):
        ids = iter(range(1, 100))
        self.voter = CrashingVoter(
            conversation.OPTIONS,
            lambda: conversation.uuid.UUID(int=next(ids)),
            crash_at=crash_at,
            keep=keep,
        )
        self.request_id = 0
        self.epochs = {}
        self.refused = 0

    def ask(self, request):
        for _ in range(3):
            self.request_id += 1
            event = RequestReceived(request_id=self.request_id, sender=None, request=request)
            answers = [
                effect.response
                for effect in self.voter.step(event, 0)
                if isinstance(effect, Respond) and effect.request_id == self.request_id
            ]
            assert len(answers) == 1, "answered once"
            if answers[0].error is not ErrorCode.NOT_CONTROLLER:
                return answers[0]
            self.refused += 1
            for broker_id in sorted(self.epochs):
                self.heartbeat(broker_id)  # at once, to a controller that it has just found
        raise AssertionError("nobody answers")

    def register(self, broker_id, run):
        answer = self.ask(
            RegisterBrokerRequest(
                broker_id=broker_id,
                incarnation_id=f"{broker_id} {run}",
                previous_broker_epoch=self.epochs.get(broker_id, -1),
            )
        )
        assert answer.error is ErrorCode.NONE
        self.epochs[broker_id] = answer.broker_epoch

    def heartbeat(self, broker_id, **more):
        return self.ask(
            HeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.epochs[broker_id],
                first_broker_epoch=self.epochs[broker_id],
                version=self.voter.version,
                **more,
            )
        )

    def in_sync(self, topic="t"):
        """The leader proposes all replicas that live, until they are in sync."""
        for name in self.voter.partitions_of(topic):
            for _ in range(5):
                now = self.voter.partition(name)
                isr = [one for one in now.replicas if self.voter.broker(one).eligible]
                if set(isr) == set(now.isr):
                    break
                proposal = IsrProposal(
                    topic_partition=name,
                    topic_id=now.topic_id,
                    leader_epoch=now.leader_epoch,
                    partition_epoch=now.partition_epoch,
                    isr=tuple((member, -1) for member in isr),
                )
                self.ask(
                    AlterPartitionRequest(
                        broker_id=now.leader_id,
                        broker_epoch=self.epochs[now.leader_id],
                        proposals=(proposal,),
                    )
                )

    def shut_down(self, broker_id):
        for _ in range(4):
            if self.heartbeat(broker_id, want_shut_down=True).should_shut_down:
                return
            for other in BROKERS:
                if other != broker_id:
                    self.heartbeat(other)
        raise AssertionError("the broker may not stop")

    def play(self):
        for broker_id in BROKERS:
            self.register(broker_id, "first")
            assert not self.heartbeat(broker_id).fenced
        self.ask(CreateTopicRequest(topic="t", assignment=((0, 1, 2), (0, 1, 2))))
        self.ask(CreateTopicRequest(topic="gone", partitions=2, replication_factor=3))
        self.ask(CreatePartitionsRequest(topic="t", count=3, assignment=((0, 2, 1),)))
        options = {"min.insync.replicas": "2"}
        self.ask(AlterOptionsRequest(kind=ResourceKind.TOPIC, name="t", options=options))
        self.shut_down(0)
        self.register(0, "second")
        self.heartbeat(0)
        self.in_sync()
        first = (TopicPartition("t", 0),)
        self.ask(ElectLeadersRequest(kind=ElectionKind.PREFERRED, partitions=first))
        self.ask(BalanceLeadersRequest(threshold_percent=0))
        moved = Reassignment(topic_partition=first[0], replicas=(3, 1))
        asked = ReassignPartitionsRequest(partitions=(moved,), throttle_bytes_per_s=1000)
        for _ in range(2):
            self.ask(asked)
            self.in_sync()
        self.ask(DeleteTopicRequest(topic="gone"))
        self.shut_down(2)
        return self

    def outcome(self):
        assert self.ask(ListReassignmentsRequest()).reassignments == ()
        brokers = {one: self.voter.broker(one) for one in BROKERS}
        return (
            {one: (found.fenced, found.in_controlled_shutdown) for one, found in brokers.items()},
            {
                name: (found.replicas, set(found.isr), found.leader_id, found.config)
                for topic in self.voter.topics()
                for name in self.voter.partitions_of(topic)
                for found in (self.voter.partition(name),)
            },
            self.voter.controller._image.options,
        )


UNBROKEN = Day().play()


@pytest.mark.parametrize("keep", [False, True])
def test_wherever_the_controller_crashes_the_cluster_ends_the_same(keep):
    expected = UNBROKEN.outcome()
    assert len(expected[1]) == 3
    batches = len(UNBROKEN.voter.batches)
    assert batches > 20
    for crash_at in range(1, batches + 1):
        day = Day(crash_at, keep).play()
        assert day.voter.crash_at is None, crash_at
        assert day.outcome() == expected, crash_at
        assert day.refused <= 1
        assert_same_image(day.voter.mirror, day.voter.controller._image)
