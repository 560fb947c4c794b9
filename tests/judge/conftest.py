"""Kafka's jars, its judge and the directories that replog wrote, once a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.judge import kafka
from tests.judge.kafka import Judge
from tests.judge.written import KINDS


@pytest.fixture(scope="session")
def classes() -> str:
    absent = kafka.missing()
    if absent and not os.environ.get("CI"):
        pytest.skip(absent)
    assert absent is None, absent
    return kafka.class_path()


@pytest.fixture(scope="session")
def judge(classes: str) -> Iterator[Judge]:
    process = Judge(classes)
    yield process
    process.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a closed directory KIND-0 of each kind. Not to be changed: take copies."""
    folder = tmp_path_factory.mktemp("written")
    for name, kind in KINDS.items():
        kind.make(folder / f"{name}-0")
    return folder
