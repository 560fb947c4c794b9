"""Any field of any message may hold any value of its type, as a decoder makes it: the protocol's
error comes back, and nothing changes.

Each case starts from a cluster with records in two epochs, feeds one host messages with arbitrary
values, and compares its log, its epochs and its high watermark with what they may be.
"""

import itertools
import uuid

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replog.messages import (
    AlterPartitionResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    IsrDecision,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from replog.registrations import BrokerRegistration, MetadataDelta
from replog.replication import events as ev
from replog.replication.effects import AppendAsLeader, Respond
from replog.types import EpochEndOffset, Isolation, TopicPartition
from tests.replication.core_cluster import PARTITION, TOPIC_ID, CoreCluster, three_replicas

EXAMPLES = 150
numbers = st.one_of(
    st.integers(0, 4),
    st.integers(-3, 8),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**31), -(2**63)]),
)
partitions = st.one_of(
    st.just(PARTITION), st.sampled_from([TopicPartition("nowhere", 0), TopicPartition("", -7)])
)
topic_ids = st.one_of(st.just(TOPIC_ID), st.just(uuid.UUID(int=2)))
codes = st.one_of(
    st.just(ErrorCode.NONE),
    st.just(ErrorCode.OFFSET_OUT_OF_RANGE),
    st.sampled_from(list(ErrorCode)),
)
fetch_partitions = st.builds(
    FetchPartition,
    topic_partition=partitions,
    topic_id=topic_ids,
    fetch_offset=numbers,
    current_leader_epoch=numbers,
    last_fetched_epoch=numbers,
    log_start_offset=numbers,
    max_bytes=numbers,
)
fetch_requests = st.builds(
    FetchRequest,
    partitions=st.lists(fetch_partitions, max_size=3).map(tuple),
    replica_id=numbers,
    broker_epoch=numbers,
    wait_ms_max=numbers,
    min_bytes=numbers,
    max_bytes=numbers,
    isolation=st.sampled_from(list(Isolation)),
    rack=st.sampled_from([None, "", "a"]),
    session_id=numbers,
    session_epoch=numbers,
    forgotten=st.lists(partitions, max_size=2).map(tuple),
)
requests = st.one_of(
    fetch_requests,
    st.builds(
        ListOffsetsRequest,
        topic_partition=partitions,
        topic_id=topic_ids,
        timestamp=numbers,
        replica_id=numbers,
        current_leader_epoch=numbers,
        isolation=st.sampled_from(list(Isolation)),
    ),
    st.builds(
        DeleteRecordsRequest,
        partitions=st.lists(st.tuples(partitions, topic_ids, numbers), max_size=3).map(tuple),
        timeout_ms=numbers,
    ),
    st.builds(
        ProduceRequest,
        partitions=st.lists(st.tuples(partitions, topic_ids, st.just(("x",))), max_size=3).map(
            tuple
        ),
        acks=numbers,
        timeout_ms=numbers,
    ),
)
fetched = st.builds(
    FetchedPartition,
    topic_partition=partitions,
    error=codes,
    high_watermark=numbers,
    last_stable_offset=numbers,
    log_start_offset=numbers,
    diverging_epoch=st.one_of(st.none(), st.builds(EpochEndOffset, numbers, numbers)),
    preferred_read_replica=st.one_of(st.none(), numbers),
)
responses = st.one_of(
    st.builds(
        FetchResponse,
        partitions=st.lists(fetched, max_size=3).map(tuple),
        error=codes,
        session_id=numbers,
    ),
    st.builds(
        ListOffsetsResponse,
        topic_partition=partitions,
        error=codes,
        offset=numbers,
        timestamp=numbers,
        leader_epoch=numbers,
    ),
    st.builds(
        AlterPartitionResponse,
        error=codes,
        decisions=st.lists(
            st.builds(
                IsrDecision,
                topic_partition=partitions,
                error=codes,
                leader_id=st.one_of(st.none(), numbers),
                leader_epoch=numbers,
                isr=st.lists(numbers, max_size=3).map(tuple),
                partition_epoch=numbers,
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.just(ProduceResponse(partitions=())),
    st.just(DeleteRecordsResponse(partitions=())),
)
quick = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def busy_cluster() -> CoreCluster:
    """Replica 1 leads in epoch 2; four records in two epochs are committed, one is not."""
    cluster = three_replicas(min_insync_replicas=2)
    cluster.produce(1, "a", "b")
    cluster.settle()
    cluster.lead(1, 2, (1, 2, 3))
    cluster.settle()
    cluster.produce(1, "c", "d")
    cluster.run(1500)
    cluster.queue.clear()
    cluster.produce(1, "e", acks=1)
    cluster.queue.clear()
    return cluster


def of(cluster, broker_id):
    log = cluster.log(broker_id)
    return list(log.records), list(log.epoch_entries), log.high_watermark, log.log_start_offset


@quick
@given(st.lists(fetch_requests, min_size=1, max_size=4))
def test_no_fetch_changes_the_log_and_none_goes_unanswered(fetches):
    cluster = busy_cluster()
    records, epochs, _, log_start = of(cluster, 1)
    asked = [cluster.ask(1, fetch) for fetch in fetches]
    cluster.now_ms = 2**64
    cluster.tick()
    assert set(asked) <= set(cluster.answers)
    after = of(cluster, 1)
    assert (after[0], after[1], after[3]) == (records, epochs, log_start)
    assert after[2] <= 5, "only real followers' claims could commit the fifth record"


@quick
@given(fetch_requests)
def test_fetch_of_a_stranger_moves_no_high_watermark(fetch):
    """A replica id outside the assignment, or an epoch that is not ours, acknowledges nothing."""
    cluster = busy_cluster()
    cluster.ask(1, fetch)
    claims = [
        one
        for one in fetch.partitions
        if one.topic_partition == PARTITION and one.current_leader_epoch == 2
    ]
    if fetch.replica_id not in {2, 3} or not claims:
        assert of(cluster, 1)[2] == 4
        assert cluster.leader(1).isr.maximal == (1, 2, 3)


@quick
@given(requests, st.sampled_from([1, 2]))
def test_every_request_is_answered_once_whatever_it_holds(request, broker_id):
    cluster = busy_cluster()
    before = of(cluster, broker_id)
    cluster.effects.clear()
    request_id = cluster.ask(broker_id, request)
    cluster.now_ms = 2**64
    cluster.tick()
    assert request_id in cluster.answers
    responds = [
        one for broker, one in cluster.effects if broker == broker_id and isinstance(one, Respond)
    ]
    assert len(responds) >= 1
    appended = any(isinstance(one, AppendAsLeader) for _, one in cluster.effects)
    after = of(cluster, broker_id)
    assert after[0][-1:] == before[0][-1:] or appended or isinstance(request, DeleteRecordsRequest)
    assert after[1][-1][0] == before[1][-1][0], "the latest epoch stands"
    if broker_id == 2:
        assert after == before, "a follower changes nothing on anybody's request"
    if not isinstance(request, FetchRequest):
        assert after[2] == before[2]


@quick
@given(st.lists(responses, min_size=1, max_size=4))
def test_no_answer_makes_a_follower_give_up_committed_records(answers):
    cluster = busy_cluster()
    committed = [one for one in of(cluster, 2)[0] if one.offset < cluster.log(2).high_watermark]
    high_watermark = cluster.log(2).high_watermark
    for answer in answers:
        fetcher = cluster.brokers[2].host._fetchers.get(1)
        ids = [fetcher.request_id, *fetcher.offset_requests] if fetcher else []
        for request_id in [one for one in ids if one is not None]:
            event = ev.ResponseReceived(request_id=request_id, response=answer)
            cluster.brokers[2].handle(event)
        cluster.tick(1000)
    log = cluster.log(2)
    assert log.high_watermark >= high_watermark
    kept = [one for one in committed if one.offset >= log.log_start_offset]
    assert log.records[: len(kept)] == kept or log.log_start_offset >= high_watermark


@quick
@given(st.lists(responses, min_size=1, max_size=3), st.integers(-2, 99))
def test_answer_that_nobody_waits_for_changes_nothing(answers, request_id):
    cluster = busy_cluster()
    before = [of(cluster, broker) for broker in (1, 2, 3)]
    for broker in cluster.brokers.values():
        fetchers = broker.host._fetchers.values()
        if any(request_id == fetcher.request_id for fetcher in fetchers):
            continue
        for answer in answers:
            broker.handle(ev.ResponseReceived(request_id=request_id, response=answer))
        broker.handle(ev.RequestFailed(request_id=request_id))
        broker.handle(ev.RequesterGone(request_id=request_id + 10_000))
    assert [of(cluster, broker) for broker in (1, 2, 3)] == before


@quick
@given(st.lists(responses, min_size=1, max_size=4))
def test_no_decision_of_the_controller_lets_a_record_count_that_in_sync_replicas_lack(answers):
    """The set that counts is one that the controller confirmed, or larger, and we are in it."""
    cluster = busy_cluster()
    cluster.decides = False
    cluster.lead(1, 3, (1, 2))
    cluster.queue.clear()
    cluster.fetch(1, 3, 5)
    for answer in answers:
        queue = cluster.brokers[1].host._proposals
        request_id = queue.request_id
        if request_id is None:
            break
        cluster.brokers[1].handle(ev.ResponseReceived(request_id=request_id, response=answer))
        cluster.tick(50)
    leader = cluster.leader(1)
    assert 1 in leader.isr.isr
    assert set(leader.isr.isr) <= {1, 2, 3}
    assert of(cluster, 1)[2] <= 5


@quick
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.integers(0, 5),
            st.sampled_from([None, 1, 2, 3]),
            st.sets(st.sampled_from([1, 2, 3]), min_size=1),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_registrations_in_any_order_never_let_epochs_go_back(orders):
    cluster = three_replicas()
    before = cluster.registrations[PARTITION]
    newest = (before.leader_epoch, before.partition_epoch)
    for leader_epoch, partition_epoch, leader_id, isr, fences in orders:
        if leader_id is not None and leader_id not in isr:
            continue
        import dataclasses

        registration = dataclasses.replace(
            before,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            leader_id=leader_id,
            isr=tuple(sorted(isr)),
        )
        brokers = (BrokerRegistration(broker_id=3, broker_epoch=3, fenced=fences),)
        delta = MetadataDelta(version=0, brokers=brokers, partitions=(registration,))
        cluster.brokers[1].handle(ev.MetadataChanged(delta=delta))
        known = cluster.brokers[1].host.registration(PARTITION)
        assert (known.leader_epoch, known.partition_epoch) >= newest
        assert known.partition_epoch >= newest[1]
        newest = (known.leader_epoch, known.partition_epoch)
        leader = cluster.leader(1)
        if leader is not None:
            assert leader.leader_epoch == known.leader_epoch


def test_completions_for_what_is_no_more_change_nothing():
    """A log may fail between an effect and its completion; the partition may be gone by then."""
    cluster = three_replicas()
    error_free = [
        ev.LeaderAppendCompleted(
            topic_partition=PARTITION, append_id=77, base_offset=5, last_offset=6
        ),
        ev.FollowerAppendCompleted(topic_partition=PARTITION),
        ev.TruncationCompleted(topic_partition=PARTITION),
        ev.LogFlushed(topic_partition=PARTITION),
        ev.LogReplaced(topic_partition=PARTITION),
    ]
    nowhere = TopicPartition("nowhere", 0)
    for broker, event in itertools.product((1, 2, 3), error_free):
        cluster.brokers[broker].handle(event)
        import dataclasses

        cluster.brokers[broker].handle(dataclasses.replace(event, topic_partition=nowhere))
    request_id = cluster.produce(1, "a")
    cluster.settle()
    assert cluster.produced(request_id).base_offset == 0
    assert cluster.log(1).high_watermark == 1
