"""What a consumer has read and an unclean election has lost."""

from __future__ import annotations

import pytest

from replog.errors import LogDivergedError
from tests.runtime.test_cluster_faults import QUICK
from tests.runtime.test_local_cluster import run


def test_a_consumer_hears_that_what_it_has_read_was_lost():
    """Goal: it does not read on in another history without a word (KIP-320). The leader from the
    unclean election has as many records again by then, so that no offset is out of range."""

    async def scenario(cluster):
        await cluster.create_topic(
            "orders", assignment=[(1, 2)], unclean_leader_election=True, min_insync_replicas=1
        )
        await cluster.produce("orders", [b"both"])
        await cluster.in_sync("orders")
        cluster.kill(2)
        await cluster.until(lambda now: now.isr("orders") == (1,), "the dead one to leave")
        await cluster.produce("orders", [b"lost", b"and gone"])
        by_record, by_slice = cluster.consume("orders"), cluster.consume("orders")
        assert [(await anext(by_record)).value for _ in range(3)][1:] == [b"lost", b"and gone"]
        while by_slice.position != 3:
            await by_slice.next_slice()
        cluster.kill(1)
        await cluster.restart(2)
        await cluster.leader_after(1, "orders")
        await cluster.producer().produce("orders", [b"1", b"2", b"3", b"4"])
        for consumer in (by_record, by_slice):
            with pytest.raises(LogDivergedError, match="from offset 1 on") as raised:
                await consumer.next_slice()
            assert (raised.value.offset, raised.value.diverging_offset) == (3, 1)
            consumer.position = raised.value.diverging_offset
            assert [(await anext(consumer)).value for _ in range(4)] == [b"1", b"2", b"3", b"4"]

    run(scenario, brokers=3, controller=QUICK)
