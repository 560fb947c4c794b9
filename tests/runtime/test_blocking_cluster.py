"""The face for code without a loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading

import pytest

import replog
from replog.errors import OffsetOutOfRangeError, TopicExistsError, UsageError
from replog.runtime.blocking_cluster import BlockingCluster
from replog.runtime.local_cluster import LocalCluster


def test_the_same_story_without_a_loop():
    with replog.LocalCluster(3) as cluster:
        cluster.create_topic("orders", min_insync_replicas=2)
        produced = cluster.produce("orders", [b"a", b"b"])
        assert (produced.base_offset, produced.last_offset) == (0, 1)
        leader_id = cluster.leader("orders")
        cluster.kill(leader_id)
        cluster.produce("orders", [b"c"])
        cluster.restart(leader_id)
        assert set(cluster.in_sync("orders")) == {1, 2, 3}
        found = [record.value for record in cluster.consume("orders", end="latest")]
        assert found == [b"a", b"b", b"c"]
        assert cluster.replica(leader_id, "orders").log_end_offset == 3
        assert cluster.why_uncommitted("orders", 2) is None
        assert len(cluster.failovers) == 1
        assert cluster.incidents("orders")
        other = 1 + leader_id % 3
        cluster.partition(leader_id, other)
        cluster.heal(leader_id, other)
        cluster.until(lambda now: now.topics() == ("orders",), "the topic to be there")
        with pytest.raises(TopicExistsError):
            cluster.create_topic("orders")
    with pytest.raises(UsageError, match="closed"):
        cluster.topics()


def test_any_thread_may_call():
    with replog.LocalCluster(1) as cluster:
        cluster.create_topic("orders")
        threads = [
            threading.Thread(target=cluster.produce, args=("orders", [b"a"] * 10)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cluster.replica(1, "orders").high_watermark == 80


def test_a_call_from_the_clusters_own_thread_is_refused():
    with (
        replog.LocalCluster(1) as cluster,
        pytest.raises(UsageError, match="cluster's thread"),
    ):
        cluster.until(lambda _: bool(cluster.topics()), "a call that would wait for itself")


def test_nothing_is_left_of_a_cluster_that_could_not_start(tmp_path):
    (tmp_path / "file").touch()
    before = threading.active_count()
    with pytest.raises(UsageError, match="new or empty"), replog.LocalCluster(directory=tmp_path):
        pass
    assert threading.active_count() == before


def test_both_faces_have_the_same_methods():
    """What one can do, the other can; but for life cycle and what needs a loop."""

    def face(kind):
        return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}

    only_async = {"producer"}
    only_blocking = {"wait"}
    ids = {"broker_ids", "controller_ids"}  # of an instance, not of the class
    assert face(LocalCluster) - only_async == face(BlockingCluster) - only_blocking - ids


def test_entering_it_twice_is_refused_and_leaves_the_first_time_as_it_is():
    """Goal: the outer `with` still closes the cluster, its thread and its directory."""
    before = threading.active_count()
    cluster = replog.LocalCluster(1)
    with cluster as outer:
        directory = cluster.directory
        with pytest.raises(UsageError, match="found it running"), cluster:
            pass
        assert outer.topics() == ()
    assert threading.active_count() == before
    assert not os.path.exists(directory)
    with pytest.raises(UsageError, match="closed"):
        outer.topics()


def test_it_ends_well_beside_a_running_loop_and_keeps_the_callers_exception():
    """A notebook or an async test has a loop of its own in this thread."""

    async def story():
        with replog.LocalCluster(1) as cluster:
            cluster.create_topic("orders")
            cluster.produce("orders", [b"a"])
            raise KeyError("the caller's")

    with pytest.raises(KeyError, match="the caller's"):
        asyncio.run(story())


def test_a_read_up_to_the_latest_that_begins_behind_it_is_told():
    with replog.LocalCluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", [b"a", b"b"])
        assert list(cluster.consume("orders", start=2, end="latest")) == []
        with pytest.raises(OffsetOutOfRangeError, match="offset 2 at most") as raised:
            list(cluster.consume("orders", start=3, end="latest"))
        assert raised.value.offset == 3
        with pytest.raises(UsageError, match="start or timestamp"):
            cluster.consume("orders", start=0, timestamp=1)


def test_a_directory_of_more_brokers_is_refused_and_unharmed(tmp_path):
    """With a part of them it waited for the others without end."""
    with replog.LocalCluster(3, directory=tmp_path) as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", [b"a"])
    with (
        pytest.raises(UsageError, match=r"'broker-2'.*all the nodes"),
        replog.LocalCluster(1, directory=tmp_path),
    ):
        pass
    with replog.LocalCluster(3, directory=tmp_path) as cluster:
        assert [record.value for record in cluster.consume("orders", end="latest")] == [b"a"]
