# The only module, with mapped_file and file_replacement, that opens, writes, maps, syncs, renames
# and unlinks files.

from libc.stdint cimport int64_t, uint64_t

cdef extern from "sys/uio.h" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "c/system_calls.h" nogil:
    ctypedef struct replog_system_calls:
        int (*open)(const char* path, int flags, int mode) noexcept nogil
        int (*close)(int fd) noexcept nogil
        ssize_t (*pwritev)(
            int fd, const iovec* parts, int part_count, int64_t position
        ) noexcept nogil
        ssize_t (*pread)(int fd, void* into, size_t length, int64_t position) noexcept nogil
        void* (*mmap)(int fd, size_t length) noexcept nogil
        int (*munmap)(void* address, size_t length) noexcept nogil
        int (*fstat)(
            int fd, int64_t* size_bytes, int64_t* modified_ms, uint64_t* file_number
        ) noexcept nogil
        int (*fdatasync)(int fd) noexcept nogil
        int (*ftruncate)(int fd, int64_t size_bytes) noexcept nogil
        int (*mkdir)(const char* path, int mode) noexcept nogil
        int (*rename)(const char* source, const char* to) noexcept nogil
        int (*unlink)(const char* path) noexcept nogil
        int (*rmdir)(const char* path) noexcept nogil
        int (*flock)(int fd, int operation) noexcept nogil
        int (*fsync_dir)(const char* path) noexcept nogil
    const replog_system_calls replog_real_system_calls

cdef enum:
    FILE_MODE = 0o644

# The table in use. Tests put another one here, before any file is open.
cdef const replog_system_calls* system_calls

# How often this process was forked from another one since the import; a file remembers it.
cdef const int* fork_count

# Closes a descriptor that can be opened again later; returns whether there was one. NULL: none.
cdef bint (*spare_descriptor)() noexcept

# How many descriptors the process may have now.
cdef int64_t descriptor_limit() noexcept

# The exception for errno `cause` of `action` on `path`.
cdef object problem_of(int cause, str action, str path)
# Open, retrying EINTR, and again after spare_descriptor when descriptors run out.
cdef int open_path(str path, bytes encoded_path, int flags) except -1
# Each returns 0 or an errno, and retries EINTR. write_all changes `parts` as it goes.
cdef int write_all(
    int fd, iovec* parts, int part_count, int64_t length_bytes, int64_t position
) noexcept nogil
cdef int sync_fd(int fd) noexcept nogil
cdef int cut_fd(int fd, int64_t size_bytes) noexcept nogil
cdef int rename_raw(const char* source, const char* to) noexcept nogil
cdef int sync_dir_raw(const char* path) noexcept nogil
# Whether descriptors ran out, and one of ours was closed so that it is worth another try.
cdef bint made_room(int cause) noexcept
# The exception for errno `cause` of a directory's sync.
cdef object directory_problem(int cause, str path)
