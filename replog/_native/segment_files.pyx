# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The files of one segment: made together, opened on first use, synced and given back together.

Its log's guard is held wherever a file is opened, since any thread may be the first to ask for it.
"""

from libc.stdint cimport int64_t

from replog._native.mapped_file cimport MappedFile
from replog._native.offset_index cimport OffsetIndex
from replog._native.time_index cimport TimeIndex
from replog._native.transaction_index cimport TransactionIndex

from replog.errors import LogFailedError, LogTruncatedError, StorageError

from replog._native import mapped_file

SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


cdef class SegmentFiles:
    """See the module. A LogSegment is one, with what the files say."""

    @property
    def path(self):
        return self.prefix + ".log"

    @property
    def size_bytes(self):
        """Bytes of the data file that are whole."""
        self.open()
        return self.file.size_bytes

    @property
    def modified_ms(self):
        """When the data file was last written, as the file system tells it at open."""
        self.open()
        return self.file.modified_ms

    def create(self):
        """Make the (empty) indexes and data file of a new segment, or nothing; nothing is synced.

        The data file comes last: where it is, a segment is.
        """
        try:
            self.make_index_files()
            self.offsets.reset()
            self.times.reset()
            self.file = MappedFile(self.prefix + ".log", writable=True, create=True)
        except BaseException:
            self.discard()
            raise

    def discard(self):
        """Take the files of a segment that was never used away again, as far as that can be done.

        What is left without a data file the next open removes. An empty data file would stay behind
        an end that the log may give up: where it cannot be taken away, LogFailedError is raised.
        """
        self.abandon()
        for suffix in SEGMENT_SUFFIXES:
            try:
                mapped_file.remove(self.prefix + suffix)
            except FileNotFoundError:
                pass
            except StorageError as error:
                if suffix == ".log":
                    raise LogFailedError(
                        f"expected to take the new, empty segment file {self.path} away again, "
                        f"found that it cannot be done ({error}); check the disk, then open the "
                        f"log again",
                        path=self.path,
                    ) from error

    def make_index_files(self):
        """Open both index files, made where they are missing."""
        offsets = OffsetIndex(self.prefix + ".index", self.base_offset, self.index_bytes_max)
        self.times = TimeIndex(self.prefix + ".timeindex", self.base_offset, self.index_bytes_max)
        self.offsets = offsets

    cdef int hold(self) except -1:
        if self.guard is not None:
            self.guard.lock_any()
        return 0

    cdef int let_go(self) except -1:
        if self.guard is not None:
            self.guard.unlock(None)
        return 0

    cdef int open(self) except -1:
        if self.file is None:
            self.open_file()
        return 0

    cdef int open_file(self) except -1:
        self.hold()
        try:
            if self.file is None:
                self.file = MappedFile(self.prefix + ".log", writable=True)
        except FileNotFoundError as error:
            raise LogTruncatedError(
                f"expected segment file {self.path}, found it gone: truncation or retention "
                f"took it meanwhile; ask for the log's bounds and read again",
                path=self.path, offset=self.base_offset,
            ) from error
        finally:
            self.let_go()
        return 0

    @property
    def transaction_index(self):
        self.hold()
        try:
            if self.aborts is None:
                self.aborts = TransactionIndex(self.prefix + ".txnindex", self.base_offset)
            return self.aborts
        finally:
            self.let_go()

    def view(self, int64_t position, int64_t length_bytes):
        """A pinned view of file bytes [position, position + length_bytes)."""
        self.open()
        self.file.map(max(self.map_bytes, self.file.size_bytes))
        return self.file.view(position, length_bytes)

    cdef list written_files(self, bint records_only):
        self.open()
        files = [self.file]
        if not records_only:
            if self.offsets is not None:
                self.offsets.write_out()
                self.times.write_out()
                files += [self.offsets.file, self.times.file]
            if self.aborts is not None and self.aborts.file is not None:
                files.append(self.aborts.file)
        return files

    def flush(self):
        """Sync the data file and the side files; durable on return."""
        for file in self.written_files(False):
            file.flush()

    def flush_records(self):
        """Sync the data file alone: what an acknowledgement needs."""
        self.open()
        self.file.flush()

    def abandon(self):
        """Give the files back as they are; views stay readable."""
        if self.offsets is not None:
            self.offsets.file.close()
        if self.times is not None:
            self.times.file.close()
        if self.aborts is not None:
            self.aborts.close()
        if self.file is not None:
            self.file.close()
