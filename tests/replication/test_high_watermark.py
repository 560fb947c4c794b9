"""The two rules for high watermarks, held against dumb twins over all small cases."""

import itertools

import pytest

from replog.errors import InvariantViolation
from replog.replication.high_watermark import follower_high_watermark, leader_high_watermark
from replog.replication.replica_progress import ReplicaProgress
from tests.replication.core_cluster import three_replicas


def dumb_high_watermark(current, leader_end, ends, isr, joining):
    """Every offset below which each replica that counts has every record, tried one by one."""
    counting = [end for one, end in ends.items() if one in isr or one in joining]
    reached = [offset for offset in range(leader_end + 1) if all(end >= offset for end in counting)]
    return max([current, *reached])


def test_leader_high_watermark_equals_its_dumb_twin_for_all_small_cases():
    subsets = [(), (2,), (3,), (2, 3)]
    cases = itertools.product(range(4), range(-1, 4), range(-1, 4), subsets, subsets, range(4))
    for leader_end, end_2, end_3, isr, joining, current in cases:
        if current > leader_end:
            continue
        ends = {2: end_2, 3: end_3}
        followers = [ReplicaProgress(one, log_end_offset=end) for one, end in ends.items()]
        found = leader_high_watermark(
            current,
            leader_end,
            followers,
            isr,
            lambda one, joining=joining: one.replica_id in joining,
        )
        assert found == dumb_high_watermark(current, leader_end, ends, isr, joining)


def test_follower_high_watermark_is_clamped_to_its_log_and_never_goes_back():
    for current, told, start, end in itertools.product(range(5), range(-2, 7), range(5), range(5)):
        if not start <= current <= end:
            continue
        found = follower_high_watermark(current, told, start, end)
        assert start <= found <= end
        assert found >= current
        assert found == max(current, min(told, end))


def test_follower_high_watermark_above_its_log_is_a_bug():
    with pytest.raises(InvariantViolation):
        follower_high_watermark(5, 5, 0, 4)


def test_high_watermark_stands_still_until_every_in_sync_follower_has_fetched():
    cluster = three_replicas()
    cluster.queue.clear()
    cluster.kill(2), cluster.kill(3)
    cluster.produce(1, "a", acks=1)
    cluster.fetch(1, 2, 1)
    assert cluster.log(1).high_watermark == 0
    cluster.fetch(1, 3, 1)
    assert cluster.log(1).high_watermark == 1


def test_high_watermark_stands_still_below_the_minimum_of_in_sync_replicas():
    cluster = three_replicas(min_insync_replicas=2)
    cluster.kill(2), cluster.kill(3)
    cluster.register(3, fenced=True)
    cluster.lead(1, 1, (1,))
    cluster.queue.clear()
    cluster.produce(1, "a", acks=1)
    assert cluster.log(1).high_watermark == 0
    cluster.lead(1, 1, (1, 2))
    cluster.fetch(1, 2, 1)
    assert cluster.log(1).high_watermark == 1


def test_high_watermark_advances_when_the_controller_drops_the_replica_that_held_it():
    cluster = three_replicas()
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    request_id = cluster.produce(1, "a")
    cluster.fetch(1, 2, 1)
    assert cluster.produced(request_id) is None
    cluster.register(3, fenced=True)
    cluster.lead(1, 1, (1, 2))
    assert cluster.log(1).high_watermark == 1
    assert cluster.produced(request_id).base_offset == 0


def test_high_watermark_waits_for_a_caught_up_replica_that_is_about_to_join():
    cluster = three_replicas()
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    cluster.decides = False
    cluster.lead(1, 1, (1, 2))
    cluster.fetch(1, 3, 0)
    cluster.produce(1, "a", acks=1)
    cluster.fetch(1, 2, 1)
    assert cluster.log(1).high_watermark == 0, "3 is level within the lag time"


def test_high_watermark_does_not_wait_for_a_caught_up_replica_that_may_not_join():
    cluster = three_replicas()
    cluster.kill(2), cluster.kill(3)
    cluster.queue.clear()
    cluster.register(3, fenced=True)
    cluster.lead(1, 1, (1, 2))
    cluster.fetch(1, 3, 0)
    cluster.produce(1, "a", acks=1)
    cluster.fetch(1, 2, 1)
    assert cluster.log(1).high_watermark == 1
