"""What is tested is what was written, and how the tests share the machine: `make test` runs them in
one process for each core."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

# A machine that others use, too, is slow at times: no example fails for its time alone.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


CORE = Path(__file__).parents[1] / "replog" / "replication"


def pytest_sessionstart() -> None:
    """Refuse a core that was compiled from other sources than those that are there."""
    for module in CORE.glob("*.so"):
        source = CORE / f"{module.name.partition('.')[0]}.py"
        if source.exists() and source.stat().st_mtime > module.stat().st_mtime:
            pytest.exit(
                f"expected the compiled core to be newer than its sources, found {source} changed "
                f"since; run `make build`",
                returncode=4,
            )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all that need a JVM in one process: a second Spark session would cost 15 s."""
    for item in items:
        if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
