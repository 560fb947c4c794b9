"""What holds of a log at any moment: what was answered is there, what was refused left nothing."""

from __future__ import annotations

import itertools
from typing import Any

from replog.errors import ReplogError
from replog.types import TopicPartition
from tests.crash.workload import batches_in
from tests.faults.finding import Finding, require
from tests.faults.model import (
    PartitionModel,
    State,
    Version,
    assigned,
    is_filler,
    mismatch,
    spans,
    transactions,
    with_fillers,
)
from tests.faults.plan import Partition, World

READ_BYTES = 1 << 20


def content_of(log: Any) -> bytes:
    """All that can be read, from the log start on."""
    parts = []
    offset = log.log_start_offset
    while True:
        piece = log.read(offset, READ_BYTES)
        if not piece.size_bytes:
            return b"".join(parts)
        parts.append(bytes(memoryview(piece)))
        require(piece.end_offset > offset, "read", f"a read from {offset} ends there")
        offset = piece.end_offset


def state_of(log: Any) -> State:
    batches = tuple(batches_in(content_of(log)))
    return State(log.log_start_offset, log.log_end_offset, batches, tuple(log.epoch_entries))


def take_fillers(partition: Partition) -> None:
    """Count an empty batch that the log has put into a hole since."""
    model = partition.model
    holes = model.state.end != model.state.dense_end
    if holes and not model.failed:
        try:
            content = content_of(partition.log)
        except Exception as error:
            raise Finding("read", f"{type(error).__name__}: {error}") from error
        if any(is_filler(batch) for batch in batches_in(content)):
            own = model.state.content
            if content.startswith(own):
                more = batches_in(content[len(own) :])
                if more and is_filler(more[0]) and more[0].last_offset < model.state.end:
                    model.state = model.state._replace(batches=(*model.state.batches, more[0]))


def check(key: TopicPartition, partition: Partition, world: World) -> None:
    """After each step: the log is as the model says."""
    log, model = partition.log, partition.model
    if model.failed:
        check_failed(key, partition)
        return
    state = model.state
    require(not log.failed, "fails-unsaid", f"{key} has failed and did not say so")
    ends = (log.log_start_offset, log.log_end_offset)
    require(ends == (state.start, state.end), "ends", f"{key}: {ends}, wanted {state[:2]}")
    try:
        content = content_of(log)
    except Exception as error:
        raise Finding("read", f"{key}: {type(error).__name__}: {error}") from error
    if content != state.content:
        state = model.state = with_fillers(state, content)
        if content != state.content:
            found = spans(batches_in(content))
            raise Finding("content", f"{key}: {found}, wanted {spans(list(state.batches))}")
    epochs = tuple(log.epoch_entries)
    if epochs != state.epochs:
        # With no batch left the entries may be gone, too.
        require(not state.batches and not epochs, "epochs", f"{key}: {epochs}, {state.epochs}")
        model.state = state._replace(epochs=epochs)
    check_derived(key, log, model)


def check_derived(key: TopicPartition, log: Any, model: PartitionModel) -> None:
    """High watermark, last stable offset, producers."""
    state = model.state
    watermark = state.end
    if model.watermark is not None:
        model.watermark = watermark = max(state.start, min(model.watermark, state.end))
    found = log.high_watermark
    require(found == watermark, "watermark", f"{key}: {found}, wanted {watermark}")
    if any(batch.transactional for batch in state.batches) and not model.cut_open:
        unstable = [
            t
            for t in transactions(state.batches, model.cut_open)
            if t.last_offset is None or t.last_offset >= watermark
        ]
        wanted = min([watermark, *(max(t.first_offset, state.start) for t in unstable)])
        # As Kafka, a log that is opened, or cut, forgets which ended behind the high watermark.
        open_ones = [max(t.first_offset, state.start) for t in unstable if t.last_offset is None]
        least = min([watermark, *open_ones])
        found = log.last_stable_offset
        holds = wanted <= found <= least if model.watermark is not None else found == wanted
        require(holds, "stable", f"{key}: last stable offset {found}, wanted {wanted}")
    producers = {
        batch.producer_id: batch.last_sequence
        for batch in state.batches
        if batch.producer_id >= 0 and not batch.ends_transaction
    }
    if producers:
        known = {entry.producer_id: entry.last_sequence for entry in log.producer_entries}
        wrong = {p: s for p, s in producers.items() if known.get(p) != s}
        require(not wrong, "producers", f"{key}: {known}, the batches say {producers}")


def check_failed(key: TopicPartition, partition: Partition) -> None:
    """A failed log stays failed; what it reads is of the log before, or after, its last work."""
    log, model = partition.log, partition.model
    require(log.failed, "failed-log-heals", f"{key} is healthy again")
    try:
        content = content_of(log)
    except ReplogError:
        return
    except Exception as error:
        raise Finding("untyped", f"{key}: {type(error).__name__}: {error}") from error
    known = {batch.content for batch in model.state.batches}
    for version in model.between:
        known |= {batch.content for batch in version.state.batches}
    for batch in batches_in(content):
        require(
            batch.content in known or is_filler(batch), "content", f"{key}: foreign {batch[:3]}"
        )


def check_views(world: World) -> None:
    for view, content in world.views:
        require(bytes(view) == content, "view", "a held view has other bytes now")


def reopened(
    key: TopicPartition, log: Any, model: PartitionModel, *, by_power: bool, clean: bool
) -> None:
    """What was found must be what the stop may leave; the model goes on from there."""
    try:
        found = state_of(log)
    except Exception as error:
        raise Finding("reopen", f"{key}: {type(error).__name__}: {error}") from error
    versions = model.after_power() if by_power else model.after_kill()
    if clean and not model.failed:
        versions = [Version(model.state, model.state.dense_end, model.state.start)]
    holes = by_power and log.config.compacted
    reasons = [mismatch(found, version, holes=holes) for version in versions]
    if all(reasons):
        held = "; ".join(dict.fromkeys(map(str, reasons)))
        raise Finding("lost", f"{key} [{found.start}, {found.end}): {held}")
    check_epochs(key, found, model)
    ends = log.config.compacted or found.end == found.dense_end
    require(ends, "ends", f"{key}: it ends at {found.end}, behind {spans(list(found.batches))}")
    model.reopened(found, by_power=by_power)
    if not clean or model.watermark is not None:
        model.watermark = log.high_watermark if log.follows_high_watermark else None
    check_derived(key, log, model)


def take_epoch(partition: Partition) -> None:
    """A refused append may have noted its epoch: one without records, as assign_epoch leaves."""
    state = partition.model.state
    found = tuple(partition.log.epoch_entries)
    if found and found[-1][1] == state.end and found != state.epochs:
        noted = assigned(state.epochs, *found[-1])
        if noted == found:
            partition.model.state = state._replace(epochs=found)


def check_epochs(key: TopicPartition, found: State, model: PartitionModel) -> None:
    """The epochs of a log just opened are those of its batches, and of holes between them."""
    told = [entry for entry in found.epochs if entry[1] < found.end]
    wrong = [
        batch.base_offset
        for batch in found.batches
        if not is_filler(batch)
        and batch.leader_epoch != epoch_at(told, max(batch.base_offset, found.start))
    ]
    known = {entry for version in model.after_kill() for entry in version.state.epochs}
    known |= {(batch.leader_epoch, batch.base_offset) for batch in found.batches}
    # The entry of the log start is of records that are gone, perhaps with all of their epoch.
    foreign = [entry for entry in told if entry not in known and entry[1] > found.start]
    ascending = all(a < b for a, b in itertools.pairwise(told))
    foreign += [entry for entry in found.epochs if entry[0] > model.epoch_tried]
    holds = ascending and not wrong and not foreign
    require(holds, "epochs", f"{key}: {found.epochs}; foreign {foreign}, wrong of batches {wrong}")


def epoch_at(entries: list[tuple[int, int]], offset: int) -> int:
    return max((epoch for epoch, start in entries if start <= offset), default=-1)
