"""Metadata as versions: every change reaches who follows the log, in order, without a gap."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from replog.admin_messages import CreateTopicsRequest
from replog.controller.metadata_image import MetadataImage
from replog.messages import CreateTopicRequest, DeleteTopicRequest, ErrorCode
from replog.types import TopicPartition
from replog.wire.metadata_records import ConfigRecord
from tests.controller.conversation import Controller, log_of
from tests.controller.one_voter import Follower, assert_same_image


@pytest.fixture
def controller():
    controller = Controller()
    controller.start(0, 1, 2)
    return controller


@pytest.fixture
def follower():
    return Follower()


def follow(follower, controller):
    return follower.take(controller.model.log, controller.model.version)


def test_a_new_broker_gets_one_delta_that_stands_for_all(controller, follower):
    controller.create()
    delta = follow(follower, controller)
    assert delta.version == controller.model.version
    assert [broker.broker_id for broker in delta.brokers] == [0, 1, 2]
    assert delta.partitions == (controller.partition(),)


def test_who_has_a_version_gets_what_came_after_it(controller, follower):
    follow(follower, controller)
    controller.create()
    created = controller.model.version
    first = follow(follower, controller)
    controller.lose(2)
    second = follow(follower, controller)
    assert (first.version, second.version) == (created, controller.model.version)
    assert first.brokers == ()
    assert first.partitions[0].isr == (0, 1, 2)
    assert [broker.broker_id for broker in second.brokers] == [2]
    assert second.partitions[0].isr == (0, 1)
    assert follow(follower, controller) is None


def test_who_lags_so_far_behind_that_it_gets_a_snapshot_hears_what_was_deleted(
    controller, follower
):
    controller.create()
    topic_id = controller.partition().topic_id
    follow(follower, controller)
    controller.ask(DeleteTopicRequest(topic="t"))
    controller.lose(2)
    active = controller.model.controller
    follower.image.load(active.known_records(), active.version)
    delta = follow(follower, controller)
    assert delta.version == controller.model.version
    assert delta.removed_partitions == ((TopicPartition("t", 0), topic_id),)
    assert delta.partitions == ()
    assert delta.brokers[2] == controller.model.broker(2)


class ControllerHistory(RuleBasedStateMachine):
    """Goal: whatever happens, epochs never fall and a broker that follows deltas knows all.

    Method: random deaths, returns, proposals, damage, topics; a follower applies each delta and
    must equal the controller after every step.
    """

    def __init__(self):
        super().__init__()
        self.controller = Controller()
        self.controller.start(0, 1, 2)
        self.follower = Follower()
        self.version = 0
        self.brokers = {}
        self.partitions = {}
        self.runs = itertools.count()
        self.floor = 0

    broker_ids = st.integers(0, 2)
    topics = st.sampled_from(["a", "b"])

    @rule(topic=topics, floor=st.integers(1, 3), unclean=st.booleans())
    def create(self, topic, floor, unclean):
        live = [one for one in (0, 1, 2) if self.controller.model.broker(one).eligible]
        if live and self.controller.partition(topic) is None:
            self.controller.create(topic, min_insync_replicas=floor, unclean=unclean)

    @rule(topic=topics)
    def delete(self, topic):
        self.controller.ask(DeleteTopicRequest(topic=topic))

    @rule(broker_id=broker_ids)
    def lose(self, broker_id):
        self.controller.lose(broker_id)

    @rule(broker_id=broker_ids, leave=st.booleans())
    def heartbeat(self, broker_id, leave):
        self.controller.heartbeat(broker_id, want_shut_down=leave)

    @rule(broker_id=broker_ids, clean=st.booleans(), end=st.integers(0, 3), damaged=st.booleans())
    def restart(self, broker_id, clean, end, damaged):
        held = [self.controller.partition(topic) for topic in ("a", "b")]
        self.controller.lose(broker_id)
        self.controller.register(
            broker_id,
            f"run {next(self.runs)}",
            previous=self.controller.epochs[broker_id] if clean else -1,
            logs=[log_of(found, 0, end, damaged=damaged) for found in held if found],
        )

    @rule(topic=topics, isr=st.sets(broker_ids, min_size=1))
    def propose(self, topic, isr):
        partition = self.controller.partition(topic)
        if partition and partition.leader_id is not None:
            error = self.controller.propose(sorted(isr | {partition.leader_id}), topic=topic)
            assert error in {ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA}

    @rule(after_ms=st.sampled_from([1, 5000, 9000]))
    def tick(self, after_ms):
        self.controller.tick(after_ms)

    @invariant()
    def a_follower_of_the_deltas_knows_all_and_no_epoch_falls(self):
        delta = follow(self.follower, self.controller)
        if delta is not None:
            assert delta.version > self.version
            self.version = delta.version
            for name, topic_id in delta.removed_partitions:
                if name in self.partitions and self.partitions[name].topic_id == topic_id:
                    del self.partitions[name]
            for broker in delta.brokers:
                known = self.brokers.get(broker.broker_id)
                assert known is None or known.broker_epoch <= broker.broker_epoch
                self.brokers[broker.broker_id] = broker
            for after in delta.partitions:
                self._check(self.partitions.get(after.topic_partition), after)
                self.partitions[after.topic_partition] = after
        model = self.controller.model
        assert_same_image(model.mirror, model.controller._image)
        assert self.brokers == {one: model.broker(one) for one in self.brokers}
        assert self.partitions == {name: model.partition(name) for name in self.partitions}
        assert tuple(sorted(name.topic for name in self.partitions)) == model.topics()

    def _check(self, before, after):
        assert after.isr
        assert set(after.isr) <= set(after.replicas)
        assert after.leader_id is None or after.leader_id in after.isr
        if len(after.isr) > 1:
            assert all(self.brokers[member].eligible for member in after.isr)
        if before and before.topic_id == after.topic_id:
            assert after.partition_epoch > before.partition_epoch
            assert after.leader_epoch >= before.leader_epoch
            if after.leader_id != before.leader_id:
                assert after.leader_epoch > before.leader_epoch


TestControllerHistory = ControllerHistory.TestCase
TestControllerHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_snapshot_takes_back_what_was_set_for_brokers_and_is_no_more():
    """A follower that was long away must not throttle for ever."""
    image = MetadataImage()
    image.apply(ConfigRecord(resource_type=4, resource_name="1", name="leader.rate", value="5"), 0)
    image.take_delta()
    image.load([], 7)
    assert image.take_delta().broker_options == ((1, "leader.rate", None),)


def test_a_change_that_somebody_waits_for_says_so(controller):
    """A shutdown, and a creation until all its replicas have started; other changes do not."""
    mirror = controller.model.mirror
    mirror.take_delta()
    controller.create()
    assert not mirror.take_delta().is_awaited
    controller.heartbeat(0, want_shut_down=True)
    assert mirror.take_delta().is_awaited
    topics = (CreateTopicRequest(topic="u", replication_factor=2),)
    controller.ask(CreateTopicsRequest(topics=topics, wait_ms_max=500))
    assert mirror.take_delta().is_awaited
    for broker_id in (1, 2):
        controller.heartbeat(broker_id)
    assert mirror.take_delta() is None, "that nobody waits any more is no news for brokers"
