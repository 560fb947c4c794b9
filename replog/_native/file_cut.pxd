# Shortening a file that others may be reading through its mapping.

from libc.stdint cimport int64_t

from replog._native.mapped_file cimport MappedFile

cdef MappedFile cut_file(MappedFile file, int64_t size_bytes, str suffix, bint durable)
