"""A consumer follows the replica that its leader names, and comes back to the leader (KIP-392)."""

import asyncio
import uuid
from types import SimpleNamespace

import pytest

from replog.client.consumer import LEADER_ONLY_MS, PREFERENCE_MS_MAX, Consumer
from replog.errors import LogDivergedError, OffsetOutOfRangeError
from replog.messages import ErrorCode, FetchedPartition, FetchResponse
from replog.types import EpochEndOffset, Record, TopicPartition

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=1)


class Records:
    """One record at `offset`."""

    def __init__(self, offset):
        self.end_offset = offset + 1

    def __len__(self):
        return 1

    def epoch_before(self, _):
        return 3

    def records(self, **_):
        return iter([Record(self.end_offset - 1, -1, 0, 3, None, b"", ())])


class Connection:
    """Brokers 1 (leads), 2 and 3; the leader names 2, unless `named` says otherwise."""

    def __init__(self):
        self.loop = self
        self.now = 0.0
        self.named = 2
        self.asked = []
        self.racks = set()
        self.refused = {}
        self.diverges = set()
        self.claims = []
        self.registration = SimpleNamespace(
            topic_id=TOPIC_ID, leader_id=1, leader_epoch=3, isr=(1, 2, 3)
        )

    def time(self):
        return self.now

    def create_future(self):
        return asyncio.get_running_loop().create_future()

    def call_later(self, _, call):
        return asyncio.get_running_loop().call_soon(call)

    def partition(self, _):
        return self.registration

    def on_metadata_change(self, _):
        return lambda: None

    def give_up(self, _):
        pass

    def ask(self, broker_id, request, answered):
        self.asked.append(broker_id)
        self.racks.add(request.rack)
        [wanted] = request.partitions
        self.claims.append(wanted.last_fetched_epoch)
        fields = {"records": Records(wanted.fetch_offset), "high_watermark": 99}
        if broker_id == self.registration.leader_id and self.named is not None and request.rack:
            fields = {"preferred_read_replica": self.named}
        if broker_id in self.refused:
            fields = {"error": self.refused[broker_id]}
        if broker_id in self.diverges and wanted.last_fetched_epoch >= 0:
            fields = {"diverging_epoch": EpochEndOffset(2, 4)}
        response = FetchResponse((FetchedPartition(topic_partition=PARTITION, **fields),))
        asyncio.get_running_loop().call_soon(answered, response)
        return len(self.asked)

    def asked_since(self):
        asked, self.asked = self.asked, []
        return asked


def play(scenario):
    connection = Connection()
    asyncio.run(scenario(connection, Consumer(connection, PARTITION, start=5, rack="b")))
    assert connection.racks <= {"b", None}


def test_the_leader_is_asked_again_when_the_time_is_up():
    async def scenario(connection, reader):
        await reader.next_slice()
        await reader.next_slice()
        assert connection.asked_since() == [1, 2, 2]
        connection.now = PREFERENCE_MS_MAX / 1000
        await reader.next_slice()
        assert connection.asked_since() == [1, 2]

    play(scenario)


@pytest.mark.parametrize(("leader_id", "leader_epoch", "isr"), [(1, 3, (1, 3)), (3, 4, (1, 2, 3))])
def test_the_leader_is_asked_again_when_the_replica_is_out_or_another_leads(
    leader_id, leader_epoch, isr
):
    async def scenario(connection, reader):
        await reader.next_slice()
        connection.asked_since()
        connection.named = None
        connection.registration = SimpleNamespace(
            topic_id=TOPIC_ID, leader_id=leader_id, leader_epoch=leader_epoch, isr=isr
        )
        await reader.next_slice()
        assert connection.asked_since() == [leader_id]

    play(scenario)


@pytest.mark.parametrize("error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_what_a_follower_refuses_is_asked_of_the_leader(error):
    async def scenario(connection, reader):
        await reader.next_slice()
        connection.asked_since()
        connection.refused = {2: error}
        for asked in ([2, 1], [1]):
            await reader.next_slice()
            assert connection.asked_since() == asked
        connection.refused = {}
        connection.now += LEADER_ONLY_MS / 1000
        await reader.next_slice()
        assert connection.asked_since() == [1, 2]
        connection.refused = {2: error}
        await reader.next_slice()
        connection.refused = {1: ErrorCode.OFFSET_OUT_OF_RANGE}
        with pytest.raises(OffsetOutOfRangeError):
            await reader.next_slice()

    play(scenario)


def test_a_replica_that_is_not_in_sync_as_far_as_we_know_is_not_asked_for_again_and_again():
    async def scenario(connection, reader):
        connection.registration = SimpleNamespace(
            topic_id=TOPIC_ID, leader_id=1, leader_epoch=3, isr=(1, 3)
        )
        for asked in ([1, 1], [1]):
            await reader.next_slice()
            assert connection.asked_since() == asked

    play(scenario)


def test_a_follower_that_is_behind_what_was_read_tells_of_no_loss():
    """Its log may not reach as far as its leader's: only the leader knows."""

    async def scenario(connection, reader):
        await reader.next_slice()
        connection.diverges = {2}
        await reader.next_slice()
        assert connection.asked_since() == [1, 2, 2, 1]
        assert reader.position == 7

    play(scenario)


def test_the_leader_is_told_in_which_epoch_the_last_record_was_read():
    """Until it was read, or where the position was set, there is nothing to tell."""

    async def scenario(connection, reader):
        connection.named = None
        await reader.next_slice()
        await anext(reader)
        reader.position = 40
        await anext(reader)
        await reader.next_slice()
        assert connection.claims == [-1, 3, -1, 3]

    play(scenario)


def test_a_reader_that_is_told_of_another_history_raises_until_its_position_is_set():
    async def scenario(connection, reader):
        connection.named = None
        await reader.next_slice()
        connection.diverges = {1}
        for _ in range(2):
            with pytest.raises(LogDivergedError) as raised:
                await anext(reader)
            error = raised.value
            assert (error.offset, error.leader_epoch, error.diverging_offset) == (6, 3, 4)
            assert isinstance(error, OffsetOutOfRangeError)
        reader.position = error.diverging_offset
        assert (await reader.next_slice()).start_offset == 4

    play(scenario)
