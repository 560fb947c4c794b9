"""Who leads after whose death: all small cases against a twin that knows nothing but the rules."""

import dataclasses
import itertools
import uuid

import pytest

from replog.controller.incidents import DamageFound, ElectionCause, LeaderElected, PartitionOffline
from replog.controller.leader_selection import Candidates, LogEnd, offline_partition
from replog.messages import DamagedLog, ErrorCode
from replog.types import NO_LEADER_EPOCH
from tests.controller.conversation import Controller, leaderless_log, log_of

SUBSETS = [
    frozenset(chosen) for size in range(4) for chosen in itertools.combinations((0, 1, 2), size)
]


def dumb_twin(replicas, isr, holders, unclean, damaged, floor, allow_unclean, live):
    """The rules of the module's head, word for word, as a list of groups; the first to hit wins."""
    usable = [replica for replica in replicas if replica in live and replica not in damaged]
    vouching = [replica for replica in usable if replica not in unclean]
    groups = [
        (ElectionCause.IN_SYNC, [replica for replica in vouching if replica in isr]),
        (ElectionCause.HOLDS_ALL_COMMITTED, [one for one in vouching if one in holders]),
    ]
    ranks = {
        who: (end.latest_epoch, end.log_end_offset)
        for who, end in unclean.items()
        if end is not None
    }
    if any(epoch == -1 and end > 0 for epoch, end in ranks.values()):
        ranks = {who: (0, end) for who, (_, end) in ranks.items()}
    back = len(ranks) + len(damaged & holders)
    if ranks and back >= min(floor, len(holders)) and 2 * back > len(holders):
        best = max(ranks.values())
        longest = [one for one in usable if ranks.get(one) == best]
        loses = allow_unclean and len(holders) < floor
        cause = ElectionCause.UNCLEAN if loses else ElectionCause.LONGEST
        groups.append((cause, longest))
    if allow_unclean:
        groups.append((ElectionCause.UNCLEAN, usable))
    for cause, group in groups:
        if group:
            return group[0], cause
    return None


def test_elections_equal_the_dumb_twin_over_all_small_cases():
    choices = [
        (LogEnd(1, 5), LogEnd(1, 7), LogEnd(2, 3)),
        (LogEnd(1, 7), LogEnd(2, 3), LogEnd(1, 5)),
        (LogEnd(1, 5), None, LogEnd(1, 5)),
        (LogEnd(-1, 9), LogEnd(2, 3), LogEnd(-1, 0)),
        (LogEnd(-1, 5), LogEnd(2, 7), LogEnd(3, 6)),
    ]
    count = 0
    for isr, live, damaged in itertools.product(SUBSETS[1:], SUBSETS, SUBSETS):
        for holders in (found for found in SUBSETS if found >= isr):
            for suspects in (found for found in SUBSETS if found <= holders - damaged):
                for ends, floor, allowed in itertools.product(choices, (1, 2, 3), (False, True)):
                    unclean = {who: ends[who] for who in sorted(suspects)}
                    candidates = Candidates(
                        replicas=(2, 0, 1),
                        isr=tuple(sorted(isr)),
                        elr=tuple(sorted(holders - isr - suspects)),
                        suspects=tuple(sorted(suspects)),
                        ends={who: end for who, end in unclean.items() if end is not None},
                        damaged=damaged,
                        floor=floor,
                        unclean_allowed=allowed,
                    )
                    found = offline_partition(candidates, live.__contains__)
                    expected = dumb_twin(
                        (2, 0, 1), isr, holders, unclean, damaged, floor, allowed, live
                    )
                    assert (found and (found.leader_id, found.cause)) == expected, candidates
                    if found:
                        whole = tuple(sorted(isr & live - damaged - suspects))
                        in_sync = found.cause is ElectionCause.IN_SYNC
                        assert found.isr == (whole if in_sync else (found.leader_id,))
                        assert found.told == tuple(one for one in (2, 0, 1) if one in live)
                    count += 1
    assert count > 20000


@pytest.fixture
def controller():
    controller = Controller()
    controller.start(0, 1, 2)
    return controller


def elections(controller):
    return [
        (found.leader_id, found.cause)
        for found in controller.incidents
        if isinstance(found, LeaderElected)
    ]


@pytest.mark.parametrize("order", list(itertools.permutations((0, 1, 2))))
@pytest.mark.parametrize("floor", [1, 2, 3])
def test_epochs_follow_each_death_and_return(controller, order, floor):
    """Goal: no epoch falls, the leader epoch grows exactly with the leader field.

    Method: brokers die in every order and come back in it, clean.
    """
    controller.create(min_insync_replicas=floor)
    history = [controller.partition()]
    for broker_id in order:
        controller.lose(broker_id)
        history.append(controller.partition())
    for broker_id in order:
        controller.start(
            broker_id,
            incarnation="second",
            previous=controller.epochs[broker_id],
            logs=(log_of(history[0], 0, 10),),
        )
        history.append(controller.partition())
    for before, after in itertools.pairwise(history):
        assert after.isr
        assert after.partition_epoch == before.partition_epoch + (after is not before)
        assert after.leader_epoch - before.leader_epoch == (after.leader_id != before.leader_id)
        assert after.leader_id is None or after.leader_id in after.isr
    assert controller.partition().leader_id is not None


def test_a_dead_follower_leaves_the_in_sync_set_and_the_leader_epoch_stays(controller):
    controller.create()
    controller.lose(2)
    now = controller.partition()
    assert (now.isr, now.leader_id, now.leader_epoch, now.partition_epoch) == ((0, 1), 0, 0, 1)


def test_the_next_in_order_leads_after_the_leader(controller):
    controller.create(replicas=(1, 2, 0))
    controller.lose(1)
    now = controller.partition()
    assert (now.isr, now.leader_id, now.leader_epoch, now.partition_epoch) == ((2, 0), 2, 1, 1)


def test_the_last_in_sync_replica_stays_in_the_set_and_nobody_leads(controller):
    controller.create()
    for broker_id in (0, 1, 2):
        controller.lose(broker_id)
    now = controller.partition()
    assert (now.isr, now.leader_id, now.leader_epoch) == ((2,), None, 3)
    assert isinstance(controller.incidents[-1], PartitionOffline)
    assert controller.incidents[-1].waiting_for == (2,)


@pytest.mark.parametrize("clean", [True, False])
def test_with_a_floor_of_one_only_the_last_in_sync_replica_may_lead_again(controller, clean):
    controller.create()
    for broker_id in (0, 1, 2):
        controller.lose(broker_id)
    logs = (log_of(controller.partition(), 0, 10),)
    controller.restart(0, "second", clean=True, logs=logs)
    assert controller.partition().leader_id is None
    controller.restart(2, "second", clean=clean, logs=logs)
    now = controller.partition()
    assert (now.leader_id, now.isr, now.leader_epoch, now.unclean) == (2, (2,), 4, False)
    cause = ElectionCause.IN_SYNC if clean else ElectionCause.LONGEST
    assert elections(controller)[-1] == (2, cause)


def lose_all_but_the_floor(controller):
    """Floor 2: 0 dies, then 1 (which holds all that is committed), then 2, the last in sync."""
    controller.create(min_insync_replicas=2)
    for broker_id in (0, 1, 2):
        controller.lose(broker_id)
    return controller.partition()


@pytest.mark.parametrize(
    ("ends", "leader_id"),
    [
        ({1: (0, 10), 2: (0, 9)}, 1),
        ({1: (0, 10), 2: (0, 10)}, 1),
        ({1: (0, 10), 2: (2, 4)}, 2),
        ({1: (0, 9), 2: (0, 10)}, 2),
    ],
)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
def test_the_longest_of_enough_unclean_holders_leads(controller, ends, leader_id, order):
    """Goal: contract C2. One of the two may have lost its tail, so one alone never leads."""
    partition = lose_all_but_the_floor(controller)
    back = set()
    for broker_id in order:
        assert controller.partition().leader_id is None
        logs = (log_of(partition, *ends.get(broker_id, (0, 99))),)
        controller.restart(broker_id, "second", clean=False, logs=logs)
        back.add(broker_id)
        if back >= {1, 2}:
            break
    # Of two equal logs the first in the order of replicas that is live leads.
    live = controller.partition().leader_id
    assert live == leader_id or (ends[1] == ends[2] and live in back)
    assert elections(controller)[-1] == (live, ElectionCause.LONGEST)


@pytest.mark.parametrize(("end", "leader_id"), [(9, 1), (11, 2)])
def test_a_log_whose_records_were_all_deleted_is_compared_by_its_end(controller, end, leader_id):
    """Goal: it knows no epoch any more; that says nothing of how much it has held."""
    partition = lose_all_but_the_floor(controller)
    controller.restart(2, "second", clean=False, logs=(log_of(partition, -1, end),))
    controller.restart(1, "second", clean=False, logs=(log_of(partition, 3, 10),))
    controller.heartbeat(2)
    assert controller.partition().leader_id == leader_id


@pytest.mark.parametrize("damaged_first", [True, False])
def test_a_damaged_last_copy_is_one_of_those_that_lost(controller, damaged_first):
    """Goal: contract C4. 2, the last in sync, is rotten: 1, which is whole then, need not wait."""
    partition = lose_all_but_the_floor(controller)
    rotten = dataclasses.replace(log_of(partition, -1, 0), damaged=True)
    returns = [(2, rotten), (1, log_of(partition, 0, 10))]
    for broker_id, log in returns if damaged_first else reversed(returns):
        assert controller.partition().leader_id is None
        controller.restart(broker_id, "second", clean=False, logs=(log,))
    now = controller.partition()
    assert (now.leader_id, now.isr) == (1, (1,))
    assert elections(controller)[-1] == (1, ElectionCause.LONGEST)


def test_a_holder_that_never_stopped_leads_although_it_left_the_in_sync_set(controller):
    """Goal: liveness. It never registers again, so nobody may wait for its log's length."""
    controller.create(min_insync_replicas=2)
    controller.lose(0)
    controller.lose(1)
    controller.heartbeat(1)
    assert controller.partition().isr == (2,)
    controller.lose(2)
    now = controller.partition()
    assert (now.leader_id, now.isr) == (1, (1,))
    assert elections(controller)[-1] == (1, ElectionCause.HOLDS_ALL_COMMITTED)


class TestEndsToldUnderALeader:
    """They are old by the time they are needed: whoever follows grows, and may hold the most."""

    @pytest.fixture
    def grown(self, controller):
        """Nobody leads. 1 was back, unclean, when its log ended at 7, and went on following 0."""
        controller.create(replicas=(0, 1), min_insync_replicas=2)
        controller.restart(1, "second", clean=False, logs=(log_of(controller.partition(), 0, 7),))
        assert controller.partition().isr == (0,)
        logs = (log_of(controller.partition(), 0, 7),)
        controller.restart(0, "second", clean=False, logs=logs)
        return controller.partition()

    def test_no_election_compares_them(self, controller, grown):
        assert grown.leader_id is None

    def test_the_election_waits_until_the_end_is_told_again(self, controller, grown):
        controller.heartbeat(1, leaderless=(leaderless_log(grown, 0, 9),))
        now = controller.partition()
        assert (now.leader_id, now.isr) == (1, (1,))
        assert elections(controller)[-1] == (1, ElectionCause.LONGEST)

    def test_it_goes_on_waiting_for_one_that_was_stopped_cleanly(self, controller, grown):
        controller.restart(1, "third", clean=True, logs=(log_of(grown, 0, 9),))
        assert controller.partition().leader_id == 1

    def test_what_a_broker_says_of_an_older_epoch_does_not_count(self, controller, grown):
        """Goal: it has not heard yet that nobody leads, so its log may still grow."""
        older = dataclasses.replace(leaderless_log(grown, 0, 6), leader_epoch=0)
        controller.heartbeat(1, leaderless=(older,))
        assert controller.partition().leader_id is None

    def test_nor_what_it_says_of_another_topic_of_that_name(self, controller, grown):
        other = dataclasses.replace(leaderless_log(grown, 0, 9), topic_id=None)
        controller.heartbeat(1, leaderless=(other,))
        assert controller.partition().leader_id is None

    def test_ends_are_forgotten_when_there_is_a_leader_again(self, controller, grown):
        controller.heartbeat(1, leaderless=(leaderless_log(grown, 0, 9),))
        logs = (log_of(grown, 0, 7),)
        controller.restart(1, "third", clean=False, logs=logs)
        assert controller.partition().leader_id is None, "what 0 told before may have grown"
        controller.heartbeat(0, leaderless=(leaderless_log(controller.partition(), 1, 8),))
        assert controller.partition().leader_id == 0


def test_who_left_while_the_floor_was_met_does_not_hold_all(controller):
    controller.create(min_insync_replicas=2)
    controller.lose(0)
    controller.heartbeat(0)
    controller.lose(1)
    controller.lose(2)
    assert controller.partition().leader_id is None


def test_a_missing_log_is_as_suspect_as_an_unclean_one(controller):
    lose_all_but_the_floor(controller)
    controller.restart(2, "second", clean=True, logs=())
    assert controller.partition().leader_id is None


def test_a_replica_that_may_have_lost_its_tail_stays_suspect_after_a_clean_restart(controller):
    partition = lose_all_but_the_floor(controller)
    controller.restart(2, "second", clean=False, logs=(log_of(partition, 0, 3),))
    controller.restart(2, "third", clean=True, logs=(log_of(partition, 0, 3),))
    assert controller.partition().leader_id is None
    controller.restart(1, "second", clean=False, logs=(log_of(partition, 0, 10),))
    assert controller.partition().leader_id == 1


def test_joining_the_in_sync_set_clears_all_suspicion(controller):
    partition = lose_all_but_the_floor(controller)
    for broker_id in (1, 2):
        logs = (log_of(partition, 0, broker_id),)
        controller.restart(broker_id, "second", clean=False, logs=logs)
    assert controller.partition().leader_id == 2
    assert controller.propose((1, 2)) is ErrorCode.NONE
    controller.lose(2)
    now = controller.partition()
    assert (now.leader_id, now.isr) == (1, (1,))


def test_an_unclean_election_happens_only_where_the_topic_allows_it(controller):
    controller.create("strict", replicas=(0, 1))
    controller.create("lax", replicas=(0, 1), unclean=True)
    for broker_id in (0, 1):
        controller.lose(broker_id)
    controller.restart(0, "second", clean=True)
    assert controller.partition("strict").leader_id is None
    lax = controller.partition("lax")
    assert (lax.leader_id, lax.isr, lax.unclean) == (0, (0,), True)


class TestDamageToldBehindTime:
    """Broker 0 came back with a damaged log, fetched a new one and was counted in, but was deaf to
    the metadata: when it hears of what has come since, it says once more that it was damaged."""

    @pytest.fixture
    def first_epoch(self, controller):
        """0 is in sync again, and was; then both are lost, and 0 registers once more."""
        controller.create(replicas=(1, 0), min_insync_replicas=2)
        logs = (log_of(controller.partition(), 0, 9, damaged=True),)
        controller.restart(0, "second", clean=False, logs=logs)
        first_epoch = controller.epochs[0]
        assert controller.propose((1, 0)) is ErrorCode.NONE
        controller.lose(0)
        controller.lose(1)
        assert controller.partition().leader_id is None
        controller.register(0, incarnation="second", previous=first_epoch)
        return first_epoch

    def tell(self, controller, first_epoch, leader_epoch):
        now = controller.partition()
        told = DamagedLog(
            topic_partition=now.topic_partition,
            topic_id=now.topic_id,
            partition_epoch=now.partition_epoch,
            leader_epoch=leader_epoch,
        )
        controller.heartbeat(0, damaged=(told,), first_epoch=first_epoch)

    def test_who_was_counted_in_with_the_new_log_holds_all(self, controller, first_epoch):
        """Goal: seed 1795365706230. It was believed, and the other one elected, which had come back
        with an empty disk."""
        self.tell(controller, first_epoch, NO_LEADER_EPOCH)
        now = controller.partition()
        assert (now.leader_id, now.isr) == (0, (0,))

    def test_who_was_counted_in_by_what_it_fetched_into_the_damaged_log_does_not(
        self, controller, first_epoch
    ):
        self.tell(controller, first_epoch, controller.partition().leader_epoch - 1)
        assert controller.partition().leader_id is None

    def test_nor_who_was_counted_in_by_an_earlier_run(self, controller, first_epoch):
        self.tell(controller, controller.epochs[0], NO_LEADER_EPOCH)
        assert controller.partition().leader_id is None

    def test_nor_who_came_in_by_an_election(self, controller):
        controller.create(replicas=(1, 0), min_insync_replicas=2)
        controller.lose(0)
        controller.heartbeat(0)
        controller.lose(1)
        assert controller.partition().leader_id == 0
        self.tell(controller, -1, NO_LEADER_EPOCH)
        assert controller.partition().leader_id is None


class TestDamage:
    def test_a_damaged_replica_leaves_for_another(self, controller):
        partition = controller.create()
        controller.heartbeat(0, damaged=(partition,))
        now = controller.partition()
        assert (now.leader_id, now.isr) == (1, (1, 2))

    def test_the_last_good_copy_stays_in_the_set_and_does_not_lead(self, controller):
        partition = controller.create(replicas=(0,))
        controller.heartbeat(0, damaged=(partition,))
        now = controller.partition()
        assert (now.leader_id, now.isr) == (None, (0,))
        assert controller.incidents[-2].damaged == (0,)

    def test_damage_to_a_log_of_another_topic_of_that_name_changes_nothing(self, controller):
        """It was deleted while the broker's heartbeat was held up."""
        partition = controller.create(replicas=(0,))
        before = controller.partition()
        log = DamagedLog(
            topic_partition=partition,
            topic_id=uuid.UUID(int=9),
            partition_epoch=before.partition_epoch,
            leader_epoch=before.leader_epoch,
        )
        controller.heartbeat(0, damaged=(log,))
        assert controller.partition() is before
        assert before.leader_id == 0

    def test_damage_told_late_changes_nothing_once_the_replica_is_in_sync_again(self, controller):
        """A heartbeat overtaken by another one: meanwhile the replica was set aside and fetched."""
        partition = controller.create()
        before = controller.partition()
        late = DamagedLog(
            topic_partition=partition,
            topic_id=before.topic_id,
            partition_epoch=before.partition_epoch,
            leader_epoch=before.leader_epoch,
        )
        controller.heartbeat(0, damaged=(late,))
        assert controller.propose((1, 2, 0)) is ErrorCode.NONE
        joined = controller.partition()
        assert set(joined.isr) == {0, 1, 2}
        controller.heartbeat(0, damaged=(late,))
        assert controller.partition() is joined
        for broker_id in (1, 2):
            controller.lose(broker_id)
        assert controller.partition().leader_id == 0

    def test_what_was_fetched_or_proposed_before_the_damage_was_found_is_fenced(self, controller):
        """Else a late fetch would count the replica in that is being emptied."""
        partition = controller.create()
        before = controller.partition()
        controller.heartbeat(1, damaged=(partition,))
        now = controller.partition()
        assert (now.leader_id, now.isr) == (0, (0, 2))
        assert now.leader_epoch == before.leader_epoch + 1
        assert now.partition_epoch == before.partition_epoch + 1

    def test_operators_read_who_found_damage(self, controller):
        partition = controller.create()
        controller.heartbeat(1, damaged=(partition,))
        assert DamageFound(topic_partition=partition, broker_id=1) in controller.incidents

    def test_telling_it_twice_changes_nothing_more(self, controller):
        partition = controller.create()
        controller.heartbeat(0, damaged=(partition,))
        before = controller.partition()
        controller.heartbeat(0, damaged=(partition,))
        assert controller.partition() is before

    def test_a_holder_set_aside_is_no_holder_any_more(self, controller):
        """Goal: it may be empty by now; electing it would lose what was committed."""
        partition = controller.create(min_insync_replicas=2)
        controller.lose(0)
        controller.lose(1)
        controller.heartbeat(1)
        controller.heartbeat(1, damaged=(partition,))
        controller.lose(2)
        assert controller.partition().leader_id is None
        logs = (log_of(controller.partition(), 0, 3),)
        controller.restart(2, "second", clean=False, logs=logs)
        assert controller.partition().leader_id == 2

    def test_registered_damage_of_the_last_copy_keeps_the_partition_offline(self, controller):
        controller.create(replicas=(0, 1))
        partition = controller.partition()
        controller.lose(0)
        controller.lose(1)
        logs = (log_of(partition, 0, 10, damaged=True),)
        controller.restart(1, "second", clean=False, logs=logs)
        assert controller.partition().leader_id is None
        assert controller.partition().isr == (1,)
        mended = (log_of(partition, 0, 10),)
        controller.restart(1, "third", clean=False, logs=mended)
        assert controller.partition().leader_id == 1

    def test_damage_of_unknown_partitions_is_ignored(self, controller):
        partition = controller.create(replicas=(1,))
        version = controller.model.version
        controller.heartbeat(0, damaged=(partition, partition._replace(topic="x")))
        assert controller.model.version == version
