"""Several hosts together: records, high watermarks and leaders on their way through a cluster."""

from replog.messages import Durability, ErrorCode
from replog.replication.incidents import LogTruncated
from tests.replication.core_cluster import CoreCluster, three_replicas
from tests.replication.memory_log import MemoryLog


def test_record_is_acknowledged_when_all_in_sync_replicas_have_it():
    cluster = three_replicas()
    request_id = cluster.produce(1, "a", "b")
    assert cluster.produced(request_id) is None
    cluster.settle()
    produced = cluster.produced(request_id)
    assert (produced.base_offset, produced.last_offset) == (0, 1)
    assert produced.durability is Durability.REPLICATED
    assert cluster.payloads(2) == cluster.payloads(3) == ["a", "b"]


def test_high_watermark_reaches_followers_with_the_next_answer():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    assert cluster.log(1).high_watermark == 1
    cluster.run(1000)
    assert cluster.log(2).high_watermark == cluster.log(3).high_watermark == 1


def test_acknowledged_record_survives_a_leader_and_its_successor_serves_it():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    cluster.kill(1)
    cluster.lead(2, 2, (2, 3))
    cluster.settle()
    request_id = cluster.produce(2, "b")
    cluster.settle()
    assert cluster.produced(request_id).error is ErrorCode.NONE
    assert cluster.payloads(2) == cluster.payloads(3) == ["a", "b"]


def test_returning_leader_gives_up_what_was_never_committed():
    cluster = CoreCluster({1: MemoryLog(), 2: MemoryLog(), 3: MemoryLog()})
    cluster.lead(1, 1, (1, 2, 3))
    cluster.produce(1, "a")
    cluster.settle()
    cluster.queue.clear()
    cluster.produce(1, "lost", "lost too")
    dead = cluster.kill(1)
    cluster.lead(2, 2, (2, 3))
    cluster.settle()
    cluster.run(1500)
    cluster.produce(2, "b")
    cluster.settle()
    cluster.brokers[1] = dead
    cluster.restart(1)
    cluster.run(2000)
    assert cluster.payloads(1) == ["a", "b"]
    (truncated,) = cluster.incidents(LogTruncated)
    assert (truncated.old_end_offset, truncated.new_end_offset) == (3, 1)
    assert cluster.registrations[next(iter(cluster.registrations))].isr == (2, 3, 1)
