"""`broker-epoch`: the latest broker epoch under which a directory was used.

    {"version":0,"brokerEpoch":57}

Noted before the broker takes part under it. A directory in which an older one is noted than the
controllers know of is an older copy: it lacks what was acknowledged since. Kafka has no such file,
and does not mind it.
"""

from __future__ import annotations

import json
import os

from replog._native.mapped_file import fsync_dir, read_file, remove, replace_file

BROKER_EPOCH_FILE = "broker-epoch"


def read_broker_epoch(directory: str | os.PathLike[str]) -> int | None:
    """What is noted in `directory`; None where nothing is that can be read."""
    try:
        fields = json.loads(read_file(_path(directory)))
        broker_epoch = fields["brokerEpoch"] if fields["version"] == 0 else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return broker_epoch if type(broker_epoch) is int and broker_epoch >= 0 else None


def write_broker_epoch(directory: str | os.PathLike[str], broker_epoch: int) -> None:
    """Note it; durable on return. Raises NoSpaceError, StorageError: the old note stays."""
    content = f'{{"version":0,"brokerEpoch":{int(broker_epoch)}}}'
    replace_file(_path(directory), content.encode())


def remove_broker_epoch(directory: str | os.PathLike[str]) -> None:
    """Take the note away, if there is one; durable on return."""
    try:
        remove(_path(directory))
    except FileNotFoundError:
        return
    fsync_dir(os.fspath(directory))


def _path(directory: str | os.PathLike[str]) -> str:
    return os.path.join(os.fspath(directory), BROKER_EPOCH_FILE)
