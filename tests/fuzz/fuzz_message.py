"""Fuzz target: bytes taken for a metadata or control record's value.

The first byte chooses: 0-127 the frame of a metadata record, 128-255 a control record of that type.
Whatever comes: a message that is written back and read again as the same one, or a typed error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from replog.errors import ReplogError
from replog.wire.control_records import MESSAGES as CONTROL_KINDS
from replog.wire.metadata_records import MESSAGES as METADATA_KINDS
from replog.wire.metadata_values import decode_control, decode_metadata, encode_metadata
from tests.fuzz import fuzzing

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROL = 128


def one_input(content: bytes) -> None:
    if not content:
        return
    try:
        if content[0] < CONTROL:
            found = decode_metadata(content[1:])
        else:
            found = decode_control(bytes([0, 0, 0, content[0] - CONTROL]), content[1:])
    except ReplogError:
        return
    again = type(found.message).decode(found.message.encode(found.version), found.version)
    # By what they print: a NaN is not equal to itself.
    assert repr(again) == repr(found.message)
    assert found.as_json().keys() == again.as_json(found.version).keys()


def seeds() -> Iterator[bytes]:
    for kind in METADATA_KINDS.values():
        for version in range(kind.LOWEST_VERSION, kind.HIGHEST_VERSION + 1):
            yield bytes([0]) + encode_metadata(kind(), version)
    for key, kind in CONTROL_KINDS.items():
        yield bytes([CONTROL + key]) + kind().encode(0)


if __name__ == "__main__":
    fuzzing.main(one_input, seeds())
