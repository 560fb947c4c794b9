# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Small files, put in place as a whole: a crash leaves the old one or the new one, never a mixture.

Each is written beside its place under a passing name and synced before the rename, for a rename may
reach the disk before the bytes it names; then its directory is synced. Of many files the same step
is taken for all before the next: what the first sync has the file system write to its journal is
there for the others. All of it is one stretch without the GIL, since each call of it may wait for
the disk.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t

from replog._native.file_system cimport (
    FILE_MODE, directory_problem, iovec, made_room, problem_of, rename_raw, sync_dir_raw, sync_fd,
    system_calls, write_all,
)

from replog.errors import LogFailedError

cdef extern from "fcntl.h" nogil:
    int O_WRONLY
    int O_CREAT
    int O_TRUNC

cdef enum Action:
    OPENING
    WRITING
    SYNCING
    RENAMING
    SYNCING_DIRECTORY

cdef struct Replacement:
    const char* fresh
    const char* path
    char* content
    int64_t length_bytes
    int fd                     # of `fresh`, while it is open

cdef struct Work:
    Replacement* files
    int file_count
    const char** directories
    int directory_count
    Action action              # what is done next, or has failed,
    int number                 # and for which file or directory


def replace_file(path: str, bytes content) -> None:
    """Put `content` at `path`; durable on return.

    Raises NoSpaceError (old file kept), LogFailedError if a sync fails, StorageError,
    OutOfDescriptorsError, FileNotFoundError where there is no such directory.
    """
    replace_files({path: content})


def replace_files(dict contents not None) -> None:
    """As replace_file for each path, in one directory or several; each is synced once.

    The error is that of the first that failed: files that were not renamed by then are as they
    were, and after a failed rename or sync of a directory it is unknown which of the others are.
    """
    cdef list paths = list(contents)
    cdef list fresh = [path + ".tmp" for path in paths]
    cdef list directories = list(dict.fromkeys([os.path.dirname(path) or "." for path in paths]))
    # These hold what the arrays point to.
    cdef list raw_paths = [os.fsencode(path) for path in paths]
    cdef list raw_fresh = [os.fsencode(path) for path in fresh]
    cdef list raw_directories = [os.fsencode(path) for path in directories]
    cdef list texts = list(contents.values())
    cdef Work work
    cdef bytes text
    cdef Py_ssize_t number
    cdef int cause
    work.file_count, work.directory_count = <int>len(paths), <int>len(directories)
    work.action, work.number = OPENING, 0
    work.files = <Replacement*>PyMem_Calloc(len(paths) + 1, sizeof(Replacement))
    work.directories = <const char**>PyMem_Calloc(len(directories) + 1, sizeof(char*))
    try:
        if work.files == NULL or work.directories == NULL:
            raise MemoryError
        for number in range(len(paths)):
            work.files[number].path = raw_paths[number]
            work.files[number].fresh = raw_fresh[number]
            text = texts[number]
            work.files[number].length_bytes = len(text)
            work.files[number].content = PyBytes_AS_STRING(text)
            work.files[number].fd = -1
        for number in range(len(directories)):
            work.directories[number] = raw_directories[number]
        while True:
            with nogil:
                cause = go_on(&work)
            if cause == 0:
                return
            if work.action != OPENING and work.action != SYNCING_DIRECTORY:
                break
            if not made_room(cause):
                break
        number = work.number
        if work.action == SYNCING_DIRECTORY:
            raise directory_problem(cause, directories[number])
        if work.action == RENAMING:
            raise problem_of(cause, f"rename to {paths[number]!r} the file", fresh[number])
        drop_fresh(&work)
        if work.action == OPENING:
            raise problem_of(cause, "open", fresh[number])
        if work.action == WRITING:
            raise problem_of(cause, f"write {len(texts[number])} bytes to", fresh[number])
        # A sync that fails for lack of space has lost pages as well.
        raise LogFailedError(
            str(problem_of(EIO, "sync", fresh[number])), path=fresh[number], errno=EIO, of_sync=True
        )
    finally:
        PyMem_Free(work.files)
        PyMem_Free(work.directories)


cdef int go_on(Work* work) noexcept nogil:
    """Go on from where the work stands. Returns 0 or an errno; the work then says whose it is."""
    cdef int cause
    cdef Replacement* file
    while work.action < SYNCING:
        while work.number < work.file_count:
            cause = write_fresh(&work.files[work.number], &work.action)
            if cause != 0:
                return cause
            work.action = OPENING
            work.number += 1
        work.action, work.number = SYNCING, 0
    while work.action == SYNCING:
        while work.number < work.file_count:
            file = &work.files[work.number]
            cause = sync_fd(file.fd)
            if cause != 0:
                return cause
            system_calls.close(file.fd)
            file.fd = -1
            work.number += 1
        work.action, work.number = RENAMING, 0
    while work.action == RENAMING:
        while work.number < work.file_count:
            cause = rename_raw(work.files[work.number].fresh, work.files[work.number].path)
            if cause != 0:
                return cause
            work.number += 1
        work.action, work.number = SYNCING_DIRECTORY, 0
    while work.number < work.directory_count:
        cause = sync_dir_raw(work.directories[work.number])
        if cause != 0:
            return cause
        work.number += 1
    return 0


cdef int write_fresh(Replacement* file, Action* action) noexcept nogil:
    """Returns 0 or an errno, and says in `action` whether it is that of the open or of the
    write."""
    cdef iovec part
    while file.fd < 0:
        file.fd = system_calls.open(file.fresh, O_WRONLY | O_CREAT | O_TRUNC, FILE_MODE)
        if file.fd < 0 and errno != EINTR:
            return errno
    action[0] = WRITING
    part.iov_base = file.content
    part.iov_len = file.length_bytes
    return write_all(file.fd, &part, 1, file.length_bytes, 0)


cdef void drop_fresh(Work* work) noexcept:
    """Take away what was written under passing names."""
    cdef int number
    for number in range(work.file_count):
        if number <= work.number or work.action == SYNCING:
            if work.files[number].fd >= 0:
                system_calls.close(work.files[number].fd)
            if number < work.number or work.action != OPENING:
                system_calls.unlink(work.files[number].fresh)
