"""Reads `replog/wire/schemas/*.schema`: which fields a message has, in which versions.

The grammar is told at the head of `metadata_records.schema`. Whatever does not follow it is a
SchemaError that names file and line.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Iterator

VERSION_MAX = 2**15 - 1
INTEGERS = {
    "int8": (1, -(2**7), 2**7 - 1),
    "int16": (2, -(2**15), 2**15 - 1),
    "uint16": (2, 0, 2**16 - 1),
    "int32": (4, -(2**31), 2**31 - 1),
    "uint32": (4, 0, 2**32 - 1),
    "int64": (8, -(2**63), 2**63 - 1),
}
FIXED_BYTES = {name: size for name, (size, _, _) in INTEGERS.items()} | {
    "bool": 1,
    "float64": 8,
    "uuid": 16,
}
LENGTH_PREFIXED = {"string", "bytes", "records"}
ZERO_UUID = bytes(16)
# What the base class of all messages calls its own.
TAKEN_NAMES = {
    "as_json",
    "decode",
    "encode",
    "field_names",
    "field_values",
    "fields_as_json",
    "read_fields",
    "write_fields",
}


class SchemaError(Exception):
    """A line of a schema file that cannot be read."""


@dataclasses.dataclass(frozen=True)
class Versions:
    """Message versions [low, high], both inclusive."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """`N+`, `N-M` or `N`."""
        found = re.fullmatch(r"(\d+)(\+|-(\d+))?", text)
        if not found:
            raise SchemaError(f"expected versions N, N+ or N-M, found {text!r}")
        low = int(found[1])
        high = low if found[2] is None else VERSION_MAX if found[2] == "+" else int(found[3])
        return cls(low, high)

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def within(self, other: Versions) -> bool:
        """Whether all of them are in `other`."""
        return other.low <= self.low and self.high <= other.high

    def cut(self, other: Versions) -> Versions:
        """Those that are in both."""
        return Versions(max(self.low, other.low), min(self.high, other.high))


NO_VERSIONS = Versions(1, 0)


@dataclasses.dataclass
class Field:
    """One field; `kind` is a primitive's name or a struct's."""

    name: str
    kind: str
    array: bool
    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int | None = None
    ignorable: bool = False
    default: object = None
    struct: Struct | None = None

    @property
    def json_name(self) -> str:
        """The name in Kafka's JSON: `partition_id` is `partitionId`."""
        first, *rest = self.name.split("_")
        return first + "".join(part.capitalize() for part in rest)


@dataclasses.dataclass
class Struct:
    """A message (`api` is set), or what stands inside one."""

    name: str
    versions: Versions
    flexible: Versions
    api: int | None = None
    fields: list[Field] = dataclasses.field(default_factory=list)

    @property
    def tagged(self) -> list[Field]:
        """Fields behind all others, each only where it is not its default."""
        return sorted(
            (field for field in self.fields if field.tag is not None),
            key=lambda field: field.tag or 0,
        )

    @property
    def plain(self) -> list[Field]:
        """Fields that are written one after the other."""
        return [field for field in self.fields if field.tag is None]


@dataclasses.dataclass
class Module:
    """One schema file: its messages, and the structs inside them, in order."""

    name: str
    messages: list[Struct]
    structs: list[Struct]


def read_schema(name: str, text: str) -> Module:
    """Parse a schema file. Raises SchemaError with `name` and the line."""
    reader = _Reader(name)
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.split("#", 1)[0].rstrip()
        if stripped:
            try:
                reader.take(len(stripped) - len(stripped.lstrip()), stripped.split())
            except SchemaError as error:
                raise SchemaError(f"{name}.schema, line {number}: {error}") from None
    reader.finish()
    return Module(name, reader.messages, reader.structs)


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[Struct] = []
        self.structs: list[Struct] = []
        self._open: list[tuple[int, Struct]] = []
        self._named: dict[str, Struct] = {}

    def take(self, indent: int, words: list[str]) -> None:
        if words[0] == "message":
            self._begin_message(words)
            return
        while self._open and self._open[-1][0] >= indent:
            self._open.pop()
        if not self._open:
            raise SchemaError(f"expected a message before its fields, found {' '.join(words)!r}")
        self._add_field(indent, self._open[-1][1], words)

    def finish(self) -> None:
        for struct in self.structs:
            if not struct.fields:
                raise SchemaError(f"{self.name}.schema: expected fields of struct {struct.name}")

    def _begin_message(self, words: list[str]) -> None:
        if len(words) != 8 or words[2::2] != ["api", "versions", "flexible"]:
            raise SchemaError("expected `message NAME api KEY versions LOW-HIGH flexible LOW+`")
        versions, flexible = Versions.parse(words[5]), Versions.parse(words[7])
        message = Struct(words[1], versions, flexible, api=int(words[3]))
        self._name(message)
        self.messages.append(message)
        self._open = [(-1, message)]

    def _name(self, struct: Struct) -> None:
        if struct.name in self._named:
            raise SchemaError(f"expected one struct named {struct.name} in the file, found two")
        self._named[struct.name] = struct

    def _add_field(self, indent: int, parent: Struct, words: list[str]) -> None:
        if len(words) < 2:
            raise SchemaError("expected `FIELD TYPE ...`")
        name, kind = words[0], words[1]
        array = kind.startswith("[]")
        field = Field(name, kind.removeprefix("[]"), array, parent.versions)
        if name in TAKEN_NAMES or keyword.iskeyword(name) or not name.isidentifier():
            raise SchemaError(f"expected a name that Python and Message leave free, found {name}")
        text = self._qualify(field, parent, iter(words[2:]))
        if any(other.name == name for other in parent.fields):
            raise SchemaError(f"expected field {name} once in {parent.name}")
        parent.fields.append(field)
        if field.kind[0].isupper():
            self._attach_struct(indent, field)
        elif field.kind not in FIXED_BYTES and field.kind not in LENGTH_PREFIXED:
            raise SchemaError(f"expected a known type, found {field.kind}")
        field.default = _default(field, text)

    def _attach_struct(self, indent: int, field: Field) -> None:
        known = self._named.get(field.kind)
        if known is None:
            top = self._open[0][1]
            known = Struct(field.kind, top.versions, top.flexible)
            self._name(known)
            self._open.append((indent, known))
            self.structs.append(known)
        field.struct = known

    @staticmethod
    def _qualify(field: Field, parent: Struct, words: Iterator[str]) -> str | None:
        """Take the words behind the type; returns the default's text."""
        for word in words:
            if word == "nullable":
                field.nullable = field.versions
            elif word == "ignorable":
                field.ignorable = True
            elif word == "tag":
                field.tag = int(next(words))
            elif word == "=":
                return next(words, "")
            elif field.nullable is not NO_VERSIONS:
                field.nullable = Versions.parse(word).cut(field.versions)
            else:
                field.versions = Versions.parse(word).cut(parent.versions)
        if field.tag is not None and not field.versions.within(parent.flexible):
            raise SchemaError(f"expected tagged field {field.name} in flexible versions only")
        return None


def _default(field: Field, text: str | None) -> object:
    if text == "null":
        if not field.versions.within(field.nullable):
            raise SchemaError(f"expected {field.name} to allow its default null in every version")
        return None
    if field.array:
        return ()
    if field.kind in INTEGERS:
        value = int(text or 0)
        _, low, high = INTEGERS[field.kind]
        if not low <= value <= high:
            raise SchemaError(f"expected a default of type {field.kind}, found {value}")
        return value
    plain = {"bool": text == "true", "float64": float(text or 0) if field.kind == "float64" else 0}
    others = {"string": text or "", "bytes": b"", "records": None, "uuid": ZERO_UUID}
    return (plain | others).get(field.kind)


def bytes_min(struct: Struct) -> int:
    """Bytes that the struct takes at least, in whichever version: a bound for array lengths."""
    total = 0
    for field in struct.plain:
        if struct.versions.within(field.versions):
            total += field_bytes_min(field)
    return max(total + struct.versions.within(struct.flexible), 1)


def field_bytes_min(field: Field, *, element: bool = False) -> int:
    """Bytes that one value of the field takes at least (with `element`: one of its elements)."""
    if field.array and not element:
        return 1
    if field.struct is not None:
        return 1 if field.nullable is not NO_VERSIONS and not element else bytes_min(field.struct)
    return FIXED_BYTES.get(field.kind, 1)
