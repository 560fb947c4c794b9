# Files of the engine: written by pwritev, read through a read-only mapping.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from replog._native.file_system cimport iovec, replog_system_calls

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
    cdef readonly int64_t size_bytes   # whole bytes; what append() has not finished is beyond
    cdef readonly int64_t modified_ms  # mtime when it was opened
    cdef Mapping mapping               # None until used and while idle; may reach past size_bytes
    cdef uint64_t file_number          # the inode, to know it again at a reopening
    cdef int64_t pin_count             # views alive
    cdef int64_t pinned_end            # largest end of any view since pin_count was last 0
    cdef int fork_generation           # of the process that opened it; another one may not use it
    cdef int open_place                # in the table of open files, -1 while closed
    cdef int mapped_place              # in the table of mapped files, -1 while it has no mapping
    cdef readonly bint closed

    # Write parts at size_bytes, then move size_bytes. Releases the GIL. A short write goes on;
    # ENOSPC, EDQUOT or EFBIG cut the file back to size_bytes and raise NoSpaceError; anything else
    # makes the file failed (sticky) and raises LogFailedError. Not durable until flush().
    cdef int append(self, iovec* parts, int part_count, int64_t length_bytes) except -1
    # From byte 0, with at least `capacity` bytes (which may pass the end of the file). Its address
    # is good as long as it is held, or until the next call that may map another file. Raises
    # OutOfMappingsError, and what reopening raises.
    cdef Mapping map(self, int64_t capacity)
    # fdatasync; a failure is sticky and raises LogFailedError. Releases the GIL.
    cpdef int flush(self) except -1
    # Cut to size_bytes. The caller has made sure that no view reaches past it (pinned_past).
    cpdef int truncate(self, int64_t size_bytes) except -1
    cpdef bint pinned_past(self, int64_t position) noexcept
    # Pin [position, position + length_bytes), which must lie below size_bytes.
    cpdef FileView view(self, int64_t position, int64_t length_bytes)
    # Move the file to another path of its file system; durable after fsync_dir.
    cpdef int rename_to(self, str path) except -1
    # Give the descriptor back, at the end of a call that still runs. Views stay valid; any other
    # use raises LogClosedError.
    cpdef int close(self) except -1
    cdef void let_go(self) noexcept
    cdef int prepare(self) except -1
    cdef int refuse(self) except -1
    cdef int open_descriptor(self, int flags) except -1
    cdef int reopen(self) except -1
    cdef Mapping new_mapping(self, int64_t length_bytes)
    cdef int fail(self, int cause, str action) except -1
    cdef int roll_back(self, int cause, int64_t length_bytes) except -1

cdef class FileView:
    # A pinned range of a mapped file with the buffer protocol (read-only, C-contiguous bytes).
    cdef Mapping mapping
    cdef MappedFile file
    cdef readonly int64_t position
    cdef readonly int64_t length_bytes
    cdef const uint8_t* address
