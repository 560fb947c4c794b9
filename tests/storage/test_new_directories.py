"""Directories that an open makes: whole and durable, or not there."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from replog._native import recorded_calls
from replog.errors import ReplogError
from replog.storage.directory_access import make_directory
from replog.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def calls() -> Iterator[None]:
    recorded_calls.install()
    yield
    recorded_calls.uninstall()


def test_each_name_of_a_new_path_is_synced(tmp_path: Path, calls: None) -> None:
    """Before the next one is made below it: a crash leaves a path that ends early, and no hole."""
    recorded_calls.record()
    with PartitionLog.open(tmp_path / "a" / "b" / "orders-0"):
        made = recorded_calls.recorded()
    order = [
        (call.kind, os.path.relpath(call.path, tmp_path))
        for call in made
        if call.kind == "mkdir" or (call.kind == "fsync_dir" and "orders" not in call.path)
    ]
    assert order == [
        ("mkdir", "a"),
        ("fsync_dir", "."),
        ("mkdir", "a/b"),
        ("fsync_dir", "a"),
        ("mkdir", "a/b/orders-0"),
        ("fsync_dir", "a/b"),
    ]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("kind", ["mkdir", "fsync_dir"])
def test_what_could_not_be_made_whole_is_not_there(
    tmp_path: Path, calls: None, kind: str, nth: int
) -> None:
    recorded_calls.fail(kind, errno.ENOSPC, nth=nth, times=1)
    with pytest.raises(ReplogError):
        make_directory(str(tmp_path / "a" / "b" / "orders-0"))
    assert not any(tmp_path.iterdir())
    assert make_directory(str(tmp_path / "a" / "b" / "orders-0"))
