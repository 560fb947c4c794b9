"""What the controller says: epochs, roles, replicas that come and go, logs that cannot be used."""

import dataclasses
import uuid

from replog.errors import CorruptBatchError, LogFailedError
from replog.messages import ErrorCode
from replog.replication import events as ev
from replog.replication.effects import (
    AssignEpoch,
    CheckpointHighWatermarks,
    DeleteLog,
    SetAsideLog,
)
from replog.replication.incidents import LeadershipChanged, ReplicaFailed
from replog.replication.replica import Role
from tests.replication.core_cluster import PARTITION, TOPIC_ID, CoreCluster, three_replicas
from tests.replication.memory_log import MemoryLog


def test_epoch_is_on_record_before_its_first_append():
    """KAFKA-7415."""
    cluster = CoreCluster({1: MemoryLog([3, 3]), 2: MemoryLog()})
    cluster.lead(1, 7, (1, 2))
    assigned = [one for broker, one in cluster.effects if isinstance(one, AssignEpoch)]
    assert assigned == [AssignEpoch(PARTITION, 7, 2)]
    assert cluster.log(1).epoch_entries[-1] == (7, 2)


def test_epoch_is_assigned_once_while_only_the_set_changes():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    cluster.lead(1, 1, (1, 2))
    assigned = [one for _, one in cluster.effects if isinstance(one, AssignEpoch)]
    assert len(assigned) == 1
    assert cluster.leader(1).epoch_start_offset == 0


def test_older_registration_changes_nothing():
    cluster = three_replicas()
    older = cluster.registrations[PARTITION]
    newer = cluster.lead(2, 4, (1, 2, 3))
    cluster.publish(partitions=(older,))
    for broker in cluster.brokers.values():
        assert broker.host.registration(PARTITION) is newer
    assert cluster.brokers[2].host.role_of(PARTITION) is Role.LEADER
    backwards = dataclasses.replace(newer, leader_epoch=3, partition_epoch=9)
    cluster.publish(partitions=(backwards,))
    assert cluster.leader(2).leader_epoch == 4


def test_older_registration_of_a_broker_changes_nothing():
    cluster = three_replicas()
    before = cluster.registered[3]
    cluster.register(3, broker_epoch=70)
    cluster.publish(brokers=(before,))
    assert cluster.brokers[1].host._context.cluster.is_replaced(3, before.broker_epoch)


def test_partition_without_a_leader_is_neither_led_nor_followed():
    cluster = three_replicas()
    cluster.lead(None, 2, (1, 2, 3))
    for broker in cluster.brokers.values():
        assert broker.host.role_of(PARTITION) is Role.IDLE
    cluster.settle()
    cluster.run(2000)
    assert cluster.produced(cluster.produce(1, "a")).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_every_change_of_leadership_is_reported_once():
    cluster = three_replicas()
    cluster.lead(1, 1, (1, 2))
    cluster.lead(2, 2, (1, 2))
    told = [(one.leader_id, one.leader_epoch) for one in cluster.incidents(LeadershipChanged, 1)]
    assert told == [(1, 1), (2, 2)]


def test_leader_elected_again_keeps_the_progress_of_its_followers():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    leader = cluster.leader(1)
    cluster.queue.clear()
    cluster.lead(1, 2, (1, 2, 3))
    assert cluster.leader(1) is leader
    assert [one.log_end_offset for one in leader.followers.values()] == [1, 1]
    assert leader.leader_epoch == 2


def test_leader_that_missed_an_epoch_knows_nothing_of_its_followers():
    """Somebody else may have led in it: what they had of us they may have cut since."""
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    outdated = cluster.leader(1)
    cluster.queue.clear()
    waiting = cluster.produce(1, "b")
    cluster.lead(1, outdated.leader_epoch + 2, (1, 2, 3), to=(1,))
    leader = cluster.leader(1)
    assert leader is not outdated
    assert [one.log_end_offset for one in leader.followers.values()] == [-1, -1]
    refused = cluster.produced(waiting)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "between the leader epochs" in refused.message
    cluster.lead(1, leader.leader_epoch, (1, 2, 3))
    cluster.run(2000)
    assert leader.high_watermark == 2
    assert [cluster.payloads(broker) for broker in (1, 2, 3)] == [["a", "b"]] * 3


def test_what_a_leader_knew_before_it_missed_an_epoch_commits_nothing():
    """Broker 3 had it of us, followed another leader that lacks it, and has cut it."""
    cluster = three_replicas()
    epoch = cluster.leader(1).leader_epoch
    cluster.queue.clear()
    cluster.produce(1, "a")
    cluster.fetch(1, 3, 1, last_fetched_epoch=epoch)
    assert cluster.leader(1).followers[3].log_end_offset == 1
    assert cluster.leader(1).high_watermark == 0, "broker 2 is in sync, and has not got it"
    cluster.lead(1, epoch + 2, (1, 3), to=(1,))
    assert cluster.leader(1).high_watermark == 0
    cluster.fetch(1, 3, 0, epoch=epoch + 2, last_fetched_epoch=-1)
    assert cluster.leader(1).high_watermark == 0
    cluster.fetch(1, 3, 1, epoch=epoch + 2, last_fetched_epoch=epoch)
    assert cluster.leader(1).high_watermark == 1


def test_replica_that_is_moved_away_deletes_its_files():
    cluster = three_replicas()
    cluster.lead(1, 1, (1, 2), replicas=(1, 2))
    assert cluster.brokers[3].host.role_of(PARTITION) is None
    assert (3, DeleteLog(PARTITION)) in cluster.effects
    assert cluster.consume(3, 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_replica_that_is_added_starts_from_empty_and_joins():
    cluster = CoreCluster({1: MemoryLog(), 2: MemoryLog(), 3: {}})
    cluster.lead(1, 1, (1, 2), replicas=(1, 2))
    cluster.produce(1, "a")
    cluster.settle()
    cluster.lead(1, 1, (1, 2), replicas=(1, 2, 3))
    cluster.run(2000)
    assert cluster.payloads(3) == ["a"]
    assert cluster.registrations[PARTITION].isr == (1, 2, 3)


def test_deleted_topic_takes_its_files_and_its_waiters_along():
    cluster = three_replicas()
    cluster.queue.clear()
    request_id = cluster.produce(1, "a")
    cluster.publish(removed=((PARTITION, TOPIC_ID),))
    assert cluster.produced(request_id).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert all(PARTITION not in broker.logs for broker in cluster.brokers.values())
    assert cluster.consume(1, 0).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_removal_of_an_earlier_topic_of_the_same_name_is_ignored():
    cluster = three_replicas()
    cluster.publish(removed=((PARTITION, uuid.UUID(int=99)),))
    assert cluster.brokers[1].host.role_of(PARTITION) is Role.LEADER


def test_topic_created_anew_under_the_same_name_begins_with_its_own_epochs():
    cluster = three_replicas()
    cluster.lead(1, 9, (1, 2, 3))
    before = cluster.registrations[PARTITION]
    for broker in cluster.brokers.values():
        broker.logs[PARTITION] = MemoryLog()
    anew = dataclasses.replace(before, topic_id=uuid.UUID(int=2), leader_epoch=0, partition_epoch=0)
    cluster.publish(partitions=(anew,))
    assert cluster.leader(1).leader_epoch == 0


def test_high_watermarks_are_checkpointed_in_every_period():
    cluster = three_replicas()
    cluster.run(16_000)
    assert [broker.checkpoints for broker in cluster.brokers.values()] == [3, 3, 3]
    assert any(isinstance(one, CheckpointHighWatermarks) for _, one in cluster.effects)


def test_restarted_leader_keeps_the_high_watermark_of_its_log():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    cluster.restart(1)
    assert cluster.leader(1).high_watermark == 1


def test_log_that_fails_while_leading_refuses_everybody_who_waits():
    cluster = three_replicas()
    cluster.queue.clear()
    request_id = cluster.produce(1, "a")
    error = LogFailedError("the disk is gone")
    cluster.brokers[1].handle(ev.LogUnavailable(topic_partition=PARTITION, error=error))
    produced = cluster.produced(request_id)
    assert produced.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "the disk is gone" in produced.message
    assert cluster.brokers[1].host.role_of(PARTITION) is Role.OFFLINE
    assert cluster.consume(1, 0).error is ErrorCode.KAFKA_STORAGE_ERROR
    (incident,) = cluster.incidents(ReplicaFailed)
    assert incident.message == "the disk is gone"


def test_log_that_failed_is_not_used_again_until_it_is_another():
    cluster = three_replicas()
    error = LogFailedError("the disk is gone")
    cluster.brokers[3].handle(ev.LogUnavailable(topic_partition=PARTITION, error=error))
    cluster.lead(1, 2, (1, 2, 3))
    assert cluster.brokers[3].host.role_of(PARTITION) is Role.OFFLINE
    cluster.brokers[3].logs[PARTITION] = MemoryLog()
    cluster.lead(1, 3, (1, 2, 3))
    assert cluster.brokers[3].host.role_of(PARTITION) is Role.FOLLOWER


def damaged(isr=(1, 2, 3)) -> CoreCluster:
    """Replica 3 comes back with a log that is corrupt below its recovery point."""
    cluster = three_replicas()
    cluster.produce(1, "a", "b")
    cluster.settle()
    cluster.lead(1, 1, isr)
    before = cluster.kill(3)
    broker = cluster.start(3, before.logs)
    broker.damaged.add(PARTITION)
    error = CorruptBatchError("a bad CRC in the first batch")
    broker.handle(ev.LogUnavailable(topic_partition=PARTITION, error=error, damaged=True))
    cluster.publish(brokers=tuple(cluster.registered.values()))
    return cluster


def aside(cluster) -> list:
    return [one for _, one in cluster.effects if isinstance(one, SetAsideLog)]


def test_damaged_log_is_set_aside_only_when_the_leader_does_without_it():
    """C4: while we are in the set, ours may be the last good copy of something."""
    cluster = damaged()
    cluster.publish(partitions=(cluster.registrations[PARTITION],))
    assert aside(cluster) == []
    assert cluster.brokers[3].host.role_of(PARTITION) is Role.OFFLINE
    cluster.lead(None, 2, (1, 2))
    assert aside(cluster) == []
    cluster.lead(1, 3, (1, 2))
    assert aside(cluster) == [SetAsideLog(PARTITION)]
    cluster.run(2000)
    assert cluster.payloads(3) == ["a", "b"]
    assert cluster.registrations[PARTITION].isr == (1, 2, 3)
    (kept,) = cluster.brokers[3].set_aside
    assert kept.log_end_offset == 2


def test_damaged_log_of_the_only_leader_stays_and_the_partition_is_offline():
    cluster = damaged()
    cluster.lead(3, 2, (3,))
    assert aside(cluster) == []
    assert cluster.brokers[3].host.role_of(PARTITION) is Role.OFFLINE
    assert cluster.produced(cluster.produce(3, "x")).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_log_that_is_merely_unavailable_is_never_set_aside():
    cluster = three_replicas()
    error = LogFailedError("too many open files")
    cluster.brokers[3].damaged.add(PARTITION)
    cluster.brokers[3].handle(ev.LogUnavailable(topic_partition=PARTITION, error=error))
    cluster.lead(1, 2, (1, 2))
    assert aside(cluster) == []


def test_log_that_rots_while_it_follows_is_replaced_once_the_set_is_without_it():
    cluster = three_replicas()
    cluster.produce(1, "a")
    cluster.settle()
    error = CorruptBatchError("rot")
    cluster.brokers[3].handle(
        ev.LogUnavailable(topic_partition=PARTITION, error=error, damaged=True)
    )
    cluster.brokers[3].damaged.add(PARTITION)
    assert aside(cluster) == []
    cluster.lead(1, 1, (1, 2))
    cluster.run(2000)
    assert len(aside(cluster)) == 1
    assert cluster.payloads(3) == ["a"]
