"""Incremental fetches: what either side leaves out, and how a session ends and begins anew."""

import dataclasses

import pytest

from replog.messages import (
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from replog.replication.fetch_session import AskedSession, ServedSession, SessionCache
from replog.types import EpochEndOffset, TopicPartition
from tests.replication.core_cluster import PARTITION, TOPIC_ID, CoreCluster, three_replicas
from tests.replication.memory_log import MemoryLog

OTHER = TopicPartition("orders", 1)


def asked(topic_partition=PARTITION, offset=0) -> FetchPartition:
    return FetchPartition(topic_partition=topic_partition, topic_id=TOPIC_ID, fetch_offset=offset)


def full(*partitions, replica_id=2, broker_epoch=2) -> FetchRequest:
    return FetchRequest(
        partitions=partitions, replica_id=replica_id, broker_epoch=broker_epoch, session_epoch=0
    )


def next_of(session, *partitions, epoch=None, replica_id=2, broker_epoch=2, forgotten=()):
    return FetchRequest(
        partitions=partitions,
        replica_id=replica_id,
        broker_epoch=broker_epoch,
        session_id=session.session_id,
        session_epoch=session.next_epoch if epoch is None else epoch,
        forgotten=forgotten,
    )


def test_session_counts_its_requests():
    cache = SessionCache()
    session = cache.open(full(asked()), broker_epoch=1)
    assert cache.resume(next_of(session)) is session
    session.update(next_of(session))
    assert cache.resume(next_of(session, epoch=1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.resume(next_of(session, epoch=3)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.resume(next_of(session, epoch=2)) is session


def test_session_epoch_begins_again_after_the_largest():
    session = SessionCache().open(full(asked()), broker_epoch=1)
    session.next_epoch = 2**31 - 1
    session.update(next_of(session))
    assert session.next_epoch == 1


def test_session_of_another_asker_or_of_its_former_life_is_not_found():
    cache = SessionCache()
    session = cache.open(full(asked()), broker_epoch=1)
    for stranger in ({"replica_id": 3}, {"broker_epoch": 9}):
        assert cache.resume(next_of(session, **stranger)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.drop(next_of(session, replica_id=3))
    assert cache.resume(next_of(session)) is session
    cache.drop(next_of(session))
    assert cache.resume(next_of(session)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_ids_of_sessions_differ_between_incarnations_of_the_serving_broker():
    ids = {SessionCache().open(full(asked()), broker_epoch=epoch).session_id for epoch in range(9)}
    assert len(ids) == 9
    assert all(0 < one < 2**31 for one in ids)


def test_cache_is_bounded_and_the_longest_unused_session_goes_first():
    cache = SessionCache(sessions_max=2)
    first, second = (cache.open(full(asked(), replica_id=-1), broker_epoch=1) for _ in range(2))
    cache.resume(next_of(first, replica_id=-1))
    third = cache.open(full(asked(), replica_id=-1), broker_epoch=1)
    assert len(cache) == 2
    found = [cache.resume(next_of(one, replica_id=-1)) for one in (second, first, third)]
    assert found == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, first, third]
    assert second.is_over


def test_replica_has_one_session_at_most():
    cache = SessionCache()
    former = cache.open(full(asked()), broker_epoch=1)
    other = cache.open(full(asked(), replica_id=3), broker_epoch=1)
    again = cache.open(full(asked(), broker_epoch=5), broker_epoch=1)
    assert former.is_over
    assert len(cache) == 2
    assert cache.resume(next_of(again, broker_epoch=5)) is again
    assert cache.resume(next_of(other, replica_id=3, broker_epoch=2)) is other


def test_new_session_takes_the_place_of_the_one_that_it_names():
    cache = SessionCache()
    first = cache.open(full(asked()), broker_epoch=1)
    again = FetchRequest(
        partitions=(asked(),),
        replica_id=2,
        broker_epoch=2,
        session_epoch=0,
        session_id=first.session_id,
    )
    cache.open(again, broker_epoch=1)
    assert len(cache) == 1


def fetched(**fields) -> FetchedPartition:
    return FetchedPartition(topic_partition=PARTITION, **fields)


@pytest.mark.parametrize(
    ("said", "is_news"),
    [
        ({"high_watermark": 1, "log_start_offset": 0}, False),
        ({"high_watermark": 2, "log_start_offset": 0}, True),
        ({"high_watermark": 1, "log_start_offset": 1}, True),
        ({"high_watermark": 1, "log_start_offset": 0, "records": b"r"}, True),
        ({"error": ErrorCode.NOT_LEADER_OR_FOLLOWER}, True),
        (
            {"high_watermark": 1, "log_start_offset": 0, "diverging_epoch": EpochEndOffset(1, 1)},
            True,
        ),
        ({"high_watermark": 1, "log_start_offset": 0, "preferred_read_replica": 3}, True),
    ],
)
def test_only_news_is_said(said, is_news):
    session = ServedSession(1, full(asked()))
    assert session.is_news(fetched(high_watermark=1, log_start_offset=0))
    assert session.is_news(fetched(**said)) == is_news


def test_partition_is_said_anew_after_an_error():
    session = ServedSession(1, full(asked()))
    session.is_news(fetched(high_watermark=1, log_start_offset=0))
    session.is_news(fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert session.is_news(fetched(high_watermark=1, log_start_offset=0))


def test_what_is_told_with_a_divergence_is_told_again():
    """The follower cuts, and takes neither watermark nor log start from such an answer."""
    session = ServedSession(1, full(asked()))
    session.is_news(
        fetched(high_watermark=1, log_start_offset=0, diverging_epoch=EpochEndOffset(1, 3))
    )
    assert session.is_news(fetched(high_watermark=1, log_start_offset=0))


def test_what_was_told_in_an_older_epoch_is_told_again():
    """The answer may have come when the follower had turned to the new epoch already."""
    session = ServedSession(1, full(asked()))
    session.is_news(fetched(high_watermark=1, log_start_offset=0))
    later = dataclasses.replace(asked(), current_leader_epoch=7)
    session.update(next_of(session, later))
    assert session.is_news(fetched(high_watermark=1, log_start_offset=0))


def test_partitions_that_had_records_are_served_last_next_time():
    session = ServedSession(1, full(asked(PARTITION), asked(OTHER)))
    session.move_to_end(PARTITION)
    assert list(session.stirring) == [OTHER, PARTITION]


def test_asking_side_names_only_what_has_changed():
    session = AskedSession()
    session.begin([asked(PARTITION), asked(OTHER)])
    session.answered(7)
    assert (session.session_id, session.epoch) == (7, 1)
    assert not session.include(asked(PARTITION))
    assert session.include(asked(PARTITION, 1))
    assert session.forget(OTHER)
    assert not session.forget(OTHER)
    session.answered(7)
    assert session.epoch == 2
    session.reset()
    assert (session.session_id, session.epoch) == (0, 0)


def test_idle_followers_send_and_get_nothing_but_the_session():
    cluster = three_replicas()
    cluster.run(2000)
    cluster.delivered.clear()
    cluster.run(1000)
    bodies = [one.body for one in cluster.delivered]
    assert bodies
    for body in bodies:
        assert body.partitions == ()
        if isinstance(body, FetchRequest):
            assert body.session_epoch > 1


def test_fetch_of_many_partitions_carries_the_one_that_moved():
    partitions = [TopicPartition("many", number) for number in range(50)]
    cluster = CoreCluster({one: {} for one in (1, 2)})
    for partition in partitions:
        cluster.lead(1, 1, (1, 2), topic_partition=partition)
    cluster.run(1200)
    cluster.delivered.clear()
    cluster.produce(1, "a", topic_partition=partitions[7])
    cluster.settle()
    for envelope in cluster.delivered:
        named = [one.topic_partition for one in envelope.body.partitions]
        assert named == [partitions[7]]
    assert cluster.log(2, partitions[7]).log_end_offset == 1


def test_lost_session_begins_anew_at_once_and_loses_nothing():
    cluster = three_replicas()
    cluster.run(600)
    server = cluster.brokers[1].host._fetches
    for session in list(server._sessions._sessions.values()):
        server._sessions._end(session)
    cluster.run(600)
    request_id = cluster.produce(1, "a")
    cluster.settle()
    assert cluster.produced(request_id).error is ErrorCode.NONE
    assert cluster.follower(2).phase.name == "FETCHING"


def test_late_full_fetch_is_no_error_for_the_session_that_goes_on():
    cluster = three_replicas()
    cluster.run(600)
    late = FetchRequest(
        partitions=(FetchPartition(topic_partition=PARTITION, topic_id=TOPIC_ID, fetch_offset=0),),
        replica_id=2,
        broker_epoch=2,
        wait_ms_max=0,
        session_epoch=0,
    )
    answer = cluster.answer(1, late)
    assert isinstance(answer, FetchResponse)
    request_id = cluster.produce(1, "a")
    cluster.run(600)
    assert cluster.produced(request_id).error is ErrorCode.NONE


def test_partition_that_is_added_while_a_fetch_waits_is_in_the_next_one():
    cluster = CoreCluster({one: MemoryLog() for one in (1, 2)})
    cluster.lead(1, 1, (1, 2))
    cluster.settle()
    cluster.lead(1, 1, (1, 2), topic_partition=OTHER)
    request_id = cluster.produce(1, "a", topic_partition=OTHER)
    cluster.run(600)
    assert cluster.produced(request_id).error is ErrorCode.NONE


def test_partition_that_leaves_is_forgotten_on_both_sides():
    cluster = CoreCluster({one: MemoryLog() for one in (1, 2)})
    cluster.lead(1, 1, (1, 2))
    cluster.lead(1, 1, (1, 2), topic_partition=OTHER)
    cluster.settle()
    cluster.publish(removed=((OTHER, cluster.registrations[OTHER].topic_id),))
    cluster.run(1200)
    (session,) = cluster.brokers[1].host._fetches._sessions._sessions.values()
    assert list(session.partitions) == [PARTITION]
