# The `.snapshot` files of one log, by the offsets that they are named by.

from libc.stdint cimport int64_t

cdef class SnapshotFiles:
    cdef str directory
    cdef list offsets      # ascending: every file that may be there; None until the first use

    cdef list known(self)
