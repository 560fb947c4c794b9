"""How the tests share the machine: `make test` runs them in one process for each core."""

from __future__ import annotations

import hypothesis
import pytest

# A machine that others use, too, is slow at times: no example fails for its time alone.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all that need a JVM in one process: a second Spark session would cost 15 s."""
    for item in items:
        if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
