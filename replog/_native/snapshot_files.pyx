# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The `.snapshot` files of a log: producer state up to the offset in the file's name.

Each is checked by its own CRC and can be made again from the log, so none is synced: a torn one is
deleted and an earlier one, or the whole log, is replayed instead.
"""

from libc.stdint cimport int64_t

from replog.errors import CorruptFileError

from replog._native import mapped_file

SUFFIX = ".snapshot"


def snapshot_path(str directory, int64_t offset):
    """Path of the snapshot of everything below `offset`."""
    return f"{directory}/{offset:020d}{SUFFIX}"


def snapshot_offsets(str directory):
    """Offsets that snapshots in `directory` are named by, ascending."""
    stems = [
        name.removesuffix(SUFFIX)
        for name in mapped_file.list_dir(directory) if name.endswith(SUFFIX)
    ]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def write_snapshot(str directory, int64_t offset, bytes content):
    """Write the snapshot of what is below `offset`, unless it is there. Not durable on return."""
    path = snapshot_path(directory, offset)
    file = mapped_file.MappedFile(path, writable=True, create=True)
    if file.size_bytes:
        if file.size_bytes == len(content) and bytes(file.view(0, len(content))) == content:
            file.close()
            return
        # Emptying one, even an empty one, makes ext4 write it back at its close (auto_da_alloc).
        file.close()
        mapped_file.remove(path)
        file = mapped_file.MappedFile(path, writable=True, create=True)
    file.append_bytes(content)
    file.close()


def remove_snapshots(str directory, *, int64_t above=-1, int64_t below=-1, keep=()):
    """Remove snapshots with offset > above or < below (where given), but not those to keep."""
    removed = 0
    for offset in snapshot_offsets(directory):
        gone = (above >= 0 and offset > above) or (below >= 0 and offset < below)
        if gone and offset not in keep:
            mapped_file.remove(snapshot_path(directory, offset))
            removed += 1
    return removed


def strays(str directory, base_offsets):
    """Offsets of snapshots at no segment's base, less the newest if it is behind all of them."""
    found = [offset for offset in snapshot_offsets(directory) if offset not in base_offsets]
    newest = max(found, default=-1)
    return [offset for offset in found if offset < newest or offset < max(base_offsets)]


def load_latest(str directory, object producers, int64_t low, int64_t high, int64_t now_ms):
    """Load the newest usable snapshot with low < offset <= high into `producers`.

    Returns its offset, or -1 if there is none and the log must be replayed from `low`. Damaged ones
    are deleted.
    """
    for offset in reversed(snapshot_offsets(directory)):
        if not low < offset <= high:
            continue
        path = snapshot_path(directory, offset)
        try:
            producers.load_snapshot(mapped_file.read_file(path), now_ms, path)
        except CorruptFileError:
            mapped_file.remove(path)
            continue
        return offset
    return -1
