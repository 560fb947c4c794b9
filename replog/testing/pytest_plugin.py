"""The fixture `replog_cluster`, for every project that has replog installed.

def test_orders_survive_their_leader(replog_cluster):
    cluster = replog_cluster()
    cluster.create_topic("orders")
    cluster.produce("orders", [b"first"])
    cluster.kill(cluster.leader("orders"))
    assert [record.value for record in cluster.consume("orders", end="latest")] == [b"first"]
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replog.runtime.blocking_cluster import BlockingCluster


class StartCluster(Protocol):
    """Start a cluster that is closed when the test is over."""

    def __call__(self, brokers: int = 3, **options: Any) -> BlockingCluster:
        """options: as `replog.LocalCluster` has them."""


@pytest.fixture
def replog_cluster() -> Iterator[StartCluster]:
    """Call it for a running cluster of three brokers, or as many as asked for."""
    # Here, so that a test run without a cluster does not wait for it.
    from replog.runtime.local_cluster import LocalCluster

    with contextlib.ExitStack() as started:

        def start(brokers: int = 3, **options: Any) -> BlockingCluster:
            return started.enter_context(LocalCluster(brokers, **options))

        yield start
