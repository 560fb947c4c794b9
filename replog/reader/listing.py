"""The data files of a partition directory as one list that held at one moment, beside a broker.

Kafka's log cleaner puts one segment in the place of several, a rename at a time:

    0.log.cleaned -> 0.log.swap | 0.log -> 0.log.deleted, 40.log -> 40.log.deleted | .swap -> 0.log

From the first rename on the swap file is whole and stands for all that it was made of: it is listed
in their place, as Kafka's recovery takes it. What one listing passes over while a name changes
another one has, so names count once two listings in a row agree.

A segment that is there as `.log.deleted` only was taken by retention if the log start says so (its
checkpoint, or the leader epochs, which begin there), merged into the one before it, or cut off
behind the log's end. Where it is nothing of these its records are missing from the list, and the
list is made again; after LISTINGS_MAX of them LogTruncatedError is raised.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Mapping

from replog.config import LONG_MAX
from replog.errors import CorruptFileError, LogTruncatedError
from replog.reader.checkpoints import Checkpoints
from replog.reader.data_file import file_seen
from replog.reader.names import SegmentName, bounded, names_in, topic_partition_of
from replog.reader.segment import SegmentReader
from replog.storage.checkpoint_files import LEADER_EPOCH_CHECKPOINT, read_leader_epochs

LISTINGS_MAX = 20
PAUSE_SECONDS = 0.01

_DATA_FILE = re.compile(r"(\d{20})\.log(\.swap|\.cleaned|\.deleted)?\Z")
_Files = Mapping[str, frozenset[int]]


def list_segments(path: str) -> list[SegmentName]:
    """The segments of a partition directory by base offset, each with what shows that it is it.

    Raises LogTruncatedError where the directory is gone, or keeps being changed so that no list of
    it is whole; StorageError.
    """
    before = _files(path)
    missing: int | None = None
    for turn in range(LISTINGS_MAX):
        if turn > 1:
            time.sleep(PAUSE_SECONDS)
        now = _files(path)
        if now == before:
            try:
                found = _segments(path, _names(path, now))
                missing = _missing(path, now, found)
            except LogTruncatedError:
                continue  # renamed since it was listed
            if missing is None:
                return found
        before = now
    if missing is None:
        raise LogTruncatedError(
            f"expected the files of {path} to keep their names while they are listed, found them "
            f"to change {LISTINGS_MAX} times in a row; read the partition again",
            path=path,
        )
    raise LogTruncatedError(
        f"expected the segment of offset {missing} in {path}, found it as {missing:020d}.log"
        f".deleted only, without a log start that says that retention took it: its records are "
        f"missing; read again once the broker has replaced it, or start the broker to repair it",
        path=path,
        offset=missing,
    )


def _files(path: str) -> _Files:
    """Base offsets of the data files by what follows `.log` in their names."""
    found: dict[str, set[int]] = defaultdict(set)
    for name in names_in(path):
        if match := _DATA_FILE.match(name):
            found[match[2] or ""].add(int(match[1]))
    return {suffix: frozenset(bases) for suffix, bases in found.items()}


def _names(path: str, files: _Files) -> dict[int, str]:
    """The file of each segment by its base offset: a swap file in the place of what it replaces."""
    live = {base: f"{base:020d}.log" for base in files.get("", ())}
    # Several new segments for one get their swap names from the last to the first: while the first
    # is not there yet, the old one stands for all.
    unfinished = min(files.get(".cleaned", ()), default=LONG_MAX)
    swaps = {base: f"{base:020d}.log.swap" for base in files.get(".swap", ()) if base < unfinished}
    if not swaps:
        return live
    last = max(swaps)
    with SegmentReader(SegmentName(last, os.path.join(path, swaps[last]))) as file:
        end = file.tail().end_offset
    kept = {base: name for base, name in live.items() if not min(swaps) <= base < end}
    return kept | swaps


def _segments(path: str, names: Mapping[int, str]) -> list[SegmentName]:
    found = bounded(path, names)
    last = len(found) - 1
    return [
        segment._replace(seen=file_seen(segment.path, sealed=at < last))
        for at, segment in enumerate(found)
    ]


def _missing(path: str, files: _Files, found: list[SegmentName]) -> int | None:
    """The base offset of a segment whose records nothing in the list has; None if there is none."""
    listed = [segment.base_offset for segment in found]
    deleted = files.get(".deleted", frozenset())
    suspects = sorted(deleted.difference(listed))
    if not suspects or not listed:
        return None
    if suspects[0] < listed[0] and _log_start(path, listed[0]) < listed[0]:
        return max(base for base in suspects if base < listed[0])
    for base in suspects:
        at = sum(other < base for other in listed) - 1
        if at < 0 or at + 1 == len(listed) or listed[at] in deleted:
            continue
        with SegmentReader(found[at]) as before:
            if before.tail().end_offset <= base:
                return base
    return None


def _log_start(path: str, first_offset: int) -> int:
    """The log start by the checkpoints, `first_offset` where none of them knows of one.

    Both are written behind the first rename, by Kafka at least, so that a list may be made between.
    """
    known: list[int | None] = []
    try:
        known.append(Checkpoints().of(path, topic_partition_of(path)).log_start_offset)
        epochs = read_leader_epochs(os.path.join(path, LEADER_EPOCH_CHECKPOINT))
        known.append(epochs[0][1] if epochs else None)
    except CorruptFileError:
        return first_offset  # derived from the batches: it is no witness then
    return max((one for one in known if one is not None), default=first_offset)
