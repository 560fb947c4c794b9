# The only module that opens, writes, maps, syncs, resizes and unlinks files.

from libc.stdint cimport int64_t, uint8_t

cdef extern from "sys/uio.h" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "c/system_calls.h" nogil:
    ctypedef struct replog_system_calls:
        int (*open)(const char* path, int flags, int mode)
        int (*close)(int fd)
        ssize_t (*pwritev)(int fd, const iovec* parts, int part_count, int64_t position)
        ssize_t (*pread)(int fd, void* into, size_t length, int64_t position)
        void* (*mmap)(int fd, size_t length)
        int (*munmap)(void* address, size_t length)
        int (*fstat)(int fd, int64_t* size_bytes, int64_t* modified_ms)
        int (*fdatasync)(int fd)
        int (*ftruncate)(int fd, int64_t size_bytes)
        int (*mkdir)(const char* path, int mode)
        int (*rename)(const char* source, const char* to)
        int (*unlink)(const char* path)
        int (*rmdir)(const char* path)
        int (*flock)(int fd, int operation)
        int (*fsync_dir)(const char* path)
    const replog_system_calls replog_real_system_calls

# The table in use. Tests put another one here, before any file is open.
cdef const replog_system_calls* system_calls

cdef class Mapping:
    # A read-only mapping; lives as long as any view of it, whatever becomes of the file.
    cdef const uint8_t* address
    cdef int64_t length_bytes

cdef class MappedFile:
    cdef readonly str path
    cdef bytes encoded_path
    cdef int fd                        # -1 while closed; opened again on use (bounded LRU)
    cdef int busy                      # calls that use fd without the GIL; never evicted meanwhile
    cdef readonly bint writable
    cdef readonly bint failed          # an I/O error or failed sync: sticky
    cdef readonly int64_t size_bytes   # bytes that are whole; what append() has not finished is beyond
    cdef readonly int64_t modified_ms  # mtime when it was opened
    cdef Mapping mapping               # current one, None until first use; may reach past size_bytes
    cdef int64_t pin_count             # views alive
    cdef int64_t pinned_end            # largest end of any view since pin_count was last 0

    # Write parts at size_bytes, then move size_bytes. Releases the GIL. A short write goes on; ENOSPC,
    # EDQUOT or EFBIG cut the file back to size_bytes and raise NoSpaceError; anything else makes the
    # file failed (sticky) and raises LogFailedError. Not durable until flush().
    cdef int append(self, iovec* parts, int part_count, int64_t length_bytes) except -1
    # Address of byte 0, with at least `capacity` bytes mapped (capacity may pass the end of the file).
    cdef const uint8_t* map(self, int64_t capacity) except NULL
    # fdatasync; a failure is sticky and raises LogFailedError. Releases the GIL.
    cdef int flush(self) except -1
    # Cut to size_bytes. The caller has made sure that no view reaches past it (pinned_past).
    cdef int truncate(self, int64_t size_bytes) except -1
    cdef bint pinned_past(self, int64_t position) noexcept
    cdef FileView view(self, int64_t position, int64_t length_bytes)
    cdef int close(self) except -1

cdef class FileView:
    # A pinned range of a mapped file with the buffer protocol (read-only, C-contiguous bytes).
    cdef Mapping mapping
    cdef MappedFile file
    cdef readonly int64_t position
    cdef readonly int64_t length_bytes
    cdef const uint8_t* address
