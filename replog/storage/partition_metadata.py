"""`partition.metadata`: the topic id that a partition directory belongs to.

    version: 0
    topic_id: Zm9vYmFyYmF6cXV1eDEyMw

UTF-8, no line feed at the end, replaced atomically. Written before the first record, so that a
directory of a deleted topic is never taken for one of a new topic with the same name.
"""

from __future__ import annotations

import os
import uuid

from replog._native.mapped_file import read_file, replace_file
from replog.errors import CorruptFileError, UsageError
from replog.storage.kafka_uuid import format_uuid, parse_uuid

PARTITION_METADATA_FILE = "partition.metadata"

_ZERO = uuid.UUID(int=0)


def read_topic_id(path: str | os.PathLike[str]) -> uuid.UUID | None:
    """The topic id in the file at `path`, None if there is no file. Raises CorruptFileError."""
    name = os.fspath(path)
    try:
        content = read_file(name)
    except FileNotFoundError:
        return None
    try:
        version_line, id_line = content.decode().splitlines()
        version_key, version = version_line.split(":")
        id_key, id_text = id_line.split(":")
        topic_id = parse_uuid(id_text.strip())
        known_keys = (version_key.strip(), id_key.strip()) == ("version", "topic_id")
        sound = known_keys and int(version) >= 0 and topic_id != _ZERO
    except ValueError as error:
        raise _corrupt(name, content) from error
    if not sound:
        raise _corrupt(name, content)
    return topic_id


def write_topic_id(path: str | os.PathLike[str], topic_id: uuid.UUID) -> None:
    """Replace the file; durable on return. Raises UsageError for the zero id, NoSpaceError."""
    if topic_id == _ZERO:
        raise UsageError(f"expected a topic id other than zero for {os.fspath(path)!r}")
    replace_file(os.fspath(path), topic_id_text(topic_id))


def topic_id_text(topic_id: uuid.UUID) -> bytes:
    """What write_topic_id puts into the file."""
    return f"version: 0\ntopic_id: {format_uuid(topic_id)}".encode()


def lacks_id_and_records(directory: str, names: list[str]) -> bool:
    """Whether a new partition has neither its topic id, which is synced before any record, nor any.

    `names` are those in the directory.
    """
    return PARTITION_METADATA_FILE not in names and not any(
        name.endswith(".log") and os.path.getsize(os.path.join(directory, name)) for name in names
    )


def _corrupt(path: str, content: bytes) -> CorruptFileError:
    return CorruptFileError(
        f"expected the lines 'version: 0' and 'topic_id: ' with 22 base64 characters in {path!r}, "
        f"found {content[:100]!r}; restore the file from another replica of the topic",
        path=path,
    )
