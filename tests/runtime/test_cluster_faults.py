"""Brokers that die, stand still, are cut off and come back, under producers and consumers."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import time

import pytest

import replog
from replog._native import recorded_calls
from replog.admin_messages import DescribeLossesRequest, ElectionKind, ElectLeadersRequest
from replog.cli.raw_batches import compare_replicas
from replog.controller.incidents import BrokerFenced, BrokerRegistered, FenceCause, UncleanLoss
from replog.errors import (
    NoSpaceError,
    ReplicationError,
    RequestTimedOutError,
    StorageError,
    UsageError,
)
from replog.replication.events import LogUnavailable
from replog.replication.incidents import LeadingResumed, LeadingStopped, LogTruncated
from replog.runtime.clock import SystemClock
from replog.types import TopicPartition
from tests.runtime.test_local_cluster import run, values


class SkippingClock(SystemClock):
    """Time that has passed without anybody noticing."""

    skip_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.skip_ms


QUICK = replog.ControllerOptions(broker_session_timeout_ms=600, broker_heartbeat_interval_ms=100)


def test_failover_after_a_kill_and_after_a_pause_is_measured_and_printed(capsys):
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        await cluster.produce("orders", [b"before"])
        first = cluster.leader("orders")
        cluster.kill(first)
        await cluster.produce("orders", [b"after the kill"])
        await cluster.restart(first)
        await cluster.in_sync("orders")
        second = cluster.leader("orders")
        cluster.pause(second)
        await cluster.produce("orders", [b"after the pause"])
        cluster.resume(second)
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"before", b"after the kill", b"after the pause"]
        killed, paused = cluster.failovers
        assert (killed.fault, killed.from_leader) == ("killed", first)
        assert (paused.fault, paused.from_leader) == ("paused", second)
        assert killed.leading_ms >= killed.elected_ms
        # Of a reset connection the controller learns at once, of a silent broker by its session.
        assert killed.elected_ms < 600 <= paused.elected_ms + 100
        with capsys.disabled():
            print()
            for failover in cluster.failovers:
                print(failover)

    run(scenario, controller=QUICK)


def test_nothing_acknowledged_is_lost_or_doubled_over_a_killed_leader():
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        leader_id = cluster.leader("orders")
        producer = cluster.producer()
        futures = [producer.send("orders", [b"%d" % number]) for number in range(200)]
        await futures[20]
        cluster.kill(leader_id)
        answers = await asyncio.gather(*futures)
        assert [answer.base_offset for answer in answers] == list(range(200))
        assert {answer.leader_epoch for answer in answers} == {0, 1}
        assert await values(cluster) == [b"%d" % number for number in range(200)]
        await cluster.restart(leader_id)
        await cluster.in_sync("orders")

    run(scenario)


def test_a_plain_producer_is_told_that_nobody_knows():
    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        cluster.partition(1, 2)
        cluster.partition(1, 3)
        producer = cluster.producer(idempotent=False)
        future = producer.send("orders", [b"a"])
        await cluster.until(lambda now: now.replica(1, "orders").log_end_offset == 1, "the append")
        cluster.kill(1)
        cluster.heal()
        with pytest.raises(RequestTimedOutError, match="may be lost or still be committed"):
            await future

    run(scenario)


def test_a_paused_leader_that_comes_back_is_fenced_and_cuts_what_nobody_has():
    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        await cluster.produce("orders", [b"committed"])
        cluster.partition(1, 2)
        cluster.partition(1, 3)
        lost = asyncio.ensure_future(
            cluster.producer(idempotent=False).produce("orders", [b"lost"])
        )
        await cluster.until(lambda now: now.replica(1, "orders").log_end_offset == 2, "the append")
        cluster.pause(1)
        await cluster.leader_after(0, "orders")
        cluster.heal()
        await cluster.produce("orders", [b"next"])
        cluster.resume(1)
        await cluster.in_sync("orders")
        with pytest.raises(ReplicationError):
            await lost
        assert await values(cluster) == [b"committed", b"next"]
        [cut] = [
            entry.incident
            for entry in cluster.incidents("orders")
            if isinstance(entry.incident, LogTruncated)
        ]
        assert (cut.old_end_offset, cut.new_end_offset) == (2, 1)

    run(scenario, controller=QUICK)


def test_a_leader_cut_off_from_all_is_replaced_and_follows_when_it_is_back():
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        leader_id = cluster.leader("orders")
        await cluster.produce("orders", [b"before"])
        cluster.isolate(leader_id)
        await cluster.produce("orders", [b"meanwhile"])
        assert cluster.leader("orders") != leader_id
        cluster.heal()
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"before", b"meanwhile"]

    run(scenario, controller=QUICK)


def test_a_broker_whose_session_ran_out_registers_again_in_the_same_run_and_leads_again():
    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        await cluster.produce("orders", [b"before"])
        node = cluster._running().members.node(1)
        epoch = node.broker_epoch
        cluster.pause(1)
        await cluster.leader_after(0, "orders")
        cluster.resume(1)
        await cluster.in_sync("orders")
        assert cluster._running().members.node(1) is node
        assert node.broker_epoch > epoch
        request = ElectLeadersRequest(
            kind=ElectionKind.PREFERRED, partitions=(TopicPartition("orders", 0),)
        )
        await cluster.admin(request)
        await cluster.produce("orders", [b"after"])
        assert cluster.leader("orders") == 1
        assert await values(cluster) == [b"before", b"after"]
        registered = [
            entry.incident
            for entry in cluster.incidents()
            if isinstance(entry.incident, BrokerRegistered) and entry.incident.broker_id == 1
        ]
        assert [one.unclean for one in registered] == [False, False]

    run(scenario, controller=QUICK)


def test_a_leader_that_hears_nothing_stops_by_its_clock_before_another_is_elected():
    began_ms = int(time.time() * 1000)

    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        cluster.isolate(1)
        await cluster.leader_after(0, "orders")
        cluster.heal()
        await cluster.in_sync("orders")
        entries = cluster.incidents()
        (stopped,) = [entry for entry in entries if isinstance(entry.incident, LeadingStopped)]
        (fenced,) = [entry for entry in entries if isinstance(entry.incident, BrokerFenced)]
        assert fenced.incident.cause is FenceCause.SESSION_EXPIRED
        assert (stopped.broker_id, stopped.incident.led) == (1, (TopicPartition("orders", 0),))
        assert stopped.at_ms <= fenced.at_ms
        resumed = [entry for entry in entries if isinstance(entry.incident, LeadingResumed)]
        assert resumed[-1].at_ms > fenced.at_ms
        # For who lays them beside other logs; the clock of the tests does not jump.
        assert began_ms <= stopped.wall_ms <= resumed[-1].wall_ms <= time.time() * 1000

    run(scenario, controller=QUICK)


def test_an_unclean_election_tells_exactly_which_offsets_it_has_lost():
    async def scenario(cluster):
        await cluster.create_topic(
            "orders", assignment=[(1, 2)], unclean_leader_election=True, min_insync_replicas=1
        )
        await cluster.produce("orders", [b"both"])
        await cluster.in_sync("orders")
        cluster.kill(2)
        await cluster.in_sync("orders", replicas=[1])
        await cluster.until(lambda now: now.isr("orders") == (1,), "the dead one to leave")
        await cluster.produce("orders", [b"lost", b"and gone"])
        cluster.kill(1)
        await cluster.restart(2)
        await cluster.leader_after(1, "orders")
        # One that has lost a batch says so with its next one; another producer knows nothing of it.
        await cluster.producer().produce("orders", [b"instead"])
        request = DescribeLossesRequest()
        (election,) = (await cluster.admin(request)).elections
        assert (election.leader_id, election.lost, election.awaited) == (2, (), (1,))
        await cluster.restart(1)
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"both", b"instead"]
        await cluster.until(
            lambda now: [e for e in now.incidents() if isinstance(e.incident, UncleanLoss)],
            "the report",
        )
        (election,) = (await cluster.admin(request)).elections
        ((epoch, start_offset, end_offset),) = election.lost
        assert (start_offset, end_offset) == (1, 3)
        assert epoch < election.leader_epoch
        assert [one.broker_id for one in election.held_by] == [1]
        assert election.awaited == ()

    run(scenario, brokers=3, controller=QUICK)


def test_rot_that_a_leader_finds_while_it_searches_for_a_time_is_repaired_from_a_peer():
    """Goal: one bad batch costs one replica, not its broker. Method: a length that cannot be."""

    async def scenario(cluster):
        await cluster.create_topic("orders", config=replog.LogConfig(segment_bytes=1_000))
        for at in range(40):
            await cluster.produce("orders", [b"%03d" % at + b"x" * 97], timestamps=[1_000 + at])
        leader = cluster.leader("orders")
        first = os.path.join(cluster.partition_directory(leader, "orders"), f"{0:020}.log")
        file = os.open(first, os.O_RDWR)
        size_bytes = 12 + int.from_bytes(os.pread(file, 4, 8), "big")
        os.pwrite(file, b"\x7f\xff\xff\xff", size_bytes + 8)
        os.close(file)
        found = await values(cluster, timestamp=1_004)
        assert found == [b"%03d" % at + b"x" * 97 for at in range(4, 40)]
        await cluster.in_sync("orders")
        assert cluster.leader("orders") != leader
        assert await values(cluster) == [b"%03d" % at + b"x" * 97 for at in range(40)]

    run(scenario)


def test_a_leader_whose_log_cannot_be_read_is_replaced():
    """Goal: nobody stays a leader who answers all with a storage error."""

    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        await cluster.produce("orders", [b"a"])
        leader = cluster.leader("orders")
        executor = cluster._running().members.node(leader)._executor

        class Unreadable:
            def __init__(self, log):
                self.log = log

            def __getattr__(self, name):
                return getattr(self.log, name)

            def read(self, *_):
                raise StorageError("expected to read the log, found EIO")

        opened = executor._open_log
        executor._open_log = lambda name: Unreadable(opened(name))
        assert await values(cluster) == [b"a"]
        assert cluster.leader("orders") != leader
        await cluster.produce("orders", [b"b"])
        assert await values(cluster) == [b"a", b"b"]

    run(scenario)


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (StorageError("expected to cut the log, found EIO"), True),
        (NoSpaceError("expected space, found a full disk"), False),
        (UsageError("expected an offset"), False),
    ],
)
def test_a_follower_that_has_lost_its_log_for_good_leaves_before_it_could_be_elected(error, ends):
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        await cluster.produce("orders", [b"a"])
        follower = next(one for one in cluster.isr("orders") if one != cluster.leader("orders"))
        node = cluster._running().members.node(follower)
        lost = LogUnavailable(topic_partition=TopicPartition("orders", 0), error=error)
        node._executor.step(lost, 0)
        assert (node.ended is not None) == ends
        if ends:
            await cluster.produce("orders", [b"b"])
            await cluster.until(lambda now: follower not in now.isr("orders"), "it to leave")

    run(scenario)


def test_brokers_are_not_taken_for_dead_when_the_whole_process_stood_still():
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        leader_id = cluster.leader("orders")
        clock = cluster._options.clock
        clock.skip_ms += 60_000
        await cluster.produce("orders", [b"a"])
        await cluster.until(
            lambda now: now._running().pump._looked_at_ms > 60_000, "a turn after the pause"
        )
        assert cluster.leader("orders") == leader_id
        assert set(cluster.isr("orders")) == {1, 2, 3}

    run(scenario, clock=SkippingClock())


def test_a_consumer_follows_the_leader_and_sees_each_record_once():
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        found = []

        async def tail():
            found.extend([record.value async for record in cluster.consume("orders", end=60)])

        task = asyncio.create_task(tail())
        for number in range(60):
            if number in (20, 40):
                leader_id = cluster.leader("orders")
                cluster.kill(leader_id)
                await cluster.produce("orders", [b"%d" % number])
                await cluster.restart(leader_id)
                await cluster.in_sync("orders")
            else:
                await cluster.produce("orders", [b"%d" % number])
        await asyncio.wait_for(task, 20)
        assert found == [b"%d" % number for number in range(60)]

    run(scenario)


def test_a_clean_stop_hands_leadership_over_and_marks_the_directory():
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        await cluster.produce("orders", [b"a"])
        leader_id = cluster.leader("orders")
        await cluster.stop(leader_id)
        assert cluster.leader("orders") not in {None, leader_id}
        directory = os.path.dirname(cluster.partition_directory(leader_id, "orders"))
        assert os.path.exists(os.path.join(directory, ".kafka_cleanshutdown"))
        await cluster.produce("orders", [b"b"])
        await cluster.restart(leader_id)
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"a", b"b"]

    run(scenario)


def test_a_replica_that_has_rotted_is_set_aside_and_fetched_anew():
    async def scenario(cluster):
        await cluster.create_topic("orders", assignment=[(1, 2, 3)])
        for number in range(20):
            await cluster.produce("orders", [b"%d" % number * 50])
        path = os.path.join(cluster.partition_directory(3, "orders"), "00000000000000000000.log")
        await cluster.stop(3)
        os.truncate(path, os.path.getsize(path) // 2)
        await cluster.produce("orders", [b"more"])
        await cluster.restart(3)
        await cluster.in_sync("orders")
        assert cluster.replica(3, "orders").log_end_offset == 21
        kept = [
            name
            for name in os.listdir(os.path.dirname(os.path.dirname(path)))
            if name.endswith("-stray")
        ]
        assert len(kept) == 1

    run(scenario)


def test_all_brokers_die_and_come_back_with_all_that_was_acknowledged():
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        for number in range(10):
            await cluster.produce("orders", [b"%d" % number])
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id)
        await cluster.until(lambda now: now.leader("orders") is None, "all to be seen dead")
        await asyncio.gather(*(cluster.restart(broker_id) for broker_id in cluster.broker_ids))
        await cluster.produce("orders", [b"10"])
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"%d" % number for number in range(11)]

    run(scenario)


async def bring_back(cluster, broker_id, how):
    if how == "killed":
        await cluster.restart(broker_id)
    elif how == "paused":
        cluster.resume(broker_id)
    else:
        cluster.heal()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_faults_leaves_equal_files_with_all_that_was_acknowledged(seed, tmp_path):
    """Faults by chance while batches are produced; at the end all are well, and files compared."""
    draw = random.Random(seed)

    async def disturb(cluster):
        for _ in range(12):
            running = [i for i in cluster.broker_ids if i not in away]
            victim = draw.choice(running if len(running) > 2 else list(away))
            if victim in away:
                await bring_back(cluster, victim, away.pop(victim))
            else:
                away[victim] = how = draw.choice(("killed", "paused", "isolated"))
                {"killed": cluster.kill, "paused": cluster.pause, "isolated": cluster.isolate}[how](
                    victim
                )
            produced = len(answers)
            await cluster.until(
                lambda _, produced=produced: len(answers) > produced + 5, "some progress"
            )

    async def produce(cluster):
        producer = cluster.producer()
        while not done:
            answers.append(await producer.produce("orders", [b"%d" % len(answers)]))

    away, answers, done = {}, [], []

    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        task = asyncio.create_task(produce(cluster))
        await disturb(cluster)
        done.append(True)
        await task
        cluster.heal()
        for broker_id, how in away.items():
            await bring_back(cluster, broker_id, how)
        await cluster.in_sync("orders")
        found = await values(cluster)
        assert found == [b"%d" % number for number in range(len(answers))]
        assert [answer.base_offset for answer in answers] == list(range(len(answers)))

    run(scenario, controller=QUICK, directory=tmp_path)
    directories = [str(tmp_path / f"broker-{i}" / "orders-0") for i in (1, 2, 3)]
    compare_replicas(directories, len(answers), [])


def test_a_leader_whose_disk_fails_is_replaced_at_once_and_recovers_when_started_again():
    async def scenario(cluster):
        await cluster.create_topic("orders", min_insync_replicas=2)
        await cluster.produce("orders", [b"before"])
        leader_id = cluster.leader("orders")
        path = cluster.partition_directory(leader_id, "orders")
        recorded_calls.fail("pwritev", errno.EIO, path=path)
        await cluster.produce("orders", [b"after"])
        assert cluster.leader("orders") != leader_id
        with pytest.raises(UsageError, match="killed; restart it first"):
            cluster.replica(leader_id, "orders")
        recorded_calls.clear_faults()
        await cluster.restart(leader_id)
        await cluster.in_sync("orders")
        assert await values(cluster) == [b"before", b"after"]

    recorded_calls.install()
    try:
        run(scenario)
    finally:
        recorded_calls.uninstall()
