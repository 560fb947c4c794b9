# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What the engine asks of the file system, as one table of system calls and as whole-file verbs.

Whatever the engine does with a file goes through the table `system_calls`, which tests replace to
count, fail and record each call; this module, `file_replacement` and `mapped_file` call it.
(Readers of files that others write open them by themselves.) EINTR is retried here, whatever the
call. A name that was made, moved or removed is durable only after fsync_dir of its directory;
`file_replacement` does all of it.

Errors: FileNotFoundError and FileExistsError as Python's own; NoSpaceError for a full disk, quota
or size limit; LogFailedError for EIO and for any failed sync; StorageError for the rest.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport (
    EAGAIN, EDQUOT, EEXIST, EFBIG, EINTR, EIO, EISDIR, EMFILE, ENFILE, ENOENT, ENOSPC, ENXIO,
    errno,
)
from libc.stdint cimport int64_t, uint8_t, uint64_t

from replog.errors import (
    CorruptFileError,
    LogClosedError,
    LogDirectoryLockedError,
    LogFailedError,
    LogTruncatedError,
    NoSpaceError,
    OutOfDescriptorsError,
    StorageError,
    UsageError,
)

cdef extern from "c/file_system_calls.h" nogil:
    int replog_fork_generation
    int replog_watch_forks()
    int64_t replog_descriptor_limit()
    int replog_close_in_children(int fd)
    void replog_keep_in_children(int fd)

cdef extern from "fcntl.h" nogil:
    int O_RDONLY
    int O_RDWR
    int O_CREAT

cdef extern from "sys/file.h" nogil:
    int LOCK_EX
    int LOCK_NB
    int LOCK_UN

cdef enum:
    PARTS_MAX = 1024           # IOV_MAX of Linux
    DIRECTORY_MODE = 0o755

system_calls = &replog_real_system_calls
fork_count = &replog_fork_generation
spare_descriptor = NULL

if replog_watch_forks() != 0:
    raise MemoryError("expected to install a fork handler; the process has no memory for it")


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
        return OutOfDescriptorsError(
            f"{found} Close files or raise the limit on open ones (ulimit -n), then try again.",
            path=path, errno=cause,
        )
    if cause == EISDIR or cause == ENXIO:
        return CorruptFileError(
            f"expected a regular file at {path!r}, found a directory, pipe, socket or device; move "
            f"it away",
            path=path, errno=cause,
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
        if cause == EINTR or made_room(cause):
            continue
        raise problem_of(cause, "open", path)


cdef int64_t descriptor_limit() noexcept:
    return replog_descriptor_limit()


cdef bint made_room(int cause) noexcept:
    """Whether descriptors ran out, and one of ours was closed so that it is worth another try."""
    return (
        (cause == EMFILE or cause == ENFILE) and spare_descriptor != NULL and spare_descriptor()
    )


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


cdef class FileLock:
    """An exclusive flock on `path`, held until release() or the end of the process.

    A child of fork() does not hold it. Raises LogDirectoryLockedError if another process does.
    """

    cdef readonly str path
    cdef int fd
    cdef int fork_generation

    def __cinit__(self):
        self.fd = -1
        self.fork_generation = fork_count[0]

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

    @property
    def forked(self):
        """Whether this is a child that was forked from the process that holds the lock."""
        return self.fork_generation != fork_count[0]

    def __dealloc__(self):
        self.unlock()

    cdef void unlock(self) noexcept:
        # In a child the fork handler has closed the descriptor; the number may be another file's
        # now.
        if self.fd >= 0 and self.fork_generation == fork_count[0]:
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
        self.size()

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
        return self.state()[0]

    def state(self) -> tuple[int, int]:
        """Size in bytes and time of the last change, in ms since 1970, now."""
        cdef int64_t size_bytes = 0, modified_ms = 0
        cdef uint64_t file_number = 0
        self.refuse_closed()
        if system_calls.fstat(self.fd, &size_bytes, &modified_ms, &file_number) != 0:
            raise problem_of(errno, "read the size of", self.path)
        return size_bytes, modified_ms

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

    def read_into(self, int64_t position, unsigned char[::1] into not None) -> int:
        """Fill `into` with what the file holds from `position` on; returns how many bytes it had.

        Raises StorageError.
        """
        cdef int64_t length_read = 0
        cdef int64_t length_bytes = into.shape[0]
        cdef int fd, cause
        self.refuse_closed()
        if position < 0 or length_bytes == 0:
            raise UsageError(
                f"expected a position of at least 0 and room in {self.path!r}; found {position} "
                f"and {length_bytes} bytes.")
        fd = self.fd
        with nogil:
            cause = read_all(fd, <char*> &into[0], length_bytes, position, &length_read)
        if cause != 0:
            raise problem_of(
                cause, f"read {length_bytes} bytes at position {position} of", self.path
            )
        return length_read

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


cdef int rename_raw(const char* source, const char* to) noexcept nogil:
    """Returns 0 or an errno."""
    while system_calls.rename(source, to) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int sync_dir_raw(const char* path) noexcept nogil:
    """Returns 0 or an errno."""
    while system_calls.fsync_dir(path) != 0:
        if errno != EINTR:
            return errno
    return 0


def fsync_dir(path: str) -> None:
    """Make the names in the directory durable.

    Raises LogFailedError, FileNotFoundError, OutOfDescriptorsError.
    """
    cdef bytes encoded_path = os.fsencode(path)
    cdef const char* raw_path = encoded_path
    cdef int cause
    while True:
        with nogil:
            cause = sync_dir_raw(raw_path)
        if cause == 0:
            return
        if not made_room(cause):
            raise directory_problem(cause, path)


cdef object directory_problem(int cause, str path):
    """The exception for errno `cause` of a directory's sync."""
    # Neither says anything of a sync: the directory could not be opened.
    if cause == ENOENT or cause == EMFILE or cause == ENFILE:
        return problem_of(cause, "sync the directory", path)
    return LogFailedError(
        f"expected to sync the directory {path!r}; the system answered {os.strerror(cause)}"
        f" (errno {cause}). Which names are on disk is unknown: check the disk, then open the "
        "log again.",
        path=path, errno=cause, of_sync=True)


def rename(source: str, to: str) -> None:
    """Move a file, replacing `to`; durable after fsync_dir. Raises FileNotFoundError,
    StorageError."""
    cdef bytes encoded_source = os.fsencode(source)
    cdef bytes encoded_to = os.fsencode(to)
    cdef const char* raw_source = encoded_source
    cdef const char* raw_to = encoded_to
    cdef int cause
    with nogil:
        cause = rename_raw(raw_source, raw_to)
    if cause != 0:
        raise problem_of(cause, f"rename to {to!r} the file", source)


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


def list_dir(path: str) -> list[str]:
    """Names in a directory. Raises OutOfDescriptorsError, and OSError as os.listdir does."""
    while True:
        try:
            return os.listdir(path)
        except OSError as error:
            if error.errno != EMFILE and error.errno != ENFILE:
                raise
            if not made_room(error.errno):
                raise problem_of(error.errno, "list the directory", path) from error
