"""Who is in sync: conditions to join and to be dropped, and what counts while it is undecided."""

import itertools

import pytest

from replog.messages import AlterPartitionResponse, ErrorCode, IsrDecision
from replog.replication.incidents import IsrCause, IsrChanged, IsrStage
from replog.replication.isr import CommittedIsr, PendingExpand, PendingShrink
from tests.replication.core_cluster import CONTROLLER, PARTITION, CoreCluster, three_replicas
from tests.replication.memory_log import MemoryLog

LAG_MS = 30_000
CHECK_MS = LAG_MS // 2


def lonely_leader(isr=(1, 2), records=3, decides=False, **lead) -> CoreCluster:
    """Replica 1 leads in epoch 5 with records of epoch 4; the test fetches for 2 and 3 by hand."""
    cluster = CoreCluster(
        {1: MemoryLog([4] * records), 2: MemoryLog(), 3: MemoryLog()}, decides=decides
    )
    cluster.lead(1, 5, isr, **lead)
    cluster.kill(2, tell=False), cluster.kill(3, tell=False)
    cluster.queue.clear()
    return cluster


def proposals(cluster):
    """The in-sync sets that were asked for so far."""
    sent = [*cluster.proposals, *(one for one in cluster.queue if one.to == CONTROLLER)]
    return [
        tuple(replica_id for replica_id, _ in proposal.isr)
        for envelope in sent
        for proposal in envelope.body.proposals
    ]


def test_follower_at_the_high_watermark_and_the_epoch_start_joins():
    cluster = lonely_leader()
    cluster.fetch(1, 2, 3)
    cluster.fetch(1, 3, 3)
    assert proposals(cluster) == [(1, 2, 3)]
    assert isinstance(cluster.leader(1).isr, PendingExpand)
    assert cluster.leader(1).isr.isr == (1, 2)
    assert cluster.leader(1).isr.maximal == (1, 2, 3)


def test_follower_below_the_high_watermark_does_not_join():
    cluster = lonely_leader()
    cluster.fetch(1, 2, 3)
    cluster.produce(1, "a", acks=1)
    cluster.fetch(1, 2, 4)
    assert cluster.log(1).high_watermark == 4
    cluster.fetch(1, 3, 3)
    assert proposals(cluster) == []
    cluster.fetch(1, 3, 4)
    assert proposals(cluster) == [(1, 2, 3)]


def test_follower_below_the_start_of_the_leader_epoch_does_not_join():
    """KAFKA-7128: a new leader's high watermark lags, and reaching it proves too little."""
    cluster = lonely_leader()
    cluster.fetch(1, 3, 2)
    assert cluster.log(1).high_watermark == 0
    assert proposals(cluster) == []


def test_follower_that_fetches_in_another_epoch_does_not_join():
    cluster = lonely_leader()
    assert cluster.fetch(1, 3, 3, epoch=4).error is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.fetch(1, 3, 3, epoch=6).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert cluster.fetch(1, 3, 3, epoch=-1).error is ErrorCode.NONE
    assert proposals(cluster) == []
    assert cluster.leader(1).followers[3].log_end_offset == -1


@pytest.mark.parametrize("change", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_follower_that_is_fenced_or_shutting_down_does_not_join(change):
    cluster = lonely_leader()
    cluster.register(3, **change)
    cluster.fetch(1, 3, 3)
    assert proposals(cluster) == []
    cluster.register(3, **dict.fromkeys(change, False))
    cluster.fetch(1, 3, 3)
    assert proposals(cluster) == [(1, 2, 3)]


def test_follower_of_another_incarnation_than_the_registered_one_does_not_join():
    """KIP-903: its fetch speaks for a log that may have lost its tail since."""
    cluster = lonely_leader()
    cluster.register(3, broker_epoch=50)
    assert cluster.fetch(1, 3, 3, broker_epoch=3).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.leader(1).followers[3].log_end_offset == -1
    assert cluster.fetch(1, 3, 3, broker_epoch=51).error is ErrorCode.NONE
    assert proposals(cluster) == [], "the controller has not told us of that one yet"
    cluster.fetch(1, 3, 3, broker_epoch=50)
    assert proposals(cluster) == [(1, 2, 3)]


def test_proposal_names_the_broker_epochs_that_fetched():
    cluster = lonely_leader()
    cluster.fetch(1, 3, 3)
    (envelope,) = [one for one in cluster.queue if one.to == CONTROLLER]
    (proposal,) = envelope.body.proposals
    assert proposal.isr == ((1, 1), (2, -1), (3, 3))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 1)
    assert envelope.body.broker_epoch == 1


def test_follower_that_reaches_a_frozen_high_watermark_joins_only_if_it_keeps_up():
    """KAFKA-19996: below the minimum the high watermark stands still, and proves nothing."""
    cluster = lonely_leader(isr=(1,), min_insync_replicas=2)
    for _ in range(5):
        cluster.produce(1, "a", acks=1)
    cluster.fetch(1, 3, 3)
    assert cluster.log(1).high_watermark == 0
    assert proposals(cluster) == []
    cluster.produce(1, "a", acks=1)
    cluster.fetch(1, 3, 8)
    assert proposals(cluster) == [(1, 3)], "level with what we had at its previous fetch"


def test_joining_follower_counts_before_the_controller_has_decided():
    cluster = lonely_leader()
    cluster.fetch(1, 2, 3), cluster.fetch(1, 3, 3)
    cluster.produce(1, "a", acks=1)
    cluster.fetch(1, 2, 4)
    cluster.now_ms += 10 * LAG_MS
    cluster.produce(1, "b", acks=1)
    cluster.fetch(1, 2, 5)
    assert cluster.log(1).high_watermark == 3, "3 is far behind, and may be in the set already"


def test_leaving_follower_counts_until_the_controller_has_decided():
    cluster = lonely_leader(isr=(1, 2, 3))
    cluster.fetch(1, 2, 3)
    cluster.tick(CHECK_MS), cluster.tick(CHECK_MS), cluster.fetch(1, 2, 3), cluster.tick(CHECK_MS)
    assert isinstance(cluster.leader(1).isr, PendingShrink)
    assert cluster.leader(1).isr.maximal == (1, 2, 3)
    assert cluster.log(1).high_watermark == 0
    cluster.settle()
    cluster.decide(cluster.proposals[-1])
    cluster.settle()
    assert cluster.leader(1).isr == CommittedIsr((1, 2), 2)
    assert cluster.log(1).high_watermark == 3


def test_followers_that_lag_too_long_are_dropped_in_one_proposal():
    cluster = lonely_leader(isr=(1, 2, 3))
    cluster.tick(CHECK_MS), cluster.tick(CHECK_MS)
    assert proposals(cluster) == [], "level at the start, by grace"
    cluster.tick(CHECK_MS)
    assert proposals(cluster) == [(1,)]
    (incident,) = cluster.incidents(IsrChanged)
    assert (incident.stage, incident.cause) == (IsrStage.PROPOSED, IsrCause.LAGGING)
    assert (incident.before, incident.after) == ((1, 2, 3), (1,))
    assert [lag.replica_id for lag in incident.replicas] == [2, 3]
    assert {lag.caught_up_ms_ago for lag in incident.replicas} == {3 * CHECK_MS}


def test_follower_level_with_an_idle_leader_is_never_dropped():
    cluster = lonely_leader(isr=(1, 2))
    cluster.fetch(1, 2, 3)
    for _ in range(10):
        cluster.tick(CHECK_MS)
    assert proposals(cluster) == []


def test_leader_that_slept_does_not_blame_its_followers():
    """Their fetches lie before it unread; it looks at the lag again when they had their turn."""
    cluster = lonely_leader(isr=(1, 2))
    cluster.fetch(1, 2, 2)
    cluster.tick(10 * LAG_MS)
    assert proposals(cluster) == []
    cluster.fetch(1, 2, 3)
    cluster.tick(CHECK_MS)
    assert proposals(cluster) == []


def test_second_change_waits_until_the_first_is_decided():
    cluster = lonely_leader(isr=(1, 2))
    cluster.fetch(1, 3, 3)
    for _ in range(4):
        cluster.tick(CHECK_MS)
    assert set(proposals(cluster)) == {(1, 2, 3)}, "only the same one, sent again"


def test_every_conjunction_of_conditions_to_join_equals_its_dumb_twin():
    """All small cases: a follower joins when every condition holds, and only then."""
    joined = 0
    for offset, epoch, fenced, other_incarnation, behind in itertools.product(
        range(4), (4, 5), (False, True), (False, True), (False, True)
    ):
        cluster = lonely_leader(isr=(1, 2), records=3 - behind)
        if behind:
            cluster.produce(1, "a", acks=1)
            cluster.fetch(1, 2, 3)
        if fenced:
            cluster.register(3, fenced=True)
        if other_incarnation:
            cluster.register(3, broker_epoch=33)
        cluster.queue.clear(), cluster.proposals.clear()
        cluster.fetch(1, 3, offset, epoch=epoch, broker_epoch=3)
        must_reach = max(cluster.leader(1).epoch_start_offset, cluster.log(1).high_watermark)
        may = (
            must_reach <= offset <= cluster.log(1).log_end_offset
            and epoch == 5
            and not fenced
            and not other_incarnation
        )
        assert bool(proposals(cluster)) == may, (offset, epoch, fenced, other_incarnation, behind)
        joined += may
    assert joined == 2


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_refused_proposal_goes_back_to_what_is_committed(error):
    cluster = lonely_leader()
    cluster.fetch(1, 3, 3)
    cluster.settle()
    cluster.decide(cluster.proposals[-1], error)
    cluster.settle()
    assert cluster.leader(1).isr == CommittedIsr((1, 2), 1)
    refused = cluster.incidents(IsrChanged)[-1]
    assert (refused.stage, refused.error) == (IsrStage.REFUSED, error)
    assert (refused.before, refused.after) == ((1, 2), (1, 2, 3))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_proposal_that_may_have_been_decided_stays_pending_until_metadata_comes(error):
    cluster = lonely_leader()
    cluster.fetch(1, 3, 3)
    cluster.settle()
    cluster.decide(cluster.proposals[-1], error)
    cluster.settle()
    cluster.run(1000)
    assert cluster.leader(1).isr.maximal == (1, 2, 3)
    assert len(cluster.proposals) == 1
    cluster.lead(1, 5, (1, 2))
    assert cluster.leader(1).isr == CommittedIsr((1, 2), 2)


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_proposal_that_met_a_passing_error_is_sent_again(error):
    cluster = lonely_leader()
    cluster.fetch(1, 3, 3)
    cluster.settle()
    cluster.decide(cluster.proposals[-1], error)
    cluster.settle()
    assert cluster.leader(1).isr.maximal == (1, 2, 3)
    cluster.tick(50)
    cluster.settle()
    assert cluster.proposals[0].body.proposals == cluster.proposals[1].body.proposals
    cluster.decide(cluster.proposals[1])
    cluster.settle()
    assert cluster.leader(1).isr == CommittedIsr((1, 2, 3), 2)


def test_answer_to_a_proposal_of_an_earlier_epoch_is_ignored():
    cluster = lonely_leader()
    cluster.fetch(1, 3, 3)
    cluster.settle()
    old = cluster.proposals[-1]
    cluster.lead(1, 6, (1, 2))
    cluster.fetch(1, 3, 3)
    cluster.decide(old, ErrorCode.INELIGIBLE_REPLICA)
    cluster.settle()
    assert isinstance(cluster.leader(1).isr, PendingExpand), "the new proposal still stands"


def test_metadata_of_the_same_partition_epoch_does_not_end_a_proposal():
    """It tells what we proposed upon; the controller may decide any moment."""
    cluster = lonely_leader()
    cluster.fetch(1, 3, 3)
    cluster.publish(partitions=(cluster.registrations[PARTITION],))
    assert cluster.leader(1).isr.maximal == (1, 2, 3)


def test_metadata_that_tells_the_decision_before_the_answer_commits_it_once():
    cluster = lonely_leader(decides=True)
    cluster.fetch(1, 3, 3)
    cluster.settle()
    assert cluster.leader(1).isr == CommittedIsr((1, 2, 3), 2)
    stages = [incident.stage for incident in cluster.incidents(IsrChanged)]
    assert stages == [IsrStage.PROPOSED, IsrStage.COMMITTED]
    assert cluster.incidents(IsrChanged)[-1].cause is IsrCause.CAUGHT_UP


def test_change_that_the_controller_made_by_itself_is_reported_as_such():
    cluster = three_replicas()
    cluster.lead(1, 1, (1, 2))
    incident = cluster.incidents(IsrChanged, 1)[-1]
    assert (incident.stage, incident.cause) == (IsrStage.COMMITTED, IsrCause.CONTROLLER)
    assert (incident.before, incident.after) == ((1, 2, 3), (1, 2))


def test_slow_follower_is_dropped_after_the_lag_time_and_taken_back():
    cluster = three_replicas()
    stalled = cluster.brokers.pop(3)
    cluster.queue.clear()
    for _ in range(60):
        cluster.produce(1, "a")
        cluster.run(1000)
    assert cluster.registrations[PARTITION].isr == (1, 2)
    cluster.brokers[3] = stalled
    cluster.run(60_000)
    assert cluster.registrations[PARTITION].isr == (1, 2, 3)
    assert cluster.payloads(3) == cluster.payloads(1)


@pytest.mark.parametrize("isr", [(), (2,), (1, 2, 9)])
def test_decision_for_an_impossible_set_is_not_believed(isr):
    cluster = lonely_leader()
    cluster.fetch(1, 3, 3)
    cluster.settle()
    envelope = cluster.proposals[-1]
    decision = IsrDecision(
        topic_partition=PARTITION, leader_id=1, leader_epoch=5, isr=isr, partition_epoch=2
    )
    response = AlterPartitionResponse(decisions=(decision,))
    cluster.post(1, CONTROLLER, envelope.request_id, response, is_response=True)
    cluster.settle()
    assert cluster.leader(1).isr.maximal == (1, 2, 3)
    assert isinstance(cluster.leader(1).isr, PendingExpand)
