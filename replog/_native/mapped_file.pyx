# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Files of the engine: written by pwritev, read through a read-only mapping.

Nothing else of replog opens, writes, maps, syncs, resizes, renames or unlinks a file, and all of it
goes through the table `system_calls`. A store into a mapping would kill the process when the disk
is full; a write returns an error instead, so mappings are only read.

Descriptors are bounded: at most DESCRIPTORS_MAX files are open at a time, the least used one is
closed for the next and opened again on its next use. A mapping outlives its descriptor.

A file belongs to the process that opened it. In a child of fork() each use raises LogClosedError.

After a crash: what flush() returned for is there; what append() wrote later may be there in part,
in any order of pages. A new, renamed or removed name is durable only after fsync_dir of its
directory.
"""

import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport PyObject
from libc.errno cimport (
    EAGAIN, EDQUOT, EEXIST, EFBIG, EINTR, EIO, EMFILE, ENFILE, ENOENT, ENOSPC, errno,
)
from libc.stdint cimport int64_t, uint8_t

from replog.errors import (
    InvariantViolation,
    LogClosedError,
    LogDirectoryLockedError,
    LogFailedError,
    LogTruncatedError,
    NoSpaceError,
    StorageError,
    UsageError,
)

cdef extern from "c/mapped_file_calls.h" nogil:
    int replog_fork_generation
    int replog_watch_forks()
    int replog_close_in_children(int fd)
    void replog_keep_in_children(int fd)

cdef extern from "fcntl.h" nogil:
    int O_RDONLY
    int O_RDWR
    int O_WRONLY
    int O_CREAT
    int O_TRUNC

cdef extern from "sys/file.h" nogil:
    int LOCK_EX
    int LOCK_NB
    int LOCK_UN

cdef extern from "sys/mman.h" nogil:
    void* MAP_FAILED

cdef enum:
    OPEN_FILES_MAX = 2048
    PAGE_BYTES = 4096
    PARTS_MAX = 1024           # IOV_MAX of Linux
    FILE_MODE = 0o644
    DIRECTORY_MODE = 0o755

DESCRIPTORS_MAX = OPEN_FILES_MAX

system_calls = &replog_real_system_calls

if replog_watch_forks() != 0:
    raise MemoryError("expected to install a fork handler; the process has no memory for it")

# Open MappedFiles (borrowed), and the hand of the clock that looks for one to close.
cdef PyObject* open_files[OPEN_FILES_MAX]
cdef int open_file_count = 0
cdef int open_files_limit = OPEN_FILES_MAX
cdef int clock_hand = 0


def limit_descriptors(int count) -> int:
    """Bound the open files to `count` (1 to DESCRIPTORS_MAX); returns the bound before. For
    tests."""
    global open_files_limit, clock_hand
    if not 1 <= count <= OPEN_FILES_MAX:
        raise UsageError(f"expected a bound in [1, {OPEN_FILES_MAX}]; found {count}.")
    before = open_files_limit
    while open_file_count > count and close_one_file():
        pass
    if open_file_count > count:
        raise UsageError(f"expected at most {count} files in use; found {open_file_count}.")
    open_files_limit = count
    clock_hand = 0
    return before


def open_descriptor_count() -> int:
    """How many files hold a descriptor now."""
    return open_file_count


cdef bint close_one_file() noexcept:
    """Close the descriptor of a file that was not used since the last sweep and is not in use."""
    global clock_hand
    cdef MappedFile file
    cdef int _step
    # Two rounds: the first one may only take away the marks.
    for _step in range(2 * open_file_count):
        clock_hand = clock_hand + 1 if clock_hand + 1 < open_file_count else 0
        file = <MappedFile>open_files[clock_hand]
        if file.busy > 0:
            continue
        if file.recently_used:
            file.recently_used = False
            continue
        release_descriptor(file)
        return True
    return False


cdef void release_descriptor(MappedFile file) noexcept:
    """Close the file's descriptor, if it has one, and take it out of the table."""
    global open_file_count
    cdef MappedFile last
    if file.fd < 0:
        return
    system_calls.close(file.fd)
    file.fd = -1
    open_file_count -= 1
    if file.slot != open_file_count:
        open_files[file.slot] = open_files[open_file_count]
        last = <MappedFile>open_files[file.slot]
        last.slot = file.slot
    file.slot = -1


cdef object problem_of(int cause, str action, str path):
    """The exception for errno `cause` of `action` on `path`."""
    found = (
        f"expected to {action} {path!r}; the system answered {os.strerror(cause)} (errno {cause})."
    )
    if cause == ENOENT:
        return FileNotFoundError(cause, os.strerror(cause), path)
    if cause == EEXIST:
        return FileExistsError(cause, os.strerror(cause), path)
    if cause == ENOSPC or cause == EDQUOT or cause == EFBIG:
        return NoSpaceError(
            f"{found} Free space or raise the limit, then try again.", path=path, errno=cause
        )
    if cause == EIO:
        return LogFailedError(
            f"{found} Check the disk, then open the log again.", path=path, errno=cause
        )
    if cause == EMFILE or cause == ENFILE:
        return StorageError(
            f"{found} Raise the limit on open files (ulimit -n).", path=path, errno=cause
        )
    return StorageError(f"{found} Check the path and its permissions.", path=path, errno=cause)


cdef int open_path(str path, bytes encoded_path, int flags) except -1:
    """Open, retrying EINTR; when descriptors run out, closes one of ours and tries again."""
    cdef int fd
    cdef int cause
    while True:
        fd = system_calls.open(encoded_path, flags, FILE_MODE)
        if fd >= 0:
            return fd
        cause = errno
        if cause == EINTR or ((cause == EMFILE or cause == ENFILE) and close_one_file()):
            continue
        raise problem_of(cause, "open", path)


cdef int write_all(
    int fd, iovec* parts, int part_count, int64_t length_bytes, int64_t position
) noexcept nogil:
    """Write every part at `position`; changes `parts` as it goes. Returns 0 or an errno."""
    cdef ssize_t written
    while length_bytes > 0:
        written = system_calls.pwritev(
            fd, parts, part_count if part_count < PARTS_MAX else PARTS_MAX, position
        )
        if written < 0:
            if errno == EINTR:
                continue
            return errno
        if written == length_bytes:
            return 0
        if written == 0:
            return ENOSPC  # a regular file that takes nothing has no room, whatever the reason
        length_bytes -= written
        position += written
        while written > 0 and <size_t>written >= parts.iov_len:
            written -= parts.iov_len
            parts += 1
            part_count -= 1
        if written > 0:
            parts.iov_base = <uint8_t*>parts.iov_base + written
            parts.iov_len -= written
    return 0


cdef int sync_fd(int fd) noexcept nogil:
    """fdatasync; returns 0 or an errno. Only EINTR is retried: any other failure may have dropped
    pages."""
    while system_calls.fdatasync(fd) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int cut_fd(int fd, int64_t size_bytes) noexcept nogil:
    """ftruncate; returns 0 or an errno."""
    while system_calls.ftruncate(fd, size_bytes) != 0:
        if errno != EINTR:
            return errno
    return 0


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
        self.slot = -1
        self.fork_generation = replog_fork_generation

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
        if system_calls.fstat(self.fd, &self.size_bytes, &self.modified_ms) != 0:
            raise problem_of(errno, "read the size of", path)

    def __dealloc__(self):
        release_descriptor(self)

    cdef int open_descriptor(self, int flags) except -1:
        global open_file_count
        if open_file_count >= open_files_limit and not close_one_file():
            raise StorageError(
                f"expected to open {self.path!r}; all {open_files_limit} descriptors are in use by"
                " running calls. Try again.", path=self.path)
        self.fd = open_path(
            self.path, self.encoded_path, flags | (O_RDWR if self.writable else O_RDONLY))
        self.slot = open_file_count
        self.recently_used = True
        open_files[open_file_count] = <PyObject*>self
        open_file_count += 1
        return 0

    cdef int reopen(self) except -1:
        """Open again after the descriptor was given to another file."""
        cdef int64_t size_bytes, modified_ms
        self.open_descriptor(0)
        if system_calls.fstat(self.fd, &size_bytes, &modified_ms) != 0:
            raise problem_of(errno, "read the size of", self.path)
        if size_bytes < self.size_bytes:
            release_descriptor(self)
            raise LogTruncatedError(
                f"expected {self.size_bytes} bytes in {self.path!r}; found {size_bytes}. Another "
                "process"
                " cut the file; open the log again.", path=self.path, position=size_bytes)
        return 0

    cdef int refuse(self) except -1:
        """Raise for a file that takes no more work."""
        if self.fork_generation != replog_fork_generation:
            raise LogClosedError(
                f"expected the process that opened {self.path!r}; found a child forked from it. "
                "Open the"
                " log anew in the child, read-only.", path=self.path)
        if self.closed:
            raise LogClosedError(
                f"expected an open file; {self.path!r} was closed.", path=self.path
            )
        if self.failed:
            raise LogFailedError(
                f"expected a working disk under {self.path!r}; an earlier write or sync of it "
                "failed."
                " Check the disk, then open the log again.", path=self.path)
        return 0

    cdef int prepare(self) except -1:
        """Make sure that the file may be used here and has a descriptor."""
        if self.fork_generation != replog_fork_generation or self.closed or self.failed:
            self.refuse()
        if self.fd < 0:
            self.reopen()
        self.recently_used = True
        return 0

    cdef int fail(self, int cause, str action) except -1:
        """Remember for ever that the bytes on disk are unknown; raises LogFailedError."""
        self.failed = True
        raise LogFailedError(
            f"expected to {action} {self.path!r}; the system answered {os.strerror(cause)} (errno "
            f"{cause})."
            " What is on disk is unknown: check the disk, then open the log again.",
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
            f"{self.path!r}; the"
            f" system answered {os.strerror(cause)} (errno {cause}). Nothing was kept of them: "
            "free space,"
            " then append again.", path=self.path, position=self.size_bytes, errno=cause)

    cdef int append(self, iovec* parts, int part_count, int64_t length_bytes) except -1:
        cdef int cause
        self.prepare()
        if not self.writable:
            raise UsageError(f"expected a writable file; {self.path!r} is open for reading.")
        self.busy += 1
        with nogil:
            cause = write_all(self.fd, parts, part_count, length_bytes, self.size_bytes)
        self.busy -= 1
        if cause != 0:
            self.roll_back(cause, length_bytes)
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

    cdef const uint8_t* map(self, int64_t capacity) except NULL:
        cdef Mapping mapping = self.mapping
        cdef void* address
        cdef int cause = 0
        cdef int64_t length_bytes
        if self.fork_generation != replog_fork_generation or self.closed:
            self.refuse()
        if mapping is not None and mapping.length_bytes >= capacity:
            return mapping.address
        if self.fd < 0:
            self.reopen()
        self.recently_used = True
        length_bytes = (max(capacity, 1) + PAGE_BYTES - 1) & ~<int64_t>(PAGE_BYTES - 1)
        address = system_calls.mmap(self.fd, length_bytes)
        if address == MAP_FAILED:
            cause = errno
            raise StorageError(
                f"expected to map {length_bytes} bytes of {self.path!r}; the system answered"
                f" {os.strerror(cause)} (errno {cause}). Raise the limit on address space or on "
                "mappings.",
                path=self.path, errno=cause)
        mapping = Mapping.__new__(Mapping)
        mapping.address = <const uint8_t*>address
        mapping.length_bytes = length_bytes
        self.mapping = mapping  # the old one goes with its last view
        return mapping.address

    cpdef FileView view(self, int64_t position, int64_t length_bytes):
        cdef FileView view
        cdef int64_t end = position + length_bytes
        if position < 0 or length_bytes < 0 or end > self.size_bytes:
            raise InvariantViolation(
                f"expected a view inside [0, {self.size_bytes}) of {self.path!r}; found"
                f" [{position}, {end}). This is a bug in replog.")
        self.map(end)
        view = FileView.__new__(FileView)
        view.mapping = self.mapping
        view.file = self
        view.position = position
        view.length_bytes = length_bytes
        view.address = self.mapping.address + position
        self.pin_count += 1
        if end > self.pinned_end:
            self.pinned_end = end
        return view

    cpdef bint pinned_past(self, int64_t position) noexcept:
        """Whether a view that is alive may reach past `position`."""
        return self.pin_count > 0 and self.pinned_end > position

    cpdef int flush(self) except -1:
        """Make every byte below size_bytes durable. Raises LogFailedError, for good."""
        cdef int cause
        self.prepare()
        self.busy += 1
        with nogil:
            cause = sync_fd(self.fd)
        self.busy -= 1
        if cause != 0:
            self.fail(cause, "sync")
        return 0

    cpdef int truncate(self, int64_t size_bytes) except -1:
        """Cut to `size_bytes`; no view may reach past it. Durable after flush(). Raises
        LogFailedError."""
        cdef int cause
        self.prepare()
        if (
            not self.writable
            or not 0 <= size_bytes <= self.size_bytes
            or self.pinned_past(size_bytes)
        ):
            raise InvariantViolation(
                f"expected to cut the writable, unpinned file {self.path!r} inside [0, "
                f"{self.size_bytes}];"
                f" found a cut at {size_bytes}, writable={self.writable}, {self.pin_count} pins up "
                "to"
                f" {self.pinned_end}. This is a bug in replog.")
        self.busy += 1
        # The end moves first, so that no reader starts a view in what is about to go.
        before = self.size_bytes
        self.size_bytes = size_bytes
        with nogil:
            cause = cut_fd(self.fd, size_bytes)
        self.busy -= 1
        if cause != 0:
            self.fail(cause, f"cut, from {before} to {size_bytes} bytes,")
        return 0

    cpdef int rename_to(self, str path) except -1:
        """Give the file another name. Raises FileNotFoundError, NoSpaceError, StorageError."""
        if self.fork_generation != replog_fork_generation or self.closed:
            self.refuse()
        rename(self.path, path)
        self.path = path
        self.encoded_path = os.fsencode(path)
        return 0

    cpdef int close(self) except -1:
        """Give the descriptor and the mapping back; a second close does nothing."""
        if self.busy > 0:
            raise InvariantViolation(
                f"expected no running call on {self.path!r} at its close; found {self.busy}."
                " This is a bug in replog.")
        release_descriptor(self)
        self.mapping = None
        self.closed = True
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

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.address, self.length_bytes, True, flags)

    def __len__(self) -> int:
        return self.length_bytes


cdef class FileLock:
    """An exclusive flock on `path`, held until release() or the end of the process.

    A child of fork() does not hold it. Raises LogDirectoryLockedError if another process does.
    """

    cdef readonly str path
    cdef int fd
    cdef int fork_generation

    def __cinit__(self):
        self.fd = -1
        self.fork_generation = replog_fork_generation

    def __init__(self, path: str) -> None:
        cdef int cause
        if self.fd >= 0:
            raise UsageError(f"expected one __init__ of the lock {self.path!r}; found a second.")
        self.path = path
        self.fd = open_path(path, os.fsencode(path), O_RDWR | O_CREAT)
        while system_calls.flock(self.fd, LOCK_EX | LOCK_NB) != 0:
            cause = errno
            if cause == EINTR:
                continue
            system_calls.close(self.fd)
            self.fd = -1
            if cause == EAGAIN:
                raise LogDirectoryLockedError(
                    f"expected the lock {path!r} to be free; another open log or process holds it. "
                    "Close"
                    " that one first, or read the directory read-only.", path=path)
            raise problem_of(cause, "lock", path)
        if replog_close_in_children(self.fd) != 0:
            system_calls.close(self.fd)
            self.fd = -1
            raise StorageError(
                f"expected at most 4096 locks in a process at {path!r}; found more.", path=path
            )

    def __dealloc__(self):
        self.unlock()

    cdef void unlock(self) noexcept:
        # In a child the fork handler has closed the descriptor; the number may be another file's
        # now.
        if self.fd >= 0 and self.fork_generation == replog_fork_generation:
            replog_keep_in_children(self.fd)
            system_calls.flock(self.fd, LOCK_UN)
            system_calls.close(self.fd)
        self.fd = -1

    def release(self) -> None:
        """Give the lock up; a second call does nothing. The file stays."""
        self.unlock()


cdef class OfflineFile:
    """A file that another process may be writing, read by pread only, so that a cut cannot kill
    us."""

    cdef readonly str path
    cdef int fd

    def __cinit__(self):
        self.fd = -1

    def __init__(self, path: str) -> None:
        """Raises FileNotFoundError, StorageError."""
        if self.fd >= 0:
            raise UsageError(f"expected one __init__ of the file {self.path!r}; found a second.")
        self.path = path
        self.fd = open_path(path, os.fsencode(path), O_RDONLY)

    def __dealloc__(self):
        if self.fd >= 0:
            system_calls.close(self.fd)

    cdef int refuse_closed(self) except -1:
        if self.fd < 0:
            raise LogClosedError(
                f"expected an open file; {self.path!r} was closed.", path=self.path
            )
        return 0

    def size(self) -> int:
        """Size in bytes now."""
        cdef int64_t size_bytes = 0, modified_ms = 0
        self.refuse_closed()
        if system_calls.fstat(self.fd, &size_bytes, &modified_ms) != 0:
            raise problem_of(errno, "read the size of", self.path)
        return size_bytes

    def read(self, int64_t position, int64_t length_bytes) -> bytes:
        """Bytes [position, position + length_bytes), all of them.

        Raises LogTruncatedError if the file ends before, StorageError.
        """
        self.refuse_closed()
        if position < 0 or length_bytes < 0:
            raise UsageError(
                f"expected a position and a length of at least 0 in {self.path!r}; found "
                f"{position} and"
                f" {length_bytes}.")
        content = PyBytes_FromStringAndSize(NULL, length_bytes)
        cdef char* into = PyBytes_AS_STRING(content)
        cdef int64_t length_read = 0
        cdef int fd = self.fd
        cdef int cause
        with nogil:
            cause = read_all(fd, into, length_bytes, position, &length_read)
        if cause != 0:
            raise problem_of(
                cause, f"read {length_bytes} bytes at position {position} of", self.path
            )
        if length_read < length_bytes:
            raise LogTruncatedError(
                f"expected {length_bytes} bytes at position {position} of {self.path!r}; found"
                f" {length_read}. The file was cut meanwhile: list the directory again.",
                path=self.path, position=position + length_read)
        return content

    def close(self) -> None:
        """Give the descriptor back; a second close does nothing."""
        if self.fd >= 0:
            system_calls.close(self.fd)
            self.fd = -1


cdef int read_all(
    int fd, char* into, int64_t length_bytes, int64_t position, int64_t* length_read
) noexcept nogil:
    """Read until `length_bytes` or the end of the file. Returns 0 or an errno."""
    cdef ssize_t got
    while length_read[0] < length_bytes:
        got = system_calls.pread(
            fd, into + length_read[0], length_bytes - length_read[0], position + length_read[0])
        if got < 0:
            if errno == EINTR:
                continue
            return errno
        if got == 0:
            break
        length_read[0] += got
    return 0


def read_file(path: str) -> bytes:
    """The whole file. Raises FileNotFoundError, StorageError, LogTruncatedError."""
    file = OfflineFile(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def replace_file(path: str, bytes content) -> None:
    """Put `content` at `path` as a whole: a crash leaves the old file or the new one, never a
    mixture.

    Durable on return: written to `path`.tmp and synced before the rename, for a rename may reach
    the disk before the bytes it names; then the directory is synced. Raises NoSpaceError (old file
    kept), LogFailedError if a sync fails, StorageError.
    """
    cdef int cause
    cdef iovec part
    cdef str fresh = path + ".tmp"
    cdef bytes encoded_fresh = os.fsencode(fresh)
    cdef int fd = open_path(fresh, encoded_fresh, O_WRONLY | O_CREAT | O_TRUNC)
    part.iov_base = PyBytes_AS_STRING(content)
    part.iov_len = len(content)
    cdef int64_t length_bytes = len(content)
    with nogil:
        cause = write_all(fd, &part, 1, length_bytes, 0)
    if cause == 0:
        with nogil:
            cause = sync_fd(fd)
        action = "sync"
        if cause != 0:
            cause = EIO  # a sync that fails for lack of space has lost pages as well
    else:
        action = f"write {length_bytes} bytes to"
    system_calls.close(fd)
    if cause != 0:
        system_calls.unlink(encoded_fresh)
        raise problem_of(cause, action, fresh)
    rename(fresh, path)
    fsync_dir(os.path.dirname(path) or ".")


def fsync_dir(path: str) -> None:
    """Make the names in the directory durable. Raises LogFailedError, FileNotFoundError."""
    cdef bytes encoded_path = os.fsencode(path)
    cdef const char* raw_path = encoded_path
    cdef int cause = 0
    with nogil:
        while system_calls.fsync_dir(raw_path) != 0:
            cause = errno
            if cause != EINTR:
                break
            cause = 0
    if cause == ENOENT:
        raise problem_of(cause, "sync the directory", path)
    if cause != 0:
        raise LogFailedError(
            f"expected to sync the directory {path!r}; the system answered {os.strerror(cause)}"
            f" (errno {cause}). Which names are on disk is unknown: check the disk, then open the "
            "log again.",
            path=path, errno=cause)


def rename(source: str, to: str) -> None:
    """Move a file, replacing `to`; durable after fsync_dir. Raises FileNotFoundError,
    StorageError."""
    cdef bytes encoded_source = os.fsencode(source)
    cdef bytes encoded_to = os.fsencode(to)
    while system_calls.rename(encoded_source, encoded_to) != 0:
        if errno != EINTR:
            raise problem_of(errno, f"rename to {to!r} the file", source)


def remove(path: str) -> None:
    """Unlink a file; durable after fsync_dir. Raises FileNotFoundError, StorageError."""
    cdef bytes encoded_path = os.fsencode(path)
    while system_calls.unlink(encoded_path) != 0:
        if errno != EINTR:
            raise problem_of(errno, "remove", path)


def make_dir(path: str) -> None:
    """Make a directory; durable after fsync_dir of its parent. Raises FileExistsError,
    NoSpaceError."""
    cdef bytes encoded_path = os.fsencode(path)
    while system_calls.mkdir(encoded_path, DIRECTORY_MODE) != 0:
        if errno != EINTR:
            raise problem_of(errno, "make the directory", path)


def remove_dir(path: str) -> None:
    """Remove an empty directory; durable after fsync_dir of its parent. Raises StorageError."""
    cdef bytes encoded_path = os.fsencode(path)
    while system_calls.rmdir(encoded_path) != 0:
        if errno != EINTR:
            raise problem_of(errno, "remove the directory", path)
