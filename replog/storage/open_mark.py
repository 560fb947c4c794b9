"""`.replog_open`: whose records are in a directory that was not stopped cleanly.

    version: 0
    boot_id: 0b5f0f0e-4f0c-4b7e-9a59-2a2b4b1a4d0e
    orders-0: -

Written once the logs of the directory are whole, before anything is appended to them, and taken
away at a clean close; Kafka passes over it. With it, an unclean stop was replog's own, and replog's
own order of writes says what may be missing. If the kernel that took the records still runs (its
boot id is the same), only a process has died, and nothing is. Without it another program wrote
last, by rules of its own. A partition that could not be opened keeps the boot id that it had, `-`
for none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import os
from typing import TYPE_CHECKING

from replog._native.mapped_file import OfflineFile, read_file, remove, replace_file
from replog.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OPEN_MARK_FILE = ".replog_open"
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
BOOT_ID_BYTES = 36
NONE = "-"
UNKNOWN = "unknown"


class LastStop(enum.Enum):
    """How a log came to its end, which decides what may be wrong with it."""

    CLEAN = "clean"
    """Flushed and closed."""
    KILLED = "killed"
    """A process of replog died: all that it wrote is there, the last write perhaps in part."""
    POWER_LOST = "power lost"
    """What replog had not synced may be missing, in any order."""
    FOREIGN = "foreign"
    """Another program wrote it, or did so last: holes may be its compaction's."""

    @property
    def keeps_whole(self) -> bool:
        """Whether a batch that is whole was meant to be there, so that none may be cut."""
        return self is not LastStop.POWER_LOST


@dataclasses.dataclass(frozen=True, slots=True)
class OpenMark:
    """boot_id: in which the logs were opened. held_back: those of partitions that could not be, by
    the names of their directories; None where replog never opened it.
    """

    boot_id: str
    held_back: Mapping[str, str | None] = dataclasses.field(default_factory=dict)


def boot_id() -> str | None:
    """The running kernel's, None where the system does not tell."""
    try:
        return _read_boot_id()
    except (OSError, StorageError):
        return None


@functools.cache
def _read_boot_id() -> str:
    file = OfflineFile(BOOT_ID_FILE)
    try:
        return file.read(0, BOOT_ID_BYTES).decode()
    finally:
        file.close()


class OpenMarkKeeper:
    """The mark of one directory, from the moment it is opened to its close."""

    def __init__(self, directory: str, *, clean: bool) -> None:
        """clean: the directory has a clean marker, which is not yet taken away."""
        self._directory = directory
        self._clean = clean
        self._held = read_open_mark(directory)
        """What is on disk."""

    def last_stop(self, name: str, *, known: bool = True) -> LastStop:
        """How the partition in directory `name` came to its end. known: the clean marker
        speaks of it, too; it does not of one that was copied in since, or that no checkpoint names.
        """
        if self._clean:
            return LastStop.CLEAN if known else LastStop.FOREIGN
        opened_in = self._opened_in(name)
        if opened_in is None:
            return LastStop.FOREIGN
        return LastStop.KILLED if opened_in == boot_id() else LastStop.POWER_LOST

    def opening(self, unknown: Iterable[str] = ()) -> None:
        """To be called before the clean marker goes: a crash while loading is one of our own.

        unknown: the directories of partitions that it says nothing of.
        """
        if self._clean:
            self._write(dict.fromkeys(unknown))

    def opened(self, refused: Iterable[str] = ()) -> None:
        """All partitions are whole but those in the directories `refused`."""
        self._write({name: self._opened_in(name) for name in refused})

    def forget(self, name: str) -> None:
        """The partition in directory `name` is gone; another one may take the name."""
        if self._held is not None and name in self._held.held_back:
            self._write({key: at for key, at in self._held.held_back.items() if key != name})

    def closed(self) -> None:
        """To be called behind the clean marker; beside one that comes back it says nothing."""
        with contextlib.suppress(FileNotFoundError):
            remove(os.path.join(self._directory, OPEN_MARK_FILE))

    def _opened_in(self, name: str) -> str | None:
        """The boot in which replog has opened the partition; None if it never has."""
        if self._held is None or self._clean:
            return None
        return self._held.held_back.get(name, self._held.boot_id)

    def _write(self, held_back: Mapping[str, str | None]) -> None:
        mark = OpenMark(boot_id() or UNKNOWN, held_back)
        if mark != self._held:
            write_open_mark(self._directory, mark)
            self._held = mark


def read_open_mark(directory: str) -> OpenMark | None:
    """The mark in `directory`; None for none, or for one that cannot be read."""
    try:
        lines = read_file(os.path.join(directory, OPEN_MARK_FILE)).decode().splitlines()
        fields = dict(line.split(": ", 1) for line in lines)
        version, opened_in = fields.pop("version"), fields.pop("boot_id")
    except (FileNotFoundError, ValueError, KeyError):
        return None  # also of one that is damaged
    if version != "0":
        return None
    held_back = {name: None if text == NONE else text for name, text in fields.items()}
    return OpenMark(opened_in, held_back)


def write_open_mark(directory: str, mark: OpenMark) -> None:
    """Replace the mark; durable on return."""
    lines = ["version: 0", f"boot_id: {mark.boot_id}"]
    lines += [f"{name}: {text or NONE}" for name, text in sorted(mark.held_back.items())]
    content = "".join(f"{line}\n" for line in lines)
    replace_file(os.path.join(directory, OPEN_MARK_FILE), content.encode())
