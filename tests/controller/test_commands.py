"""What operators ask: elections, balance, options, more partitions; and what is refused."""

import itertools

import pytest

from replog.admin_messages import (
    AlterOptionsRequest,
    BalanceLeadersRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribePartitionsRequest,
    ElectionKind,
    ElectLeadersRequest,
    ResourceKind,
    UnregisterBrokerRequest,
)
from replog.config import ControllerOptions
from replog.controller.incidents import ElectionCause, LeaderElected
from replog.controller.metadata_image import MetadataImage
from replog.messages import CreateTopicRequest, DeleteTopicRequest, ErrorCode
from replog.types import TopicPartition
from tests.controller import conversation
from tests.controller.conversation import Controller, log_of

TOPIC, BROKER = ResourceKind.TOPIC, ResourceKind.BROKER
T0 = TopicPartition("t", 0)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def controller():
    controller = Controller()
    controller.start(0, 1, 2)
    return controller


def elect(controller, kind, *names):
    answer = controller.ask(ElectLeadersRequest(kind=kind, partitions=names or None))
    return [(result.topic_partition, result.error) for result in answer.partitions]


def options(controller, name, kind=TOPIC, **changes):
    named = {option.replace("_", "."): text for option, text in changes.items()}
    return controller.ask(AlterOptionsRequest(kind=kind, name=name, options=named))


class TestPreferredElection:
    def test_gives_the_leadership_back(self, controller):
        name = controller.create()
        controller.lose(0)
        controller.heartbeat(0)
        assert controller.propose((0, 1, 2)) is ErrorCode.NONE
        assert controller.partition().leader_id == 1
        assert elect(controller, ElectionKind.PREFERRED) == [(name, ErrorCode.NONE)]
        now = controller.partition()
        assert (now.leader_id, now.isr, now.leader_epoch) == (0, (0, 1, 2), 2)
        found = [one for one in controller.incidents if isinstance(one, LeaderElected)]
        assert found[-1].cause is ElectionCause.PREFERRED

    def test_says_what_stands_in_its_way(self, controller):
        name = controller.create()
        assert elect(controller, ElectionKind.PREFERRED, name) == [
            (name, ErrorCode.ELECTION_NOT_NEEDED)
        ]
        controller.lose(0)
        controller.heartbeat(0)
        assert elect(controller, ElectionKind.PREFERRED, name) == [
            (name, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        ]
        gone = TopicPartition("gone", 0)
        assert elect(controller, ElectionKind.PREFERRED, gone) == [
            (gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]


class TestUncleanElection:
    def test_takes_any_live_replica_of_a_partition_that_nobody_leads(self, controller):
        name = controller.create(replicas=(0, 1))
        controller.lose(1)
        controller.lose(0)
        logs = (log_of(controller.partition(), 0, 3),)
        controller.restart(1, "second", clean=True, logs=logs)
        assert controller.partition().leader_id is None
        assert elect(controller, ElectionKind.UNCLEAN, name) == [(name, ErrorCode.NONE)]
        now = controller.partition()
        assert (now.leader_id, now.isr, now.unclean, now.unclean_epoch) == (1, (1,), True, 2)
        damaged = log_of(now, 0, 3, damaged=True)
        controller.restart(0, "second", clean=False, logs=(damaged,))
        now = controller.partition()
        assert (now.leader_id, now.leader_epoch, now.unclean_epoch) == (1, 3, 2)
        image = controller.model.mirror
        loaded = MetadataImage()
        loaded.load(image.snapshot_records(), image.end_offset)
        assert loaded.partition(name).registration == now, "which a snapshot keeps"

    def test_is_refused_where_somebody_leads_or_nobody_could(self, controller):
        name = controller.create(replicas=(0, 1))
        assert elect(controller, ElectionKind.UNCLEAN, name) == [
            (name, ErrorCode.ELECTION_NOT_NEEDED)
        ]
        controller.lose(0)
        controller.lose(1)
        assert elect(controller, ElectionKind.UNCLEAN) == [
            (name, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        ]


class TestBalance:
    @pytest.fixture
    def tilted(self, controller):
        """0 should lead all four partitions, and leads none; it is in sync."""
        for topic in ("a", "b", "c", "d"):
            controller.create(topic)
        controller.lose(0)
        controller.heartbeat(0)
        for topic in ("a", "b", "c", "d"):
            assert controller.propose((0, 1, 2), topic=topic) is ErrorCode.NONE
        return controller

    def leaders(self, controller):
        return [controller.partition(topic).leader_id for topic in ("a", "b", "c", "d")]

    def test_a_dry_run_says_what_it_would_do_and_does_nothing(self, tilted):
        version = tilted.model.version
        answer = tilted.ask(BalanceLeadersRequest(dry_run=True))
        assert [(move.from_broker, move.to_broker) for move in answer.moves] == [(1, 0)] * 4
        assert answer.left == 0
        assert tilted.model.version == version

    def test_the_brake_bounds_one_run(self, tilted):
        answer = tilted.ask(BalanceLeadersRequest(moves_max=3))
        assert (len(answer.moves), answer.left) == (3, 1)
        assert self.leaders(tilted) == [0, 0, 0, 1]

    def test_below_the_threshold_nothing_moves(self, tilted):
        tilted.ask(BalanceLeadersRequest(moves_max=3))
        answer = tilted.ask(BalanceLeadersRequest(threshold_percent=25))
        assert (answer.moves, answer.left) == ((), 0)
        assert len(tilted.ask(BalanceLeadersRequest(threshold_percent=24)).moves) == 1

    def test_it_comes_round_by_itself(self, tilted):
        due_ms = tilted.model.controller._balance.due_ms
        assert due_ms == conversation.OPTIONS.leader_imbalance_check_interval_ms
        for broker_id in itertools.islice(itertools.cycle((0, 1, 2)), 200):
            tilted.now_ms += min(3000, due_ms - tilted.now_ms)
            tilted.heartbeat(broker_id)
            if tilted.now_ms == due_ms:
                break
        tilted.tick(0)
        assert self.leaders(tilted) == [0, 0, 0, 0]

    def test_a_run_that_the_brake_has_stopped_goes_on_soon(self, monkeypatch):
        few = ControllerOptions(leader_moves_max=1, leader_imbalance_check_interval_ms=5000)
        monkeypatch.setattr(conversation, "OPTIONS", few)
        controller = Controller()
        controller.start(0, 1)
        for topic in ("a", "b"):
            controller.create(topic, replicas=(0, 1))
        controller.lose(0)
        controller.heartbeat(0)
        for topic in ("a", "b"):
            controller.propose((0, 1), topic=topic)
        controller.tick(4000)
        assert [controller.partition(topic).leader_id for topic in "ab"] == [0, 1]
        controller.tick(few.leader_moves_pause_ms)
        assert [controller.partition(topic).leader_id for topic in "ab"] == [0, 0]

    def test_a_new_controller_goes_on_at_once(self, tilted):
        other = Controller()
        other.model.take_over(tilted.model.log)
        assert self.leaders(other) == [0, 0, 0, 0]

    @pytest.mark.parametrize("wrong", [{"threshold_percent": -1}, {"moves_max": 0}])
    def test_what_cannot_be_is_refused(self, tilted, wrong):
        answer = tilted.ask(BalanceLeadersRequest(**wrong))
        assert answer.error is ErrorCode.INVALID_REQUEST
        assert "expected" in answer.message
        assert str(*wrong.values()) in answer.message
        assert self.leaders(tilted) == [1, 1, 1, 1]


class TestOptions:
    def test_are_told_to_brokers_with_the_partition(self, controller):
        controller.create()
        epoch = controller.partition().partition_epoch
        changes = {"min_insync_replicas": "2", "retention_ms": "1000"}
        assert options(controller, "t", **changes).error is ErrorCode.NONE
        now = controller.partition()
        assert (now.config.min_insync_replicas, now.config.log.retention_ms) == (2, 1000)
        assert now.partition_epoch == epoch
        options(controller, "t", retention_ms=None)
        assert controller.partition().config.log.retention_ms == 604800000
        assert controller.partition().config.min_insync_replicas == 2

    def test_that_allow_any_leader_elect_one(self, controller):
        controller.create(replicas=(0, 1))
        controller.lose(1)
        controller.lose(0)
        controller.restart(1, "second", clean=True, logs=(log_of(controller.partition(), 0, 3),))
        assert controller.partition().leader_id is None
        options(controller, "t", unclean_leader_election_enable="true")
        assert controller.partition().leader_id == 1

    def test_a_lower_floor_ends_what_was_vouched_for_below_it(self, controller):
        """Goal: with one replica enough, it commits alone; who left before may lack that."""
        controller.create(min_insync_replicas=2)
        controller.lose(0)
        controller.lose(1)
        controller.heartbeat(1)
        options(controller, "t", min_insync_replicas="1")
        controller.lose(2)
        assert controller.partition().leader_id is None

    def test_go_with_the_topic(self, controller):
        controller.create(min_insync_replicas=2)
        controller.ask(DeleteTopicRequest(topic="t"))
        controller.create()
        assert controller.partition().config.min_insync_replicas == 1

    def test_of_one_request_are_set_together_or_not_at_all(self, controller):
        controller.create()
        version = controller.model.version
        answer = options(controller, "t", retention_ms="5", min_insync_replicas="0")
        assert answer.error is ErrorCode.INVALID_CONFIG
        assert controller.model.version == version

    def test_checked_only_change_nothing(self, controller):
        controller.create()
        version = controller.model.version
        request = AlterOptionsRequest(
            kind=TOPIC, name="t", options={"retention.ms": "5"}, validate_only=True
        )
        assert controller.ask(request).error is ErrorCode.NONE
        assert controller.model.version == version


class TestMorePartitions:
    def test_follow_those_that_are_there(self, controller):
        controller.create()
        assert controller.ask(CreatePartitionsRequest(topic="t", count=3)).error is ErrorCode.NONE
        names = controller.model.partitions_of("t")
        assert [name.partition for name in names] == [0, 1, 2]
        added = controller.model.partition(names[2])
        assert len(added.replicas) == 3
        assert (added.leader_epoch, added.partition_epoch) == (0, 0)
        assert added.topic_id == controller.partition().topic_id

    def test_go_where_they_are_told(self, controller):
        controller.create(replicas=(0, 1))
        request = CreatePartitionsRequest(topic="t", count=2, assignment=((2, 0),))
        assert controller.ask(request).error is ErrorCode.NONE
        assert controller.model.partition(TopicPartition("t", 1)).replicas == (2, 0)


def test_topics_of_one_command_are_decided_each_by_itself_in_one_batch(controller):
    controller.create(topic="old")
    batches = len(controller.model.batches)
    answer = controller.ask(
        CreateTopicsRequest(
            topics=(
                CreateTopicRequest(topic="a", partitions=2, replication_factor=3),
                CreateTopicRequest(topic="old"),
                CreateTopicRequest(topic="b", options=(("retention.ms", "7"),)),
            )
        )
    )
    errors = [found.error for found in answer.topics]
    assert errors == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE]
    assert len(controller.model.batches) == batches + 1
    assert controller.partition("b").config.log.retention_ms == 7


def test_a_broker_is_forgotten_once_it_holds_nothing(controller):
    controller.create(replicas=(0, 1))
    answer = controller.ask(UnregisterBrokerRequest(broker_id=2))
    assert answer.error is ErrorCode.INVALID_REQUEST
    controller.lose(2)
    assert controller.ask(UnregisterBrokerRequest(broker_id=2)).error is ErrorCode.NONE
    assert controller.model.broker(2) is None
    assert controller.model.next_deadline_ms is not None
    controller.start(2, incarnation="second")


class TestAPartitionThatNobodyLeads:
    def status(self, controller, *names):
        answer = controller.ask(DescribePartitionsRequest(partitions=names or None))
        return answer.partitions

    def test_stays_in_the_metadata_and_says_what_it_waits_for(self, controller):
        controller.create(replicas=(0, 1))
        controller.lose(1)
        controller.lose(0)
        (status,) = self.status(controller)
        assert (status.state, status.leader_id, status.leader_epoch) == ("Offline", None, 1)
        assert status.replica_states == ((0, "Offline"), (1, "Offline"))
        assert "start broker 0" in status.message

    def test_names_those_whose_logs_have_to_be_compared(self, controller):
        controller.create(replicas=(0, 1), min_insync_replicas=2)
        partition = controller.partition()
        controller.lose(1)
        controller.lose(0)
        controller.restart(0, "second", clean=False, logs=(log_of(partition, 0, 5),))
        (status,) = self.status(controller, T0)
        assert (status.isr, status.suspect, status.eligible) == ((0,), (0,), (1,))
        assert "start broker 1" in status.message
        controller.register(1, "second", logs=(log_of(partition, 0, 9),))
        (status,) = self.status(controller, T0)
        assert status.suspect == (0, 1)
        assert "[1] have not told theirs; start [1]" in status.message

    def test_names_damage(self, controller):
        controller.create(replicas=(0,))
        controller.heartbeat(0, damaged=(T0,))
        (status,) = self.status(controller, T0)
        assert (status.state, status.damaged) == ("Offline", (0,))
        assert "the logs of [0] are damaged" in status.message

    def test_is_told_from_one_that_is_not_there(self, controller):
        (status,) = self.status(controller, T0)
        assert (status.error, status.state) == (UNKNOWN, "NonExistent")
        controller.create(replicas=(0, 1))
        (status,) = self.status(controller, T0)
        assert (status.error, status.state, status.message) == (ErrorCode.NONE, "Online", None)
        assert self.status(controller) == ()
