"""When a follower counts as level with its leader."""

from replog.replication.replica_progress import NEVER_MS, ReplicaProgress
from tests.replication.core_cluster import PARTITION, three_replicas

LAG_MS = 100


def test_fetch_at_the_leaders_end_is_level_now():
    progress = ReplicaProgress(2)
    assert progress.record_fetch(5, 0, 1, leader_end_offset=5, now_ms=10)
    assert progress.last_caught_up_ms == 10


def test_fetch_of_what_the_leader_had_at_the_previous_fetch_was_level_then():
    progress = ReplicaProgress(2)
    progress.record_fetch(0, 0, 1, leader_end_offset=5, now_ms=10)
    assert progress.last_caught_up_ms == NEVER_MS
    progress.record_fetch(5, 0, 1, leader_end_offset=9, now_ms=20)
    assert progress.last_caught_up_ms == 10


def test_fetch_of_less_than_the_leader_had_at_the_previous_fetch_proves_nothing():
    progress = ReplicaProgress(2)
    progress.record_fetch(0, 0, 1, leader_end_offset=5, now_ms=10)
    progress.record_fetch(4, 0, 1, leader_end_offset=9, now_ms=20)
    assert progress.last_caught_up_ms == NEVER_MS


def test_time_of_being_level_never_goes_back():
    progress = ReplicaProgress(2)
    progress.record_fetch(5, 0, 1, leader_end_offset=5, now_ms=10)
    progress.record_fetch(5, 0, 1, leader_end_offset=7, now_ms=20)
    assert progress.last_caught_up_ms == 10


def test_equal_log_ends_count_as_level_however_long_ago_the_fetch_was():
    progress = ReplicaProgress(2)
    progress.record_fetch(5, 0, 1, leader_end_offset=5, now_ms=0)
    assert progress.is_caught_up(5, LAG_MS, now_ms=10**9)
    assert progress.is_caught_up(6, LAG_MS, now_ms=LAG_MS)
    assert not progress.is_caught_up(6, LAG_MS, now_ms=LAG_MS + 1)


def test_new_leader_gives_in_sync_followers_the_whole_lag_time():
    progress = ReplicaProgress(2)
    progress.record_fetch(5, 0, 7, leader_end_offset=5, now_ms=10)
    progress.begin_epoch(8, 50, in_isr=True, re_elected=False)
    assert progress.log_end_offset == progress.log_start_offset == progress.broker_epoch == -1
    assert progress.is_caught_up(8, LAG_MS, now_ms=150)
    progress.begin_epoch(8, 50, in_isr=False, re_elected=False)
    assert not progress.is_caught_up(8, LAG_MS, now_ms=50)


def test_leader_elected_again_keeps_what_it_knows_of_followers():
    progress = ReplicaProgress(2)
    progress.record_fetch(5, 1, 7, leader_end_offset=6, now_ms=10)
    progress.begin_epoch(8, 50, in_isr=True, re_elected=True)
    assert (progress.log_end_offset, progress.log_start_offset, progress.broker_epoch) == (5, 1, 7)
    assert (progress.leader_end_offset_then, progress.last_fetch_ms) == (8, 50)
    progress.record_fetch(8, 1, 7, leader_end_offset=9, now_ms=60)
    assert progress.last_caught_up_ms == 50


def test_partition_that_rests_in_a_session_is_level_at_each_of_its_fetches():
    """Fetches of a session do not name what has not changed, and still prove that it is level."""
    cluster = three_replicas()
    cluster.run(10_000)
    progress = cluster.leader(1).followers[2]
    assert progress.last_fetch_ms < 1000, "nobody has looked at it"
    cluster.produce(1, "a", acks=1)
    assert progress.last_caught_up_ms >= 9_500
    assert progress.last_fetch_ms >= 9_500


def test_first_write_of_a_new_leader_drops_no_healthy_follower():
    """fluss#3698: the leader has not heard of its followers yet when its log end moves."""
    cluster = three_replicas()
    cluster.run(100_000)
    cluster.kill(1)
    cluster.queue.clear()
    cluster.lead(2, 2, (2, 3))
    cluster.queue.clear()
    cluster.produce(2, "a", acks=1)
    cluster.tick(15_000)
    assert cluster.leader(2).isr.maximal == (2, 3)
    assert not [one for one in cluster.queue if one.to == 0]


def test_repeated_registration_of_the_same_epoch_keeps_what_is_known_of_followers():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    before = cluster.leader(1).followers[2]
    cluster.publish(partitions=(cluster.registrations[PARTITION],))
    cluster.lead(1, 1, (1, 2, 3))
    assert cluster.leader(1).followers[2] is before
    assert before.log_end_offset == 1
