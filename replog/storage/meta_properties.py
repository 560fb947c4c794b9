"""`meta.properties`: which cluster, node and directory a log directory is.

A Java properties file: `key=value` lines in any order, comments behind # or !, escapes with a
backslash. Version 1 has node.id, cluster.id and directory.id; version 0 called the node broker.id.
Replaced atomically. A directory whose ids are not the caller's must not be written to.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import TYPE_CHECKING

from replog._native.mapped_file import read_file, replace_file
from replog.errors import CorruptFileError, UsageError
from replog.storage.kafka_uuid import format_uuid, parse_uuid, random_uuid

if TYPE_CHECKING:
    import uuid

META_PROPERTIES_FILE = "meta.properties"
FIRST_NODE_ID = 1

_NODE_ID_KEYS = {0: "broker.id", 1: "node.id"}
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)\Z", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|\Z)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Ids of a log directory; directory_id is None in files written before Kafka 3.7."""

    cluster_id: str | None
    node_id: int | None
    directory_id: uuid.UUID | None = None
    version: int = 1


def read_meta_properties(path: str | os.PathLike[str]) -> MetaProperties | None:
    """What the file at `path` says, None if there is no file. Raises CorruptFileError."""
    name = os.fspath(path)
    try:
        content = read_file(name)
    except FileNotFoundError:
        return None
    try:
        return _parse(parse_properties(content.decode("latin-1")))
    except (ValueError, KeyError) as error:
        raise CorruptFileError(
            f"expected version 0 or 1 with its node id, cluster id and directory id in {name!r}, "
            f"found {content[:300]!r} ({error}); restore the file",
            path=name,
        ) from error


def settle_ids(directory: str, cluster_id: str | None, node_id: int | None) -> MetaProperties:
    """The ids of a log directory, which must be those asked for; a new one gets them, or fresh
    ones. Raises UsageError for others, CorruptFileError.
    """
    path = os.path.join(directory, META_PROPERTIES_FILE)
    found = read_meta_properties(path)
    if found is None:
        found = MetaProperties(
            cluster_id=format_uuid(random_uuid()) if cluster_id is None else cluster_id,
            node_id=FIRST_NODE_ID if node_id is None else node_id,
            directory_id=random_uuid(),
        )
        write_meta_properties(path, found)
    for name, asked, held in (
        ("cluster", cluster_id, found.cluster_id),
        ("node", node_id, found.node_id),
    ):
        if asked is not None and held is not None and asked != held:
            raise UsageError(
                f"expected a log directory of {name} {asked!r}, found {path} to be of "
                f"{held!r}; give the right directory, or an empty one",
                path=path,
            )
    return found


def _parse(properties: dict[str, str]) -> MetaProperties:
    version = int(properties["version"])
    if version not in _NODE_ID_KEYS:
        raise ValueError(f"version {version}")
    node_id = properties.get(_NODE_ID_KEYS[version])
    if version == 1 and (node_id is None or "cluster.id" not in properties):
        raise ValueError("node.id or cluster.id is missing")
    if node_id is not None and int(node_id) < 0:
        raise ValueError(f"node id {node_id}")
    directory_id = properties.get("directory.id")
    return MetaProperties(
        cluster_id=properties.get("cluster.id"),
        node_id=None if node_id is None else int(node_id),
        directory_id=None if directory_id is None else parse_uuid(directory_id),
        version=version,
    )


def write_meta_properties(path: str | os.PathLike[str], properties: MetaProperties) -> None:
    """Replace the file, durable on return. Raises NoSpaceError, StorageError: the old one stays."""
    directory_id = properties.directory_id
    pairs = {
        _NODE_ID_KEYS[properties.version]: properties.node_id,
        "directory.id": None if directory_id is None else format_uuid(directory_id),
        "version": properties.version,
        "cluster.id": properties.cluster_id,
    }
    lines = [f"{key}={_escape(str(value))}\n" for key, value in pairs.items() if value is not None]
    replace_file(os.fspath(path), "".join(["#\n", *lines]).encode("latin-1"))


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties text; a later one replaces an earlier. Raises ValueError."""
    pairs: dict[str, str] = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        logical = line.lstrip(" \t\f")
        if not logical or logical[0] in "#!":
            continue
        while _CONTINUED.search(logical):
            logical = logical[:-1] + next(lines, "").lstrip(" \t\f")
        pair = _PAIR.match(logical)
        if pair is None:
            raise ValueError(f"line {line!r}")
        pairs[_unescape(pair[1])] = _unescape(pair[2])
    return pairs


def _unescape(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise ValueError(f"escape in {text!r}")
        return _LETTERS.get(escape[2], escape[2] or "")

    # Java writes what lies beyond 16 bits as two escapes, a surrogate pair.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16")


def _escape(value: str) -> str:
    escaped = re.sub(r"([\\=:#!])", r"\\\1", value)
    for letter, character in _LETTERS.items():
        escaped = escaped.replace(character, f"\\{letter}")
    if escaped.startswith(" "):
        escaped = f"\\{escaped}"
    return "".join(
        symbol if " " <= symbol <= "~" else _unicode_escapes(symbol) for symbol in escaped
    )


def _unicode_escapes(symbol: str) -> str:
    units = symbol.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
