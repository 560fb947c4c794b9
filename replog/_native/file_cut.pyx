# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Shortening a file that others may be reading through its mapping.

A mapped page behind a file's end kills the reader with SIGBUS. So where a view reaches past the
cut, a new file takes the old one's place, and the old one keeps its length, without a name, until
its last view is gone. A crash before the rename leaves the old file, and one under a passing name
that the next open deletes.
"""

import os

from libc.stdint cimport int64_t

from replog._native.mapped_file cimport MappedFile, Mapping, iovec

from replog._native import mapped_file


cdef MappedFile cut_file(MappedFile file, int64_t size_bytes, str suffix, bint durable):
    """Cut `file` to its first size_bytes; returns the file to go on with.

    suffix: of the passing name. durable: the new file and its name are synced, as the cut of a file
    in place is by its next flush. Raises NoSpaceError, OutOfDescriptorsError (nothing was cut),
    LogFailedError.
    """
    cdef MappedFile fresh
    cdef Mapping held
    cdef iovec part
    if not file.pinned_past(size_bytes):
        file.truncate(size_bytes)
        return file
    fresh = MappedFile(file.path + suffix, writable=True, create=True)
    try:
        fresh.truncate(0)
        if size_bytes:
            held = file.map(size_bytes)
            part.iov_base = <void*> held.address
            part.iov_len = size_bytes
            fresh.append(&part, 1, size_bytes)
        if durable:
            fresh.flush()
        fresh.rename_to(file.path)
    except BaseException:
        fresh.close()
        raise
    if durable:
        mapped_file.fsync_dir(os.path.dirname(file.path))
    file.close()
    return fresh
