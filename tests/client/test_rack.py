"""A consumer follows the replica that its leader names, and comes back to the leader (KIP-392)."""

import asyncio
from types import SimpleNamespace

import pytest

from replog.client.consumer import LEADER_ONLY_MS, PREFERENCE_MS_MAX, Consumer
from replog.errors import OffsetOutOfRangeError
from replog.messages import ErrorCode, FetchedPartition, FetchResponse
from replog.types import TopicPartition

PARTITION = TopicPartition("orders", 0)


class Records:
    """One record at `offset`."""

    def __init__(self, offset):
        self.end_offset = offset + 1

    def __len__(self):
        return 1


class Connection:
    """Brokers 1 (leads), 2 and 3; the leader names 2, unless `named` says otherwise."""

    def __init__(self):
        self.loop = self
        self.now = 0.0
        self.named = 2
        self.asked = []
        self.racks = set()
        self.refused = {}
        self.registration = SimpleNamespace(leader_id=1, leader_epoch=3, isr=(1, 2, 3))

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
        fields = {"records": Records(wanted.fetch_offset), "high_watermark": 99}
        if broker_id == self.registration.leader_id and self.named is not None and request.rack:
            fields = {"preferred_read_replica": self.named}
        if broker_id in self.refused:
            fields = {"error": self.refused[broker_id]}
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
            leader_id=leader_id, leader_epoch=leader_epoch, isr=isr
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
        connection.registration = SimpleNamespace(leader_id=1, leader_epoch=3, isr=(1, 3))
        for asked in ([1, 1], [1]):
            await reader.next_slice()
            assert connection.asked_since() == asked

    play(scenario)
