"""Steps that lead somewhere only together, which a draw of single steps hardly ever does.

Each is a way in which a fault, or a stop, meets what came before it: names that nobody synced yet,
a checkpoint that may be on the disk, a partition that fails beside others that do not.
"""

from __future__ import annotations

import errno
from typing import NamedTuple


class Blow(NamedTuple):
    """What has to fail: each call of `kind` in the step, on paths with `path` in them."""

    kind: str
    causes: tuple[int, ...]
    path: str = ""


NO_DESCRIPTOR = Blow("fsync_dir", (errno.EMFILE, errno.ENFILE))
NO_SYNC = Blow("fdatasync", (errno.EIO,), ".log")
NO_LOOK = Blow("fstat", (errno.EIO, errno.ENOMEM), ".txnindex")
NO_EPOCHS = Blow("pwritev", (errno.ENOSPC, errno.EDQUOT), "leader-epoch")
NO_SPACE = Blow("pwritev", (errno.ENOSPC, errno.EDQUOT), ".log")
NO_DISK = Blow("pwritev", (errno.EIO,), ".log")

# Verbs, each with what strikes it.
STRETCHES: tuple[tuple[tuple[str, Blow | None], ...], ...] = (
    # Names that a process left which died, and a flush of the next one.
    (("append_much", None), ("kill", None), ("flush", None), ("power", None)),
    (("roll", None), ("append", None), ("kill", None), ("checkpoint", None), ("power", None)),
    (("append_as_follower", None), ("kill", None), ("close", None), ("power", None)),
    # A checkpoint that is on the disk or is not, and what relies on it.
    (("checkpoint", NO_DESCRIPTOR), ("truncate_to", None), ("kill", None)),
    (("flush", None), ("checkpoint", NO_DESCRIPTOR), ("truncate_to", None), ("power", None)),
    (("flush", None), ("checkpoint", NO_DESCRIPTOR), ("truncate_fully", None), ("kill", None)),
    (("delete_records", NO_DESCRIPTOR), ("append", None), ("kill", None)),
    (("delete_records", NO_DESCRIPTOR), ("truncate_to", None), ("kill", None)),
    (("truncate_to", None), ("append", None), ("power", None), ("append", None), ("power", None)),
    # A cut of a process that died, which may be on the disk or not.
    (
        ("append", None),
        ("flush", None),
        ("truncate_to", NO_SYNC),
        ("kill", None),
        ("append_much", None),
        ("truncate_to", None),
        ("power", None),
    ),
    # A side file that cannot be opened at its first use, and can at its second.
    (
        ("append_as_producer", None),
        ("append_as_producer", None),
        ("end_transaction", None),
        ("end_transaction", None),
        ("close", None),
        ("aborted", NO_LOOK),
        ("aborted", None),
        ("aborted", None),
    ),
    # A set that is refused, perhaps behind a wide gap, and one that follows.
    (("append_as_follower", NO_SPACE), ("append", None), ("append_much", None)),
    # A restart that ends half-way.
    (("append_much", None), ("truncate_fully", NO_EPOCHS), ("power", None)),
    # A log that fails, and what its directory, or its next opening, makes of it.
    (("append", None), ("delete_records", None), ("append", NO_DISK), ("close", None)),
    (("delete_records", None), ("roll", None), ("append", NO_DISK), ("close", None)),
)
