"""Records that say who sent them: any copy of one can be told from all others, and held whole."""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import NamedTuple

_TAG = re.compile(rb"<(\d+):(\d+):(\d+)>")


class Tag(NamedTuple):
    """Which record of which send of which story."""

    seed: int
    send: int
    place: int


def value_of(tag: Tag) -> bytes:
    head = b"<%d:%d:%d>" % tag
    filler = hashlib.md5(head).digest() * 20
    return head + filler[: zlib.crc32(head) % 300]


def tag_of(value: bytes | None) -> Tag | None:
    """None for what is no whole record of a story's."""
    found = _TAG.match(value or b"")
    if found is None:
        return None
    tag = Tag(*map(int, found.groups()))
    return tag if value_of(tag) == value else None
