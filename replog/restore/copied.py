"""A partition directory copied file by file, its bytes as they are."""

from __future__ import annotations

import os
import re
import shutil

from replog.errors import LogTruncatedError
from replog.reader import Checkpoints, PartitionReader
from replog.restore.target import StagedPartition

_COPIED = re.compile(
    r"(\d{20}\.(log|index|timeindex|txnindex|snapshot)"
    r"|leader-epoch-checkpoint|partition\.metadata)\Z"
)


def copy_partition(source: str, staging: str) -> StagedPartition:
    """Copy the partition directory `source` to the new directory `staging`; durable on return.

    Segments, indexes, snapshots, epochs and the topic's id are copied; deleted segments, swapped
    and temporary files are not. What the source has not committed is copied too and stays above the
    high watermark. Raises LogTruncatedError if a live source drops a segment meanwhile.
    """
    # The watermark first: what it calls committed is in the files that are copied then.
    checkpoints = Checkpoints()
    reader = PartitionReader(source, checkpoints=checkpoints)
    os.makedirs(staging)
    size_bytes = 0
    for name in sorted(os.listdir(source)):
        if not _COPIED.match(name):
            continue
        place = os.path.join(staging, name)
        try:
            shutil.copyfile(os.path.join(source, name), place)
        except FileNotFoundError as error:
            raise LogTruncatedError(
                f"expected {os.path.join(source, name)} to stay while it was copied, found it "
                f"gone: retention or truncation took it; restore again",
                path=os.path.join(source, name),
            ) from error
        _sync(place)
        size_bytes += os.path.getsize(place)
    _sync(staging)
    _sync(os.path.dirname(staging))
    return StagedPartition(
        *reader.topic_partition,
        log_start_offset=reader.log_start_offset,
        high_watermark=reader.high_watermark,
        recovery_point=0,  # nobody has checked these bytes: the first open does
        cleaned_offset=checkpoints.of(source, reader.topic_partition).cleaned_offset,
        size_bytes=size_bytes,
    )


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
