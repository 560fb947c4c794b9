"""Options of a cluster that cannot be: refused by name before anything starts."""

import dataclasses

import numpy as np
import pytest

import replog
from replog.admin_messages import (
    CreateTopicsRequest,
    ElectionKind,
    ElectLeadersRequest,
    ReassignPartitionsRequest,
    UnregisterBrokerRequest,
)
from replog.config import ControllerOptions, QuorumOptions, ReplicationOptions
from replog.errors import UsageError
from replog.runtime.clock import ManualClock
from tests.runtime.test_local_cluster import run

KINDS = (ReplicationOptions, ControllerOptions, QuorumOptions)
OPTIONS = [(kind, field.name) for kind in KINDS for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(("kind", "name"), OPTIONS)
def test_every_option_refuses_what_it_is_not(kind, name) -> None:
    for bad in (None, 1.5, "1", -1, 2**63, [], object()):
        with pytest.raises(UsageError, match=rf"expected {name} to be .*, found") as caught:
            kind(**{name: bad})
        assert caught.value.argument == name


@pytest.mark.parametrize(
    ("kind", "shorter", "longer"),
    [
        (ReplicationOptions, "replica_fetch_wait_max_ms", "replica_lag_time_max_ms"),
        (ControllerOptions, "broker_heartbeat_interval_ms", "broker_session_timeout_ms"),
    ],
)
def test_a_wait_longer_than_the_patience_with_it_is_refused(kind, shorter, longer) -> None:
    kind(**{shorter: 100, longer: 100})
    with pytest.raises(UsageError, match=rf"expected {shorter} to be at most {longer} \(100 ms\)"):
        kind(**{shorter: 101, longer: 100})


def test_a_fetch_of_the_metadata_log_waits_for_less_than_the_patience_with_it() -> None:
    """Goal: leaders that stay. Where nothing happens, each fetch takes its whole wait and a bit."""
    QuorumOptions(fetch_wait_max_ms=99, fetch_timeout_ms=100)
    sentence = r"expected fetch_wait_max_ms to be less than fetch_timeout_ms \(100 ms\), found 100"
    with pytest.raises(UsageError, match=sentence):
        QuorumOptions(fetch_wait_max_ms=100, fetch_timeout_ms=100)


def test_the_defaults_are_taken_and_public() -> None:
    assert replog.ReplicationOptions() == ReplicationOptions()
    assert replog.ControllerOptions() == ControllerOptions()
    assert replog.QuorumOptions() == QuorumOptions()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"brokers": "3"}, r"expected a number of brokers, found '3' \(str\)"),
        ({"brokers": 1.5}, r"expected a number of brokers, found 1.5 \(float\)"),
        ({"brokers": True}, "expected a number of brokers, found True"),
        ({"brokers": 0}, "expected at least one broker"),
        ({"controllers": "1"}, "expected a number of controllers, found '1'"),
        ({"racks": {1: 3}}, "expected the rack of broker 1 to be a string, found 3"),
        ({"racks": {9: "a"}}, r"expected racks of the brokers \[1, 2, 3\], found one of 9"),
        ({"racks": {"1": "a"}}, "expected racks of the brokers .* found one of '1'"),
        ({"racks": ["a"]}, "expected racks to be names by broker id"),
        ({"directory": 5}, "expected directory to be a path, found 5"),
        ({"directory": b"logs"}, "expected directory to be a path, found b'logs'"),
        ({"directory": "a\0b"}, "expected directory to be a path"),
        ({"clock": ManualClock(1.5)}, "expected monotonic_ms of the clock to return an int, found"),
        (
            {"clock": ManualClock(np.int64(1))},
            "expected monotonic_ms of the clock to return an int",
        ),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_it_is_entered(options, sentence) -> None:
    with pytest.raises(UsageError, match=sentence):
        replog.LocalCluster(**options)


def test_a_rack_may_be_given_to_some_brokers_alone() -> None:
    replog.LocalCluster(3, racks={1: "a"})


def test_a_rack_may_be_any_kind_of_string() -> None:
    async def scenario(cluster) -> None:
        await cluster.create_topic("orders")

    run(scenario, brokers=1, racks={1: np.str_("a")})


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_file_where_the_directory_should_be_is_refused(tmp_path, below) -> None:
    (tmp_path / "file").touch()
    cluster = replog.LocalCluster(directory=f"{tmp_path}/file{below}")
    with pytest.raises(UsageError, match="the system to refuse it"), cluster:
        pass


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (None, "expected a command of replog.admin_messages, found None"),
        (5, "found 5 of type int"),
        (CreateTopicsRequest(topics=None), "topics to be a tuple"),
        (CreateTopicsRequest(topics=(1,)), r"topics\[0\] to be a CreateTopicRequest"),
        (CreateTopicsRequest(topics=(), wait_ms_max="x"), "wait_ms_max to be an integer"),
        (ReassignPartitionsRequest(partitions=(None,)), r"partitions\[0\] to be a Reassignment"),
        (
            ElectLeadersRequest(kind=ElectionKind.PREFERRED, partitions=5),
            "partitions to be a tuple",
        ),
        (UnregisterBrokerRequest(broker_id=[1]), "broker_id to be an integer"),
    ],
)
def test_what_is_no_command_reaches_no_controller(command, sentence):
    async def scenario(cluster):
        with pytest.raises(UsageError, match=sentence):
            await cluster.admin(command)
        await cluster.create_topic("orders", np.int64(2), np.int32(1))
        assert cluster.active_controller is not None

    run(scenario)
