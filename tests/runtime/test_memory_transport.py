"""The memory transport's promises: order per pair, resets, cuts and pauses."""

from __future__ import annotations

import pytest

from replog.errors import InvariantViolation
from replog.runtime.memory_transport import (
    CLIENT,
    MESSAGES_A_TURN,
    MemoryTransport,
    controller_address,
    is_controller,
    node_at,
    observer_address,
)

CONTROLLER = controller_address(1)


class Node:
    """Writes down what it hears; answers each request if it is told to."""

    def __init__(self, transport: MemoryTransport, *, answers: bool = False) -> None:
        self.heard = []
        self.more = []
        self.transport = transport
        self.answers = answers

    def receive_request(self, request_id, sender, request, *, more):
        self.more.append(more)
        self.heard.append(("request", sender, request))
        self.last_id = request_id
        if self.answers:
            self.transport.respond(request_id, f"to {request}")

    def requester_gone(self, request_id):
        self.heard.append(("gone", request_id))

    def receive_response(self, request_id, response):
        self.heard.append(("response", request_id, response))

    def request_failed(self, request_id):
        self.heard.append(("failed", request_id))

    def connection_lost(self, peer):
        self.heard.append(("lost", peer))


@pytest.fixture
def transport():
    transport = MemoryTransport(lambda: None)
    transport.nodes = {}
    for address in (CONTROLLER, 1, 2, 3):
        node = Node(transport, answers=address in (2, 3))
        transport.nodes[address] = node
        transport.attach(address, node, watches=is_controller(address))
    return transport


def deliver(transport):
    while len(transport):
        transport.deliver(1)


def test_requests_and_answers_keep_their_order_and_ids(transport):
    for number in range(5):
        transport.request(1, 2, 100 + number, f"r{number}")
    deliver(transport)
    assert transport.nodes[2].heard == [("request", 1, f"r{number}") for number in range(5)]
    assert transport.nodes[1].heard == [
        ("response", 100 + number, f"to r{number}") for number in range(5)
    ]


def test_a_request_without_an_answer_leaves_nothing_behind(transport):
    transport.request(1, 2, 7, "tell", answered=False)
    deliver(transport)
    assert transport.nodes[1].heard == []
    transport.detach(2)
    deliver(transport)
    assert transport.nodes[1].heard == []


def test_a_dead_node_fails_what_was_asked_of_it_and_frees_who_worked_for_it(transport):
    transport.request(3, 1, 5, "asked of the dead")
    transport.request(1, 2, 6, "asked by the dead")
    transport.nodes[2].answers = False
    deliver(transport)
    transport.request(1, 3, 8, "on its way")
    transport.detach(1)
    deliver(transport)
    assert ("failed", 5) in transport.nodes[3].heard
    assert ("gone", transport.nodes[2].last_id) in transport.nodes[2].heard
    assert transport.nodes[CONTROLLER].heard == [("lost", 1)]
    assert ("request", 1, "on its way") not in transport.nodes[3].heard


def test_a_request_to_nobody_fails(transport):
    transport.request(1, 9, 3, "hello")
    deliver(transport)
    assert transport.nodes[1].heard == [("failed", 3)]


def test_an_answer_on_its_way_is_lost_with_its_sender_and_told_as_a_failure(transport):
    transport.request(1, 2, 4, "question")
    transport.deliver(1)
    transport.detach(2)
    deliver(transport)
    assert transport.nodes[1].heard == [("failed", 4)]


def test_a_cut_holds_messages_and_nobody_is_told_until_it_is_joined(transport):
    transport.cut(1, 2)
    for number in range(3):
        transport.request(1, 2, number, f"r{number}")
    transport.request(1, 3, 9, "past the cut")
    deliver(transport)
    assert transport.nodes[2].heard == []
    assert transport.nodes[1].heard == [("response", 9, "to past the cut")]
    transport.request(1, 2, 3, "r3")
    transport.join(1, 2)
    deliver(transport)
    assert transport.nodes[2].heard == [("request", 1, f"r{number}") for number in range(4)]


def test_an_answer_is_held_by_a_cut_made_after_the_question(transport):
    transport.request(1, 2, 1, "question")
    transport.deliver(1)
    transport.cut(2, 1)
    deliver(transport)
    assert transport.nodes[1].heard == []
    transport.join_all()
    deliver(transport)
    assert transport.nodes[1].heard == [("response", 1, "to question")]


def test_a_reset_does_not_cross_a_cut(transport):
    transport.cut(CONTROLLER, 1)
    transport.detach(1)
    deliver(transport)
    assert transport.nodes[CONTROLLER].heard == []
    transport.join(CONTROLLER, 1)
    deliver(transport)
    assert transport.nodes[CONTROLLER].heard == [("lost", 1)]


def test_a_paused_node_hears_all_of_it_later_and_in_order(transport):
    transport.pause(2)
    for number in range(3):
        transport.request(1, 2, number, f"r{number}")
    deliver(transport)
    assert transport.nodes[2].heard == []
    transport.resume(2)
    deliver(transport)
    assert [what[2] for what in transport.nodes[2].heard] == ["r0", "r1", "r2"]


def test_giving_up_a_request_tells_who_works_on_it(transport):
    transport.nodes[2].answers = False
    transport.request(1, 2, 5, "question")
    deliver(transport)
    transport.forget(1, 5)
    deliver(transport)
    assert transport.nodes[2].heard[-1] == ("gone", transport.nodes[2].last_id)
    transport.respond(transport.nodes[2].last_id, "too late")
    deliver(transport)
    assert transport.nodes[1].heard == []


def test_delivery_within_a_delivery_is_refused(transport):
    transport.nodes[2].receive_request = lambda *_, **__: transport.deliver(1)
    transport.request(1, 2, 5, "question")
    with pytest.raises(InvariantViolation):
        transport.deliver(1)


def test_requests_that_have_come_together_are_handed_over_together(transport):
    for number in range(2):
        transport.request(1, 2, number, f"a{number}")
        transport.request(1, 3, number, f"b{number}")
        transport.request(3, 2, number, f"c{number}")
    transport.deliver(100)
    assert [what[2] for what in transport.nodes[2].heard if what[0] == "request"] == [
        "a0",
        "c0",
        "a1",
        "c1",
    ]
    assert transport.nodes[2].more == [True, True, True, False]
    assert transport.nodes[3].more == [True, False]


def test_more_is_promised_only_where_a_request_follows_in_the_same_delivery(transport):
    for number in range(4):
        transport.request(1, 2, number, number)
    transport.deliver(2)
    assert transport.nodes[2].more == [True, False]
    transport.forget(1, 3)
    transport.deliver(100)
    # What follows the last request is not one: it is given up.
    assert transport.nodes[2].more == [True, False, True, False]


def test_nothing_is_promised_while_something_may_be_held(transport):
    transport.cut(2, 3)
    transport.request(1, 2, 1, "one")
    transport.request(3, 2, 1, "held")
    deliver(transport)
    transport.deliver(100)
    assert transport.nodes[2].more == [False]


def test_a_dead_node_leaves_no_messages_to_be_counted(transport):
    for number in range(3):
        transport.request(1, 2, number, number)
        transport.request(1, 3, number, number)
    transport.detach(2)
    deliver(transport)
    assert len(transport) == 0
    assert [what[2] for what in transport.nodes[3].heard if what[0] == "request"] == [0, 1, 2]


def test_the_budget_bounds_a_delivery(transport):
    for number in range(10):
        transport.request(1, 2, number, number)
    transport.deliver(4)
    assert len(transport.nodes[2].heard) == 4


@pytest.mark.parametrize("node_id", [0, 1, 2, 1001])
def test_every_part_of_a_node_has_an_address_of_its_own(node_id):
    addresses = (node_id, controller_address(node_id), observer_address(node_id))
    assert len({*addresses, -1, -2}) == 5
    assert [node_at(address) for address in addresses] == [node_id] * 3
    assert [is_controller(address) for address in addresses] == [False, True, False]


def test_a_long_mailbox_leaves_the_others_their_turn(transport):
    for number in range(MESSAGES_A_TURN + 5):
        transport.request(1, 2, number, f"r{number}")
    transport.request(1, 3, 999, "short")
    transport.deliver(MESSAGES_A_TURN + 1)
    assert transport.nodes[3].heard == [("request", 1, "short")]
    assert len(transport.nodes[2].heard) == MESSAGES_A_TURN
    assert not transport.nodes[2].more[-1], "another had its turn in between"
    deliver(transport)
    assert [heard[2] for heard in transport.nodes[2].heard] == [
        f"r{number}" for number in range(MESSAGES_A_TURN + 5)
    ]


def test_what_a_pause_held_leaves_the_others_their_turn_too(transport):
    transport.pause(1)
    for number in range(3 * MESSAGES_A_TURN):
        transport.request(3, 1, number, number)
    deliver(transport)
    transport.request(1, 2, 0, "short")
    transport.resume(1)
    assert len(transport) == 3 * MESSAGES_A_TURN + 1
    transport.deliver(MESSAGES_A_TURN + 1)
    assert transport.nodes[2].heard == [("request", 1, "short")]
    deliver(transport)
    assert [what[2] for what in transport.nodes[1].heard if what[0] == "request"] == list(
        range(3 * MESSAGES_A_TURN)
    )


def test_clients_wait_with_the_node_that_takes_no_more_of_them_and_others_do_not(transport):
    woken = []
    transport._wake = lambda: woken.append(len(transport))
    transport.hold_clients(2)
    for number in range(3):
        transport.request(CLIENT, 2, number, f"c{number}")
        transport.request(1, 2, number, f"b{number}")
        transport.request(CLIENT, 3, number, f"d{number}")
    deliver(transport)
    assert [heard[2] for heard in transport.nodes[2].heard] == ["b0", "b1", "b2"]
    assert [heard[2] for heard in transport.nodes[3].heard] == ["d0", "d1", "d2"]
    woken.clear()
    transport.let_clients(2)
    assert woken == [3]
    deliver(transport)
    assert [heard[2] for heard in transport.nodes[2].heard[3:]] == ["c0", "c1", "c2"]
    transport.let_clients(2)
    assert woken == [3], "nothing is left"


def test_what_waits_with_clients_fails_with_the_node_and_its_successor_takes_all(transport):
    clients = Node(transport)
    transport.attach(CLIENT, clients)
    transport.hold_clients(2)
    transport.request(CLIENT, 2, 7, "held")
    deliver(transport)
    transport.detach(2)
    deliver(transport)
    assert clients.heard == [("failed", 7)]
    successor = Node(transport)
    transport.attach(2, successor)
    transport.request(CLIENT, 2, 8, "again")
    deliver(transport)
    assert successor.heard == [("request", CLIENT, "again")]


def test_a_node_that_breaks_keeps_nobody_elses_messages_back(transport):
    class Broken(Node):
        def receive_request(self, request_id, sender, request, *, more):
            super().receive_request(request_id, sender, request, more=more)
            raise RuntimeError(request)

    transport.detach(3)
    broken = Broken(transport)
    transport.attach(3, broken)
    for number in range(2):
        transport.request(1, 3, number, number)
        transport.request(1, 2, number, number)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            transport.deliver(100)
    deliver(transport)
    assert [heard[2] for heard in broken.heard] == [0, 1]
    assert [heard[2] for heard in transport.nodes[2].heard] == [0, 1]


def test_a_reset_is_heard_before_what_clients_have_sent(transport):
    for number in range(3):
        transport.request(CLIENT, CONTROLLER, number, number)
    transport.detach(2)
    deliver(transport)
    heard = [what[0] for what in transport.nodes[CONTROLLER].heard]
    assert heard == ["lost", "request", "request", "request"]
