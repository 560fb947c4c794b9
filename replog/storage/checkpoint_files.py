"""The text checkpoints: offsets of many partitions, and the leader epochs of one.

    0                       version
    2                       number of entries
    orders 0 9120           offset checkpoint: topic partition offset
    orders 1 8800           (leader-epoch-checkpoint: epoch start_offset)

UTF-8, a line feed behind each line. A file is replaced whole and atomically, so a crash leaves the
old one or the new one. Reading tells three cases apart: None if there is no file, what it holds
(nothing, if it is empty), and CorruptFileError if it is damaged; what damage means is for the
caller to decide, who knows whether the contents can be derived from the log.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from replog._native.mapped_file import read_file, replace_file
from replog.config import INT_MAX, LONG_MAX
from replog.errors import CorruptFileError, UsageError
from replog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

VERSION = 0

_LINE_END = re.compile(r"\r\n|\r|\n")
_COLUMN_GAP = re.compile(r"[ \t\f\v]+")
_NUMBER = re.compile(r"[0-9]{1,19}\Z")


def read_offset_checkpoint(path: str | os.PathLike[str]) -> dict[TopicPartition, int] | None:
    """Offset of each partition; None if there is no such file. Raises CorruptFileError."""
    lines = _read_entries(os.fspath(path), columns=3)
    if lines is None:
        return None
    offsets: dict[TopicPartition, int] = {}
    for line_number, (topic, partition, offset) in lines:
        name = f"{topic}-{_number(path, line_number, partition, INT_MAX)}"
        try:
            topic_partition = TopicPartition.parse(name)
        except UsageError as error:
            raise _corrupt(path, line_number, "a topic's name", topic) from error
        if topic_partition in offsets:
            raise _corrupt(path, line_number, "each partition once", f"{name} again")
        offsets[topic_partition] = _number(path, line_number, offset, LONG_MAX)
    return offsets


def write_offset_checkpoint(
    path: str | os.PathLike[str], offsets: Mapping[TopicPartition, int]
) -> None:
    """Replace the file, durable on return. Raises NoSpaceError, StorageError: the old one stays."""
    lines = [offset_line(key, offset) for key, offset in sorted(offsets.items())]
    replace_file(os.fspath(path), offset_checkpoint_text(lines))


def offset_line(topic_partition: TopicPartition, offset: int) -> bytes:
    """The line of one partition in an offset checkpoint."""
    return f"{topic_partition.topic} {topic_partition.partition} {offset}\n".encode()


def offset_checkpoint_text(lines: Sequence[bytes]) -> bytes:
    """An offset checkpoint of these lines."""
    return b"%d\n%d\n" % (VERSION, len(lines)) + b"".join(lines)


def read_leader_epochs(path: str | os.PathLike[str]) -> list[tuple[int, int]] | None:
    """(epoch, start_offset) in the order of the file; None if there is none.

    Raises CorruptFileError. Entries out of order are the epoch cache's to heal, as Kafka's does.
    """
    lines = _read_entries(os.fspath(path), columns=2)
    if lines is None:
        return None
    return [
        (_number(path, line_number, epoch, INT_MAX), _number(path, line_number, start, LONG_MAX))
        for line_number, (epoch, start) in lines
    ]


def write_leader_epochs(path: str | os.PathLike[str], entries: Iterable[tuple[int, int]]) -> None:
    """Replace the file, durable on return. Raises NoSpaceError, StorageError: the old one stays."""
    _write_entries(path, list(entries))


def leader_epochs_text(entries: Iterable[tuple[int, int]]) -> bytes:
    """What write_leader_epochs puts into the file."""
    return _text(list(entries))


def _read_entries(path: str, *, columns: int) -> list[tuple[int, list[str]]] | None:
    """Line number and columns of each entry; None if there is no file."""
    try:
        text = read_file(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _corrupt(path, 1, "UTF-8", f"byte {error.object[error.start]:#04x}") from error
    lines = _LINE_END.split(text)
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    if lines[0] != str(VERSION):
        raise _corrupt(path, 1, f"version {VERSION}", lines[0])
    if len(lines) == 1:
        return []
    count = _number(path, 2, lines[1], INT_MAX)
    entries = [
        (number, _COLUMN_GAP.split(line.rstrip(" \t\f\v")))
        for number, line in enumerate(lines[2:], 3)
    ]
    if len(entries) != count:
        raise _corrupt(path, 2, f"as many entries as lines behind it ({len(entries)})", str(count))
    for number, found in entries:
        if len(found) != columns:
            raise _corrupt(path, number, f"{columns} columns", f"{len(found)}")
    return entries


def _write_entries(path: str | os.PathLike[str], entries: Sequence[Sequence[object]]) -> None:
    replace_file(os.fspath(path), _text(entries))


def _text(entries: Sequence[Sequence[object]]) -> bytes:
    lines = [str(VERSION), str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
    return "".join(f"{line}\n" for line in lines).encode()


def _number(path: str | os.PathLike[str], line_number: int, text: str, largest: int) -> int:
    if not _NUMBER.match(text) or int(text) > largest:
        raise _corrupt(path, line_number, f"an integer from 0 to {largest}", text)
    return int(text)


def _corrupt(
    path: str | os.PathLike[str], line_number: int, expected: str, found: str
) -> CorruptFileError:
    return CorruptFileError(
        f"expected {expected} in line {line_number} of the checkpoint {os.fspath(path)!r}, found "
        f"{found!r}; restore the file, or delete it to have replog start without it",
        path=os.fspath(path),
        line_number=line_number,
    )
