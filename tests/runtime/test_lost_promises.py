"""Controllers whose directories are wiped, or older than they were."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

import replog
from replog.config import ControllerOptions
from replog.controller.quorum.incidents import (
    OlderMetadataRefused,
    PromisesForgotten,
    VotesAgain,
)
from replog.errors import MissingLogError, NoSpaceError
from replog.runtime import cluster_nodes
from replog.runtime.quorum_log import QuorumReplicaLog
from replog.storage.quorum_state import write_quorum_state

QUICK = ControllerOptions(broker_session_timeout_ms=2000, broker_heartbeat_interval_ms=200)
METADATA = "__cluster_metadata-0"


def play(path, *scenes, controllers=1) -> None:
    """Each scene in a cluster of its own over the same directory."""

    async def played(scene) -> None:
        async with replog.LocalCluster(
            3, directory=path, controllers=controllers, controller=QUICK
        ) as cluster:
            await scene(cluster)

    for scene in scenes:
        asyncio.run(asyncio.wait_for(played(scene), 60))


async def create(cluster, topic="orders") -> None:
    await cluster.create_topic(topic)
    await cluster.in_sync(topic)
    await cluster.produce(topic, [b"a", b"b"])


async def check_serves(cluster, topic="orders") -> None:
    values = [record.value async for record in cluster.consume(topic, end="latest")]
    assert values[:2] == [b"a", b"b"]
    await cluster.produce(topic, [b"more"])


def told(cluster, kind) -> list[str]:
    found = [entry.incident for entry in cluster.incidents()]
    return [getattr(one, "message", "") for one in found if isinstance(one, kind)]


def test_an_only_controller_whose_directory_is_gone_does_not_begin_anew(tmp_path):
    """And a broker's copy of its log can take its place, if a person says so."""

    async def lose_it_live(cluster) -> None:
        await create(cluster)
        cluster.kill(1001)
        shutil.rmtree(tmp_path / "controller-1001")
        with pytest.raises(MissingLogError, match="put the directory back"):
            await cluster.restart(1001)
        await check_serves(cluster)

    async def check(cluster) -> None:
        await check_serves(cluster)
        await create(cluster, "later")

    play(tmp_path, lose_it_live)
    with pytest.raises(MissingLogError, match="put the directory back"):
        play(tmp_path, check)
    shutil.rmtree(tmp_path / "controller-1001", ignore_errors=True)
    shutil.copytree(tmp_path / "broker-1" / METADATA, tmp_path / "controller-1001" / METADATA)
    play(tmp_path, check)


def test_a_voter_whose_directory_is_wiped_abstains_until_it_can_break_no_promise(tmp_path):
    async def scenario(cluster) -> None:
        await create(cluster)
        active = cluster.active_controller
        wiped, other = (one for one in cluster.controller_ids if one != active)
        cluster.kill(other)
        cluster.kill(wiped)
        shutil.rmtree(tmp_path / f"controller-{wiped}")
        await cluster.restart(wiped)
        await cluster.until(lambda _: told(cluster, PromisesForgotten), "a sentence")
        assert "its disk was wiped" in told(cluster, PromisesForgotten)[0]
        # The one that remembers is no majority: nobody decides until the other is back.
        await cluster.until(lambda _: cluster.active_controller is None, "nobody to decide")
        assert not told(cluster, VotesAgain)
        await cluster.restart(other)
        await cluster.until(lambda _: told(cluster, VotesAgain), "its vote")
        cluster.kill(cluster.active_controller)
        await create(cluster, "later")  # by its vote
        await check_serves(cluster)

    play(tmp_path, scenario, controllers=3)


def test_brokers_refuse_older_metadata_and_go_on_serving(tmp_path):
    path, copy = tmp_path / "cluster", tmp_path / "copy"

    async def scenario(cluster) -> None:
        await create(cluster)
        await cluster.stop(1001)
        shutil.copytree(path / "controller-1001", copy)
        await cluster.restart(1001)
        await create(cluster, "later")
        cluster.kill(1001)
        os.rename(path / "controller-1001", tmp_path / "right")
        shutil.copytree(copy, path / "controller-1001")
        await cluster.restart(1001)
        await cluster.until(
            lambda _: len(told(cluster, OlderMetadataRefused)) == 3, "all brokers to refuse"
        )
        assert "keeps what it has" in told(cluster, OlderMetadataRefused)[0]
        await check_serves(cluster)
        await check_serves(cluster, "later")
        cluster.kill(1001)
        shutil.rmtree(path / "controller-1001")
        os.rename(tmp_path / "right", path / "controller-1001")
        await cluster.restart(1001)
        await create(cluster, "last")
        await check_serves(cluster, "later")

    play(path, scenario)


def test_a_cluster_does_not_start_on_older_metadata(tmp_path):
    path, copy = tmp_path / "cluster", tmp_path / "copy"
    play(path, create)
    shutil.copytree(path / "controller-1001", copy)
    play(path, lambda cluster: create(cluster, "later"))
    shutil.rmtree(path / "controller-1001")
    shutil.copytree(copy, path / "controller-1001")
    with pytest.raises(MissingLogError, match="has nothing of it from"):
        play(path, check_serves)


def test_a_crash_between_the_first_promises_of_a_cluster_leaves_one_that_opens(
    tmp_path, monkeypatch
):
    """A voter that had promised nothing yet is not taken for one whose promises are gone."""
    crashed: list[Path] = []
    write_state = QuorumReplicaLog.write_state

    def crash_after(log, state, voters) -> None:
        write_state(log, state, voters)
        if len(crashed) < 4:
            crashed.append(tmp_path / f"crash-{len(crashed)}")
            shutil.copytree(tmp_path / "cluster", crashed[-1])

    async def check(cluster) -> None:
        await create(cluster)
        assert not told(cluster, PromisesForgotten)

    with monkeypatch.context() as patched:
        patched.setattr(QuorumReplicaLog, "write_state", crash_after)
        play(tmp_path / "cluster", check, controllers=3)
    assert len(crashed) == 4
    for path in crashed:
        play(path, check, controllers=3)


def test_a_crash_between_the_formats_of_a_cluster_leaves_one_that_opens(tmp_path, monkeypatch):
    written: list[str] = []

    def crash_at_the_second(path, state) -> None:
        if written:
            raise NoSpaceError("expected room, found none: a test", path=path)
        write_quorum_state(path, state)
        written.append(path)

    with monkeypatch.context() as patched:
        patched.setattr(cluster_nodes, "write_quorum_state", crash_at_the_second)
        with pytest.raises(NoSpaceError):
            play(tmp_path, create, controllers=3)
    play(tmp_path, create, check_serves, controllers=3)


def test_a_cluster_that_does_not_become_ready_says_who_is_missing_and_why(tmp_path):
    async def scenario(cluster) -> None:
        await create(cluster)
        shutil.rmtree(tmp_path / "controller-1002")
        cluster.kill(1002)
        await cluster.restart(1002)
        cluster.kill(3)
        said = cluster._running().members.what_is_missing()
        assert "let the brokers [3] not lead yet" in said
        assert "PromisesForgotten" in said

    play(tmp_path, scenario, controllers=3)
