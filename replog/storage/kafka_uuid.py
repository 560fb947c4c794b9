"""Topic and directory ids as Kafka writes them: 16 bytes as URL-safe base64 without padding."""

from __future__ import annotations

import base64
import binascii
import uuid

RESERVED_IDS = 100
TEXT_LENGTH = 22


def format_uuid(value: uuid.UUID) -> str:
    """The 22 characters that stand for `value` in Kafka's files and tools."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_uuid(text: str) -> uuid.UUID:
    """Inverse of format_uuid. Raises ValueError for anything that it does not write."""
    try:
        value = uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"expected {TEXT_LENGTH} base64 characters, found {text!r}") from error
    if format_uuid(value) != text:
        raise ValueError(f"expected {TEXT_LENGTH} canonical base64 characters, found {text!r}")
    return value


def random_uuid() -> uuid.UUID:
    """A new id: never one of the first 100, which are reserved, nor one that starts with '-'."""
    while True:
        value = uuid.uuid4()
        if value.int >= RESERVED_IDS and not format_uuid(value).startswith("-"):
            return value
