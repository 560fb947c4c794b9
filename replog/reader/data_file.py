"""A segment's data file under the name that it has by now.

A broker renames what its cleaner replaces and what its retention takes, and the bytes stay for a
while (a minute, by default): whoever listed the file before reads it on to its end.
"""

from __future__ import annotations

import os

from replog._native.mapped_file import OfflineFile
from replog.errors import LogTruncatedError
from replog.reader.names import FileSeen, SegmentName


def file_seen(path: str, *, sealed: bool = False) -> FileSeen:
    """The file that is at `path` now. Raises LogTruncatedError if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise LogTruncatedError(
            f"expected the segment {path}, found it gone: retention, truncation or compaction took "
            f"it meanwhile; read the partition again",
            path=path,
        ) from error
    return FileSeen(found.st_ino, found.st_size, found.st_mtime_ns // 1_000_000, sealed)


def places_of(path: str) -> list[str]:
    """Where a broker's renames take a data file: from `.log.swap` to `.log` to `.log.deleted`."""
    stem = path.removesuffix(".swap").removesuffix(".log")
    if not path.endswith((".log", ".log.swap")):
        return [path]
    swap = [path] if path.endswith(".swap") else []
    return [*swap, f"{stem}.log", f"{stem}.log.deleted"]


def open_data_file(name: SegmentName) -> OfflineFile:
    """The file of a segment; the one that was seen there, if one was.

    Raises LogTruncatedError if it is gone, or is not what it was, StorageError.
    """
    if name.seen is None:
        try:
            return OfflineFile(name.path)
        except FileNotFoundError as error:
            raise _gone(name) from error
    for path in places_of(name.path):
        try:
            # Looked at on both sides: the name may be another file's from one moment to the next.
            before = file_seen(path)
            file = OfflineFile(path)
            after = file_seen(path)
        except (FileNotFoundError, LogTruncatedError):
            continue
        if before.inode == after.inode == name.seen.inode:
            if name.seen.sealed and (after.size_bytes, after.modified_ms) != name.seen[1:3]:
                raise _changed(name, path)
            return file
        file.close()
    if os.path.exists(name.path):
        raise _changed(name, name.path)
    raise _gone(name) from FileNotFoundError(name.path)


def _changed(name: SegmentName, path: str) -> LogTruncatedError:
    return LogTruncatedError(
        f"expected the segment {path} to be as it was when the directory was listed, found it cut, "
        f"compacted or replaced since; read the partition again",
        path=path,
        offset=name.base_offset,
    )


def _gone(name: SegmentName) -> LogTruncatedError:
    return LogTruncatedError(
        f"expected the segment {name.path}, found no such file: retention, truncation or "
        f"compaction took it meanwhile; read the partition again",
        path=name.path,
        offset=name.base_offset,
    )
