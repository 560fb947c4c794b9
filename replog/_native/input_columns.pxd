# Columns of records as pointers, and what keeps their memory alive.

from libc.stdint cimport int64_t, uint8_t

cdef extern from "c/record_encoder.h" nogil:
    ctypedef struct replog_slice:
        const uint8_t* bytes
        int64_t length
    ctypedef struct replog_column:
        int kind
        const uint8_t* validity
        int64_t first
        const void* places
        const uint8_t* bytes
        int64_t bytes_length
        int64_t width
        const replog_slice* slices
        int64_t slice_count
    ctypedef struct replog_rows:
        int64_t count
        replog_column values
        replog_column keys
        const int64_t* timestamps
        int64_t timestamp
        const int64_t* header_ranges
        int64_t header_count
        replog_column header_keys
        replog_column header_values

cdef class Column:
    # One column of byte strings (or of int64, in `view` alone).
    cdef replog_column c
    cdef int64_t row_count
    cdef bint borrows              # points into Python objects: hold the GIL while it is read
    cdef object source
    cdef replog_slice* owned
    cdef Py_buffer view
    cdef bint has_view

    cdef int slices_of(self, int64_t count) except -1
    cdef int from_sequence(self, object source, str what) except -1
    cdef int from_arrow(self, object array, str what) except -1
    cdef void* address(self, object buffer, int64_t size, str what) except? NULL
    cdef int from_numpy(self, object array, str what) except -1

cdef class Rows:
    # The columns of an append, all of c.count rows.
    cdef replog_rows c
    cdef bint borrows              # any of the columns does
    cdef list columns
    cdef int64_t* owned_ranges

    cdef int take_values_and_keys(self, object values, object keys) except -1
    cdef int take_timestamps(self, object timestamps, int64_t now_ms) except -1
    cdef int take_headers(self, object headers) except -1
    cdef int ranges_for(self, int64_t count) except -1
    cdef tuple headers_from_sequence(self, object headers)
    cdef tuple headers_from_arrow(self, object array)
