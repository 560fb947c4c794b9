"""Options of a cluster that cannot be: refused by name before anything starts."""

import dataclasses

import pytest

import replog
from replog.config import ControllerOptions, QuorumOptions, ReplicationOptions
from replog.errors import UsageError

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
