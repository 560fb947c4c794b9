"""What is in a directory or side file, as rows of facts, and one row as a line of text."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from replog.cli.dump_rows import batch_rows
from replog.cli.record_json import Row
from replog.errors import CorruptFileError, ReplogError, UsageError, shown
from replog.reader import PartitionReader, names, partition_paths
from replog.reader.listing import list_segments
from replog.reader.raw import base_offset_of
from replog.reader.segment import segment_size
from replog.reader.side_files import (
    decode_offset_index,
    decode_snapshot,
    decode_time_index,
    decode_transaction_index,
    read_whole,
    side_path,
)
from replog.storage.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_leader_epochs,
    read_offset_checkpoint,
)
from replog.storage.meta_properties import parse_properties, read_meta_properties
from replog.storage.partition_metadata import read_topic_id
from replog.storage.quorum_state import QUORUM_STATE_FILE, read_quorum_state

_TEXT_FILES = (
    names.META_FILE,
    names.PARTITION_METADATA_FILE,
    ".kafka_cleanshutdown",
    QUORUM_STATE_FILE,
)
_CHECKPOINTS = (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


def text_line(row: Row) -> bytes:
    """A row as `name: fact` pairs, for people."""
    shown = (f"{name}: {_shown(fact)}" for name, fact in row.items())
    return ("  ".join(shown) + "\n").encode(errors="backslashreplace")


def readable(row: Row) -> Row:
    """A record's row with keys, values and headers as text, bytes that are none escaped."""
    if "headers" not in row:
        return row
    headers = [[name, _text(value)] for name, value in row["headers"]]
    return row | {"key": _text(row["key"]), "value": _text(row["value"]), "headers": headers}


def _text(encoded: str | None) -> str | None:
    return None if encoded is None else base64.b64decode(encoded).decode(errors="backslashreplace")


def _shown(fact: Any) -> str:
    if isinstance(fact, str):
        return fact if fact.isprintable() and fact else json.dumps(fact, ensure_ascii=False)
    return json.dumps(fact, ensure_ascii=False)


def facts(path: str) -> Iterator[Row]:
    """Rows that describe `path`, whatever it is. Raises UsageError if it is nothing of a log."""
    kind = names.kind_of(path)
    if kind == "log directory":
        yield from _log_directory(path)
    elif kind == "partition":
        yield from _partition(path)
    elif kind == "records":
        yield from batch_rows(path, explain=True)
    else:
        yield from _side_file(path)


def _log_directory(path: str) -> Iterator[Row]:
    yield {"log_directory": os.path.abspath(path)}
    for name in sorted(names.names_in(path)):
        if name in (*_TEXT_FILES, *_CHECKPOINTS):
            yield from _one_of_many(path, name)
    for directory in partition_paths(path):
        yield _extent(directory)


def _one_of_many(path: str, name: str) -> Iterator[Row]:
    """The rows of a small file of a directory; a damaged one says so and hides no other."""
    try:
        for row in _side_file(os.path.join(path, name)):
            yield {"file": name, **row}
    except ReplogError as error:
        yield {"file": name, "problem": str(error)}


def _extent(path: str) -> Row:
    row: Row = {"partition": os.path.basename(os.path.abspath(path))}
    try:
        reader = PartitionReader(path)
        row |= {
            "log_start_offset": reader.log_start_offset,
            "high_watermark": reader.high_watermark,
            "log_end_offset": reader.log_end_offset,
            "last_stable_offset": reader.last_stable_offset,
            "segments": len(reader.segments),
            "size_bytes": reader.size_bytes,
        }
    except ReplogError as error:
        row["problem"] = str(error)
    return row


def _partition(path: str) -> Iterator[Row]:
    yield _extent(path)
    for name in sorted(names.names_in(path)):
        if name in (*_TEXT_FILES, *_CHECKPOINTS, LEADER_EPOCH_CHECKPOINT):
            yield from _one_of_many(path, name)
    for segment in list_segments(path):
        yield _segment(segment)


def _segment(segment: names.SegmentName) -> Row:
    """One segment in a row; a file of it that cannot be read says so and hides no other."""
    row: Row = {"segment": os.path.basename(segment.path), "base_offset": segment.base_offset}
    problems = []

    def put(name: str, found: Callable[[], object]) -> None:
        try:
            row[name] = found()
        except ReplogError as error:
            row[name] = None
            problems.append(str(error))

    def side_file(suffix: str) -> bytes:
        return read_whole(side_path(segment.path, suffix)) or b""

    base = segment.base_offset
    put("size_bytes", lambda: segment_size(segment))
    put("offset_index_entries", lambda: len(decode_offset_index(side_file(".index"), base)))
    put("time_index_entries", lambda: len(decode_time_index(side_file(".timeindex"), base)))
    aborted_path = side_path(segment.path, ".txnindex")
    put(
        "aborted_transactions",
        lambda: len(decode_transaction_index(side_file(".txnindex"), aborted_path)),
    )
    row["producer_snapshot"] = os.path.exists(side_path(segment.path, ".snapshot"))
    if problems:
        row["problem"] = "; ".join(problems)
    return row


def _side_file(path: str) -> Iterator[Row]:
    name = os.path.basename(path)
    content = read_whole(path)
    if content is None:
        raise UsageError(f"expected a file at {path}, found none; check the path")
    stem = name.removesuffix(".deleted").removesuffix(".swap").removesuffix(".cleaned")
    base_offset = base_offset_of(path)
    if stem.endswith(".index"):
        for offset, position in decode_offset_index(content, base_offset).tolist():
            yield {"offset": offset, "position": position}
    elif stem.endswith(".timeindex"):
        for timestamp, offset in decode_time_index(content, base_offset).tolist():
            yield {"timestamp": timestamp, "offset": offset}
    elif stem.endswith(".txnindex"):
        for aborted in decode_transaction_index(content, path):
            yield {"version": 0, **aborted._asdict()}
    elif stem.endswith(".snapshot"):
        for entry in decode_snapshot(content, path):
            yield entry._asdict()
    elif name in _CHECKPOINTS:
        for (topic, partition), offset in (read_offset_checkpoint(path) or {}).items():
            yield {"topic": topic, "partition": partition, "offset": offset}
    elif name == LEADER_EPOCH_CHECKPOINT:
        for epoch, start_offset in read_leader_epochs(path) or []:
            yield {"leader_epoch": epoch, "start_offset": start_offset}
    elif name in _TEXT_FILES:
        yield from _text_file(path, content.decode(errors="replace"))
    else:
        raise UsageError(
            f"expected a segment, index, snapshot, checkpoint or metadata file, found {name}, "
            f"which is none of them; give another path"
        )


def _text_file(path: str, text: str) -> Iterator[Row]:
    """Properties and `name: value` lines as one row; JSON as it is; an empty file as no facts.

    Raises CorruptFileError for what the file's own reader refuses: garbage is no fact.
    """
    name = os.path.basename(path)
    if name == names.META_FILE:
        read_meta_properties(path)
        yield dict(parse_properties(text))
    elif name == names.PARTITION_METADATA_FILE:
        read_topic_id(path)
        yield {key: value for key, _, value in (row.partition(": ") for row in text.splitlines())}
    elif text.strip():
        if name == QUORUM_STATE_FILE:
            read_quorum_state(path)
        yield _json_object(path, text)
    else:
        yield {}


def _json_object(path: str, text: str) -> Row:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_object(path, str(error)) from error
    if not isinstance(row, dict):
        raise _no_object(path, shown(row))
    return row


def _no_object(path: str, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"expected a JSON object in {path}, found {found}; restore the file", path=path
    )
