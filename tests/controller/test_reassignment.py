"""Moving replicas: the sequence that operators see, crashes between any two steps, calling off."""

import pytest

from replog.admin_messages import (
    Reassignment,
    ReassignPartitionsRequest,
)
from replog.controller.incidents import ReassignmentCause, ReassignmentStepped
from replog.controller.partition_change import PartitionChange
from replog.controller.reassignment import Reassignments
from replog.controller.state_machines import ReplicaState, replica_state
from replog.messages import DeleteTopicRequest, ErrorCode, LogSize
from replog.wire.metadata_records import PartitionChangeRecord
from tests.controller.conversation import Controller
from tests.controller.moves import NAME, progress, reassign, six_brokers


@pytest.fixture
def controller():
    return six_brokers()


def tell_size(controller, broker_id, size_bytes):
    topic_id = controller.partition().topic_id
    log = LogSize(topic_partition=NAME, topic_id=topic_id, size_bytes=size_bytes)
    controller.heartbeat(broker_id, sizes=(log,))


def seen(controller, since=0):
    """(assigned, leader, in sync) after each record of the metadata log, as a broker sees it."""
    states = []
    image = type(controller.model.mirror)()
    for offset, record in enumerate(controller.model.log):
        image.apply(record, offset)
        partition = image.partition(NAME)
        if partition is not None and offset >= since:
            state = (set(partition.replicas), partition.leader_id, set(partition.isr))
            if not states or states[-1] != state:
                states.append(state)
    return states


ALL = {1, 2, 3, 4, 5, 6}
SEQUENCE = [
    ({1, 2, 3}, 1, {1, 2, 3}),
    (ALL, 1, {1, 2, 3}),
    (ALL, 1, ALL),
    (ALL, 4, ALL),
    (ALL, 4, {4, 5, 6}),
    ({4, 5, 6}, 4, {4, 5, 6}),
]


def test_assignment_leader_and_in_sync_set_pass_through_every_stage(controller):
    assert reassign(controller, (4, 5, 6)).error is ErrorCode.NONE
    assert controller.propose((1, 2, 3, 4, 5, 6)) is ErrorCode.NONE
    assert seen(controller) == SEQUENCE
    assert controller.partition().replicas == (4, 5, 6)
    assert progress(controller) == ()
    causes = [one.cause for one in controller.incidents if isinstance(one, ReassignmentStepped)]
    assert causes == [ReassignmentCause.REQUESTED] + [ReassignmentCause.STEPPED] * 2 + [
        ReassignmentCause.COMPLETED
    ]


def test_each_step_is_a_batch_of_its_own_after_the_one_before_is_committed(controller):
    controller.model.commits = False
    asked = Reassignment(topic_partition=NAME, replicas=(4, 5, 6))
    assert controller.ask(ReassignPartitionsRequest(partitions=(asked,))) is None
    controller.model.commit(controller.now_ms)
    batches = len(controller.model.batches)
    controller.propose_later(sorted(ALL))
    for step in range(1, 4):
        assert len(controller.model.batches) == batches + step
        controller.model.commit(controller.now_ms)
    controller.model.commit(controller.now_ms)
    assert len(controller.model.batches) == batches + 4
    assert all(len(batch) == 1 for batch in controller.model.batches[batches:])


def test_leader_epochs_grow_at_the_switch_and_when_the_old_ones_go(controller):
    reassign(controller, (4, 5, 6))
    assert controller.partition().leader_epoch == 0
    controller.propose((1, 2, 3, 4, 5, 6))
    assert controller.partition().leader_epoch == 2


def test_a_controller_that_crashes_after_any_record_is_followed_by_one_that_goes_on(controller):
    """Method: the log is cut after each record; a new controller replays it and gains leadership.

    Where the proposal was lost, the leader makes it again.
    """
    start = len(controller.model.log)
    reassign(controller, (4, 5, 6))
    controller.propose((1, 2, 3, 4, 5, 6))
    log = controller.model.log
    assert len(log) == start + 5
    for cut in range(start + 1, len(log) + 1):
        other = Controller()
        other.model.take_over(log[:cut])
        other.epochs = dict(controller.epochs)
        for broker_id in sorted(ALL):
            other.heartbeat(broker_id)
        if other.partition().isr == (1, 2, 3):
            assert other.propose((1, 2, 3, 4, 5, 6)) is ErrorCode.NONE
        assert other.partition().replicas == (4, 5, 6), cut
        states = seen(other)
        assert states == SEQUENCE, cut
        assert progress(other) == ()


def test_a_leader_among_the_new_replicas_stays(controller):
    reassign(controller, (5, 1))
    controller.propose((1, 2, 3, 5))
    assert seen(controller)[1:] == [
        ({1, 2, 3, 5}, 1, {1, 2, 3}),
        ({1, 2, 3, 5}, 1, {1, 2, 3, 5}),
        ({1, 2, 3, 5}, 1, {1, 5}),
        ({1, 5}, 1, {1, 5}),
    ]
    assert controller.partition().replicas == (5, 1)


def test_more_replicas_complete_once_they_are_in_sync(controller):
    reassign(controller, (1, 2, 3, 4))
    epoch = controller.partition().leader_epoch
    assert progress(controller)[0].adding == (4,)
    controller.propose((1, 2, 3, 4))
    assert progress(controller) == ()
    assert controller.partition().leader_epoch == epoch


def test_fewer_replicas_complete_at_once(controller):
    reassign(controller, (2,))
    assert controller.partition().replicas == controller.partition().isr == (2,)
    assert controller.partition().leader_id == 2


def test_another_order_completes_at_once_and_moves_no_leader(controller):
    reassign(controller, (3, 2, 1))
    now = controller.partition()
    assert (now.replicas, now.leader_id, now.leader_epoch) == ((3, 2, 1), 1, 0)


def test_replicas_pass_through_their_states(controller):
    def states():
        image = controller.model.controller._image
        return [replica_state(image, image.partition(NAME), one).value for one in (1, 4)]

    assert states() == ["Online", "NonExistent"]
    reassign(controller, (4, 5, 6))
    assert states() == ["Online", "New"]
    controller.model.commits = False
    now = controller.partition()
    controller.model.commits = True
    controller.propose((1, 2, 3, 4, 5))
    assert states() == ["Online", "Online"]
    controller.propose((1, 2, 3, 4, 5, 6))
    assert states() == [ReplicaState.NON_EXISTENT.value, "Online"]
    assert now.replicas == (4, 5, 6, 1, 2, 3)


class TestCallingOff:
    def test_goes_back_at_once(self, controller):
        reassign(controller, (4, 5, 6))
        controller.propose((1, 2, 3, 4))
        assert reassign(controller, None).error is ErrorCode.NONE
        now = controller.partition()
        assert (set(now.replicas), set(now.isr), now.leader_id) == ({1, 2, 3}, {1, 2, 3}, 1)
        assert progress(controller) == ()

    def test_takes_the_leadership_back(self, controller):
        reassign(controller, (4, 5, 6))
        controller.propose((1, 2, 3, 4))
        for broker_id in (1, 2, 3):
            controller.lose(broker_id)
        assert controller.partition().leader_id == 4
        controller.start(2, incarnation="second", previous=controller.epochs[2])
        assert controller.propose((2, 4)) is ErrorCode.NONE
        assert reassign(controller, None).error is ErrorCode.NONE
        now = controller.partition()
        assert (set(now.replicas), now.isr, now.leader_id) == ({1, 2, 3}, (2,), 2)

    def test_is_refused_where_it_would_strand_the_partition(self, controller):
        """Goal: KAFKA-14424. Only new replicas are in sync."""
        reassign(controller, (4, 5, 6))
        controller.propose((1, 2, 3, 4))
        for broker_id in (1, 2, 3):
            controller.lose(broker_id)
        version = controller.model.version
        answer = reassign(controller, None)
        assert answer.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "[4] in sync" in answer.message or "found [4]" in answer.message
        assert controller.model.version == version
        assert len(progress(controller)) == 1

    def test_is_refused_where_too_few_would_hold_what_is_committed(self):
        """Goal: contract C2. With a floor of two, one power failure must not lose a record."""
        controller = Controller()
        controller.start(1, 2, 3, 4, 5, 6)
        controller.create(replicas=(1, 2, 3), min_insync_replicas=2)
        reassign(controller, (4, 5, 6))
        controller.propose((1, 2, 3, 4))
        controller.lose(2)
        controller.lose(3)
        assert controller.partition().isr == (4, 1)
        answer = reassign(controller, None)
        assert answer.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "as min.insync.replicas wants" in answer.message
        controller.start(3, incarnation="second", previous=controller.epochs[3])
        controller.propose((4, 1, 3))
        assert reassign(controller, None).error is ErrorCode.NONE
        assert set(controller.partition().isr) == {1, 3}

    def test_counts_those_that_came_back_unclean_among_who_holds_it(self):
        """With the one that may have lost its end only one power failure more is within C2."""
        controller = Controller()
        controller.start(1, 2, 3, 4, 5, 6)
        controller.create(replicas=(1, 2, 3), min_insync_replicas=2)
        reassign(controller, (4, 5, 6))
        controller.propose((1, 2, 3, 4))
        for broker_id in (2, 3, 4):
            controller.lose(broker_id)
            controller.start(broker_id, incarnation="second")
        assert controller.partition().isr == (1,)
        assert reassign(controller, None).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    def test_of_nothing_is_an_error(self, controller):
        assert reassign(controller, None).error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_the_same_again_goes_on_with_what_is_under_way(controller):
    reassign(controller, (4, 5, 6))
    version = controller.model.version
    assert reassign(controller, (4, 5, 6)).error is ErrorCode.NONE
    assert controller.model.version == version


def test_another_target_replaces_the_one_under_way(controller):
    reassign(controller, (4, 5, 6))
    controller.propose((1, 2, 3, 4))
    reassign(controller, (1, 2, 5))
    (now,) = progress(controller)
    assert (now.replicas, now.adding, set(now.removing)) == ((1, 2, 5), (5,), {3, 4})
    controller.propose((1, 2, 3, 4, 5))
    assert set(controller.partition().replicas) == {1, 2, 5}


def test_a_move_that_replaced_another_is_called_off_to_what_was_before_both(controller):
    reassign(controller, (4, 5, 6))
    epoch = controller.partition().leader_epoch
    reassign(controller, (1, 2, 5))
    assert set(controller.partition().replicas) == {1, 2, 3, 5}
    assert controller.partition().leader_epoch == epoch + 1, "fetches of those that go are fenced"
    assert reassign(controller, None).error is ErrorCode.NONE
    assert controller.partition().replicas == (1, 2, 3)


class TestCallingOffAMoveThatReplacedAnother:
    """Goal: what was before both comes back, also where replicas of the first are in sync."""

    @pytest.fixture
    def controller(self, controller):
        """{1,2,3} was to become {4,5,6}, and is to become {1,2,5}; 4 is in sync."""
        reassign(controller, (4, 5, 6))
        controller.propose((1, 2, 3, 4))
        assert reassign(controller, (1, 2, 5)).error is ErrorCode.NONE
        return controller

    def test_leaves_no_added_replica_assigned_or_in_sync(self, controller):
        epoch = controller.partition().leader_epoch
        assert reassign(controller, None).error is ErrorCode.NONE
        now = controller.partition()
        assert set(now.replicas) == set(now.isr) == {1, 2, 3}
        assert now.leader_epoch == epoch + 1, "fetches of those that go are fenced"
        assert progress(controller) == ()
        assert replica_state(
            controller.model.mirror, controller.model.mirror.partition(NAME), 4
        ) is (ReplicaState.NON_EXISTENT)

    def test_the_replica_that_goes_is_never_new_again(self, controller):
        """Method: it has left the in-sync set, when another replica of the target falls out."""
        controller.propose((1, 2, 3, 4, 5))
        image = controller.model.mirror
        left = [
            (record, offset)
            for offset, record in enumerate(controller.model.log)
            if getattr(record, "isr", None) is not None and set(record.isr) == {1, 2, 5}
        ]
        ((_, offset),) = left
        image = type(image)()
        for place, record in enumerate(controller.model.log[: offset + 1]):
            image.apply(record, place)
        partition = image.partition(NAME)
        assert {4} == set(partition.adding) & set(partition.removing)
        assert replica_state(image, partition, 4) is ReplicaState.OFFLINE

        def after(isr):
            topic_id = partition.topic.raw_id
            change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=isr)
            return partition.with_change(change)

        assert replica_state(image, after((1, 5)), 4) is ReplicaState.ONLINE
        assert replica_state(image, after((1, 2)), 5) is ReplicaState.NEW

    def test_takes_the_leadership_back_from_an_added_one(self, controller):
        controller.propose((1, 4))
        controller.lose(1)
        assert controller.partition().leader_id == 4
        controller.start(1, incarnation="second", previous=controller.epochs[1])
        controller.propose((4, 1))
        assert reassign(controller, None).error is ErrorCode.NONE
        now = controller.partition()
        assert (set(now.replicas), now.isr, now.leader_id) == ({1, 2, 3}, (1,), 1)

    def test_is_refused_where_no_original_replica_is_in_sync(self, controller):
        controller.propose((1, 4))
        controller.lose(1)
        version = controller.model.version
        answer = reassign(controller, None)
        assert answer.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "found [4]" in answer.message
        assert controller.model.version == version

    def test_also_of_a_third_target(self, controller):
        controller.propose((1, 2, 3, 4))
        reassign(controller, (3, 4, 6))
        assert (progress(controller)[0].adding, progress(controller)[0].removing) == (
            (4, 6),
            (1, 2),
        )
        assert reassign(controller, None).error is ErrorCode.NONE
        assert set(controller.partition().replicas) == {1, 2, 3}

    def test_is_what_another_controller_would_do(self, controller):
        """Method: the state from a snapshot is called off."""
        model = controller.model
        again = type(model.mirror)()
        again.load(list(model.mirror.snapshot_records()), model.mirror.end_offset)
        assert Reassignments.original(again.partition(NAME)) == (1, 2, 3)

    def test_a_target_that_is_the_beginning_leaves_it_too(self, controller):
        assert reassign(controller, (1, 2, 3)).error is ErrorCode.NONE
        now = controller.partition()
        assert now.replicas == (1, 2, 3)
        assert set(now.isr) == {1, 2, 3}
        assert progress(controller) == ()

    def test_one_that_leaves_is_none_to_catch_up(self, controller):
        controller.propose((1, 2, 3))
        tell_size(controller, 1, 10_000)
        tell_size(controller, 5, 9_000)
        assert progress(controller)[0].bytes_left == 1_000
        controller.propose((1, 2, 3, 5))
        assert progress(controller) == ()
        assert set(controller.partition().replicas) == {1, 2, 5}


def test_an_old_replica_cannot_return_to_the_set_that_it_is_leaving(controller):
    """Goal: the last step comes, however often the leader proposes the old one again."""
    reassign(controller, (4, 5, 6))
    controller.model.commits = False
    controller.propose_later((1, 2, 3, 4, 5, 6))
    controller.model.commit(controller.now_ms)
    controller.model.commit(controller.now_ms)
    assert controller.partition().isr == (4, 5, 6)
    assert set(controller.partition().replicas) == ALL
    controller.model.commits = True
    controller.model.commit(controller.now_ms)
    assert controller.partition().replicas == (4, 5, 6)


def test_a_new_replica_that_dies_holds_the_reassignment_up_until_it_is_back(controller):
    reassign(controller, (4, 5, 6))
    controller.propose((1, 2, 3, 4, 5))
    controller.lose(5)
    controller.propose((1, 2, 3, 4, 6))
    assert set(controller.partition().replicas) == ALL
    controller.start(5, incarnation="second", previous=controller.epochs[5])
    controller.propose((1, 2, 3, 4, 5, 6))
    assert controller.partition().replicas == (4, 5, 6)


def test_so_does_one_that_falls_out_of_sync(controller):
    reassign(controller, (4, 5, 6))
    controller.propose((1, 2, 3, 4, 5))
    controller.propose((1, 2, 3, 4))
    assert set(controller.partition().replicas) == ALL
    controller.propose((1, 2, 3, 4, 5, 6))
    assert controller.partition().replicas == (4, 5, 6)


def test_a_topic_that_is_reassigned_can_be_deleted(controller):
    reassign(controller, (4, 5, 6))
    assert controller.ask(DeleteTopicRequest(topic="t")).error is ErrorCode.NONE
    assert progress(controller) == ()
    assert reassign(controller, (1,)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [((), "found none"), ((4, 4), "each broker once"), ((4, 9), "found [9]")],
)
def test_a_target_that_cannot_be_is_refused_with_a_sentence(controller, replicas, sentence):
    version = controller.model.version
    answer = reassign(controller, replicas)
    assert answer.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert sentence in answer.message
    assert controller.model.version == version


def test_progress_tells_bytes_and_seconds_left(controller):
    reassign(controller, (1, 2, 4))
    (now,) = progress(controller)
    assert (now.bytes_left, now.seconds_left) == (None, None)

    tell_size(controller, 1, 10_000)
    tell_size(controller, 4, 1_000)
    (now,) = progress(controller)
    assert (now.bytes_left, now.seconds_left) == (9_000, None)
    controller.now_ms += 2000
    tell_size(controller, 4, 5_000)
    (now,) = progress(controller)
    assert (now.bytes_left, now.seconds_left) == (5_000, 2.5)
    controller.propose((1, 2, 3, 4))
    assert progress(controller) == ()


def test_a_set_that_is_kept_has_nobody_that_is_no_replica_any_more(controller):
    """Goal: a move that is called off while nobody leads takes those back out that it had added."""
    reassign(controller, (4, 5, 6))
    controller.propose((1, 2, 3, 4))
    partition = controller.model.controller._image.partition(NAME)
    change = PartitionChange(partition)
    change.replicas, change.isr = (1, 2, 3), (1, 2, 3)
    change.keep_set()
    assert change.isr == (1, 2, 3)
    assert set(change.record().isr) == {1, 2, 3}
