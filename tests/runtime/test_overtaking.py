"""Who leads is decided before what clients have queued up."""

from __future__ import annotations

import pytest

from replog.admin_messages import AlterOptionsRequest, ResourceKind
from replog.config import LogConfig
from replog.messages import ErrorCode
from replog.runtime.controller_node import (
    COMMANDS_PER_TICK,
    COMMANDS_WAIT_MS_MAX,
    COMMANDS_WAITING_MAX,
)
from replog.runtime.memory_transport import MESSAGES_A_TURN, controller_address
from tests.runtime.hand_cranked import CONTROLLER_ID, HandCranked

COMMANDS = 500


@pytest.fixture
def cluster(tmp_path):
    """Three brokers in sync, broker 1 leading."""
    cluster = HandCranked(str(tmp_path))
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    cluster.settle()
    cluster.pass_time(3000)
    cluster.create(LogConfig())
    return cluster


@pytest.fixture
def node(cluster):
    """The controller."""
    return cluster.pump.transport._endpoints[controller_address(CONTROLLER_ID)].node


def keep_for(cluster, retention_ms: int, answers: list) -> None:
    """A command of a client."""
    options = {"retention.ms": str(retention_ms)}
    request = AlterOptionsRequest(kind=ResourceKind.TOPIC, name="orders", options=options)
    cluster.clients.ask(controller_address(CONTROLLER_ID), request, answers.append)


def test_a_change_of_leaders_overtakes_the_commands_in_front_of_it(cluster, node):
    answers: list = []
    for number in range(COMMANDS):
        keep_for(cluster, 1000 + number, answers)
    cluster.settle()
    begun = len(answers)
    assert 0 < begun <= COMMANDS_PER_TICK
    taken = begun + len(node._commands)
    assert taken <= COMMANDS_WAITING_MAX + MESSAGES_A_TURN < COMMANDS, "the rest lies with clients"
    assert cluster.leader_id == 1
    node.broker_lost(1, cluster.clock.monotonic_ms())
    cluster.settle()
    assert len(answers) == begun
    assert cluster.leader_id in {2, 3}
    cluster.pass_time(2 * COMMANDS // COMMANDS_PER_TICK, step_ms=1)
    assert [answer.error for answer in answers] == [ErrorCode.NONE] * COMMANDS
    registration = cluster.view.partition(("orders", 0))
    assert registration.config.log.retention_ms == 1000 + COMMANDS - 1


def test_no_command_is_begun_between_a_change_of_leaders_and_its_commit(cluster, node):
    """Its record and its notices would have to wait for what the command decides."""
    now_ms = cluster.clock.monotonic_ms()
    node.tick(now_ms)
    node.broker_lost(1, now_ms)
    decided = node.controller.uncommitted_end_offset
    assert decided > node.controller.version, "it is not synced yet"
    answers: list = []
    keep_for(cluster, 1000, answers)
    while len(cluster.pump.transport):
        cluster.pump.transport.deliver(1)
    assert node.controller.uncommitted_end_offset == decided
    node.tick(now_ms + COMMANDS_WAIT_MS_MAX - 1)
    assert node.controller.uncommitted_end_offset == decided
    node.tick(now_ms + COMMANDS_WAIT_MS_MAX)
    assert node.controller.uncommitted_end_offset > decided, "it has waited long enough"
    cluster.settle()
    cluster.pass_time(10, step_ms=1)
    assert [answer.error for answer in answers] == [ErrorCode.NONE]
