"""Rows of `replog dump --metadata`: the metadata log's records and snapshots, decoded.

A row: `offset, timestamp, leader_epoch, type, version, data`; `data` has Kafka's own JSON names and
forms. A record that cannot be decoded has `problem`, a sentence, in place of `data`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

from replog.cli.dump_rows import file_record_rows
from replog.cli.record_json import Row
from replog.errors import MalformedMessageError, UnsupportedMessageVersionError, UsageError
from replog.reader.names import kind_of
from replog.wire.metadata_values import decode_control, decode_metadata

METADATA_PARTITION = "__cluster_metadata-0"


def metadata_rows(path: str) -> Iterator[Row]:
    """A row a record, in order of the files. A log directory stands for its metadata partition."""
    if kind_of(path) == "log directory":
        path = os.path.join(path, METADATA_PARTITION)
        if not os.path.isdir(path):
            raise UsageError(
                f"expected the metadata log at {path}, found no such directory; give a metadata "
                f"partition, or one of its files"
            )
    for row in file_record_rows(path):
        decoded: Row = {name: row[name] for name in ("offset", "timestamp", "leader_epoch")}
        value = base64.b64decode(row["value"] or "")
        try:
            if "control" in row:
                found = decode_control(base64.b64decode(row["key"] or ""), value)
                decoded["type"] = row["control"]
            else:
                found = decode_metadata(value)
                decoded["type"] = found.type_name
            decoded |= {"version": found.version, "data": found.as_json()}
        except (MalformedMessageError, UnsupportedMessageVersionError) as error:
            decoded["problem"] = str(error)
        yield decoded
