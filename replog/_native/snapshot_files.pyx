# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The `.snapshot` files of a log: producer state up to the offset in the file's name.

Each is checked by its own CRC and can be made again from the log, so none is synced: a torn one is
deleted and an earlier one, or the whole log, is replayed instead. The directory is listed once: it
is the log's own, and listing it costs as much as there are files in it. The log's guard is held.
"""

from bisect import bisect_left, bisect_right, insort

from libc.stdint cimport int64_t

from replog.errors import CorruptFileError

from replog._native import mapped_file

SUFFIX = ".snapshot"


cdef class SnapshotFiles:
    """See the module."""

    def __init__(self, str directory not None):
        self.directory = directory

    cdef list known(self):
        if self.offsets is None:
            stems = [
                name.removesuffix(SUFFIX)
                for name in mapped_file.list_dir(self.directory) if name.endswith(SUFFIX)
            ]
            self.offsets = sorted(int(stem) for stem in stems if stem.isdecimal())
        return self.offsets

    def _path(self, int64_t offset):
        return f"{self.directory}/{offset:020d}{SUFFIX}"

    def write(self, int64_t offset, bytes content):
        """Write the snapshot of what is below `offset`, unless it is there. Not durable on return.

        Raises NoSpaceError, OutOfDescriptorsError: a part of it may be there.
        """
        path = self._path(offset)
        offsets = self.known()
        place = bisect_left(offsets, offset)
        if place == len(offsets) or offsets[place] != offset:
            insort(offsets, offset)
        file = mapped_file.MappedFile(path, writable=True, create=True)
        if file.size_bytes:
            if file.size_bytes == len(content) and bytes(file.view(0, len(content))) == content:
                file.close()
                return
            # Emptying one makes ext4 write it back at its close (auto_da_alloc), even an empty one.
            file.close()
            mapped_file.remove(path)
            file = mapped_file.MappedFile(path, writable=True, create=True)
        file.append_bytes(content)
        file.close()

    def _unlink(self, int64_t offset):
        """Whether there was a file to unlink."""
        try:
            mapped_file.remove(self._path(offset))
        except FileNotFoundError:
            return False
        return True

    def remove_one(self, int64_t offset):
        """Remove the snapshot of `offset`."""
        self._unlink(offset)
        offsets = self.known()
        place = bisect_left(offsets, offset)
        del offsets[place:place + (place < len(offsets) and offsets[place] == offset)]

    def remove(self, *, int64_t above=-1, int64_t below=-1, keep=()):
        """Remove snapshots with offset > above or < below (where given), but not those to keep.

        Returns how many there were.
        """
        removed = 0
        if above >= 0:
            removed += self._remove_between(bisect_right(self.known(), above), None, keep)
        if below >= 0:
            removed += self._remove_between(0, bisect_left(self.known(), below), keep)
        return removed

    def _remove_between(self, first, end, keep):
        offsets = self.known()
        place, removed, kept = first, 0, []
        try:
            for offset in offsets[first:end]:
                if offset in keep:
                    kept.append(offset)
                else:
                    removed += self._unlink(offset)
                place += 1
        finally:
            offsets[first:place] = kept
        return removed

    def strays(self, base_offsets):
        """Offsets of snapshots at no segment's base, but for the newest if it is behind all."""
        found = [offset for offset in self.known() if offset not in base_offsets]
        newest = max(found, default=-1)
        return [offset for offset in found if offset < newest or offset < max(base_offsets)]

    def load_latest(self, object producers, int64_t low, int64_t high, int64_t now_ms):
        """Load the newest usable snapshot with low < offset <= high into `producers`.

        Returns its offset, or -1 if there is none and the log must be replayed from `low`. Damaged
        ones are deleted.
        """
        offsets = self.known()
        place = bisect_right(offsets, high)
        while place and offsets[place - 1] > low:
            place -= 1
            offset = offsets[place]
            path = self._path(offset)
            try:
                producers.load_snapshot(mapped_file.read_file(path), now_ms, path)
            except (CorruptFileError, FileNotFoundError):
                self.remove_one(offset)
                continue
            return offset
        return -1
