"""What the simulator's checkers must not take for a fault, and what they must."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from replog.testing.simulation.batches import ClientBatch, StoredBatch, stored
from replog.testing.simulation.checkers.clients import ProducersKeepTheirOrder
from replog.testing.simulation.checkers.quorum import CommittedMetadataStays
from replog.testing.simulation.liveness import _refetch_ms
from replog.testing.simulation.quorum_truth import QuorumTruth
from replog.testing.simulation.sim_metadata_log import Messages
from replog.testing.simulation.violation import Violation
from replog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


def begin(offset: int, epoch: int) -> StoredBatch:
    return stored(offset, epoch, Messages((), leader_id=1))


def log_with(*batches: StoredBatch) -> SimpleNamespace:
    held = {batch.base_offset: batch for batch in batches}
    return SimpleNamespace(log_start_offset=0, batch_at=held.get)


def test_a_leader_that_is_slow_to_begin_need_not_hold_what_a_later_epoch_has_committed() -> None:
    """Goal: seed 1795364393545. A member is elected in epoch 1, and in epoch 2 another one begins
    and commits before the first has begun."""
    truth = QuorumTruth((1, 2, 3))
    first, second = begin(0, 2), begin(1, 4)
    list(truth.commit([first, second]))
    checker = CommittedMetadataStays(truth)
    checker.epoch_begun(log_with(begin(0, 1)), 1)
    checker.epoch_begun(log_with(first, begin(1, 3)), 3)
    with pytest.raises(Violation, match="without what is committed up to 1"):
        checker.epoch_begun(log_with(begin(0, 3)), 3)
    with pytest.raises(Violation, match="without what is committed up to 2"):
        checker.epoch_begun(log_with(first, begin(1, 5)), 5)


@pytest.mark.parametrize(("log_start", "may_refuse"), [(0, False), (4, False), (5, True)])
def test_a_leader_may_refuse_what_follows_a_deleted_batch(log_start: int, may_refuse: bool) -> None:
    """Goal: seed 1795367333813. A replica that has fetched only what is left knows an old repeat
    of the producer, come late, and nothing of what came after it."""
    before = ClientBatch(("c",), producer_id=9, producer_epoch=0, first_sequence=2)
    late = ClientBatch(("d",), producer_id=9, producer_epoch=0, first_sequence=3)
    committed = [stored(4, 1, before)]
    truth = SimpleNamespace(partitions={ORDERS: SimpleNamespace(log_start=log_start)})
    truth.partitions[ORDERS].committed = committed
    checker = ProducersKeepTheirOrder(truth)
    if may_refuse:
        checker.refused(ORDERS, late)
        return
    with pytest.raises(Violation, match="as out of order"):
        checker.refused(ORDERS, late)


@pytest.mark.parametrize(("fetch_bytes", "answers"), [(1, 30), (300, 21), (1_048_576, 1)])
def test_patience_leaves_time_to_fetch_the_longest_log_anew(fetch_bytes: int, answers: int) -> None:
    """Goal: seed 1795364917104. A batch an answer, 50 ms each, takes longer than 90 s for many."""
    logs = [
        SimpleNamespace(batches=[SimpleNamespace(size_bytes=size)] * count)
        for size, count in ((200, 30), (100, 2))
    ]
    brokers = {
        broker_id: SimpleNamespace(disk=SimpleNamespace(logs={"orders-0": log}))
        for broker_id, log in enumerate(logs)
    }
    options = SimpleNamespace(fetch_bytes=fetch_bytes, latency_us=20_000, sync_us=10_000)
    assert _refetch_ms(SimpleNamespace(brokers=brokers, options=options)) == answers * 2 * 50
