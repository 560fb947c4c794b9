"""One Spark session for the whole run; without Java or PySpark the tests are skipped, saying so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_integration.session import local_session, missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    problem = missing()
    if problem is not None:
        pytest.skip(problem)
    session = local_session("replog tests", brief=True)
    yield session
    session.stop()
