"""The fixture, in a project of somebody else's."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

import replog

pytest_plugins = ["pytester"]

PROJECT = """
def test_records_survive_their_leader(replog_cluster):
    cluster = replog_cluster()
    cluster.create_topic("orders", min_insync_replicas=2)
    cluster.produce("orders", [b"first"])
    cluster.kill(cluster.leader("orders"))
    cluster.produce("orders", [b"second"])
    found = [record.value for record in cluster.consume("orders", end="latest")]
    assert found == [b"first", b"second"]

def test_as_many_brokers_as_asked_for_and_several_clusters(replog_cluster):
    one, other = replog_cluster(1), replog_cluster(2)
    assert (one.broker_ids, other.broker_ids) == ((1,), (1, 2))
"""


def test_the_fixture_starts_clusters_and_closes_them(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(replog.__file__).parent.parent))
    pytester.makepyfile(PROJECT)
    installed = {point.name for point in importlib.metadata.entry_points(group="pytest11")}
    plugin = [] if "replog" in installed else ["-p", "replog.testing.pytest_plugin"]
    outcome = pytester.runpytest_subprocess("-q", *plugin)
    outcome.assert_outcomes(passed=2)


def test_the_plugin_is_told_to_pytest_by_the_package():
    points = {point.name: point for point in importlib.metadata.entry_points(group="pytest11")}
    if "replog" not in points:
        pytest.skip("replog is not installed here")
    assert points["replog"].value == "replog.testing.pytest_plugin"
