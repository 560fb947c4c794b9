"""A simulated client keeps to its connections as one over TCP does."""

from __future__ import annotations

from types import SimpleNamespace

from replog.testing.simulation.client import Client


class Network:
    """Counts what is sent; every connection is a new one once the last is broken."""

    def __init__(self) -> None:
        self.nodes: dict = {}
        self.sent: list = []
        self.connection = self._another()

    def _another(self) -> SimpleNamespace:
        return SimpleNamespace(server=1, open=True, client_knows=False)

    def request(self, client, server, request_id, request):
        if not self.connection.open:
            self.connection = self._another()
        self.sent.append(request)
        return self.connection


def test_what_follows_a_request_on_a_dead_connection_is_lost_with_it() -> None:
    """Goal: seed 1795368641111. A batch went to a broker without power; the one behind it reached
    that broker on a new connection, after its return, and was appended without the first."""
    network = Network()
    client = Client(9, SimpleNamespace(after=lambda *_: None), network, None)
    answers: list = []
    client.ask(1, "first", 100, answers.append)
    dead = network.connection
    dead.open = False
    client.ask(1, "second", 100, answers.append)
    assert (network.sent, answers) == (["first"], [])
    dead.client_knows = True
    client.connection_lost(dead)
    assert answers == [None, None]
    client.ask(1, "third", 100, answers.append)
    assert network.sent == ["first", "third"]
