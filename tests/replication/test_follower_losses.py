"""What an unclean election makes a follower cut: told first, cut when it was heard."""

import dataclasses

import pytest

from replog.replication import events as ev
from replog.replication.follower import FollowerPhase
from replog.replication.incidents import (
    RecordsLost,
)
from replog.types import EpochEndOffset, EpochRange
from tests.replication.alone import Alone
from tests.replication.memory_log import MemoryLog


def test_unclean_election_allows_the_cut():
    alone = Alone(MemoryLog([1, 1, 1], high_watermark=2), unclean=True, unclean_epoch=5)
    alone.answer(diverging_epoch=EpochEndOffset(1, 1))
    alone.hear_of_losses()
    assert alone.log.log_end_offset == alone.log.high_watermark == 1


def test_what_an_unclean_election_makes_it_cut_is_told_by_epoch():
    log = MemoryLog([1, 1, 3, 3, 3], high_watermark=4)
    alone = Alone(log, unclean=True, unclean_epoch=5)
    alone.answer(diverging_epoch=EpochEndOffset(1, 1))
    told = [one.lost for one in alone.cluster.incidents(RecordsLost)]
    assert [(one.unclean_epoch, one.ranges, one.committed_end_offset) for one in told] == [
        (5, (EpochRange(1, 1, 2), EpochRange(3, 2, 5)), 4)
    ]


def test_what_an_unclean_election_makes_it_cut_stays_until_the_controller_has_heard_of_it():
    """Goal: a broker that dies before it was heard takes nothing along that nobody knows of."""
    alone = Alone(MemoryLog([1, 1, 3, 3, 3], high_watermark=4), unclean=True, unclean_epoch=5)
    alone.answer(diverging_epoch=EpochEndOffset(1, 1))
    alone.cluster.run(100_000)
    assert alone.log.log_end_offset == 5
    (told,) = alone.cluster.incidents(RecordsLost)
    alone.broker.handle(ev.LossHeard(dataclasses.replace(told.lost, ranges=())))
    assert (alone.phase, alone.log.log_end_offset) == (FollowerPhase.TELLING, 5)
    alone.hear_of_losses()
    assert (alone.phase, alone.log.log_end_offset) == (FollowerPhase.FETCHING, 1)


def test_word_of_a_loss_that_comes_after_the_leader_has_changed_cuts_nothing():
    alone = Alone(MemoryLog([1, 1, 3, 3, 3], high_watermark=4), unclean=True, unclean_epoch=5)
    alone.answer(diverging_epoch=EpochEndOffset(1, 1))
    alone.cluster.lead(1, 6, (1, 2), replicas=(1, 2), unclean_epoch=5)
    alone.hear_of_losses()
    assert (alone.phase, alone.log.log_end_offset) == (FollowerPhase.FETCHING, 5)


def test_what_it_cuts_of_its_own_accord_is_not_told_as_lost():
    """No unclean election: nothing of it was committed."""
    alone = Alone(MemoryLog([1, 1, 3], high_watermark=1))
    alone.answer(diverging_epoch=EpochEndOffset(1, 2))
    assert alone.log.log_end_offset == 2
    assert alone.cluster.incidents(RecordsLost) == []


@pytest.mark.parametrize(("unclean_epoch", "cuts"), [(4, True), (2, True), (1, False), (-1, False)])
def test_replica_that_was_away_during_an_unclean_election_may_cut(unclean_epoch, cuts):
    """Its records are all of older epochs than the election that gave them up."""
    alone = Alone(MemoryLog([1, 1, 1], high_watermark=2), unclean_epoch=unclean_epoch)
    alone.answer(diverging_epoch=EpochEndOffset(1, 1))
    alone.hear_of_losses()
    assert (alone.phase is FollowerPhase.FETCHING) == cuts
    assert alone.log.log_end_offset == (1 if cuts else 3)
