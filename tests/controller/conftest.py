"""What tests of the controller and of brokers' sessions are given."""

import pytest

from replog.controller.broker_session import BrokerSession
from tests.controller.conversation import OPTIONS


@pytest.fixture
def session():
    """Of broker 1, before it has registered."""
    return BrokerSession(1, "run", "rack-a", OPTIONS)
