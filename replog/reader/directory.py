"""All partitions of a log directory, or the one that a partition directory is."""

from __future__ import annotations

import os
from collections.abc import Iterator

from replog.errors import UsageError
from replog.reader.names import kind_of, partition_directories
from replog.reader.partition import PartitionReader


def partition_paths(path: str | os.PathLike[str]) -> list[str]:
    """Directories of the partitions that `path` stands for: itself, or all inside, by name."""
    where = os.fspath(path)
    kind = kind_of(where)
    if kind == "partition":
        return [where]
    if kind == "log directory":
        return partition_directories(where)
    raise UsageError(
        f"expected a log directory or a partition directory at {where}, found a file; give the "
        f"directory that holds it"
    )


def open_partitions(path: str | os.PathLike[str]) -> Iterator[PartitionReader]:
    """A PartitionReader for each partition that `path` stands for, made when it is asked for."""
    for directory in partition_paths(path):
        yield PartitionReader(directory)
