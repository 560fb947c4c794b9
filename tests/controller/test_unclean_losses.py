"""What unclean elections have lost: told by brokers, put together, kept as long as the topic."""

import pytest

from replog.admin_messages import (
    DescribeLossesRequest,
    ElectionKind,
    ElectLeadersRequest,
    LostRange,
    Reassignment,
    ReassignPartitionsRequest,
)
from replog.controller.incidents import UncleanLoss
from replog.controller.metadata_image import MetadataImage, note_of
from replog.controller.unclean_losses import ELECTIONS_MAX, combined
from replog.messages import DamagedLog, DeleteTopicRequest, ErrorCode
from replog.types import EpochRange, LostRecords, TopicPartition
from tests.controller.conversation import Controller, leaderless_log, log_of

T0 = TopicPartition("t", 0)


@pytest.fixture
def controller():
    """0 and 1 were in sync, and are dead; 2 leads, of whom nobody knows what it has."""
    controller = Controller()
    controller.start(0, 1, 2)
    controller.create(min_insync_replicas=2, unclean=True)
    for broker_id in (2, 1, 0):
        controller.lose(broker_id)
    controller.start(2, incarnation="second")
    assert controller.partition().leader_id == 2
    assert controller.partition().unclean
    return controller


def lost(controller, *ranges, committed=0, epoch=None, **more):
    now = controller.partition()
    return LostRecords(
        topic_partition=T0,
        topic_id=now.topic_id,
        unclean_epoch=now.unclean_epoch if epoch is None else epoch,
        ranges=tuple(EpochRange(*one) for one in ranges),
        committed_end_offset=committed,
        **more,
    )


def tell(controller, broker_id, *told):
    assert controller.heartbeat(broker_id, lost=told).error is ErrorCode.NONE


def elections(controller, partitions=None):
    return controller.ask(DescribeLossesRequest(partitions=partitions)).elections


def test_the_election_itself_says_who_may_have_held_more(controller):
    (election,) = elections(controller)
    assert (election.topic_partition, election.leader_id) == (T0, 2)
    assert election.leader_epoch == controller.partition().unclean_epoch
    assert (election.lost, election.held_by, election.awaited) == ((), (), (0, 1))
    assert election.untold == ()


def test_reports_of_all_brokers_make_one(controller):
    """Goal: offsets and epochs once each, whoever held them, and what of them was committed."""
    tell(controller, 0, lost(controller, (0, 5, 9), (1, 9, 12), committed=10))
    tell(controller, 1, lost(controller, (0, 5, 9), (1, 9, 14), committed=8))
    (election,) = elections(controller, (T0,))
    assert election.lost == (EpochRange(0, 5, 9), EpochRange(1, 9, 14))
    assert election.committed_end_offset == 10
    assert election.held_by == (
        LostRange(broker_id=0, range=EpochRange(0, 5, 9)),
        LostRange(broker_id=0, range=EpochRange(1, 9, 12)),
        LostRange(broker_id=1, range=EpochRange(0, 5, 9)),
        LostRange(broker_id=1, range=EpochRange(1, 9, 14)),
    )


def test_each_report_is_journalled_with_all_that_is_known_by_then(controller):
    tell(controller, 0, lost(controller, (0, 5, 9), committed=7))
    tell(controller, 0, lost(controller, (0, 5, 9), committed=7))
    (told,) = [one for one in controller.incidents if isinstance(one, UncleanLoss)]
    assert told.topic_partition == T0
    assert told.election == elections(controller)[0]


def test_a_log_that_is_cut_in_steps_is_one_loss(controller):
    tell(controller, 0, lost(controller, (1, 9, 12), committed=10))
    tell(controller, 0, lost(controller, (0, 5, 9)))
    (election,) = elections(controller)
    assert election.lost == (EpochRange(0, 5, 9), EpochRange(1, 9, 12))
    assert election.committed_end_offset == 10


def test_who_has_told_is_awaited_until_it_has_caught_up(controller):
    """Goal: a log is cut in steps, and the last of them is known once the broker is in sync."""
    log = log_of(controller.partition(), 0, 9)
    controller.start(1, incarnation="second", previous=controller.epochs[1], logs=(log,))
    tell(controller, 1, lost(controller, (0, 5, 9)))
    assert elections(controller)[0].awaited == (0, 1)
    assert controller.propose((1, 2)) is ErrorCode.NONE
    assert elections(controller)[0].awaited == (0,)
    controller.lose(1)
    assert (elections(controller)[0].awaited, elections(controller)[0].untold) == ((0,), ())


@pytest.mark.parametrize("damaged", [False, True])
def test_who_comes_back_without_its_log_never_tells_what_it_held(controller, damaged):
    now = controller.partition()
    logs = (log_of(now, 0, 4, damaged=True),) if damaged else ()
    controller.start(1, incarnation="second", previous=controller.epochs[1], logs=logs)
    assert (elections(controller)[0].awaited, elections(controller)[0].untold) == ((0,), (1,))
    assert controller.propose((1, 2)) is ErrorCode.NONE
    assert (elections(controller)[0].awaited, elections(controller)[0].untold) == ((0,), (1,))


def test_who_loses_its_log_once_it_has_caught_up_has_told_all(controller):
    log = log_of(controller.partition(), 0, 9)
    controller.start(1, incarnation="second", previous=controller.epochs[1], logs=(log,))
    assert controller.propose((1, 2)) is ErrorCode.NONE
    controller.restart(1, "third", clean=False)
    assert (elections(controller)[0].awaited, elections(controller)[0].untold) == ((0,), ())


def test_a_log_found_damaged_before_it_has_caught_up_never_tells(controller):
    log = log_of(controller.partition(), 0, 9)
    controller.start(1, incarnation="second", previous=controller.epochs[1], logs=(log,))
    now = controller.partition()
    damaged = DamagedLog(
        topic_partition=T0,
        topic_id=now.topic_id,
        partition_epoch=now.partition_epoch,
        leader_epoch=now.leader_epoch,
    )
    controller.heartbeat(1, damaged=(damaged,))
    assert (elections(controller)[0].awaited, elections(controller)[0].untold) == ((0,), (1,))


def test_who_is_taken_off_the_partition_never_tells(controller):
    controller.start(3)
    move = Reassignment(topic_partition=T0, replicas=(2, 3))
    controller.ask(ReassignPartitionsRequest(partitions=(move,)))
    assert controller.propose((2, 3)) is ErrorCode.NONE
    now = elections(controller)[0]
    assert controller.partition().replicas == (2, 3)
    assert (now.awaited, now.untold) == ((), (0, 1))


def test_it_outlives_the_controller_and_comes_with_snapshots(controller):
    tell(controller, 0, lost(controller, (0, 5, 9), committed=7))
    before = elections(controller)
    controller.model.take_over(controller.model.log, controller.now_ms)
    assert elections(controller) == before
    again, image = MetadataImage(), controller.model.controller._image
    again.load(image.snapshot_records(), image.end_offset)
    assert again.notes == image.notes != {}


def test_it_goes_with_the_topic_and_is_not_taken_for_another_one_of_that_name(controller):
    old = lost(controller, (0, 5, 9))
    controller.ask(DeleteTopicRequest(topic="t"))
    assert elections(controller) == ()
    controller.create()
    tell(controller, 2, old)
    assert elections(controller) == ()
    assert controller.model.controller._image.notes == {}


def test_a_leader_of_an_unclean_election_that_loses_its_end_may_have_lost_what_is_committed(
    controller,
):
    """Goal: followers that hold more cut it and tell, where any replica may lead; they stopped."""
    before = controller.partition()
    assert before.isr == (2,)
    controller.restart(2, "third", clean=False, logs=(log_of(before, 0, 4),))
    now = controller.partition()
    assert (now.leader_id, now.unclean, now.unclean_epoch) == (2, True, now.leader_epoch)
    controller.start(0, incarnation="second")
    tell(controller, 0, lost(controller, (0, 4, 9), committed=9))
    assert [one.leader_epoch for one in elections(controller)] == [
        before.leader_epoch,
        now.leader_epoch,
    ]
    assert elections(controller)[1].lost == (EpochRange(0, 4, 9),)


def test_the_new_leaders_end_is_told_where_it_is_known():
    controller = Controller()
    controller.start(0, 1, 2)
    controller.create(min_insync_replicas=1, unclean=False)
    for broker_id in (1, 2, 0):
        controller.lose(broker_id)
    controller.start(1, incarnation="second")
    told = leaderless_log(controller.partition(), 0, 42)
    controller.heartbeat(1, leaderless=(told,))
    controller.ask(ElectLeadersRequest(kind=ElectionKind.UNCLEAN, partitions=(T0,)))
    (election,) = elections(controller)
    assert (election.leader_id, election.log_end_offset) == (1, 42)


def elect_again(controller, number):
    """One unclean election more; whoever leads cuts nothing in it."""
    before = controller.partition().leader_id
    after = 2 - before
    controller.lose(before)
    controller.start(after, incarnation=f"run {number}")
    assert controller.partition().leader_id == after


def noted_epochs(controller):
    return {int(name.split(".")[3]) for name in controller.model.controller._image.notes["t"]}


def test_old_elections_are_dropped(controller):
    for number in range(ELECTIONS_MAX + 2):
        tell(controller, controller.partition().leader_id, lost(controller, (0, number, 99)))
        elect_again(controller, number)
    assert len(elections(controller)) == ELECTIONS_MAX
    assert noted_epochs(controller) == {one.leader_epoch for one in elections(controller)}


def test_what_is_told_late_of_an_election_that_was_dropped_is_not_noted(controller):
    """Goal: notes do not pile up that nobody reads and no later election drops."""
    first = lost(controller, (0, 5, 9), committed=7)
    for number in range(ELECTIONS_MAX):
        elect_again(controller, number)
    before, version = dict(controller.model.controller._image.notes["t"]), controller.model.version
    tell(controller, controller.partition().leader_id, first)
    assert controller.model.controller._image.notes["t"] == before
    assert controller.model.version == version


def test_notes_that_no_election_stands_for_go_with_the_next_one(controller):
    told = (("replog.lost.0.1.0", True), ("replog.lost.1.1.0", False))
    for name, _ in told:
        controller.model.controller._decision.write(note_of("t", name, '{"ranges":[]}'))
    elect_again(controller, 1)
    notes = controller.model.controller._image.notes["t"]
    assert [name in notes for name, _ in told] == [not goes for _, goes in told]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([(1, 3, 5), (1, 4, 9)], [(1, 3, 9)]),
        ([(1, 3, 5), (1, 5, 9)], [(1, 3, 9)]),
        ([(1, 3, 5), (1, 6, 9)], [(1, 3, 5), (1, 6, 9)]),
        ([(2, 5, 9), (1, 3, 5)], [(1, 3, 5), (2, 5, 9)]),
        ([(1, 3, 9), (1, 4, 5)], [(1, 3, 9)]),
    ],
)
def test_ranges_are_combined(ranges, expected):
    found = combined([EpochRange(*one) for one in ranges])
    assert found == tuple(EpochRange(*one) for one in expected)
