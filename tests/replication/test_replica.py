"""Fencing, once for all roles; and failover of the whole core over memory logs."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

import replog.replication
from replog.errors import InvariantViolation, NotLeaderError
from replog.messages import Acks, ErrorCode, ListOffsetsRequest, OffsetSpec
from replog.replication.effects import CompleteProduce
from replog.replication.events import LeadershipChange, Produce, Tick, TruncationCompleted
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.replica import Replica
from tests.replication.core_cluster import PARTITION, three_replicas
from tests.replication.memory_log import MemoryLog
from tests.replication.test_leader import fetch

FORBIDDEN = {"asyncio", "logging", "os", "random", "replog._native", "replog.storage"} | {
    "socket",
    "threading",
    "time",
}


@pytest.mark.parametrize(
    ("role", "epoch", "expected"),
    [
        ("leader", 4, ErrorCode.FENCED_LEADER_EPOCH),
        ("leader", 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ("follower", 4, ErrorCode.FENCED_LEADER_EPOCH),
        ("follower", 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ("follower", 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("none", 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_requests_of_another_epoch_or_to_another_role_are_refused(role, epoch, expected):
    replica = Replica(PARTITION, 1, MemoryLog([1]))
    if role != "none":
        leader_id = 1 if role == "leader" else 2
        change = LeadershipChange(
            leader_id=leader_id, leader_epoch=5, replicas=(1, 2), isr=(leader_id,)
        )
        replica.step(change, 0)
    request = fetch(2, 0, -1, epoch=epoch)
    [answer] = replica.step(request, 0)
    assert (answer.to, answer.message.error) == (2, expected)
    assert (answer.message.leader_epoch, answer.message.fetch_offset) == (epoch, 0)
    offsets_request = ListOffsetsRequest(
        topic_partition=PARTITION,
        replica_id=2,
        current_leader_epoch=epoch,
        spec=OffsetSpec.LATEST,
    )
    [answer] = replica.step(offsets_request, 0)
    assert answer.message.error is expected


def test_orders_of_an_older_or_the_same_epoch_are_ignored():
    replica = Replica(PARTITION, 1, MemoryLog())
    change = LeadershipChange(leader_id=1, leader_epoch=5, replicas=(1, 2), isr=(1, 2))
    replica.step(change, 0)
    for epoch in (4, 5):
        late = LeadershipChange(leader_id=2, leader_epoch=epoch, replicas=(1, 2), isr=(1, 2))
        assert replica.step(late, 0) == []
        assert isinstance(replica.role, Leader)


def test_a_replica_that_does_not_lead_refuses_to_produce():
    cluster = three_replicas()
    for acks in Acks:
        request_id = cluster.produce(2, "a", acks=acks)
        assert isinstance(cluster.answers[request_id].error, NotLeaderError)
    replica = Replica(PARTITION, 1, MemoryLog())
    [answer] = replica.step(Produce(request_id=1, batches=("a",), acks=Acks.ALL), 0)
    assert isinstance(answer, CompleteProduce)


def test_a_partition_without_a_leader_does_nothing():
    cluster = three_replicas()
    cluster.lead(None, 2, (1, 2, 3))
    cluster.settle()
    assert all(cluster.replica(replica_id).role is None for replica_id in (1, 2, 3))
    assert cluster.replica(1).step(Tick(), 10**9) == []


def test_a_completion_that_nobody_waits_for_is_a_bug():
    with pytest.raises(InvariantViolation):
        Replica(PARTITION, 1, MemoryLog()).step(TruncationCompleted(), 0)


def test_a_zombie_leader_cannot_commit_once_a_newer_one_is_known():
    """I6: replica 1 has not heard of epoch 2 and takes a record; nobody acknowledges it."""
    cluster = three_replicas()
    cluster.lead(2, 2, (2, 3), to=[2, 3])
    request_id = cluster.produce(1, "zombie")
    cluster.settle()
    assert request_id not in cluster.answers
    assert cluster.logs[1].high_watermark == 0
    cluster.lead(2, 2, (2, 3), to=[1])
    cluster.settle()
    assert isinstance(cluster.answers[request_id].error, NotLeaderError)
    assert cluster.payloads(1) == []


def test_leader_failure_with_divergence_and_reconciliation():
    """1 dies with records that only 2 or nobody has; 3 leads on; 2, then 1, follow it again."""
    cluster = three_replicas()
    cluster.produce(1, "a", "b", "c")
    cluster.settle()
    cluster.kill(3)
    cluster.produce(1, "lost d", "lost e")
    cluster.settle()
    assert cluster.logs[2].log_end_offset == 5
    cluster.kill(1)
    cluster.start(3)
    cluster.lead(3, 2, (2, 3))
    acknowledged = cluster.produce(3, "d", "e", "f", "g")
    cluster.settle()
    assert cluster.answers[acknowledged].base_offset == 3
    cluster.start(1)
    cluster.lead(3, 3, (1, 2, 3))
    cluster.settle()
    assert [
        (cut.replica_id, cut.old_end_offset, cut.new_end_offset) for cut in cluster.truncations
    ] == [(2, 5, 3), (1, 5, 3)]
    for replica_id in (1, 2, 3):
        assert cluster.payloads(replica_id) == list("abcdefg")
        assert cluster.logs[replica_id].high_watermark == 7
        assert cluster.logs[replica_id].epoch_entries[:2] == [(1, 0), (2, 3)]


def test_nothing_acknowledged_is_lost_for_every_place_of_a_kill_and_every_next_leader():
    """A script of produces; the leader dies after every count of deliveries; each other one leads.

    The dead one comes back, and all three logs must be equal and hold every acknowledged record.
    """
    for deliveries, next_leader in itertools.product(range(40), (2, 3)):
        cluster = three_replicas()
        produced = {cluster.produce(1, f"old {number}"): number for number in range(4)}
        for _ in range(deliveries):
            if cluster.queue:
                cluster.deliver_one()
        cluster.kill(1)
        acknowledged = [f"old {produced[request_id]}" for request_id in cluster.answers]
        cluster.lead(next_leader, 2, (2, 3))
        cluster.settle()
        last = cluster.produce(next_leader, "new")
        cluster.settle()
        assert cluster.answers[last].error is None
        cluster.start(1)
        cluster.lead(next_leader, 3, (1, 2, 3))
        cluster.settle()
        logs = [cluster.logs[replica_id].records for replica_id in (1, 2, 3)]
        assert logs[0] == logs[1] == logs[2], (deliveries, next_leader)
        assert {*acknowledged, "new"} <= set(cluster.payloads(1)), (deliveries, next_leader)
        assert all(log.high_watermark == log.log_end_offset for log in cluster.logs.values())


def test_roles_follow_the_orders():
    cluster = three_replicas()
    for epoch, leader_id in enumerate((2, 3, 1, 1, 2), start=2):
        cluster.lead(leader_id, epoch, (1, 2, 3))
        cluster.settle()
        for replica_id in (1, 2, 3):
            kind = Leader if replica_id == leader_id else Follower
            assert isinstance(cluster.replica(replica_id).role, kind)


def test_the_core_is_pure():
    """No clock, chance, disk, thread or engine in reach of the protocol."""
    for source in Path(next(iter(replog.replication.__path__))).glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                roots = {name.split(".")[0], ".".join(name.split(".")[:2])}
                assert not roots & FORBIDDEN, f"{source.name} imports {name}"
