# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Files of the engine: written by pwritev, read through a read-only mapping.

A store into a mapping would kill the process when the disk is full; a write returns an error
instead, so mappings are only read. Files without a mapping, locks and names: file_system, whose
Python face stands here as well.

Descriptors are bounded: at most DESCRIPTORS_MAX files are open at a time, and at most half of what
the process may have (RLIMIT_NOFILE); the least used one is closed for the next and opened again on
its next use. So are mappings, which outlive their descriptors: at most MAPPINGS_MAX, less where the
system has no more, and besides them those that a view or a call still reads. Who reads through one
holds it: an address alone is good until the next call that may map another file.

A file belongs to the process that opened it. In a child of fork() each use raises LogClosedError.

After a crash: what flush() returned for is there; what append() wrote later may be there in part,
in any order of pages. A new, renamed or removed name is durable only after fsync_dir of its
directory.
"""

import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport PyObject
from libc.errno cimport EDQUOT, EFBIG, ENOMEM, ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t

from replog._native cimport file_system
from replog._native.clock_table cimport ClockTable
from replog._native.file_system cimport (
    cut_fd, descriptor_limit, fork_count,
    iovec, open_path, problem_of, sync_fd, system_calls, write_all,
)

from replog._native.file_replacement import replace_file, replace_files
from replog._native.file_system import (
    FileLock, OfflineFile, fsync_dir, list_dir, make_dir, read_file, remove, remove_dir, rename,
)
from replog.errors import (
    InvariantViolation, LogClosedError, LogFailedError, LogTruncatedError, NoSpaceError,
    OutOfDescriptorsError, OutOfMappingsError, StorageError, UsageError,
)

__all__ = [
    "DESCRIPTORS_MAX",
    "MAPPINGS_MAX",
    "FileLock",
    "FileView",
    "MappedFile",
    "Mapping",
    "OfflineFile",
    "fsync_dir",
    "limit_descriptors",
    "limit_mappings",
    "list_dir",
    "make_dir",
    "mapping_count",
    "open_descriptor_count",
    "read_file",
    "remove",
    "remove_dir",
    "rename",
    "replace_file",
    "replace_files",
]

cdef extern from "fcntl.h" nogil:
    int O_RDONLY
    int O_RDWR
    int O_CREAT

cdef extern from "sys/mman.h" nogil:
    void* MAP_FAILED

cdef enum:
    OPEN_FILES_MAX = 2048
    MAPPED_FILES_MAX = 4096      # a sixteenth of what Linux lets a process have (vm.max_map_count)
    MAPPED_FILES_LEAST = 64      # as many are kept, however little the system has
    PAGE_BYTES = 4096

DESCRIPTORS_MAX = OPEN_FILES_MAX
MAPPINGS_MAX = MAPPED_FILES_MAX

# MappedFiles with a descriptor, and those with a mapping.
cdef ClockTable open_files = ClockTable(OPEN_FILES_MAX)
cdef ClockTable mapped_files = ClockTable(MAPPED_FILES_MAX)

# Closed files that views still reach into, by inode, which their mappings keep from being used
# again: who opens one of them anew must not cut it in place either.
cdef dict outlived = {}


def limit_descriptors(int count) -> int:
    """Bound the open files to `count` (1 to DESCRIPTORS_MAX); returns the bound before. For tests.
    """
    cdef int before = open_files.limit
    if not 1 <= count <= OPEN_FILES_MAX:
        raise UsageError(f"expected a bound in [1, {OPEN_FILES_MAX}]; found {count}.")
    while open_files.count > count and close_one_file():
        pass
    if open_files.count > count:
        raise UsageError(f"expected at most {count} files in use; found {open_files.count}.")
    open_files.bound(count)
    return before


def limit_mappings(int count) -> int:
    """Bound the mappings to `count` (1 to MAPPINGS_MAX); returns the bound before. For tests."""
    cdef int before = mapped_files.limit
    if not 1 <= count <= MAPPED_FILES_MAX:
        raise UsageError(f"expected a bound in [1, {MAPPED_FILES_MAX}]; found {count}.")
    while mapped_files.count > count:
        unmap_one_file()
    mapped_files.bound(count)
    return before


def open_descriptor_count() -> int:
    """How many files hold a descriptor now."""
    return open_files.count


def mapping_count() -> int:
    """How many files hold a mapping now, but for those that only views keep."""
    return mapped_files.count


cdef bint close_one_file() noexcept:
    """Close the descriptor of a file that was not used since the last sweep and is not in use."""
    cdef PyObject* idle = open_files.idle()
    if idle == NULL:
        return False
    release_descriptor(<MappedFile>idle)
    return True


cdef bint unmap_one_file() noexcept:
    """Let go of a mapping that was not used since the last sweep; whoever reads it keeps it."""
    cdef PyObject* idle = mapped_files.idle()
    if idle == NULL:
        return False
    release_mapping(<MappedFile>idle)
    return True


cdef bint give_mappings_back() noexcept:
    """Let go of half of all mappings, and keep to that: others need them, too."""
    cdef int kept = mapped_files.count // 2
    cdef bint any_went = False
    while mapped_files.count > kept and unmap_one_file():
        any_went = True
    if MAPPED_FILES_LEAST <= kept < mapped_files.limit:
        mapped_files.bound(kept)
    return any_went


cdef int forget_outlived(MappedFile file) except -1:
    """The last view of a closed file is gone."""
    files = outlived.get(file.file_number)
    if files is not None and file in files:
        files.remove(file)
        if not files:
            del outlived[file.file_number]
    return 0


# When the process has no descriptor left, one of ours makes room.
file_system.spare_descriptor = close_one_file


cdef void release_descriptor(MappedFile file) noexcept:
    """Close the file's descriptor, if it has one, and take it out of the table."""
    if file.fd < 0:
        return
    system_calls.close(file.fd)
    file.fd = -1
    open_files.drop(&file.open_place)


cdef void release_mapping(MappedFile file) noexcept:
    """Let go of the file's mapping, if it has one: it ends with the last that reads it."""
    mapped_files.drop(&file.mapped_place)
    file.mapping = None


@cython.no_gc
cdef class Mapping:
    def __cinit__(self):
        self.address = NULL
        self.length_bytes = 0

    def __init__(self):
        raise TypeError("a Mapping is made by MappedFile only")

    def __dealloc__(self):
        if self.address != NULL:
            system_calls.munmap(<void*>self.address, self.length_bytes)


@cython.no_gc
cdef class MappedFile:
    """A file that grows at its end and is read through a mapping.

    Invariant: every byte of [0, size_bytes) was written whole; nothing reads beyond it. One thread
    writes at a time (its caller sees to that); views may be made and dropped by any.
    """

    def __cinit__(self):
        self.fd = -1
        self.open_place = -1
        self.mapped_place = -1
        self.fork_generation = fork_count[0]

    def __init__(self, path: str, *, bint writable=False, bint create=False) -> None:
        """Open `path`; with `create` an empty file is made where none is (fsync_dir makes it last).

        Raises FileNotFoundError, NoSpaceError, StorageError.
        """
        if self.encoded_path is not None:
            raise UsageError(f"expected one __init__ of the file {self.path!r}; found a second.")
        if create and not writable:
            raise UsageError(f"expected writable=True to create {path!r}; found writable=False.")
        self.path = path
        self.encoded_path = os.fsencode(path)
        self.writable = writable
        self.open_descriptor(O_CREAT if create else 0)
        if system_calls.fstat(
            self.fd, &self.size_bytes, &self.modified_ms, &self.file_number
        ) != 0:
            raise problem_of(errno, "read the size of", path)

    def __dealloc__(self):
        release_descriptor(self)
        mapped_files.drop(&self.mapped_place)

    cdef int open_descriptor(self, int flags) except -1:
        cdef int64_t bound = min(open_files.limit, max(descriptor_limit() // 2, 1))
        while open_files.count >= bound:
            if not close_one_file():
                raise OutOfDescriptorsError(
                    f"expected to open {self.path!r}; all {bound} descriptors are in use by "
                    f"running calls. Try again.", path=self.path)
        self.fd = open_path(
            self.path, self.encoded_path, flags | (O_RDWR if self.writable else O_RDONLY))
        open_files.add(<PyObject*>self, &self.open_place, &self.busy)
        return 0

    cdef int reopen(self) except -1:
        """Open again after the descriptor was given to another file."""
        cdef int64_t size_bytes, modified_ms
        cdef uint64_t file_number
        cdef int cause
        try:
            self.open_descriptor(0)
        except FileNotFoundError:
            raise LogTruncatedError(
                f"expected the file {self.path!r}, found it gone: a truncation or retention took "
                f"it meanwhile; ask for the log's bounds and read again.", path=self.path) from None
        if system_calls.fstat(self.fd, &size_bytes, &modified_ms, &file_number) != 0:
            cause = errno
            release_descriptor(self)
            raise problem_of(cause, "read the size of", self.path)
        if file_number != self.file_number or size_bytes < self.size_bytes:
            release_descriptor(self)
            raise LogTruncatedError(
                f"expected the file of {self.size_bytes} bytes that was opened as {self.path!r}, "
                + ("found another in its place" if file_number != self.file_number
                   else f"found it cut to {size_bytes}")
                + "; open the log again.", path=self.path, position=size_bytes)
        return 0

    cdef void let_go(self) noexcept:
        """End a call that used the descriptor without the GIL."""
        self.busy -= 1
        if self.busy == 0 and self.closed:
            release_descriptor(self)

    cdef int refuse(self) except -1:
        """Raise for a file that takes no more work."""
        if self.fork_generation != fork_count[0]:
            raise LogClosedError(
                f"expected the process that opened {self.path!r}; found a child forked from it. "
                f"Open the log anew in the child, read-only.", path=self.path)
        if self.closed:
            raise LogClosedError(
                f"expected an open file; {self.path!r} was closed.", path=self.path)
        if self.failed:
            raise LogFailedError(
                f"expected a working disk under {self.path!r}; an earlier write or sync of it "
                f"failed. Check the disk, then open the log again.", path=self.path)
        return 0

    cdef int prepare(self) except -1:
        """Make sure that the file may be used here and has a descriptor."""
        if self.fork_generation != fork_count[0] or self.closed or self.failed:
            self.refuse()
        if self.fd < 0:
            self.reopen()
        open_files.entries[self.open_place].used = True
        return 0

    cdef int fail(self, int cause, str action) except -1:
        """Remember for ever that the bytes on disk are unknown; raises LogFailedError."""
        self.failed = True
        raise LogFailedError(
            f"expected to {action} {self.path!r}; the system answered {os.strerror(cause)} (errno "
            f"{cause}). What is on disk is unknown: check the disk, then open the log again.",
            path=self.path, position=self.size_bytes, errno=cause)

    cdef int roll_back(self, int cause, int64_t length_bytes) except -1:
        """Cut what a failed append left behind size_bytes; always raises."""
        cdef int cut = cut_fd(self.fd, self.size_bytes)
        if cut != 0:
            self.fail(cut, f"cut back to {self.size_bytes} bytes")
        if cause != ENOSPC and cause != EDQUOT and cause != EFBIG:
            self.fail(cause, f"write {length_bytes} bytes at position {self.size_bytes} of")
        raise NoSpaceError(
            f"expected to write {length_bytes} bytes at position {self.size_bytes} of "
            f"{self.path!r}; the system answered {os.strerror(cause)} (errno {cause}). Nothing was "
            f"kept of them: free space, then append again.",
            path=self.path, position=self.size_bytes, errno=cause)

    cdef int append(self, iovec* parts, int part_count, int64_t length_bytes) except -1:
        cdef int cause
        self.prepare()
        if not self.writable:
            raise UsageError(f"expected a writable file; {self.path!r} is open for reading.")
        self.busy += 1
        with nogil:
            cause = write_all(self.fd, parts, part_count, length_bytes, self.size_bytes)
        if cause != 0:
            try:
                self.roll_back(cause, length_bytes)
            finally:
                self.let_go()
        self.let_go()
        self.size_bytes += length_bytes
        return 0

    def append_bytes(self, content) -> None:
        """Append any contiguous buffer. Errors as append in the .pxd; not durable until flush()."""
        cdef Py_buffer held
        cdef iovec part
        PyObject_GetBuffer(content, &held, PyBUF_SIMPLE)
        try:
            part.iov_base = held.buf
            part.iov_len = held.len
            self.append(&part, 1, held.len)
        finally:
            PyBuffer_Release(&held)

    cdef Mapping map(self, int64_t capacity):
        cdef Mapping mapping = self.mapping
        if self.fork_generation != fork_count[0] or self.closed:
            self.refuse()
        if mapping is not None and mapping.length_bytes >= capacity:
            mapped_files.entries[self.mapped_place].used = True
            return mapping
        capacity = (max(capacity, 1) + PAGE_BYTES - 1) & ~<int64_t>(PAGE_BYTES - 1)
        mapping = self.new_mapping(capacity)
        if self.mapped_place < 0:
            mapped_files.add(<PyObject*>self, &self.mapped_place, NULL)
        self.mapping = mapping  # the old one goes with its last view
        return mapping

    cdef Mapping new_mapping(self, int64_t length_bytes):
        """Map the file; there is a place in the table behind this."""
        cdef Mapping mapping = Mapping.__new__(Mapping)
        cdef void* address
        cdef int cause
        while mapped_files.count >= mapped_files.limit:
            unmap_one_file()
        if self.fd < 0:
            self.reopen()
        open_files.entries[self.open_place].used = True
        while True:
            address = system_calls.mmap(self.fd, length_bytes)
            if address != MAP_FAILED:
                break
            cause = errno
            if cause == ENOMEM and give_mappings_back():
                continue
            kind = OutOfMappingsError if cause == ENOMEM else StorageError
            raise kind(
                f"expected to map {length_bytes} bytes of {self.path!r}; the system answered "
                f"{os.strerror(cause)} (errno {cause}). Raise the limit on address space (ulimit "
                f"-v) or on mappings (vm.max_map_count), then try again.",
                path=self.path, errno=cause)
        mapping.address = <const uint8_t*>address
        mapping.length_bytes = length_bytes
        return mapping

    cpdef FileView view(self, int64_t position, int64_t length_bytes):
        cdef FileView view
        cdef int64_t end = position + length_bytes
        if position < 0 or length_bytes < 0 or end > self.size_bytes:
            raise InvariantViolation(
                f"expected a view inside [0, {self.size_bytes}) of {self.path!r}; found "
                f"[{position}, {end}). This is a bug in replog.")
        view = FileView.__new__(FileView)
        view.mapping = self.map(end)
        view.file = self
        view.position = position
        view.length_bytes = length_bytes
        view.address = view.mapping.address + position
        self.pin_count += 1
        if end > self.pinned_end:
            self.pinned_end = end
        return view

    cpdef bint pinned_past(self, int64_t position) noexcept:
        """Whether a view that is alive, of this opening or an earlier one, may reach past it."""
        cdef MappedFile closed
        if self.pin_count > 0 and self.pinned_end > position:
            return True
        for closed in outlived.get(self.file_number, ()):
            if closed.pinned_end > position:
                return True
        return False

    cpdef int flush(self) except -1:
        """Make every byte below size_bytes durable. Raises LogFailedError, for good."""
        cdef int cause
        self.prepare()
        self.busy += 1
        with nogil:
            cause = sync_fd(self.fd)
        self.let_go()
        if cause != 0:
            self.fail(cause, "sync")
        return 0

    cpdef int truncate(self, int64_t size_bytes) except -1:
        """Cut to `size_bytes`, which no view may reach past. Durable after flush()."""
        cdef int cause
        self.prepare()
        if not (self.writable and 0 <= size_bytes <= self.size_bytes) or (
                self.pinned_past(size_bytes)):
            raise InvariantViolation(
                f"expected to cut the writable, unpinned file {self.path!r} inside [0, "
                f"{self.size_bytes}]; found a cut at {size_bytes}, writable={self.writable}, "
                f"{self.pin_count} pins up to {self.pinned_end}. This is a bug in replog.")
        self.busy += 1
        # The end moves first, so that no reader starts a view in what is about to go.
        before = self.size_bytes
        self.size_bytes = size_bytes
        with nogil:
            cause = cut_fd(self.fd, size_bytes)
        self.let_go()
        if cause != 0:
            self.fail(cause, f"cut, from {before} to {size_bytes} bytes,")
        return 0

    cpdef int rename_to(self, str path) except -1:
        """Give the file another name. Raises FileNotFoundError, NoSpaceError, StorageError."""
        if self.fork_generation != fork_count[0] or self.closed:
            self.refuse()
        rename(self.path, path)
        self.path = path
        self.encoded_path = os.fsencode(path)
        return 0

    cpdef int close(self) except -1:
        """Give the mapping back, and the descriptor once no call uses it; twice does no harm."""
        release_mapping(self)
        if self.pin_count > 0 and not self.closed:
            outlived.setdefault(self.file_number, []).append(self)
        self.closed = True
        if self.busy == 0:
            release_descriptor(self)
        return 0


@cython.no_gc
@cython.freelist(64)
cdef class FileView:
    """Bytes [position, position + length_bytes) of a file, as a read-only buffer.

    They stay what they are as long as the view or a buffer taken from it lives, even if the file is
    cut, renamed, deleted or closed meanwhile.
    """

    def __init__(self):
        raise TypeError("a FileView is made by MappedFile.view only")

    def __dealloc__(self):
        if self.file is not None:
            self.file.pin_count -= 1
            if self.file.pin_count == 0:
                self.file.pinned_end = 0
                if self.file.closed:
                    forget_outlived(self.file)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.address, self.length_bytes, True, flags)

    def __len__(self) -> int:
        return self.length_bytes
