"""Where replicas go: stripes over racks, spread leaders, live brokers first."""

import itertools
from collections import Counter

import pytest

from replog.controller.placement import UsableBroker, place


def brokers(*racks, fenced=()):
    """Brokers 0, 1, 2, ...; each letter is the rack of the next one, '-' for none."""
    return [
        UsableBroker(broker_id, None if rack == "-" else rack, broker_id in fenced)
        for broker_id, rack in enumerate(itertools.chain(*racks))
    ]


def test_stripes_run_over_racks_and_then_inside_them():
    """A0 B3 C6, then B4 C7 A1, then C8 A2 B5: each partition one place further."""
    assert place(brokers("AAABBBCCC"), 3, 3, start=0) == [(0, 3, 6), (4, 7, 1), (8, 2, 5)]


@pytest.mark.parametrize("racks", ["---", "AB-", "AAB", "AABB", "AAABBBCCC", "ABCDE", "A"])
@pytest.mark.parametrize("start", range(4))
def test_no_broker_twice_and_every_replica_placed(racks, start):
    all_brokers = brokers(racks)
    for factor in range(1, len(all_brokers) + 1):
        for replicas in place(all_brokers, 3 * len(all_brokers), factor, start):
            assert len(set(replicas)) == factor
            assert set(replicas) <= set(range(len(all_brokers)))


@pytest.mark.parametrize("racks", ["---", "AABB", "AAABBBCCC", "ABC"])
def test_leaders_are_spread_evenly(racks):
    all_brokers = brokers(racks)
    placed = place(all_brokers, 6 * len(all_brokers), min(3, len(all_brokers)), start=1)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {6}


@pytest.mark.parametrize("start", range(6))
def test_as_many_racks_as_replicas_are_used_where_there_are_that_many(start):
    all_brokers = brokers("AAABBBCCC")
    for replicas in place(all_brokers, 30, 3, start):
        assert len({all_brokers[replica].rack for replica in replicas}) == 3


def test_a_live_broker_comes_first_and_fenced_ones_last():
    all_brokers = brokers("---", fenced=(0, 2))
    for replicas in place(all_brokers, 6, 2, start=0):
        assert replicas[0] == 1
    for replicas in place(brokers("AABB", fenced=(0, 2)), 8, 2, start=0):
        assert replicas[0] in {1, 3}
        assert set(replicas) == {1, 3}


def test_topics_of_one_partition_do_not_all_begin_at_one_broker():
    leaders = Counter(place(brokers("---"), 1, 3, start=number)[0][0] for number in range(9))
    assert set(leaders.values()) == {3}


def test_followers_of_one_leader_change_from_lap_to_lap():
    placed = place(brokers("------"), 24, 2, start=0)
    followers = {replicas[1] for replicas in placed if replicas[0] == 0}
    assert len(followers) > 1


def test_the_order_of_brokers_given_does_not_matter():
    all_brokers = brokers("ABCAB")
    assert place(all_brokers[::-1], 10, 3, 2) == place(all_brokers, 10, 3, 2)
