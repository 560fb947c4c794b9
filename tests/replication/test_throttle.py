"""Replicas that catch up keep to the rate, those in sync know of none."""

import pytest

from replog.config import ReplicationOptions
from replog.registrations import MetadataDelta
from replog.replication import events as ev
from replog.replication.follower import FollowerPhase
from replog.replication.throttle import FOLLOWER_RATE, ReplicationThrottle
from replog.types import TopicPartition
from tests.replication.alone import Alone
from tests.replication.memory_log import MemoryLog
from tests.replication.test_follower import records


def configure(alone, *options):
    alone.cluster.version += 1
    delta = MetadataDelta(version=alone.cluster.version, broker_options=options)
    alone.broker.handle(ev.MetadataChanged(delta=delta))


def test_a_replica_out_of_sync_pauses_for_what_it_fetched_beyond_the_rate():
    alone = Alone(MemoryLog())
    configure(alone, (None, FOLLOWER_RATE, "2"))
    alone.cluster.lead(1, 6, (1,), replicas=(1, 2))
    alone.answer(records=records(0, [6, 6, 6, 6]))
    assert alone.phase is FollowerPhase.BACKING_OFF
    alone.cluster.tick(1999)
    assert alone.phase is FollowerPhase.BACKING_OFF
    alone.cluster.tick(1)
    assert alone.phase is FollowerPhase.FETCHING
    assert alone.asked().partitions[0].fetch_offset == 4


def test_the_fetch_of_others_is_back_when_the_pause_ends():
    """A partition joins the next fetch only: this one must not wait beside a quiet leader."""
    alone = Alone(MemoryLog())
    other = TopicPartition("orders", 1)
    alone.cluster.lead(1, 5, (1, 2), replicas=(1, 2), topic_partition=other)
    configure(alone, (None, FOLLOWER_RATE, "100"))
    alone.cluster.lead(1, 6, (1,), replicas=(1, 2))
    alone.answer()
    alone.answer(records=records(0, [6, 6, 6, 6]))
    request = alone.asked()
    assert request.forgotten == (alone.follower.topic_partition,)
    assert request.wait_ms_max == 40 < ReplicationOptions().replica_fetch_wait_max_ms


def test_a_replica_in_sync_does_not_wait():
    alone = Alone(MemoryLog())
    configure(alone, (None, FOLLOWER_RATE, "1"))
    alone.answer(records=records(0, [5, 5, 5, 5]))
    assert alone.phase is FollowerPhase.FETCHING


def test_the_limit_ends_when_the_option_is_set_back():
    alone = Alone(MemoryLog())
    configure(alone, (None, FOLLOWER_RATE, "1"))
    configure(alone, (None, FOLLOWER_RATE, None))
    alone.cluster.lead(1, 6, (1,), replicas=(1, 2))
    alone.answer(records=records(0, [6, 6, 6, 6]))
    assert alone.phase is FollowerPhase.FETCHING


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ((), None),
        (((None, FOLLOWER_RATE, "5"),), 5),
        (((None, FOLLOWER_RATE, "5"), (2, FOLLOWER_RATE, "9")), 9),
        (((None, FOLLOWER_RATE, "5"), (3, FOLLOWER_RATE, "9")), 5),
        (((2, FOLLOWER_RATE, "9"), (2, FOLLOWER_RATE, None)), None),
        (((None, "leader.replication.throttled.rate", "5"),), None),
    ],
)
def test_a_brokers_own_rate_goes_before_that_of_all(options, rate):
    throttle = ReplicationThrottle(2)
    throttle.configure(options)
    assert throttle.bytes_per_s == rate


def test_over_time_no_more_comes_than_the_rate_allows():
    throttle = ReplicationThrottle(1)
    throttle.configure([(None, FOLLOWER_RATE, "1000")])
    now_ms = fetched = 0
    while now_ms < 60_000:
        fetched += 700
        now_ms += throttle.pause_ms(700, now_ms) + 1
    assert 55_000 < fetched <= 60_700
    assert throttle.pause_ms(1, now_ms + 10_000) == 1, "what was not used is not saved up"
