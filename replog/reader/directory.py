"""All partitions of a log directory, or the one that a partition directory is."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator

from replog._native.arguments import path_of
from replog.errors import UsageError
from replog.reader.checkpoints import Checkpoints
from replog.reader.names import kind_of, partition_directories
from replog.reader.partition import PartitionReader


def partition_paths(path: str | os.PathLike[str]) -> list[str]:
    """Directories of the partitions that `path` stands for: itself, or all inside, by name."""
    where = path_of(path)
    kind = kind_of(where)
    if kind == "partition":
        return [where]
    if kind == "log directory":
        return partition_directories(where)
    raise UsageError(
        f"expected a log directory or a partition directory at {where}, found a file; give the "
        f"directory that holds it"
    )


def expand_paths(paths: Iterable[str]) -> list[str]:
    """The partition directories that `paths` stand for, each once, in order.

    A path may be a log directory, a partition directory, a glob of either, or several of these with
    commas between them, as a broker's `log.dirs` has them. Raises UsageError.
    """
    found: dict[str, str] = {}
    for path in paths:
        for directory in _directories(path):
            for partition in partition_paths(directory):
                found.setdefault(os.path.realpath(partition), partition)
    return list(found.values())


def _directories(path: str) -> list[str]:
    where = path.removeprefix("file://").strip()
    where = where.removeprefix("file:") if where.startswith("file:/") else where
    if os.path.lexists(where):
        return [where]
    if "," in where:
        return [one for part in where.split(",") if part.strip() for one in _directories(part)]
    if glob.has_magic(where):
        matched = sorted(one for one in glob.glob(where) if os.path.isdir(one))
        if not matched:
            raise UsageError(f"expected directories that match {where}, found none; check the path")
        return matched
    raise UsageError(f"expected a directory at {where}, found nothing; check the path")


def open_partitions(path: str | os.PathLike[str]) -> Iterator[PartitionReader]:
    """A PartitionReader for each partition that `path` stands for, made when it is asked for."""
    checkpoints = Checkpoints()
    for directory in partition_paths(path):
        yield PartitionReader(directory, checkpoints=checkpoints)
