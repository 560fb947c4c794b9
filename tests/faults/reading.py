"""The verbs that read: what they answer is what the model says."""

from __future__ import annotations

from typing import Any

from tests.crash.workload import batches_in
from tests.faults.finding import require
from tests.faults.model import State, is_filler, transactions, with_fillers
from tests.faults.plan import Partition, Plan, World


def some_offset(state: State, number: int) -> int:
    return state.start + number % (state.end - state.start + 1)


def read(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    offset = some_offset(model.state, numbers[0])

    def done(answer: Any) -> None:
        found = bytes(memoryview(answer)) if answer.size_bytes else b""
        state = with_missing(model.state, found)
        wanted = b"".join([b.content for b in state.batches if b.last_offset >= offset])
        told = wanted.startswith(found) and (found or not wanted)
        require(model.failed or told, "read", f"{len(found)} other bytes from {offset} on")

    return Plan(lambda: log.read(offset, 100 + numbers[1] % 2000), done, writes=False)


def with_missing(state: State, content: bytes) -> State:
    """With the empty batch of a hole, where one was found that was not seen before."""
    if any(is_filler(batch) for batch in batches_in(content)):
        return with_fillers(state, content)
    return state


def hold(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    offset = some_offset(model.state, numbers[0])

    def done(answer: Any) -> None:
        if answer.size_bytes:
            view = memoryview(answer)
            world.views = [*world.views[-3:], (view, bytes(view))]

    return Plan(lambda: log.read(offset, 4000), done, writes=False)


def release(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    world.views.clear()
    return Plan(lambda: None, lambda _: None, writes=False)


def records(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    """All that are committed, decoded: their offsets are those of the batches."""
    log, model = partition.log, partition.model
    state, failed = model.state, model.failed

    def act() -> list[int]:
        if numbers[0] % 2:
            return [record.offset for record in log.records(isolation="log_end")]
        found: list[int] = log.to_arrow(isolation="log_end", columns=["offset"])[
            "offset"
        ].to_pylist()
        return found

    def done(answer: list[int]) -> None:
        sent = [b for b in state.batches if not b.ends_transaction and not is_filler(b)]
        wanted = [o for b in sent for o in range(b.base_offset, b.last_offset + 1)]
        wanted = [offset for offset in wanted if offset >= state.start]
        require(failed or answer == wanted, "read", f"records {answer}, wanted {wanted}")

    return Plan(act, done, writes=False)


def find_timestamp(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    state = model.state
    stamps = [b.max_timestamp for b in state.batches if not is_filler(b)]
    asked = stamps[numbers[0] % len(stamps)] + numbers[1] % 3 - 1 if stamps else world.now_ms

    def done(answer: Any) -> None:
        behind = [b for b in state.batches if b.max_timestamp >= asked and not is_filler(b)]
        wanted = max(behind[0].base_offset, state.start) if behind else None
        found = None if answer is None else answer.offset
        if model.failed:
            return
        if model.was_cut and found != wanted:
            require(
                wanted is not None and (found is None or found > wanted), "timestamp", f"{found}"
            )
            return
        require(found == wanted, "timestamp", f"{asked}: {found}, wanted {wanted}")

    return Plan(lambda: log.offset_for_timestamp(asked), done, writes=False)


def aborted(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    log, model = partition.log, partition.model
    state = model.state
    ends = sorted((some_offset(state, numbers[0]), some_offset(state, numbers[1])))

    def done(answer: Any) -> None:
        found = [(e.producer_id, e.first_offset, e.last_offset) for e in answer]
        found = sorted(entry for entry in found if entry[1] >= state.start)
        wanted = sorted(
            (t.producer_id, t.first_offset, t.last_offset)
            for t in transactions(state.batches, model.cut_open)
            if t.aborted and t.last_offset >= ends[0] and t.first_offset < ends[1]
        )
        sure = [entry for entry in found if entry[0] not in model.cut_open or entry in wanted]
        require(model.failed or sure == wanted, "aborted", f"{ends}: {found}, wanted {wanted}")

    return Plan(lambda: log.aborted_transactions(*ends), done, writes=False)


def wait(partition: Partition, world: World, numbers: tuple[int, ...]) -> Plan:
    world.now_ms += numbers[0] % 700
    return Plan(lambda: None, lambda _: None, writes=False)
