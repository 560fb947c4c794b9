"""The verbs that write, and the table of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replog._native import record_encoder
from replog.errors import (
    OffsetOutOfRangeError,
    ProducerError,
    RecordBatchTooLargeError,
    ReplogError,
)
from tests.crash.workload import Batch
from tests.faults import reading
from tests.faults.finding import Finding, require
from tests.faults.model import State, Version, assigned
from tests.faults.plan import (
    PLAIN_PRODUCER,
    TRANSACTIONAL_PRODUCERS,
    Partition,
    Plan,
    Verb,
    World,
    encoded_of,
    stamped,
    timestamp_of,
    values_of,
)

WIDE_GAP = (1 << 31) + 5


def appending(
    partition: Partition, world: World, batches: list[Batch], act: Callable[[], Any]
) -> Plan:
    model = partition.model
    model.epoch_tried = max(model.epoch_tried, batches[-1].leader_epoch)
    before, after = model.state, model.state.appended(batches)

    def done(answer: Any) -> None:
        wanted = (batches[0].base_offset, batches[-1].last_offset)
        require((answer.base_offset, answer.last_offset) == wanted, "answer", f"{answer}: {wanted}")
        require(not answer.duplicate, "answer", "it is told to be a duplicate")
        model.moved(after)
        if world.commits:
            model.synced()

    leaves = (Version(after, before.dense_end, before.start),)
    return Plan(act, done, leaves, (ProducerError, RecordBatchTooLargeError))


def append(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    return append_values(partition, world, numbers, 1 + numbers[0] % 4)


def append_much(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    """More than a segment holds."""
    number = numbers[1] - numbers[1] % 37 + 36
    count = world.segment_bytes // 45 + numbers[0] % 40
    return append_values(partition, world, (numbers[0], number), count)


def append_values(partition: Partition, world: World, numbers: tuple[int, ...], count: int) -> Plan:
    log, state = partition.log, partition.model.state
    values = values_of(world, numbers[1], count)
    keys = [b"k%d" % (numbers[1] % 5)] * count
    stamp = timestamp_of(world, numbers[1])
    encoded = record_encoder.encode(
        values, keys, stamp, now_ms=world.now_ms, batch_bytes_max=world.segment_bytes
    )
    batches = stamped(bytes(encoded), state.end, partition.model.epoch)
    epoch = None if state.batches else partition.model.epoch
    return appending(
        partition, world, batches, lambda: log.append(values, keys, stamp, leader_epoch=epoch)
    )


def append_as_leader(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    """One to three batches in one call, at times of a new epoch."""
    log, model = partition.log, partition.model
    parts = [
        encoded_of(world, numbers[1] + part, 1 + numbers[0] % 3) for part in range(numbers[2] % 3)
    ]
    encoded = b"".join([*parts, encoded_of(world, numbers[1] % 60, 1)])
    epoch = model.epoch + (numbers[3] % 3 == 0)
    batches = stamped(encoded, model.state.end, epoch)
    return appending(partition, world, batches, lambda: log.append_as_leader(encoded, epoch))


def append_as_producer(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    producer = (PLAIN_PRODUCER, *TRANSACTIONAL_PRODUCERS)[numbers[0] % 3]
    known = {entry.producer_id: entry.last_sequence for entry in log.producer_entries}
    encoded = encoded_of(
        world, numbers[1], 1 + numbers[2] % 3, producer_id=producer, producer_epoch=0,
        base_sequence=known.get(producer, -1) + 1, transactional=producer != PLAIN_PRODUCER,
    )  # fmt: skip
    epoch = model.epoch
    batches = stamped(encoded, model.state.end, epoch)
    plan = appending(partition, world, batches, lambda: log.append_as_leader(encoded, epoch))
    told = plan.done

    def done(answer: Any) -> None:
        told(answer)
        if producer == PLAIN_PRODUCER:
            partition.last_sent = (encoded, answer.base_offset, answer.last_offset)

    plan.done = done
    return plan


def repeat(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    """A producer sends its last batch again: the answer is that of the first time."""
    log, model = partition.log, partition.model
    own = [b for b in model.state.batches if b.producer_id == PLAIN_PRODUCER]
    sent = partition.last_sent
    if sent is None or not own or own[-1].base_offset != sent[1]:
        return append(partition, world, numbers)
    encoded, base_offset, last_offset = sent
    if stamped(encoded, base_offset, own[-1].leader_epoch)[0].content != own[-1].content:
        return append(partition, world, numbers)
    epoch = model.epoch

    def done(answer: Any) -> None:
        found = (answer.duplicate, answer.base_offset, answer.last_offset)
        wanted = (True, base_offset, last_offset)
        require(found == wanted, "answer", f"{found} of a duplicate, wanted {wanted}")

    return Plan(lambda: log.append_as_leader(encoded, epoch), done)


def end_transaction(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    encoded = bytes(
        record_encoder.encode_control(
            int(numbers[1] % 3 == 0),
            producer_id=TRANSACTIONAL_PRODUCERS[numbers[0] % 2],
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=timestamp_of(world, numbers[1]),
        )
    )
    epoch = model.epoch
    batches = stamped(encoded, model.state.end, epoch)
    return appending(
        partition, world, batches, lambda: log.append_as_leader(encoded, epoch, coordinator=True)
    )


def append_as_follower(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    """One to six batches of a leader, of up to two epochs, and the beginning of another."""
    log, model = partition.log, partition.model
    epoch, base_offset = model.epoch, model.state.end
    batches: list[Batch] = []
    for part in range(1 + numbers[0] % 6):
        epoch += (numbers[1] + part) % 5 == 0 and part < 2
        base_offset += world.compacted and (numbers[3] + part) % 4 == 0
        # More than a segment's offsets: the next one begins behind the gap.
        base_offset += WIDE_GAP if world.compacted and numbers[2] % 4 == 0 and not part else 0
        made = stamped(encoded_of(world, numbers[2] + part, 1 + part % 3), base_offset, epoch)
        base_offset = made[-1].last_offset + 1
        batches += made
    sent = b"".join([batch.content for batch in batches])
    sent += batches[-1].content[: numbers[3] % 70 if numbers[3] % 2 else 0]
    return appending(partition, world, batches, lambda: log.append_as_follower(sent))


def append_older(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    """A leader's batch of an epoch that is over: no log may take it."""
    log, model = partition.log, partition.model
    state = model.state
    if not state.batches or not state.batches[-1].leader_epoch:
        return append_as_follower(partition, world, numbers)
    epoch = state.batches[-1].leader_epoch - 1
    sent = stamped(encoded_of(world, numbers[0], 1), state.end, epoch)[0].content

    def wrong(answer: Any) -> None:
        raise Finding("older-epoch", f"{answer} of a batch of epoch {epoch} behind {epoch + 1}")

    return Plan(lambda: log.append_as_follower(sent), wrong, refusals=(ReplogError,))


def roll(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    return Plan(partition.log.roll, lambda _: None)


def flush(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    model = partition.model

    def done(answer: Any) -> None:
        require(answer == model.state.end, "answer", f"{answer}, the log ends at {model.state.end}")
        model.synced()

    return Plan(partition.log.flush, done)


def commit(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    model = partition.model
    end = model.state.end
    return Plan(lambda: partition.log.commit(end), lambda _: model.committed(), writes=False)


def checkpoint(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    return Plan(partition.log.checkpoint, lambda _: partition.model.synced())


def truncate_to(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    before = model.state
    low = before.start if numbers[1] % 6 else max(before.start - 5, 0)
    span = before.end - low
    # Mostly near the end, as followers cut.
    back = numbers[0] % (span + 2) if numbers[1] % 3 == 0 else numbers[0] % 12
    offset = max(low, before.end + 1 - back)
    if offset >= before.end:
        kept = tuple(entry for entry in before.epochs if entry[1] < before.end)

        def same(answer: Any) -> None:
            require(answer is False, "answer", f"{answer} of a cut behind the end")
            model.moved(before._replace(epochs=kept))

        return Plan(lambda: log.truncate_to(offset), same)
    after = before.cut(offset)

    def done(answer: Any) -> None:
        require(answer is True, "answer", f"{answer} of a cut to {offset}")
        model.cut(after)
        if model.watermark is not None:
            model.watermark = min(model.watermark, offset)

    return Plan(lambda: log.truncate_to(offset), done, cut_leaves(before, after, offset))


def cut_leaves(before: State, after: State, offset: int) -> tuple[Version, ...]:
    """A cut that fails half-way leaves any whole-batch prefix that holds what is kept."""
    start = min(before.start, offset)
    lowered = before._replace(start=max(before.start, start))
    if offset < before.start:  # all of it goes, in whatever order the names of its segments do
        return (Version(before, 0, 0, before.end), Version(after, 0, 0, before.end))
    return (Version(lowered, min(after.dense_end, offset), start), Version(after, 0, start))


def truncate_fully(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    before = model.state
    offset = numbers[0] % (before.end + 30)
    after = State(offset, offset, (), ())

    def done(answer: Any) -> None:
        model.cut(after)
        model.floor = model.start_min = offset
        model.cut_open.clear()
        if model.watermark is not None:
            model.watermark = offset

    # Any prefix of the old log, begun where either log begins.
    leaves = (
        Version(before, 0, 0, before.end),
        Version(after, 0, 0, before.end),
        *(Version(before.cut(b.base_offset), 0, 0) for b in before.batches[:1]),
    )
    return Plan(lambda: log.truncate_fully_and_start_at(offset), done, leaves)


def delete_records(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    before = model.state
    watermark = before.end if model.watermark is None else model.watermark
    offset = before.start + numbers[0] % (before.end - before.start + 2)
    if numbers[1] % 2:
        offset = min(offset, before.start + numbers[0] % 8)
    if offset > watermark:

        def wrong(answer: Any) -> None:
            raise Finding("answer", f"{answer}: records above the high watermark {watermark} went")

        return Plan(
            lambda: log.truncate_prefix_to(offset), wrong, refusals=(OffsetOutOfRangeError,)
        )

    def done(answer: Any) -> None:
        require(answer or offset <= before.start, "answer", f"{answer}: start {before.start}")
        model.moved_start(offset)
        model.start_min = max(model.start_min, offset)

    leaves = (Version(before.deleted_below(offset), before.dense_end, before.start),)
    return Plan(lambda: log.truncate_prefix_to(offset), done, leaves, may_move=offset)


def retention(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    before = model.state
    watermark = before.end if model.watermark is None else model.watermark

    def done(answer: Any) -> None:
        start = log.log_start_offset
        require(before.start <= start <= watermark, "answer", f"start {start}, was {before.start}")
        require(bool(answer) or start == before.start, "answer", f"start {start}, nothing went")
        model.moved_start(start)
        model.start_min = max(model.start_min, start) if answer else model.start_min

    whole = before.deleted_below(watermark)
    leaves = (Version(whole._replace(batches=before.batches), before.dense_end, before.start),)
    return Plan(log.apply_retention, done, leaves, may_move=watermark)


def assign_epoch(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    state = model.state
    epoch = model.epoch + numbers[0] % 3
    model.epoch_tried = max(model.epoch_tried, epoch)
    after = state._replace(epochs=assigned(state.epochs, epoch, state.end))

    def done(answer: Any) -> None:
        require(answer == (after.epochs != state.epochs), "answer", f"{answer}")
        model.moved(after)

    return Plan(lambda: log.assign_epoch(epoch, state.end), done)


def set_high_watermark(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    state = model.state
    asked = state.end - numbers[0] % 8 if numbers[1] % 3 else state.end
    asked = max(asked, 0)

    def done(answer: Any) -> None:
        model.watermark = max(state.start, min(asked, state.end))
        if not model.failed:
            require(answer == model.watermark, "answer", f"{answer}, wanted {model.watermark}")

    return Plan(lambda: log.set_high_watermark(asked), done, writes=False)


VERBS: dict[str, Verb] = {
    verb.__name__: verb
    for verb in (
        append,
        append_much,
        append_as_leader,
        append_as_producer,
        repeat,
        end_transaction,
        append_as_follower,
        append_older,
        roll,
        flush,
        commit,
        checkpoint,
        truncate_to,
        truncate_fully,
        delete_records,
        retention,
        assign_epoch,
        set_high_watermark,
        reading.read,
        reading.hold,
        reading.release,
        reading.records,
        reading.find_timestamp,
        reading.aborted,
        reading.wait,
    )
}
