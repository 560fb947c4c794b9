"""Keys and values of the metadata log's records, and back.

A metadata record has no key; its value is framed: unsigned varints for the frame's version 1, the
API key and the message's version, then the message (KIP-631). A control record's key is
`version i16 | type i16`; its value is a message that begins with its own version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from replog._native.framed_messages import decode_batch, decode_framed, encode_framed
from replog._native.message_cursor import Message
from replog.errors import MalformedMessageError, UnsupportedMessageVersionError
from replog.wire.control_records import MESSAGES as CONTROL_KINDS
from replog.wire.metadata_records import MESSAGES as METADATA_KINDS

if TYPE_CHECKING:
    from typing_extensions import Buffer

CONTROL_KEY_BYTES = 4
_METADATA_KINDS = dict(METADATA_KINDS)
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class VersionedMessage(NamedTuple):
    """A message, and the version in which it was written."""

    version: int
    message: Message

    @property
    def type_name(self) -> str:
        """The name in Kafka's tools: `PARTITION_CHANGE_RECORD`."""
        return _WORDS.sub("_", type(self.message).__name__).upper()

    def as_json(self) -> dict[str, Any]:
        """Its fields as Kafka's tools print them."""
        return self.message.as_json(self.version)


def decode_metadata(value: bytes) -> VersionedMessage:
    """The message in a metadata record's value, which must hold nothing else.

    Raises MalformedMessageError, or UnsupportedMessageVersionError.
    """
    version, message = decode_framed(value, _METADATA_KINDS)
    return VersionedMessage(version, message)


def decode_metadata_batch(batch: Buffer) -> list[Message]:
    """The messages in one batch of metadata records, in order; none in a control batch.

    Raises CorruptBatchError, and as decode_metadata does.
    """
    return decode_batch(batch, _METADATA_KINDS)


def encode_metadata(message: Message, version: int) -> bytes:
    """The value of a metadata record; inverse of decode_metadata."""
    return encode_framed(message, version)


def decode_control(key: bytes, value: bytes) -> VersionedMessage:
    """The message of a control record of the metadata log. Raises as decode_metadata does."""
    if len(key) < CONTROL_KEY_BYTES or len(value) < 2:
        raise MalformedMessageError(
            f"expected a control record with a key of 4 bytes and a value that begins with its "
            f"version, found {len(key)} and {len(value)} bytes; the record is damaged"
        )
    kind = CONTROL_KINDS.get(int.from_bytes(key[2:4], "big", signed=True))
    if kind is None:
        raise UnsupportedMessageVersionError(
            f"expected a control record of the metadata log, found one of type "
            f"{int.from_bytes(key[2:4], 'big', signed=True)}; a later replog may know it"
        )
    version = int.from_bytes(value[:2], "big", signed=True)
    return VersionedMessage(version, kind.decode(value, version))


def control_key(message: Message) -> bytes:
    """The key of the control record that carries `message`."""
    return bytes(2) + int(message.API_KEY or 0).to_bytes(2, "big")
