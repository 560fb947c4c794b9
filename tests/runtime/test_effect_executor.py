"""The executor over logs in memory: order, records in responses, and logs that fail."""

from __future__ import annotations

import uuid

import pytest

from replog.errors import (
    CorruptBatchError,
    LogFailedError,
    NoSpaceError,
    OffsetOutOfRangeError,
    OutOfDescriptorsError,
    UsageError,
)
from replog.messages import (
    DeletedRecords,
    DeleteRecordsResponse,
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LogRead,
)
from replog.replication import effects as fx
from replog.replication import events as ev
from replog.runtime.effect_executor import EffectExecutor
from replog.runtime.journal import Journal
from replog.runtime.ports import Ports
from replog.types import TopicPartition

ONE, OTHER, THIRD = (TopicPartition("orders", number) for number in range(3))


class FakeLog:
    """Batches of ten bytes each, one an offset; fails on demand."""

    def __init__(self, calls, name, end_offset=10):
        self.calls = calls
        self.name = name
        self.end_offset = end_offset
        self.error = None

    def _do(self, *call):
        if self.error is not None:
            raise self.error
        self.calls.append((self.name, *call))

    def append_as_leader(self, batches, epoch):
        self._do("append_as_leader", batches, epoch)
        base = self.end_offset
        self.end_offset += 1
        return ev.LeaderAppendCompleted(
            topic_partition=ONE, append_id=0, base_offset=base, last_offset=base
        )

    def append_as_follower(self, batches):
        self._do("append_as_follower", batches)

    def assign_epoch(self, epoch, offset):
        self._do("assign_epoch", epoch, offset)

    def read(self, start, max_bytes, end):
        self._do("read", start, max_bytes, end)
        count = min(end, self.end_offset) - start
        return b"." * max(10 if count > 0 else 0, min(count * 10, max_bytes))

    def aborted_transactions(self, start, end):
        return [(start, end)]

    def set_high_watermark(self, offset):
        self._do("set_high_watermark", offset)

    def truncate_to(self, offset):
        self._do("truncate_to", offset)

    def truncate_fully_and_start_at(self, offset):
        self._do("truncate_fully_and_start_at", offset)

    def truncate_prefix_to(self, offset):
        self._do("truncate_prefix_to", offset)


class World:
    """Store, network and flush scheduler in one, which write down what is asked of them."""

    def __init__(self):
        self.calls = []
        self.logs = {key: FakeLog(self.calls, key.partition) for key in (ONE, OTHER, THIRD)}
        self.get = self.logs.get
        self.script = {}
        self.events = []
        self.journal = Journal(1)
        self.faults = []
        self.executor = EffectExecutor(
            self.core,
            Ports(store=self, network=self, flushes=self),
            self.journal,
            lambda n: 2 * n,
            lambda fault, _: self.faults.append(fault),
        )

    def settle_ahead(self, appends):
        self.calls.append(("settle_ahead", appends))

    def core(self, event, now_ms, more):
        self.events.append(event)
        return self.script.pop(type(event), [])

    def run(self, *effects):
        self.script[ev.Tick] = list(effects)
        self.executor.step(ev.Tick(), 5)
        return self.events[1:]

    def respond(self, request_id, response):
        self.calls.append(("respond", request_id))
        self.response = response

    def send_to_broker(self, request_id, to, request):
        self.calls.append(("send", request_id, to))

    def send_to_controller(self, request_id, request):
        self.calls.append(("send to controller", request_id))

    def flush(self, topic_partition, log):
        self.calls.append((log.name, "flush"))

    def set_aside(self, topic_partition):
        self.logs[topic_partition].error = None
        self.calls.append((topic_partition.partition, "set aside"))

    def delete(self, topic_partition):
        self.calls.append((topic_partition.partition, "delete"))

    def checkpoint_high_watermarks(self):
        self.calls.append("checkpoint")


@pytest.fixture
def world():
    return World()


def test_effects_are_carried_out_in_list_order_and_completions_fed_back_afterwards(world):
    completions = world.run(
        fx.AssignEpoch(ONE, 3, 10),
        fx.AppendAsLeader(ONE, 7, b"batch", 3),
        fx.FlushLog(ONE),
        fx.SetHighWatermark(ONE, 11),
        fx.SendRequest(4, 2, None),
        fx.SendToController(5, None),
        fx.Respond(6, None),
        fx.TruncateLog(OTHER, 3, fx.TruncationCause.DIVERGING_EPOCH),
        fx.TruncateFullyAndStartAt(THIRD, 8, fx.TruncationCause.OUT_OF_RANGE),
        fx.AppendAsFollower(OTHER, b"theirs"),
        fx.AdvanceLogStart(ONE, 2),
        fx.DeleteLog(THIRD),
        fx.CheckpointHighWatermarks(),
    )
    assert world.calls == [
        (0, "assign_epoch", 3, 10),
        (0, "append_as_leader", b"batch", 3),
        (0, "flush"),
        (0, "set_high_watermark", 11),
        ("send", 8, 2),
        ("send to controller", 10),
        ("respond", 6),
        (1, "truncate_to", 3),
        (2, "truncate_fully_and_start_at", 8),
        (1, "append_as_follower", b"theirs"),
        (0, "truncate_prefix_to", 2),
        (2, "delete"),
        "checkpoint",
    ]
    assert [type(event) for event in completions] == [
        ev.LeaderAppendCompleted,
        ev.TruncationCompleted,
        ev.TruncationCompleted,
        ev.FollowerAppendCompleted,
    ]
    assert (completions[0].append_id, completions[0].base_offset) == (7, 10)


def test_effects_of_a_completion_come_after_those_of_the_event(world):
    world.script[ev.LeaderAppendCompleted] = [fx.SetHighWatermark(ONE, 11)]
    world.run(fx.AppendAsLeader(ONE, 1, b"a", 0), fx.AppendAsLeader(OTHER, 2, b"b", 0))
    assert [call[1] for call in world.calls] == [
        "append_as_leader",
        "append_as_leader",
        "set_high_watermark",
    ]


def reads(*limits, start=0):
    return FetchResponse(
        partitions=tuple(
            FetchedPartition(
                topic_partition=key,
                high_watermark=9,
                records=LogRead(start_offset=start, end_offset=10, max_bytes=limit),
            )
            for key, limit in zip((ONE, OTHER, THIRD), limits, strict=False)
        ),
        session_id=4,
    )


def sizes(world):
    return [
        None if partition.records is None else len(partition.records)
        for partition in world.response.partitions
    ]


def test_records_of_a_response_stay_within_the_partitions_limit_and_its_own(world):
    world.run(fx.Respond(1, reads(30, 100, 100), max_bytes=80))
    assert sizes(world) == [30, 50, None]
    assert world.response.session_id == 4
    assert world.response.partitions[2].high_watermark == 9


def test_the_first_records_come_whole_however_large_and_only_the_first(world):
    world.run(fx.Respond(1, reads(3, 3), max_bytes=5))
    assert sizes(world) == [10, None]


def test_a_batch_that_does_not_fit_behind_the_first_waits_for_its_turn(world):
    world.run(fx.Respond(1, reads(10, 100), max_bytes=15))
    assert sizes(world) == [10, None]


def test_an_empty_partition_does_not_use_up_the_right_of_the_first(world):
    world.logs[ONE].end_offset = 0
    world.run(fx.Respond(1, reads(3, 3), max_bytes=5))
    assert sizes(world) == [None, 10]


def test_aborted_transactions_come_with_a_committed_read(world):
    read = LogRead(start_offset=2, end_offset=9, max_bytes=100, read_committed=True)
    response = FetchResponse(partitions=(FetchedPartition(topic_partition=ONE, records=read),))
    world.run(fx.Respond(1, response, max_bytes=100))
    assert world.response.partitions[0].aborted == ((2, 9),)


@pytest.mark.parametrize(
    "effect",
    [
        fx.AssignEpoch(ONE, 1, 0),
        fx.SetHighWatermark(ONE, 1),
        fx.AdvanceLogStart(ONE, 1),
        fx.TruncateLog(ONE, 1, fx.TruncationCause.DIVERGING_EPOCH),
        fx.TruncateFullyAndStartAt(ONE, 1, fx.TruncationCause.OUT_OF_RANGE),
        fx.Respond(1, reads(10), max_bytes=10),
    ],
    ids=lambda effect: type(effect).__name__,
)
def test_a_log_that_fails_becomes_unavailable(world, effect):
    world.logs[ONE].error = LogFailedError("the disk is gone")
    [event] = world.run(effect)
    assert event == ev.LogUnavailable(
        topic_partition=ONE, error=world.logs[ONE].error, damaged=False
    )


def test_damage_found_by_a_read_is_told_as_damage_and_answered_as_a_storage_error(world):
    world.logs[ONE].error = CorruptBatchError("byte 7")
    [event] = world.run(fx.Respond(1, reads(10, 10), max_bytes=100))
    assert event.damaged
    assert world.faults == [event]
    assert [partition.error for partition in world.response.partitions] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    ]


def test_what_the_core_could_not_ask_of_a_log_is_told_as_what_the_log_said(world):
    [event] = world.run(fx.GiveUpLog(ONE, CorruptBatchError("byte 7")))
    assert event.damaged
    assert world.faults == [event]


def test_a_read_that_nobody_could_answer_is_refused_and_the_log_stays(world):
    world.logs[ONE].error = UsageError("expected an offset")
    assert world.run(fx.Respond(1, reads(10), max_bytes=100)) == []
    assert world.response.partitions[0].error is ErrorCode.INVALID_REQUEST


def test_an_offset_that_is_gone_is_out_of_range_and_the_log_stays(world):
    world.logs[ONE].error = OffsetOutOfRangeError("gone")
    assert world.run(fx.Respond(1, reads(10), max_bytes=100)) == []
    assert world.response.partitions[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_nothing_is_done_to_a_log_after_an_effect_on_it_has_failed(world):
    """Persist, then send: what stands behind a failed effect must not be carried out."""
    world.logs[ONE].error = LogFailedError("no epoch")
    world.script[ev.Tick] = [
        fx.AssignEpoch(ONE, 1, 0),
        fx.AppendAsLeader(ONE, 1, b"a", 1),
        fx.SetHighWatermark(ONE, 1),
        fx.AppendAsLeader(OTHER, 2, b"b", 1),
    ]
    assign = world.executor._carry_out[fx.AssignEpoch]

    def mended(effect):
        event = assign(effect)
        world.logs[ONE].error = None
        return event

    world.executor._carry_out[fx.AssignEpoch] = mended
    world.executor.step(ev.Tick(), 5)
    assert world.calls == [(1, "append_as_leader", b"b", 1)]
    assert [type(event) for event in world.events[1:]] == [
        ev.LogUnavailable,
        ev.LeaderAppendFailed,
        ev.LeaderAppendCompleted,
    ]


def test_nobody_is_told_of_a_log_start_that_could_not_be_moved(world):
    """Neither the leader by a fetch, nor a client by an answer: it would be there again later."""
    world.logs[ONE].error = LogFailedError("gone")
    asked = [
        FetchPartition(topic_partition=one, topic_id=uuid.UUID(int=1), fetch_offset=9)
        for one in (ONE, OTHER)
    ]
    answers = tuple(DeletedRecords(topic_partition=one, low_watermark=9) for one in (ONE, OTHER))
    events = world.run(
        fx.AdvanceLogStart(ONE, 9),
        fx.SendRequest(1, 2, FetchRequest(partitions=(asked[0], asked[1]))),
        fx.SendRequest(2, 3, FetchRequest(partitions=(asked[1],))),
        fx.Respond(7, DeleteRecordsResponse(partitions=answers)),
    )
    assert [type(event) for event in events] == [ev.LogUnavailable, ev.RequestFailed]
    assert events[1].request_id == 1
    assert [call for call in world.calls if call[0] == "send"] == [("send", 4, 3)]
    first, second = world.response.partitions
    assert (first.error, first.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert second == answers[1]


def test_a_refused_append_leaves_the_log_and_a_failed_disk_takes_it(world):
    world.logs[ONE].error = CorruptBatchError("what the client sent")
    assert [type(event) for event in world.run(fx.AppendAsLeader(ONE, 1, b"a", 1))] == [
        ev.LeaderAppendFailed
    ]
    world.events.clear()
    world.logs[ONE].error = LogFailedError("EIO")
    assert [type(event) for event in world.run(fx.AppendAsFollower(ONE, b"a"))] == [
        ev.FollowerAppendFailed,
        ev.LogUnavailable,
    ]


def test_a_log_that_was_set_aside_can_be_used_again(world):
    world.logs[ONE].error = CorruptBatchError("rot")
    assert [type(event) for event in world.run(fx.SetAsideLog(ONE))] == [ev.LogReplaced]


def test_a_report_goes_into_the_journal_and_the_journal_is_bounded(world):
    world.run(fx.Report("incident"))
    assert [tuple(entry) for entry in world.journal.incidents()] == [(1, 5, "incident", None)]
    small = Journal(None, entries_max=2)
    for number in range(5):
        small.add(number, number)
    assert [entry.incident for entry in small] == [3, 4]


def test_appends_of_one_answer_are_settled_together_before_the_first_of_them():
    world = World()
    answer = ev.ResponseReceived(1, None)
    appends = [fx.AppendAsFollower(ONE, b"1"), fx.AppendAsFollower(OTHER, b"2")]
    world.script[ev.ResponseReceived] = appends
    world.executor.step(answer, 0)
    assert world.calls == [
        ("settle_ahead", [(ONE, b"1"), (OTHER, b"2")]),
        (0, "append_as_follower", b"1"),
        (1, "append_as_follower", b"2"),
    ]


@pytest.mark.parametrize("error", [NoSpaceError("full"), OutOfDescriptorsError("none left")])
def test_a_log_start_that_finds_no_room_keeps_the_log_and_nobody_hears_that_it_moved(world, error):
    world.logs[ONE].error = error
    answer = DeleteRecordsResponse(
        partitions=(
            DeletedRecords(topic_partition=ONE, low_watermark=4),
            DeletedRecords(topic_partition=OTHER, low_watermark=4),
        )
    )
    claim = FetchRequest(
        partitions=(FetchPartition(topic_partition=ONE, topic_id=uuid.uuid4(), fetch_offset=9),),
        replica_id=1,
    )
    events = world.run(
        fx.AdvanceLogStart(ONE, 4), fx.Respond(1, answer, max_bytes=0), fx.SendRequest(2, 3, claim)
    )
    assert events == [ev.LogStartKept(topic_partition=ONE), ev.RequestFailed(request_id=2)]
    assert not world.faults
    assert [deleted.error for deleted in world.response.partitions] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    ]
    world.logs[ONE].error = None
    world.script[ev.Tick] = [fx.Respond(1, answer, max_bytes=0)]
    world.executor.step(ev.Tick(), 6)
    assert [deleted.error for deleted in world.response.partitions] == [ErrorCode.NONE] * 2
