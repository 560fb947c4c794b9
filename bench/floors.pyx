# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What the machine can do, as C loops: the floors that benchmarks hold the engine against.

Each function does its work with bare system calls and returns the seconds that it took, measured
inside, so that no Python call is counted. Not part of the wheel.
"""

import os

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.errno cimport errno
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, open
from posix.mman cimport MAP_SHARED, PROT_READ, mmap, munmap
from posix.stat cimport fstat, struct_stat
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close, fdatasync, fsync, ftruncate, pread, pwrite, unlink

from replog._native.crc32c cimport crc32c

cdef extern from "stdio.h" nogil:
    int rename(const char* source, const char* to)

cdef extern from "sys/mman.h" nogil:
    void* MAP_FAILED


cdef double seconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef int failed(str call) except -1:
    raise OSError(errno, f"{call} failed while a floor was measured")


def pwrite_growing(str path, const uint8_t[::1] chunk, int64_t count, bint sync=False):
    """Write `chunk` count times to a new file that grows; with `sync`, fdatasync after each.

    A file of an earlier call goes first: cutting it would make some file systems write the new one
    back at its close (ext4's auto_da_alloc), in the time of whatever is measured next. For the same
    reason the bytes are synced when the time has been taken, as a log's are when it is closed.
    """
    cdef bytes encoded = path.encode()
    cdef const char* name = encoded
    cdef int64_t length = chunk.shape[0], number, position = 0
    cdef const uint8_t* bytes = &chunk[0]
    cdef bint whole = True
    cdef double began
    cdef int fd
    unlink(name)
    fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0o644)
    if fd < 0:
        failed("open")
    with nogil:
        began = seconds()
        for number in range(count):
            if pwrite(fd, bytes, length, position) != length or (sync and fdatasync(fd)):
                whole = False
                break
            position += length
        began = seconds() - began
        if fdatasync(fd):
            whole = False
    close(fd)
    if not whole:
        failed("pwrite")
    return began


def place(bytearray batch not None, int64_t base_offset):
    """Give a batch its place in a leader's log; its leader epoch stays."""
    cdef uint8_t* bytes = <uint8_t*> PyByteArray_AS_STRING(batch)
    cdef int byte
    for byte in range(8):
        bytes[byte] = <uint8_t> (base_offset >> (56 - 8 * byte))


def copy_by_pread(str source, str path, int64_t chunk_bytes=1048576):
    """Copy a file with pread and pwrite, a chunk at a time; (seconds, bytes)."""
    cdef bytes encoded = source.encode(), encoded_to = path.encode()
    cdef const char* name = encoded
    cdef const char* name_to = encoded_to
    cdef uint8_t* chunk = <uint8_t*> malloc(chunk_bytes)
    cdef int64_t position = 0, length = 1
    cdef bint whole = chunk != NULL
    cdef double began
    cdef int fd = open(name, O_RDONLY)
    cdef int to = open(name_to, O_CREAT | O_TRUNC | O_WRONLY, 0o644)
    if fd < 0 or to < 0:
        failed("open")
    with nogil:
        began = seconds()
        while whole and length > 0:
            length = pread(fd, chunk, chunk_bytes, position)
            if length < 0 or pwrite(to, chunk, length, position) != length:
                whole = False
            position += length
        began = seconds() - began
    close(fd)
    close(to)
    free(chunk)
    if not whole:
        failed("copy")
    return began, position


def crc_of_file(str path):
    """Open, map and checksum a whole file; (seconds, crc)."""
    cdef bytes encoded = path.encode()
    cdef const char* name = encoded
    cdef struct_stat status
    cdef uint32_t crc = 0
    cdef void* at = MAP_FAILED
    cdef double began
    cdef int fd
    with nogil:
        began = seconds()
        fd = open(name, O_RDONLY)
        if fd >= 0 and fstat(fd, &status) == 0:
            at = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, fd, 0)
            if at != MAP_FAILED:
                crc = crc32c(0, <const uint8_t*> at, status.st_size)
                munmap(at, status.st_size)
            close(fd)
        began = seconds() - began
    if at == MAP_FAILED:
        failed("mmap")
    return began, crc


def crc_of_buffer(const uint8_t[::1] buffer, int64_t piece):
    """Checksum a buffer in pieces of that many bytes; (seconds, sum of the checksums)."""
    cdef int64_t at = 0, length = buffer.shape[0]
    cdef const uint8_t* bytes = &buffer[0]
    cdef uint32_t total = 0
    cdef double began
    with nogil:
        began = seconds()
        while at < length:
            total += crc32c(0, bytes + at, min(piece, length - at))
            at += piece
        began = seconds() - began
    return began, total


def open_files(list paths):
    """open + fstat + close of each path; (seconds, sum of the sizes)."""
    cdef list encoded = [os.fsencode(file) for file in paths]
    cdef struct_stat status
    cdef int64_t total = 0
    cdef double began = seconds()
    cdef int fd
    cdef const char* name

    cdef bytes path
    for path in encoded:
        name = path
        fd = open(name, O_RDONLY)
        if fd < 0 or fstat(fd, &status) or close(fd):
            failed("open")
        total += status.st_size
    return seconds() - began, total


cdef int write_small(const char* path, const char* new, const char* folder, bytes content):
    """Replace a small file whole: write, fsync, rename, fsync of the directory."""
    cdef const char* bytes = content
    cdef Py_ssize_t length = len(content)
    cdef int outcome = -1
    cdef int fd
    with nogil:
        fd = open(new, O_CREAT | O_TRUNC | O_WRONLY, 0o644)
        if fd >= 0:
            if pwrite(fd, bytes, length, 0) == length and fsync(fd) == 0:
                outcome = 0
            close(fd)
        if outcome == 0 and rename(new, path):
            outcome = -1
        if outcome == 0:
            fd = open(folder, O_RDONLY)
            outcome = fsync(fd) if fd >= 0 else -1
            close(fd)
    return outcome


def cut_and_replace(str path, int64_t length, str small, str folder, bytes content):
    """ftruncate + fdatasync of a file, then one atomic replace of a small one beside it."""
    cdef bytes encoded = path.encode()
    cdef bytes to = small.encode()
    cdef bytes new = to + b".new"
    cdef bytes parent = folder.encode()
    cdef const char* name = encoded
    cdef double began
    cdef int fd = open(name, O_RDWR)
    if fd < 0:
        failed("open")
    began = seconds()
    if ftruncate(fd, length) or fdatasync(fd):
        failed("ftruncate")
    if write_small(to, new, parent, content):
        failed("rename")
    began = seconds() - began
    close(fd)
    return began
