"""`.kafka_cleanshutdown`: says that every log of the directory was flushed and closed.

    {"version":0,"brokerEpoch":57}

Its presence alone means clean; a file without a readable epoch (older Kafka wrote none) is clean
with an unknown one. It is read first, removed before any log is opened, so that a crash while
loading counts as unclean, and written last of all at a close.
"""

from __future__ import annotations

import dataclasses
import os

from replog._native.mapped_file import fsync_dir, read_file, remove, replace_file

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"


@dataclasses.dataclass(frozen=True, slots=True)
class CleanShutdown:
    """What a clean stop left behind; `broker_epoch` is that of the incarnation that stopped."""

    broker_epoch: int | None = None


def read_clean_shutdown(directory: str | os.PathLike[str]) -> CleanShutdown | None:
    """The marker in `directory`, None if there is none (the last stop was not clean)."""
    try:
        content = read_file(_path(directory))
    except FileNotFoundError:
        return None
    import json  # only here: an append from a fresh process does not wait for it

    try:
        fields = json.loads(content)
        broker_epoch = fields["brokerEpoch"] if fields["version"] == 0 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return CleanShutdown()
    if type(broker_epoch) is not int or broker_epoch < 0:
        return CleanShutdown()
    return CleanShutdown(broker_epoch)


def write_clean_shutdown(directory: str | os.PathLike[str], broker_epoch: int = -1) -> None:
    """Mark `directory` clean; durable on return. Everything else in it must be so already."""
    content = f'{{"version":0,"brokerEpoch":{int(broker_epoch)}}}'
    replace_file(_path(directory), content.encode())


def remove_clean_shutdown(directory: str | os.PathLike[str]) -> None:
    """Remove the marker, if there is one; durable on return."""
    try:
        remove(_path(directory))
    except FileNotFoundError:
        return
    # Without it, a power loss could bring the marker back beside logs that were being written.
    fsync_dir(os.fspath(directory))


def _path(directory: str | os.PathLike[str]) -> str:
    return os.path.join(os.fspath(directory), CLEAN_SHUTDOWN_FILE)
