"""A quorum keeps its promises under faults, and comes to life again when they end."""

from __future__ import annotations

import pytest

from tests.controller.quorum.quorum_chaos import live, recover
from tests.controller.quorum.quorum_world import OPTIONS, World

SEEDS = 12
SEEDS_SLOW = 150


@pytest.mark.parametrize("voters", [1, 2, 3, 5])
def test_no_rule_breaks_in_a_life_of_faults_and_it_recovers_after(voters):
    for seed in range(1000, 1000 + SEEDS):
        live(seed, voters)


@pytest.mark.slow
@pytest.mark.parametrize("voters", [3, 5])
def test_no_rule_breaks_in_many_lives_of_faults(voters):
    elections = truncations = snapshots = resignations = 0
    for seed in range(2000, 2000 + SEEDS_SLOW):
        world = live(seed, voters)
        elections += world.checkers.elections
        truncations += sum("MetadataLogTruncated" in line for line in world.trace)
        snapshots += sum("SnapshotFetched" in line for line in world.trace)
        resignations += sum("QUORUM_SILENT" in line for line in world.trace)
    assert elections > SEEDS_SLOW * 3
    assert min(truncations, snapshots, resignations) > 10


def test_a_life_is_the_same_when_it_is_lived_again():
    one, other = live(7, 5), live(7, 5)
    assert one.trace == other.trace
    assert one.checkers.committed == other.checkers.committed


def test_a_new_leader_is_found_at_once_when_the_old_ones_connections_are_reset():
    """A follower need not wait for its fetch timeout; the other one's pre-vote confirms it."""
    for seed in range(40):
        world = World(3, seed=seed)
        leader = world.elect()
        world.run_for(500)
        world.kill(leader.id, noticed=True)
        killed_ms = world.now_ms
        world.elect()
        assert world.now_ms - killed_ms < OPTIONS.election_timeout_ms // 5


def test_a_leader_that_hangs_is_replaced_after_the_fetch_timeout():
    for seed in range(10):
        world = World(3, seed=seed)
        leader = world.elect()
        world.run_for(500)
        world.isolate(leader.id)
        cut_ms, epoch = world.now_ms, leader.quorum.leader_epoch
        while world.leader.quorum.leader_epoch == epoch:
            world.run_for(10)
        assert world.now_ms - cut_ms < OPTIONS.fetch_timeout_ms + 4 * OPTIONS.election_timeout_ms
        recover(world)


def test_a_majority_goes_on_without_the_rest():
    world = World(5, seed=3)
    leader = world.elect()
    for member in [m for m in world.members.values() if m is not leader][:2]:
        world.kill(member.id)
    world.propose(leader, 3)
    assert world.run_for(500, until=lambda: leader.quorum.high_watermark == 4)


def test_a_minority_commits_nothing_and_its_leader_resigns():
    world = World(5, seed=3)
    leader = world.elect()
    world.run_for(300)
    committed = leader.quorum.high_watermark
    friend = next(member for member in world.members.values() if member is not leader)
    world.isolate(leader.id, friend.id)
    world.propose(leader, 3)
    world.run_for(OPTIONS.fetch_timeout_ms * 3 // 2 + 50)
    assert not leader.leads
    assert leader.quorum.high_watermark == committed
    recover(world)


def test_leaders_may_die_one_after_the_other():
    world = World(5, seed=9)
    for _ in range(6):
        world.elect()
        leader = world.leader
        world.propose(leader, 2)
        world.run_for(100)
        world.kill(leader.id)
        world.run_for(1500, until=lambda: bool(world.leaders))
        world.start(leader.id)
    recover(world)


def test_all_members_killed_at_once_find_their_committed_records_again():
    world = World(3, observers=1, seed=2)
    leader = world.elect()
    world.propose(leader, 5)
    assert world.run_for(2000, until=world.level)
    for member_id in list(world.members):
        world.kill(member_id)
    recover(world)
    assert len(world.checkers.committed) >= 7


def test_a_leader_that_resigns_is_followed_by_the_voter_with_the_longest_log_at_once():
    world = World(3, seed=6)
    leader = world.elect()
    behind, ahead = [member for member in world.members.values() if member is not leader]
    world.run_for(300)
    world.isolate(behind.id)
    world.propose(leader, 3)
    world.run_for(100)
    world.heal()
    world.resign(leader)
    assert world.run_for(60, until=lambda: ahead.leads)


def test_an_observer_follows_votes_for_nobody_and_counts_for_nothing():
    world = World(1, observers=2, seed=1)
    (leader,) = world.leaders
    world.propose(leader, 4)
    assert world.run_for(500, until=world.level)
    world.kill(101)
    world.kill(102)
    world.propose(leader, 1)
    world.run_for(50)
    assert leader.quorum.high_watermark == leader.log.log_end_offset


def test_a_follower_far_behind_loads_a_snapshot_and_fetches_on():
    world = World(3, seed=8)
    leader = world.elect()
    lost = next(member for member in world.members.values() if member is not leader)
    world.isolate(lost.id)
    world.propose(leader, 20)
    world.run_for(300)
    leader.log.take_snapshot()
    world.propose(leader, 2)
    world.heal()
    assert world.run_for(2000, until=world.level)
    assert lost.log.log_start_offset == leader.log.log_start_offset > 0
