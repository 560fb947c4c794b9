"""A broker whose session has run out is nobody's leader for now; what it knows stays for later."""

import pytest

from replog.messages import (
    DeleteRecordsRequest,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    OffsetSpec,
)
from replog.replication import events as ev
from replog.replication.incidents import LeadingResumed, LeadingStopped
from tests.replication.core_cluster import CONTROLLER, PARTITION, TOPIC_ID, three_replicas

REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def cluster():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    return cluster


def suspend(cluster, *, is_suspended=True):
    event = ev.LeadingSuspended(is_suspended=is_suspended, message="no answer")
    cluster.brokers[1].handle(event)


def fetched(cluster, **more):
    asked = FetchPartition(topic_partition=PARTITION, topic_id=TOPIC_ID, fetch_offset=1, **more)
    request = FetchRequest(partitions=(asked,), wait_ms_max=0)
    return cluster.answer(1, request).partitions[0]


def test_it_takes_and_serves_nothing_as_a_leader(cluster):
    suspend(cluster)
    assert [cluster.produced(cluster.produce(1, "b", acks=acks)).error for acks in (1, -1)] == [
        REFUSED,
        REFUSED,
    ]
    assert cluster.log(1).log_end_offset == 1
    assert fetched(cluster).error is REFUSED
    asked = ListOffsetsRequest(
        topic_partition=PARTITION, topic_id=TOPIC_ID, timestamp=OffsetSpec.LATEST
    )
    assert cluster.answer(1, asked).error is REFUSED
    (deleted,) = cluster.answer(
        1, DeleteRecordsRequest(partitions=((PARTITION, TOPIC_ID, 1),))
    ).partitions
    assert deleted.error is REFUSED
    assert cluster.log(1).log_start_offset == 0


def test_what_followers_claim_commits_nothing(cluster):
    """Another may lead by now, and followers that have not heard of it still ask us."""
    waiting = cluster.produce(1, "b")
    suspend(cluster)
    cluster.run(400)
    assert waiting not in cluster.answers
    assert cluster.log(1).high_watermark == 1


def test_it_goes_on_where_it_stood(cluster):
    suspend(cluster)
    cluster.run(3000)
    suspend(cluster, is_suspended=False)
    cluster.run(3000)
    produced = cluster.produce(1, "b")
    cluster.settle()
    assert cluster.produced(produced).error is ErrorCode.NONE
    assert cluster.payloads(2) == ["a", "b"]
    (stopped,) = cluster.incidents(LeadingStopped)
    assert (stopped.led, stopped.message) == ((PARTITION,), "no answer")
    assert cluster.incidents(LeadingResumed) == [LeadingResumed(broker_epoch=1)]


def test_followers_that_it_refused_are_not_to_blame(cluster):
    """Goal: nobody is proposed to leave the in-sync set for fetches that were refused here."""
    cluster.produce(1, "b")
    suspend(cluster)
    cluster.run(3 * cluster.options.replica_lag_time_max_ms)
    suspend(cluster, is_suspended=False)
    cluster.run(cluster.options.replica_lag_time_max_ms)
    assert cluster.registrations[PARTITION].isr == (1, 2, 3)
    assert not [one for one in cluster.delivered if one.to == CONTROLLER]


def test_a_proposal_that_may_have_been_granted_still_counts_afterwards():
    """Goal: a replica that the controller may hold for in sync keeps the high watermark back.

    Method: 3 is proposed for the set; the answer does not come before the session runs out.
    """
    cluster = three_replicas(decides=False)
    cluster.lead(1, 1, (1, 2))
    cluster.run(600)
    leader = cluster.leader(1)
    assert 3 in leader.isr.maximal
    suspend(cluster)
    suspend(cluster, is_suspended=False)
    assert cluster.leader(1) is leader
    assert 3 in leader.isr.maximal
