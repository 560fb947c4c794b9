"""Arguments of clients that cannot be: refused by name before anything is sent."""

import numpy as np
import pytest

from replog.client.consumer import Consumer
from replog.client.producer import Producer
from replog.errors import UsageError
from replog.types import TopicPartition

PARTITION = TopicPartition("orders", 1)


class Nobody:
    """A cluster that nothing may be asked of."""

    def on_metadata_change(self, _):
        return lambda: None


def consumer(**options) -> Consumer:
    return Consumer(Nobody(), PARTITION, **options)


NO_NUMBERS = (True, False, 1.5, [], object(), -1, 2**63)


@pytest.mark.parametrize(
    ("name", "bad"),
    [(name, bad) for name in ("start", "timestamp", "end") for bad in (*NO_NUMBERS, "x")]
    + [
        (name, bad)
        for name in ("fetch_bytes_max", "wait_ms_max")
        for bad in (*NO_NUMBERS, "x", None, 2**31)
    ]
    + [("fetch_bytes_max", 0), ("start", None), ("end", "earliest")],
)
def test_a_consumer_refuses_what_no_broker_can_carry_out(name, bad):
    with pytest.raises(UsageError, match=rf"expected {name} to be .* orders-1, found") as caught:
        consumer(**{name: bad})
    assert caught.value.argument == name


@pytest.mark.parametrize("bad", [*NO_NUMBERS, "x"])
def test_a_position_is_an_offset(bad):
    reader = consumer(start=5)
    with pytest.raises(UsageError, match="expected position to be"):
        reader.position = bad
    reader.position = np.int64(7)
    assert reader.position == 7


def test_numbers_at_the_ends_of_their_ranges_are_taken():
    for start in (0, 2**63 - 1, np.int64(3), "earliest", "latest"):
        assert consumer(start=start).end is None
    assert consumer(end=np.int32(4), timestamp=2**63 - 1, fetch_bytes_max=2**31 - 1).end == 4


@pytest.mark.parametrize("bad", [True, 1.0, "1", -1, 2**31, [], None])
def test_a_partition_is_a_number(bad):
    with pytest.raises(UsageError, match="expected partition to be an integer"):
        Consumer(Nobody(), TopicPartition("orders", bad))
    if bad is not None:  # for a producer: by turns
        with pytest.raises(UsageError, match="expected partition to be an integer"):
            Producer(Nobody()).send("orders", [b"a"], partition=bad)
    with pytest.raises(UsageError, match="expected partition to be an integer"):
        Producer(Nobody(), acks=1).send_batches("orders", bad, b"", 1)


@pytest.mark.parametrize("bad", [["orders"], None, b"orders", 1])
def test_a_topic_is_a_name(bad):
    with pytest.raises(UsageError, match="expected topic to be"):
        Producer(Nobody()).send(bad, [b"a"])
    with pytest.raises(UsageError, match="expected topic to be"):
        Consumer(Nobody(), TopicPartition(bad, 0))


@pytest.mark.parametrize("bad", [None, 5, (value for value in [b"a"]), np.array(b"a")])
def test_values_without_a_length_are_refused(bad):
    with pytest.raises(UsageError, match="expected values to be a list"):
        Producer(Nobody()).send("orders", bad)


@pytest.mark.parametrize("bad", [[], True, 1.0, 2, "ALL", None, {}])
def test_acks_are_0_1_or_all(bad):
    with pytest.raises(UsageError, match='expected acks 0, 1 or "all"'):
        Producer(Nobody(), acks=bad)


@pytest.mark.parametrize(
    ("name", "bad"),
    [(name, bad) for name in ("delivery_timeout_ms", "request_timeout_ms") for bad in NO_NUMBERS]
    + [("idempotent", 1), ("codec", "lzma"), ("codec", [])],
)
def test_a_producer_refuses_options_that_cannot_be(name, bad):
    with pytest.raises(UsageError, match=f"expected {name} to be"):
        Producer(Nobody(), **{name: bad})
