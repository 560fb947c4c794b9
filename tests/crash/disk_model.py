"""What a disk may hold after power fails, given the system calls that were made.

Faults it knows, for one directory of files and directories:
- A write or a cut of a file is durable once fdatasync of that file has returned. Until then any
  subset of them may have reached the disk, in any order of pages: whole, in part, or as zeros.
- A name that was made, moved or removed is durable once fsync_dir of its directory has returned.
  Until then any subset of these changes may have. A rename happens as a whole or not at all.
- A synced file whose name was lost is lost.
Faults it leaves out: rot of synced bytes, writes that go astray, a disk that lies about a sync.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from replog._native.recorded_calls import RecordedCall

Image = dict[str, bytes]
IGNORED_NAMES = {".lock"}  # empty, and no part of the log
SECTOR_BYTES = 512
SINGLES_MAX = 24


class Inode:
    """A file, apart from its names: what is synced of it, and what the process reads."""

    __slots__ = ("durable", "live")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.live = durable


class Folder:
    """A directory, apart from its own name: which names are synced, and which the process sees."""

    __slots__ = ("durable", "live")

    def __init__(self) -> None:
        self.durable: dict[str, Inode | Folder] = {}
        self.live: dict[str, Inode | Folder] = {}


class NameChange(NamedTuple):
    """A name in a directory that was given to something, or (None) taken away."""

    folder: Folder
    name: str
    named: Inode | Folder | None


class Change(NamedTuple):
    """Something that was done and may be lost: exactly one of the three kinds is set."""

    inode: Inode | None = None
    write: tuple[int, bytes] | None = None
    cut: int | None = None
    names: tuple[NameChange, ...] = ()


class DiskModel:
    """Replays recorded calls; at any moment `pending` is what a crash may take away."""

    def __init__(self, directory: str, image: Image | None = None) -> None:
        self.directory = directory
        self.root = Folder()
        self.inode_of_fd: dict[int, Inode] = {}
        self.pending: list[Change] = []
        for path, content in (image or {}).items():
            self.begin_with(path, content)

    def begin_with(self, path: str, content: bytes) -> None:
        """Something that is on the disk already; a directory comes before what is in it."""
        *parents, name = path.removesuffix("/").split("/")
        folder = self.root
        for parent in parents:
            below = folder.live[parent]
            assert isinstance(below, Folder)
            folder = below
        folder.durable[name] = folder.live[name] = (
            Folder() if path.endswith("/") else Inode(content)
        )

    def apply(self, call: RecordedCall) -> None:
        """Do what the call did, or made durable."""
        place = self.place_of(call.path)
        match call.kind:
            case "open" if place is not None:
                self.open(*place, call)
            case "pwritev" if call.fd in self.inode_of_fd:
                inode = self.inode_of_fd[call.fd]
                self.change_file(Change(inode, write=(call.position, call.content)))
            case "ftruncate" if call.fd in self.inode_of_fd:
                self.change_file(Change(self.inode_of_fd[call.fd], cut=call.position))
            case "fdatasync" if call.fd in self.inode_of_fd:
                self.settle_file(self.inode_of_fd[call.fd])
            case "close":
                self.inode_of_fd.pop(call.fd, None)
            case "mkdir" if place is not None:
                self.change_names(NameChange(*place, Folder()))
            case "rename" if place is not None:
                to = self.place_of(call.to)
                assert to is not None
                assert to[0] is place[0], "the engine moves names inside one directory only"
                moved = place[0].live[place[1]]
                self.change_names(NameChange(*place, None), NameChange(*to, moved))
            case "unlink" | "rmdir" if place is not None:
                self.change_names(NameChange(*place, None))
            case "fsync_dir" if call.path.startswith(self.directory):
                folder = self.node_at(call.path)
                if isinstance(folder, Folder):
                    self.settle_names(folder)

    def node_at(self, path: str) -> Inode | Folder | None:
        """What the process finds at a path, None if it is nothing."""
        if path == self.directory:
            return self.root
        place = self.place_of(path)
        return None if place is None else place[0].live.get(place[1])

    def place_of(self, path: str) -> tuple[Folder, str] | None:
        """The directory and the name in it, if it is one of ours and counts."""
        if not path.startswith(self.directory + "/"):
            return None
        *parents, name = path[len(self.directory) + 1 :].split("/")
        folder = self.root
        for parent in parents:
            below = folder.live.get(parent)
            if not isinstance(below, Folder):
                return None
            folder = below
        return None if name in IGNORED_NAMES else (folder, name)

    def content_at(self, name: str) -> bytes | None:
        """The content of a file as the process reads it, by its path below the directory."""
        node = self.node_at(f"{self.directory}/{name}")
        return node.live if isinstance(node, Inode) else None

    def open(self, folder: Folder, name: str, call: RecordedCall) -> None:
        if name not in folder.live:
            self.change_names(NameChange(folder, name, Inode()))
        inode = folder.live[name]
        assert isinstance(inode, Inode)
        self.inode_of_fd[call.fd] = inode
        if call.flags & os.O_TRUNC:
            self.change_file(Change(inode, cut=0))

    def change_file(self, change: Change) -> None:
        assert change.inode is not None
        change.inode.live = changed(change.inode.live, change)
        self.pending.append(change)

    def change_names(self, *names: NameChange) -> None:
        for one in names:
            put(one.folder.live, one)
        self.pending.append(Change(names=names))

    def settle_file(self, inode: Inode) -> None:
        for change in self.pending:
            if change.inode is inode:
                inode.durable = changed(inode.durable, change)
        self.pending = [change for change in self.pending if change.inode is not inode]

    def settle_names(self, folder: Folder) -> None:
        waiting = []
        for change in self.pending:
            if change.names and change.names[0].folder is folder:
                for one in change.names:
                    put(folder.durable, one)
            else:
                waiting.append(change)
        self.pending = waiting

    def image(self, survivors: Sequence[Change]) -> Image:
        """The files after a crash that only these pending changes survived, in this order.

        By their paths below the directory; a directory has an entry of its own, ending in "/".
        """
        names: dict[int, dict[str, Inode | Folder]] = {}
        contents: dict[int, bytes] = {}
        for change in survivors:
            if change.inode is None:
                for one in change.names:
                    put(names.setdefault(id(one.folder), dict(one.folder.durable)), one)
            else:
                key = id(change.inode)
                contents[key] = changed(contents.get(key, change.inode.durable), change)
        found: Image = {}

        def walk(folder: Folder, prefix: str) -> None:
            for name, node in names.get(id(folder), folder.durable).items():
                if isinstance(node, Folder):
                    found[f"{prefix}{name}/"] = b""
                    walk(node, f"{prefix}{name}/")
                else:
                    found[prefix + name] = contents.get(id(node), node.durable)

        walk(self.root, "")
        return found


def put(names: dict[str, Inode | Folder], change: NameChange) -> None:
    if change.named is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.named


def changed(content: bytes, change: Change) -> bytes:
    if change.cut is not None:
        return content[: change.cut].ljust(change.cut, b"\0")
    assert change.write is not None
    position, written = change.write
    before = content[:position].ljust(position, b"\0")
    return before + written + content[position + len(written) :]


def torn(change: Change, random: Random) -> Iterator[Change]:
    """Ways in which a write may reach the disk in part."""
    assert change.write is not None
    position, written = change.write
    size = len(written)
    for kept in {1, size // 2, size - 1, random.randrange(size)}:
        if 0 < kept < size:
            yield change._replace(write=(position, written[:kept]))
            # The file has grown, but the bytes of its end are not there yet.
            yield change._replace(write=(position, written[:kept] + bytes(size - kept)))
    yield change._replace(write=(position, bytes(size)))
    sector = position % SECTOR_BYTES
    if sector and SECTOR_BYTES - sector < size:
        # The second sector came, the first did not.
        missing = SECTOR_BYTES - sector
        yield change._replace(write=(position, bytes(missing) + written[missing:]))


def survivals(
    pending: Sequence[Change], random: Random, sample_count: int
) -> Iterator[Sequence[Change]]:
    """What may survive of `pending`: all, none, prefixes, all but one, a kind, torn, at random."""
    yield pending
    yield ()
    yield [change for change in pending if change.inode is not None]
    yield [change for change in pending if change.inode is None]
    count = len(pending)
    for end in range(max(0, count - SINGLES_MAX), count):
        yield pending[:end]
    for missing in range(max(0, count - SINGLES_MAX), count):
        yield [*pending[:missing], *pending[missing + 1 :]]
    writes = [place for place in range(count) if pending[place].write and pending[place].write[1]]
    for place in writes[-3:]:
        for part in torn(pending[place], random):
            yield [*pending[:place], part]
            yield [*pending[:place], part, *pending[place + 1 :]]
    if count > 1:
        for _ in range(sample_count):
            yield some_of(pending, random)


def some_of(pending: Sequence[Change], random: Random) -> list[Change]:
    """A random subset, some of its writes torn."""
    share = random.choice((0.15, 0.4, 0.6, 0.85))
    survivors = []
    for change in pending:
        if random.random() < share:
            if change.write and change.write[1] and random.random() < 0.2:
                change = random.choice(list(torn(change, random)))  # noqa: PLW2901
            survivors.append(change)
    return survivors


def digest_of(image: Image) -> bytes:
    """A hash of every name and byte."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(image):
        digest.update(f"{name}\0{len(image[name])}\0".encode())
        digest.update(image[name])
    return digest.digest()
