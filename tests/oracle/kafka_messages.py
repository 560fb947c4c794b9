"""Kafka's messages in plain Python, straight from the table of their fields: slow, and simple.

A message is a dict of field names to values: ints, floats, bools, text, bytes (ids too), None,
lists and dicts. The generated codecs are held against this; the two share the table alone.
"""

from __future__ import annotations

import struct
from typing import Any

from codegen.schema_table import INTEGERS, Field, Struct

Fields = dict[str, Any]


class BadBytesError(Exception):
    """The bytes are not the message."""


def uvarint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def length(size: int, *, flexible: bool, width: int) -> bytes:
    return uvarint(size + 1) if flexible else size.to_bytes(width, "big", signed=True)


def encode(kind: Struct, fields: Fields, version: int) -> bytes:
    flexible = version in kind.flexible
    found = b"".join(
        encode_field(field, fields[field.name], version, flexible=flexible)
        for field in kind.plain
        if version in field.versions
    )
    if not flexible:
        return found
    tags = [
        (field.tag, encode_field(field, fields[field.name], version, flexible=True))
        for field in kind.tagged
        if version in field.versions and fields[field.name] != plain_default(field)
    ]
    return (
        found
        + uvarint(len(tags))
        + b"".join(uvarint(tag) + uvarint(len(content)) + content for tag, content in tags)
    )


def plain_default(field: Field) -> Any:
    if field.array and field.default is not None:
        return []
    if field.struct is not None and field.default is None and not field.array:
        return None if field.versions.within(field.nullable) else defaults(field.struct)
    return field.default


def defaults(kind: Struct) -> Fields:
    return {field.name: plain_default(field) for field in kind.fields}


def encode_field(field: Field, value: Any, version: int, *, flexible: bool) -> bytes:
    if field.array:
        if value is None:
            return length(-1, flexible=flexible, width=4)
        return length(len(value), flexible=flexible, width=4) + b"".join(
            encode_one(field, element, version, flexible=flexible) for element in value
        )
    if field.struct is not None and version in field.nullable:
        return b"\xff" if value is None else b"\x01" + encode(field.struct, value, version)
    return encode_one(field, value, version, flexible=flexible)


def encode_one(field: Field, value: Any, version: int, *, flexible: bool) -> bytes:
    if field.struct is not None:
        return encode(field.struct, value, version)
    match field.kind:
        case "bool":
            return bytes([value])
        case "float64":
            return struct.pack(">d", value)
        case "uuid":
            return value
        case "string" | "bytes" | "records":
            width = 2 if field.kind == "string" else 4
            if value is None:
                return length(-1, flexible=flexible, width=width)
            content = value.encode() if field.kind == "string" else bytes(value)
            return length(len(content), flexible=flexible, width=width) + content
        case kind:
            size, low, _ = INTEGERS[kind]
            return value.to_bytes(size, "big", signed=low < 0)


class Source:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.content) - self.at:
            raise BadBytesError(f"{size} bytes at {self.at}")
        self.at += size
        return self.content[self.at - size : self.at]

    def uvarint(self) -> int:
        number = 0
        for place in range(5):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if number >= 1 << 32:
                    raise BadBytesError("a varint above 32 bits")
                return number
        raise BadBytesError("a varint above 5 bytes")

    def length(self, *, flexible: bool, width: int, nullable: bool) -> int | None:
        size = self.uvarint() - 1 if flexible else int.from_bytes(self.take(width), signed=True)
        if size == -1 and nullable:
            return None
        if not 0 <= size < 1 << 31:
            raise BadBytesError(f"length {size}")
        return size


def decode_whole(kind: Struct, content: bytes, version: int) -> Fields:
    source = Source(content)
    found = decode(kind, source, version)
    if source.at != len(content):
        raise BadBytesError("bytes behind the message")
    return found


def decode(kind: Struct, source: Source, version: int) -> Fields:
    found = defaults(kind)
    flexible = version in kind.flexible
    for field in kind.plain:
        if version in field.versions:
            found[field.name] = decode_field(field, source, version, flexible=flexible)
    if not flexible:
        return found
    by_tag = {field.tag: field for field in kind.tagged if version in field.versions}
    for _ in range(source.uvarint()):
        tag = source.uvarint()
        size = source.uvarint()
        if size > len(source.content) - source.at:
            raise BadBytesError("a tag longer than what is left")
        end = source.at + size
        if tag in by_tag:
            found[by_tag[tag].name] = decode_field(by_tag[tag], source, version, flexible=True)
            if source.at != end:
                raise BadBytesError("a tag of another length")
        source.at = end
    return found


def decode_field(field: Field, source: Source, version: int, *, flexible: bool) -> Any:
    nullable = version in field.nullable
    if field.array:
        count = source.length(flexible=flexible, width=4, nullable=nullable)
        if count is None:
            return None
        if count > len(source.content) - source.at:
            raise BadBytesError(f"{count} elements")
        return [decode_one(field, source, version, flexible=flexible) for _ in range(count)]
    if field.struct is not None and nullable:
        mark = source.take(1)
        if mark not in {b"\x01", b"\xff"}:
            raise BadBytesError("neither a struct nor null")
        return decode(field.struct, source, version) if mark == b"\x01" else None
    return decode_one(field, source, version, flexible=flexible, nullable=nullable)


def decode_one(
    field: Field, source: Source, version: int, *, flexible: bool, nullable: bool = False
) -> Any:
    if field.struct is not None:
        return decode(field.struct, source, version)
    match field.kind:
        case "bool":
            return source.take(1) != b"\x00"
        case "float64":
            return struct.unpack(">d", source.take(8))[0]
        case "uuid":
            return source.take(16)
        case "string":
            size = source.length(flexible=flexible, width=2, nullable=nullable)
            try:
                return None if size is None else source.take(size).decode()
            except UnicodeDecodeError as error:
                raise BadBytesError("not UTF-8") from error
        case "bytes" | "records":
            size = source.length(flexible=flexible, width=4, nullable=nullable)
            return None if size is None else source.take(size)
        case kind:
            size, low, _ = INTEGERS[kind]
            return int.from_bytes(source.take(size), signed=low < 0)
