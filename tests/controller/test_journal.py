"""The life of state changes, what brokers have still to do, and creations that wait for them."""

import uuid

import pytest

from replog.admin_messages import (
    AlterOptionsRequest,
    CreateTopicsRequest,
    ResourceKind,
    StateChangesRequest,
    UnregisterBrokerRequest,
)
from replog.controller.broker_queue import ChangeKind, ChangeState, StateChange
from replog.controller.effects import Report
from replog.controller.events import LeadershipGained, LeadershipLost
from replog.controller.incidents import BrokerQueueFull
from replog.controller.metadata_image import CREATION_MARK, MetadataImage
from replog.controller.state_journal import StateJournal
from replog.messages import CreateTopicRequest, DeleteTopicRequest, ErrorCode
from replog.types import TopicPartition
from tests.controller.conversation import Controller

NAME = TopicPartition("t", 0)
START, DELETE = ChangeKind.FOLLOW, ChangeKind.DELETE


def change(kind=START, epoch=0, version=1, partition=0, topic=1, broker_id=0):
    return StateChange(
        TopicPartition("t", partition), uuid.UUID(int=topic), broker_id, kind, epoch, version, 5
    )


@pytest.fixture
def controller():
    controller = Controller()
    controller.start(0, 1, 2)
    return controller


def kinds(changes):
    return [(found.broker_id, found.kind, found.state) for found in changes]


def test_a_change_is_requested_then_completed_by_each_broker(controller):
    controller.create(replicas=(0, 1))
    journal = controller.model.journal
    asked, done = ChangeState.REQUESTED, ChangeState.COMPLETED
    assert kinds(journal.changes(NAME)) == [
        (0, ChangeKind.LEAD, asked),
        (1, ChangeKind.FOLLOW, asked),
    ]
    controller.now_ms += 7
    controller.heartbeat(1)
    assert kinds(journal.changes(NAME)) == [
        (0, ChangeKind.LEAD, asked),
        (1, ChangeKind.FOLLOW, done),
    ]
    found = journal.changes(NAME, broker_id=1)[0]
    assert (found.requested_ms, found.completed_ms) == (controller.now_ms - 7, controller.now_ms)
    assert found.leader_epoch == 0


def test_the_queue_of_a_dead_broker_grows_and_its_return_empties_it(controller):
    controller.create(replicas=(0, 1, 2))
    for broker_id in (0, 1, 2):
        controller.heartbeat(broker_id)
    journal = controller.model.journal
    assert journal.lengths() == {0: 0, 1: 0, 2: 0}
    controller.lose(2)
    controller.lose(1)
    controller.heartbeat(0)
    controller.heartbeat(1)
    controller.ask(DeleteTopicRequest(topic="t"))
    controller.heartbeat(0)
    controller.heartbeat(1)
    assert journal.lengths()[0] == journal.lengths()[1] == 0
    assert [found.kind for found in journal.queued(2)][-1] is DELETE
    controller.start(2, incarnation="second")
    assert journal.queued(2) == []


def test_a_broker_that_has_the_metadata_and_has_not_obeyed_it_shows(controller):
    controller.create(replicas=(0, 1))
    journal = controller.model.journal
    journal.received(1, controller.model.version, 99)
    (found,) = journal.queued(1)
    assert (found.state, found.received_ms, found.completed_ms) == (ChangeState.RECEIVED, 99, None)


def test_operators_read_it_by_partition_and_broker(controller):
    controller.create(replicas=(0, 1))
    controller.create("u", replicas=(1, 2))
    controller.heartbeat(1)
    answer = controller.ask(StateChangesRequest(topic_partition=NAME))
    assert [(row.broker_id, row.kind, row.state) for row in answer.changes] == [
        (0, "lead", "requested"),
        (1, "follow", "completed"),
    ]
    assert answer.queued == ((0, 1), (1, 0), (2, 1))
    assert len(controller.ask(StateChangesRequest(broker_id=1)).changes) == 2


def test_the_journal_of_a_new_controller_is_that_of_the_old_one(controller):
    controller.create(replicas=(0, 1, 2))
    controller.lose(0)
    controller.ask(DeleteTopicRequest(topic="t"))
    other = Controller()
    other.model.take_over(controller.model.log)

    def told(one):
        return [
            (found.topic_partition, found.broker_id, found.kind, found.leader_epoch, found.version)
            for found in one.model.journal.changes()
        ]

    assert told(other) == told(controller)
    assert len(told(other)) == 9
    other.epochs = controller.epochs
    other.heartbeat(1)
    assert other.model.journal.queued(1) == []


def test_queues_are_kept_over_a_restart_from_a_snapshot(controller):
    """Goal: a dead broker still shows. Who has obeyed the snapshot says so with a heartbeat."""
    controller.create(replicas=(0, 1))
    controller.create("led", replicas=(1, 0))
    controller.heartbeat(0)
    controller.lose(1)
    active = controller.model.controller
    again = controller.model._make()
    again.load(active.known_records(), active.version)
    assert sorted(again.journal.lengths().items()) == [(0, 2), (1, 2)]
    assert {found.kind for found in again.journal.queued(1)} == {ChangeKind.FOLLOW}
    again.journal.completed(0, active.version, 5)
    assert again.journal.lengths() == {0: 0, 1: 2}


class TestAQueueThatIsFull:
    """Of broker 0, with room for one; it does not obey."""

    @pytest.fixture
    def controller(self, controller):
        journal = controller.model.journal
        journal._queue_max = 1
        journal._queues.clear()
        for name in ("t", "u", "v"):
            controller.create(name, replicas=(0,))
            controller.ask(DeleteTopicRequest(topic=name))
        return controller

    def told(self, controller):
        return [one.message for one in controller.incidents if isinstance(one, BrokerQueueFull)]

    def test_is_told_to_operators_once(self, controller):
        (message,) = self.told(controller)
        assert "broker 0" in message

    def test_is_told_again_when_it_was_empty_meanwhile(self, controller):
        controller.heartbeat(0)
        assert controller.model.journal.lengths()[0] == 0
        controller.create("w", replicas=(0,))
        controller.ask(DeleteTopicRequest(topic="w"))
        assert len(self.told(controller)) == 1
        controller.create("x", replicas=(0,))
        controller.ask(DeleteTopicRequest(topic="x"))
        assert len(self.told(controller)) == 2

    def test_is_not_told_of_a_broker_that_has_obeyed_an_earlier_controller(self, controller):
        """A new one has replayed the deletions, and has not heard from the broker."""
        other = Controller()
        other.epochs, other.now_ms, other.topic_ids = controller.epochs, controller.now_ms, 90
        make = other.model._make

        def make_small():
            made = make()
            made.journal._queue_max = 1
            return made

        other.model._make = make_small
        effects = other.model.take_over(controller.model.log, other.now_ms)
        assert [one for one in effects if isinstance(one, Report)] == []
        other.create("w", replicas=(0,))
        other.ask(DeleteTopicRequest(topic="w"))
        assert self.told(other) == []


def test_a_broker_that_is_unregistered_has_no_queue(controller):
    controller.create(replicas=(2,))
    controller.ask(DeleteTopicRequest(topic="t"))
    controller.lose(2)
    assert controller.model.journal.lengths()[2] > 0
    answer = controller.ask(UnregisterBrokerRequest(broker_id=2))
    assert answer.error is ErrorCode.NONE
    assert 2 not in controller.model.journal.lengths()


def times(changes):
    return {(found.requested_ms, found.received_ms, found.completed_ms) for found in changes}


class TestTimes:
    """What a broker does under another controller is not timed by when it is heard of here."""

    def obey(self, controller):
        journal = controller.model.journal
        controller.now_ms += 500
        journal.received(0, controller.model.version, controller.now_ms)
        controller.now_ms += 5
        for broker_id in (0, 1, 2):
            controller.heartbeat(broker_id)
        return journal

    def test_are_none_of_what_an_earlier_controller_has_decided(self, controller):
        controller.create(replicas=(0, 1, 2))
        controller.ask(DeleteTopicRequest(topic="t"))
        controller.model.take_over(controller.model.log, controller.now_ms)
        journal = self.obey(controller)
        found = journal.changes(NAME)
        assert {one.state for one in found} == {ChangeState.COMPLETED}
        assert times(found) == {(None, None, None)}

    def test_are_none_of_what_a_snapshot_stands_for(self, controller):
        controller.create(replicas=(0, 1, 2))
        active = controller.model.controller
        again = controller.model._make()
        again.load(active.known_records(), active.version)
        again.journal.received(0, active.version, 5)
        again.journal.completed(0, active.version, 6)
        assert times(again.journal.changes(NAME)) == {(None, None, None)}

    def test_are_none_of_what_waited_when_another_controller_came_between(self, controller):
        controller.create(replicas=(0, 1, 2))
        asked_ms = controller.now_ms
        controller.heartbeat(0)
        controller.step(LeadershipLost())
        end_offset = controller.model.version
        controller.step(LeadershipGained(controller_epoch=3, end_offset=end_offset))
        journal = self.obey(controller)
        assert times(journal.changes(NAME, 0)) == {(asked_ms, asked_ms, asked_ms)}
        assert times(journal.changes(NAME, 1)) == {(None, None, None)}

    def test_are_told_of_what_is_decided_after_a_take_over(self, controller):
        controller.create(replicas=(0, 1, 2))
        controller.model.take_over(controller.model.log, controller.now_ms)
        controller.create("u", replicas=(0,))
        asked_ms = controller.now_ms
        journal = self.obey(controller)
        expected = (asked_ms, asked_ms + 500, asked_ms + 505)
        assert times(journal.changes(TopicPartition("u", 0))) == {expected}


def test_a_request_of_an_older_epoch_than_the_partitions_is_ignored_and_written_down():
    journal = StateJournal()
    journal.request(change(epoch=3), latest_epoch=4)
    (found,) = journal.changes()
    assert found.state is ChangeState.IGNORED
    assert journal.queued(0) == []


def test_a_proposal_of_an_older_epoch_is_written_down(controller):
    controller.create(replicas=(0, 1, 2))
    controller.lose(0)
    controller.heartbeat(0)
    assert controller.propose((0, 1), sender=0, leader_epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
    found = controller.model.journal.changes(NAME, broker_id=0)[-1]
    assert (found.state, found.leader_epoch) == (ChangeState.IGNORED, 0)


def test_the_history_is_bounded():
    journal = StateJournal(history_max=3, queue_max=10)
    for version in range(9):
        journal.request(change(version=version), latest_epoch=0)
    assert [found.version for found in journal.changes()] == [6, 7, 8]


class TestCreationsThatWait:
    def create(self, controller, **more):
        fields = {"topic": "t", "partitions": 2, "replication_factor": 3} | more
        request = CreateTopicsRequest(topics=(CreateTopicRequest(**fields),), wait_ms_max=500)
        return controller.ask(request)

    def asked(self, controller):
        return controller.answers.get(controller.request_id)

    def test_are_answered_when_every_replica_has_started(self, controller):
        assert self.create(controller) is None
        asked = controller.request_id
        controller.heartbeat(0)
        controller.heartbeat(1)
        assert asked not in controller.answers
        controller.heartbeat(2)
        (topic,) = controller.answers[asked].topics
        assert (topic.error, topic.topic_id) == (ErrorCode.NONE, controller.partition().topic_id)

    def test_name_at_last_who_has_not(self, controller):
        self.create(controller)
        asked = controller.request_id
        controller.heartbeat(0)
        controller.heartbeat(2)
        assert controller.model.next_deadline_ms == controller.now_ms + 500
        controller.tick(500)
        (topic,) = controller.answers[asked].topics
        assert topic.error is ErrorCode.REQUEST_TIMED_OUT
        assert "t-0 on broker 1, t-1 on broker 1." in topic.message
        assert controller.partition().leader_id is not None

    def test_that_failed_half_way_are_gone_on_with_by_the_same_request(self, controller):
        self.create(controller)
        controller.heartbeat(0)
        controller.tick(500)
        before = controller.partition()
        assert self.create(controller) is None
        asked = controller.request_id
        assert controller.partition() is before
        for broker_id in (0, 1, 2):
            controller.heartbeat(broker_id)
        assert controller.answers[asked].topics[0].topic_id == before.topic_id
        answer = controller.ask(CreateTopicRequest(topic="t"))
        assert answer.error is ErrorCode.TOPIC_ALREADY_EXISTS

    def test_that_no_broker_has_begun_with_give_way_to_another_request(self, controller):
        self.create(controller)
        controller.start(3)
        controller.tick(500)
        before = controller.partition()
        for broker_id in (0, 1, 2):
            answer = self.create(controller, partitions=1, replication_factor=1)
            assert answer.topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
            controller.lose(broker_id)
        self.create(controller, partitions=1, replication_factor=1)
        assert controller.partition().topic_id != before.topic_id
        assert len(controller.model.partitions_of("t")) == 1

    def test_that_somebody_waits_for_stay(self, controller):
        self.create(controller)
        controller.start(3)
        before = controller.partition()
        for broker_id in (0, 1, 2):
            controller.lose(broker_id)
        answer = self.create(controller, partitions=1, replication_factor=1)
        assert answer.topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
        assert controller.partition().topic_id == before.topic_id

    def test_that_somebody_may_have_written_to_stay(self, controller):
        self.create(controller)
        controller.heartbeat(0)
        controller.tick(500)
        answer = self.create(controller, partitions=1)
        (topic,) = (answer or self.asked(controller)).topics
        assert topic.error is ErrorCode.TOPIC_ALREADY_EXISTS

    def test_of_topics_that_are_deleted_meanwhile_wait_no_more(self, controller):
        self.create(controller)
        asked = controller.request_id
        controller.ask(DeleteTopicRequest(topic="t"))
        assert controller.answers[asked].topics[0].error is ErrorCode.NONE

    def half_failed(self, controller):
        """A creation whose replicas on 1 have not started when the controller is another one."""
        old = controller.model.version
        self.create(controller)
        for broker_id in (0, 2):
            controller.heartbeat(broker_id)
        controller.tick(500)
        controller.model.take_over(controller.model.log, controller.now_ms)
        return old, controller.partition().topic_id

    def test_that_failed_half_way_are_gone_on_with_by_another_controller(self, controller):
        _, topic_id = self.half_failed(controller)
        assert self.create(controller) is None
        asked = controller.request_id
        assert controller.partition().topic_id == topic_id
        for broker_id in (0, 1, 2):
            assert asked not in controller.answers
            controller.heartbeat(broker_id)
        (topic,) = controller.answers[asked].topics
        assert (topic.error, topic.topic_id) == (ErrorCode.NONE, topic_id)

    def test_are_known_from_the_log_alone_when_the_controller_died_meanwhile(self, controller):
        self.create(controller)
        topic_id = controller.partition().topic_id
        controller.model.take_over(controller.model.log, controller.now_ms)
        assert self.create(controller) is None
        assert controller.partition().topic_id == topic_id

    def test_and_from_a_snapshot(self, controller):
        self.half_failed(controller)
        image = controller.model.controller._image
        again = MetadataImage()
        again.load(image.snapshot_records(), image.end_offset)
        assert again.creations == image.creations != {}

    def test_that_no_broker_has_begun_with_give_way_at_another_controller_too(self, controller):
        """Once it has heard so of each of them: until then somebody may have written to it."""
        old = controller.model.version
        self.create(controller)
        controller.start(3)
        topic_id = controller.partition().topic_id
        controller.model.take_over(controller.model.log, controller.now_ms)
        for broker_id in (0, 1, 2):
            answer = self.create(controller, partitions=1, replication_factor=1)
            assert answer.topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
            controller.heartbeat(broker_id, version=old)
            controller.lose(broker_id)
        assert self.create(controller, partitions=1, replication_factor=1) is None
        assert controller.partition().topic_id != topic_id

    def test_that_somebody_has_begun_with_stay_at_another_controller_too(self, controller):
        old, topic_id = self.half_failed(controller)
        controller.heartbeat(0)
        for broker_id in (1, 2):
            controller.heartbeat(broker_id, version=old)
        answer = self.create(controller, partitions=1)
        assert answer.topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
        assert controller.partition().topic_id == topic_id

    def test_that_are_finished_are_topics_like_any_other(self, controller):
        self.create(controller)
        for broker_id in (0, 1, 2):
            controller.heartbeat(broker_id)
        assert controller.model.controller._image.creations == {}
        for take_over in (False, True):
            if take_over:
                controller.model.take_over(controller.model.log, controller.now_ms)
            answer = self.create(controller)
            assert answer.topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS

    def test_are_finished_by_whoever_is_the_controller_then(self, controller):
        self.half_failed(controller)
        for broker_id in (0, 1, 2):
            controller.heartbeat(broker_id)
        assert controller.model.controller._image.creations == {}

    def test_have_no_option_of_that_mark(self, controller):
        self.half_failed(controller)
        options = {"retention.ms": "5"}
        asked = AlterOptionsRequest(kind=ResourceKind.TOPIC, name="t", options=options)
        assert controller.ask(asked).error is ErrorCode.NONE
        assert controller.model.controller._image.options[2, "t"] == options
        asked = AlterOptionsRequest(kind=ResourceKind.TOPIC, name="t", options={CREATION_MARK: "1"})
        assert controller.ask(asked).error is ErrorCode.INVALID_CONFIG

    def test_wait_for_a_damaged_replica(self, controller):
        self.create(controller, partitions=1)
        asked = controller.request_id
        for broker_id in (0, 1, 2):
            controller.heartbeat(broker_id, damaged=(NAME,) if broker_id == 1 else ())
        controller.tick(500)
        assert "t-0 on broker 1." in controller.answers[asked].topics[0].message
