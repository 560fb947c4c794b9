"""With which copy of its logs a broker is back, and who may lead then."""

import uuid

import pytest

from replog.controller.broker_image import BrokerImage
from replog.controller.incidents import BrokerRegistered, PartitionOffline
from replog.controller.metadata_image import MetadataImage
from replog.messages import LeaderlessLog, RegisterBrokerRequest, ReplicaState
from tests.controller.conversation import Controller, log_of

FIRST, SECOND = (uuid.UUID(int=number, version=4) for number in (1, 2))


class Directory:
    """A broker's: its id, its marker, its note, and what became of its log."""

    def __init__(self, directory_id=FIRST):
        self.directory_id = directory_id
        self.marker = self.note = -1

    def copy(self):
        other = Directory(self.directory_id)
        other.marker, other.note = self.marker, self.note
        return other


class Cluster(Controller):
    """Its brokers 0, 1, 2 with a directory each, and topic t on all of them."""

    def __init__(self):
        super().__init__()
        self.runs_of = dict.fromkeys((0, 1, 2), 0)
        self.directories = {one: Directory(uuid.UUID(int=one + 10, version=4)) for one in (0, 1, 2)}

    def begin(self, **options):
        for broker_id in (0, 1, 2):
            self.back(broker_id, logs=())
        self.create(**options)
        return self

    def back(self, broker_id, logs=None, end=5, **found):
        """Another run of it, until it may lead; with its log, if not told otherwise."""
        self.registers(broker_id, logs, end, **found)
        return self.heartbeat(broker_id)

    def registers(self, broker_id, logs=None, end=5, **found):
        directory = self.directories[broker_id]
        self.runs_of[broker_id] += 1
        run = f"run {self.runs_of[broker_id]}"
        if logs is None:
            log = log_of(self.partition(), 0, end)
            logs = (ReplicaState(**{**fields(log), **found}),)
        response = self.ask(
            RegisterBrokerRequest(
                broker_id=broker_id,
                incarnation_id=run,
                previous_broker_epoch=directory.marker,
                replicas=tuple(logs),
                directory_id=directory.directory_id,
                last_broker_epoch=directory.note,
            )
        )
        assert response.error == 0
        self.epochs[broker_id] = directory.note = response.broker_epoch
        self.runs[broker_id] = run
        directory.marker = -1

    def stops(self, broker_id):
        """Cleanly, without a word to the controller."""
        self.directories[broker_id].marker = self.epochs[broker_id]

    def tells(self, broker_id, end):
        partition = self.partition()
        told = LeaderlessLog(
            topic_partition=partition.topic_partition,
            topic_id=partition.topic_id,
            leader_epoch=partition.leader_epoch,
            latest_epoch=0,
            log_end_offset=end,
        )
        self.heartbeat(broker_id, leaderless=(told,))

    def another_controller(self):
        self.model.take_over(self.model.log, self.now_ms, epoch=9)

    @property
    def image(self):
        return self.model.controller._image.topics["t"].partitions[0]


def fields(state):
    return {name: getattr(state, name) for name in state.__slots__}


@pytest.fixture
def cluster():
    return Cluster().begin()


def all_stopped(cluster, *, killed=()):
    for broker_id in {0, 1, 2} - set(killed):
        cluster.stops(broker_id)
    cluster.another_controller()
    return cluster


@pytest.mark.parametrize("first", [0, 1, 2])
def test_after_an_orderly_close_whoever_is_back_first_leads(cluster, first):
    all_stopped(cluster)
    assert cluster.partition().isr == (0, 1, 2)
    cluster.back(first)
    assert cluster.partition().leader_id == first


@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_set_does_not_shrink_to_whoever_registers_last(cluster, last):
    all_stopped(cluster)
    for broker_id in sorted({0, 1, 2} - {last}):
        cluster.registers(broker_id)
    assert cluster.partition().isr == (0, 1, 2)
    cluster.directories[last] = Directory(SECOND)
    cluster.back(last, logs=())
    assert cluster.partition().leader_id is None
    assert cluster.partition().isr == tuple(sorted({0, 1, 2} - {last}))
    (one, *_) = sorted({0, 1, 2} - {last})
    cluster.heartbeat(one)
    assert cluster.partition().leader_id == one


def only_2_in_sync(cluster):
    for broker_id in (0, 1):
        cluster.stops(broker_id)
        cluster.lose(broker_id)
    assert cluster.partition().isr == (2,)
    return cluster


@pytest.mark.parametrize("clean", [False, True])
def test_an_older_copy_vouches_for_nothing(cluster, clean):
    only_2_in_sync(cluster).stops(2)
    older = cluster.directories[2].copy()
    if not clean:
        older.marker = -1
    cluster.lose(2)
    cluster.back(2)
    assert cluster.partition().leader_id == 2
    cluster.stops(2)
    cluster.lose(2)
    right, cluster.directories[2] = cluster.directories[2], older
    cluster.back(2, end=3)
    cluster.tells(2, 3)
    assert cluster.partition().leader_id is None
    cluster.lose(2)
    cluster.directories[2] = right
    cluster.back(2)
    assert cluster.partition().leader_id == 2


def test_the_last_copy_is_waited_for_and_known_when_it_is_brought_back(cluster):
    only_2_in_sync(cluster).stops(2)
    right = cluster.directories[2]
    cluster.lose(2)
    cluster.directories[2] = Directory(SECOND)
    cluster.back(2, logs=())
    assert set(cluster.image.lost) == {2}
    offline = [one for one in cluster.incidents if isinstance(one, PartitionOffline)]
    assert offline
    for broker_id in (0, 1):
        cluster.back(broker_id)
        cluster.tells(broker_id, 5)
    cluster.tells(2, 0)
    assert cluster.partition().leader_id is None
    # Its present directory, used again, does not become the one that is waited for.
    cluster.stops(2)
    cluster.lose(2)
    cluster.back(2, end=0)
    cluster.tells(2, 0)
    assert cluster.partition().leader_id is None
    cluster.lose(2)
    cluster.directories[2] = right
    cluster.back(2)
    assert cluster.partition().leader_id == 2
    assert cluster.image.lost == {}


def test_what_is_waited_for_outlives_controllers_and_snapshots(cluster):
    only_2_in_sync(cluster).lose(2)
    cluster.directories[2] = Directory(SECOND)
    cluster.back(2, logs=())
    lost = dict(cluster.image.lost)
    assert set(lost) == {2}
    mirror = MetadataImage()
    mirror.load(cluster.model.controller._image.snapshot_records(), len(cluster.model.log))
    assert mirror.topics["t"].partitions[0].lost == lost
    cluster.another_controller()
    cluster.heartbeat(2)
    cluster.tells(2, 0)
    assert cluster.image.lost == lost
    assert cluster.partition().leader_id is None


def test_a_log_that_is_missing_is_known_once_somebody_puts_it_back(cluster):
    only_2_in_sync(cluster).stops(2)
    cluster.lose(2)
    cluster.back(2, missing=True)
    assert cluster.partition().leader_id is None
    cluster.stops(2)
    cluster.lose(2)
    cluster.back(2, missing=True)
    assert cluster.partition().leader_id is None
    cluster.stops(2)
    cluster.lose(2)
    cluster.back(2)
    assert cluster.partition().leader_id == 2


def test_with_unclean_election_a_lost_copy_leads_only_where_no_other_is():
    cluster = Cluster().begin(unclean=True)
    only_2_in_sync(cluster).lose(2)  # and nobody else lives
    cluster.directories[2] = Directory(SECOND)
    cluster.back(2, logs=())
    assert cluster.partition().leader_id is None
    cluster.back(1)
    assert cluster.partition().leader_id == 1


def test_a_majority_that_was_killed_elects_its_longest_without_the_rest(cluster):
    all_stopped(cluster, killed=(0, 1, 2))
    cluster.back(0, end=3)
    cluster.tells(0, 3)
    assert cluster.partition().leader_id is None
    cluster.back(1)
    cluster.tells(1, 5)
    assert cluster.partition().leader_id == 1


def test_a_directory_used_since_it_was_registered_last_is_as_it_was(cluster):
    """It was registered once more, and never took part: the marker of before still holds."""
    cluster.stops(2)
    cluster.lose(2)
    marker, note = cluster.directories[2].marker, cluster.directories[2].note
    cluster.registers(2)
    cluster.directories[2].marker, cluster.directories[2].note = marker, note
    cluster.lose(2)
    cluster.registers(2)
    registered = [one for one in cluster.incidents if isinstance(one, BrokerRegistered)]
    assert not registered[-1].unclean
    assert not registered[-1].other_directory


def test_in_which_epoch_a_broker_took_part_outlives_a_snapshot(cluster):
    cluster.lose(2)
    epoch = cluster.epochs[2]
    cluster.registers(2)
    image = cluster.model.controller._image
    mirror = MetadataImage()
    mirror.load(image.snapshot_records(), len(cluster.model.log))
    found: BrokerImage = mirror.brokers[2]
    assert found.active_epoch == epoch == image.brokers[2].active_epoch
    assert found.registration == image.brokers[2].registration
    assert found.directory == image.brokers[2].directory
