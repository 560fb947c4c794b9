"""What the files and directories of a log directory are called, and which is which.

A partition directory is NAME-N; a log directory holds partition directories. A log directory may
itself be called NAME-N (`broker-1`), so it is told by what is inside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from replog.config import LONG_MAX
from replog.errors import LogTruncatedError, StorageError, UsageError
from replog.types import TopicPartition

RELATIVE_OFFSETS = 1 << 31  # how many offsets one segment can hold
SEGMENT_NAME = re.compile(r"(\d{20})\.log\Z")
_PARTITION_NAME = re.compile(r".+-\d+\Z")
_RECORDS_NAME = re.compile(
    r"(\d{20}\.log(\.\w+)?|\d{20}-\d{10}\.checkpoint|bootstrap\.checkpoint)\Z"
)

META_FILE = "meta.properties"
PARTITION_METADATA_FILE = "partition.metadata"

PathKind = Literal["log directory", "partition", "records", "side file"]


class FileSeen(NamedTuple):
    """What tells a data file from another of its name, and whether it is as it was.

    sealed: nothing may be written to it any more, so that size and time must stay.
    """

    inode: int
    size_bytes: int
    modified_ms: int
    sealed: bool


class SegmentName(NamedTuple):
    """A data file of a partition, and what the batches in it must keep to.

    base_offset: from its name. upper_offset: exclusive, the base of the next segment or what an
    index can address. seen: the file that was there when the directory was listed, which a rename
    takes along; None if any file of this name will do.
    """

    base_offset: int
    path: str
    upper_offset: int = LONG_MAX
    seen: FileSeen | None = None


def names_in(path: str) -> list[str]:
    """The names in a directory.

    Raises LogTruncatedError if it is gone, StorageError if the system refuses to list it.
    """
    try:
        return os.listdir(path)
    except FileNotFoundError as error:
        raise LogTruncatedError(
            f"expected the directory {path}, found it gone: somebody deleted or moved it "
            f"meanwhile; look for the partition again",
            path=path,
        ) from error
    except OSError as error:
        raise StorageError(
            f"expected a directory that can be listed at {path}, found the system to refuse it "
            f"({error.strerror}); check the path and its permissions",
            path=path,
            errno=error.errno,
        ) from error


def kind_of(path: str) -> PathKind:
    """What `path` is, by its name and content.

    Raises UsageError if it is nothing of a log, LogTruncatedError, StorageError.
    """
    if not os.path.lexists(path):
        raise UsageError(f"expected a file or directory at {path}, found nothing; check the path")
    if not os.path.isdir(path):
        return "records" if _RECORDS_NAME.match(os.path.basename(path)) else "side file"
    names = names_in(path)
    if META_FILE in names or partition_directories(path):
        return "log directory"
    if PARTITION_METADATA_FILE in names or any(SEGMENT_NAME.match(name) for name in names):
        return "partition"
    if _PARTITION_NAME.match(os.path.basename(os.path.abspath(path))):
        return "partition"
    raise UsageError(
        f"expected a log directory (partition directories NAME-N inside) or a partition directory "
        f"(segment files inside) at {path}, found neither; check the path"
    )


def partition_directories(path: str) -> list[str]:
    """Partition directories of a log directory by name; deleted and stray ones are left out.

    Many programs call a directory NAME-N: where nothing else says that this is a log directory,
    only those with a file of a log count.
    """
    names = names_in(path)
    found = (os.path.join(path, name) for name in sorted(names) if _PARTITION_NAME.match(name))
    is_told = META_FILE in names
    return [one for one in found if os.path.isdir(one) and (is_told or _holds_log(one))]


def _holds_log(path: str) -> bool:
    return any(
        name == PARTITION_METADATA_FILE or _RECORDS_NAME.match(name) for name in names_in(path)
    )


def topic_partition_of(path: str) -> TopicPartition:
    """The partition that a partition directory, or a file in one, belongs to."""
    directory = os.path.abspath(path)
    if not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    name = os.path.basename(directory)
    if name.endswith(("-delete", "-stray", "-future")) and "." in name:
        name = name[: name.rindex(".")]
    return TopicPartition.parse(name)


def segment_names(path: str) -> list[SegmentName]:
    """The `.log` files of a directory by base offset, whatever a broker is about with them."""
    names = {
        int(match[1]): match[0] for name in names_in(path) if (match := SEGMENT_NAME.match(name))
    }
    return bounded(path, names)


def bounded(path: str, names: Mapping[int, str]) -> list[SegmentName]:
    """The segments of these files, by base offset: each ends below the next one."""
    bases = sorted(names)
    uppers = [*bases[1:], *(base + RELATIVE_OFFSETS for base in bases[-1:])]
    return [
        SegmentName(base, os.path.join(path, names[base]), upper)
        for base, upper in zip(bases, uppers, strict=True)
    ]


def checkpoint_home(path: str) -> str:
    """Where the offset checkpoints of a partition directory stand: the log directory, or itself."""
    parent = os.path.dirname(os.path.abspath(path))
    return parent if os.path.exists(os.path.join(parent, META_FILE)) else path
